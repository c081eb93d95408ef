"""The examples of the documentation run, against the packages that they are for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import stand_in
from proxy import Proxy

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def test_its_hub_finds_as_much_for_fewer_calls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own beam search, with and without the ranker before its reward model."""
    pytest.importorskip("its_hub", reason="its_hub is not installed (pip install its_hub==1.2.0)")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import its_hub_prm

    its_hub_prm.main()
    sys.modules.pop("its_hub_prm")
    (before, calls_before), (after, calls_after) = (
        map(int, pair)
        for pair in re.findall(r"(\d+) of 20 right, (\d+) calls", capsys.readouterr().out)
    )
    assert after >= before >= 15
    assert calls_after < 0.5 * calls_before


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
