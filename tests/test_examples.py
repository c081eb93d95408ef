"""The examples of the documentation run, against the packages that they are for."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import stand_in
from proxy import Proxy
from test_serving import served
from test_solving import ANSWERS, QUESTIONS

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


@pytest.mark.parametrize(
    ("package", "example", "install"),
    [
        ("its_hub", "its_hub_prm", "its_hub==1.2.0"),
        (
            "sal",
            "search_and_learn_prm",
            "git+https://github.com/huggingface/search-and-learn",
        ),
    ],
)
def test_another_projects_beam_search_finds_as_much_for_fewer_calls(
    package: str,
    example: str,
    install: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its own beam search, with and without the ranker before its reward model."""
    pytest.importorskip(package, reason=f"{package} is not installed (pip install {install})")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import_module(example).main()
    sys.modules.pop(example)
    (before, calls_before), (after, calls_after) = (
        map(int, pair)
        for pair in re.findall(r"(\d+) of 20 right, (\d+) calls", capsys.readouterr().out)
    )
    assert after >= before >= 15
    assert calls_after < 0.5 * calls_before


def test_a_search_with_functions_compares_methods(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verifier knows what a vote does not."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import_module("solve").main()
    sys.modules.pop("solve")
    told = re.findall(r"(\w+): (\d+) of 20 right, (\d+) verifier calls", capsys.readouterr().out)
    found = {name: (int(right), int(calls)) for name, right, calls in told}
    assert found["majority"][1] == 0 < found["gates_only"][1]
    assert found["gates_only"][0] >= 19 > found["majority"][0]


def test_a_client_of_the_proxy_gets_answer_and_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    with served() as url:
        import_module("proxy_client").main([QUESTIONS[0], "--url", url])
    sys.modules.pop("proxy_client")
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(rf"Answer: {ANSWERS[0]}; \d+ verifier calls", last)


def test_a_plain_loop_learns_from_its_own_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over a server, which errs in a quarter of the steps."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import own_loop

    with Proxy(stand_in.answer) as server:
        own_loop.main(["--url", server.url, "--model", "stand-in", "--questions", "60"])
    sys.modules.pop("own_loop")
    said = re.findall(r"(\d+) of (\d+) right, ([\d.]+) calls", capsys.readouterr().out)
    (before, count, calls_before), (after, others, calls_after) = (map(float, one) for one in said)
    assert after / others >= 0.8 * before / count > 0.5
    assert calls_after < 0.75 * calls_before


def test_the_notebook_goes_from_a_log_to_saved_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cell by cell, as it stands; it prints the words that it shows, and nearly the numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = json.loads((EXAMPLES / "log_to_savings.ipynb").read_text(encoding="utf-8"))
    space: dict[str, object] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "cell", "exec"), space)
    said = capsys.readouterr().out
    shown = "".join(
        "".join(output["text"])
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream"
    )
    words = [re.sub(r"[\d.]+", "#", text) for text in (said, shown)]
    assert words[0] == words[1], "run the notebook again"
    last = [re.findall(r"\d+", text.splitlines()[-1]) for text in (said, shown)]
    printed, stated = (list(map(int, numbers)) for numbers in last)
    assert printed == pytest.approx(stated, rel=0.05)
    calls, every, found, hold = printed
    assert calls < 0.5 * every and found > 0.95 * hold
    assert (tmp_path / "savings.png").stat().st_size > 10_000
