"""What a folder names becomes what answers: trained here, of the hub, served, or a tool."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_reward_models
import torch
from stand_in import NOWHERE
from tiny_text_models import build
from transformers import AutoTokenizer, LlamaForCausalLM

from selverify.domains.math_steps import MathSteps
from selverify.domains.math_structured import MathStructured
from selverify.errors import ArtifactError, ParamsError, ProtocolError, SchemaError
from selverify.models.assembly import open_models
from selverify.models.sources import (
    read_generator_source,
    read_verifier_source,
    write_source,
)
from selverify.models.verifiers.opening import Surroundings, open_verifier
from selverify.params import (
    PretrainedParams,
    Sampling,
    Served,
    ServedEmbedder,
    ServedJudge,
    Tool,
    VerifierSource,
    verifier_source,
)
from selverify.search.backend import Verifier
from selverify.search.compute import Sizes
from selverify.search.requests import Propose, ProposeItem, Rank, RankItem, Verify, VerifyItem
from selverify.types import Move, Verdict

ROOT = Path(__file__).parents[2]
SAMPLING = Sampling(
    temperature=1.0, max_move_tokens=8, max_solution_tokens=20, max_moves=4, batch_rows=8
)
SERVER: dict[str, Any] = {**NOWHERE, "model": "somebody/something", "concurrency": 2}
PRETRAINED: dict[str, Any] = {
    "model": "a/b",
    "dtype": "float32",
    "batch_tokens": 1000,
    "kept_tokens": 0,
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("llama"), "llama", positions=2048)


def hub(model: Path, **changes: Any) -> PretrainedParams:
    settings: dict[str, Any] = {
        "revision": None,
        "dtype": "float32",
        "prompt": "math_steps",
        "kept_tokens": 9000,
        "exact_values": False,
        "alphabet": None,
        "tuning": None,
    }
    return PretrainedParams(kind="transformers", model=str(model), **{**settings, **changes})


def served(**changes: Any) -> Served:
    settings = {"api": "chat", "structured": False, "embeddings": None, "prompt": "math_steps"}
    return Served(kind="server", **SERVER, **{**settings, **changes})


def opened(folder: Path, domain: str = "math", **parts: Path) -> Any:
    return open_models(domain, SAMPLING, seed=1, device="cpu", generator=folder, **parts)


def math_item(*texts: str) -> VerifyItem:
    domain = MathSteps()
    start = domain.initial_state(domain.read("What is 2 + 3?", problem_id="p"), budget=1)
    moves = [domain.parse(text) for text in texts]
    return VerifyItem(start, tuple(move for move in moves if isinstance(move, Move)))


def test_a_model_of_the_hub_proposes_and_ranks_under_its_few_shot_prompt(
    llama: Path, tmp_path: Path
) -> None:
    write_source(tmp_path, hub(llama))
    models = opened(tmp_path)
    item = math_item("2 + 3 = 5")
    ((sample,),) = models.backend.answer(Propose((ProposeItem(item.state, 0, 1),)))
    assert 0 < sample.tokens <= SAMPLING.max_move_tokens
    ((score,),) = models.backend.answer(Rank((RankItem(item.state, item.steps, "likelihood"),)))
    assert score > 0
    assert models.policy is None
    model = LlamaForCausalLM.from_pretrained(llama)
    assert models.backend.sizes() == Sizes(model.num_parameters(), 0, 0)
    with pytest.raises(ProtocolError, match="given a Verify, expected a request"):
        models.backend.answer(Verify((item,)))


def test_another_prompt_is_another_generator(llama: Path, tmp_path: Path) -> None:
    write_source(tmp_path / "one", hub(llama))
    write_source(tmp_path / "two", hub(llama, prompt=None))
    one, two = opened(tmp_path / "one"), opened(tmp_path / "two")
    assert one.backbone != two.backbone
    assert one.backend.identity("propose") != two.backend.identity("propose")


def test_examples_as_plain_text_are_another_generator(llama: Path, tmp_path: Path) -> None:
    """There samples end before the next question; a chat, and a prompt of the problem alone, have
    the identity that replies were kept under before that was so."""
    tokenizer = AutoTokenizer.from_pretrained(llama)
    tokenizer.chat_template = None
    base = shutil.copytree(llama, tmp_path / "base")
    (base / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(base)
    found = {}
    for prompt in ("math_steps", None):
        for name, source in {
            "chat": served(prompt=prompt),
            "text": served(prompt=prompt, api="completions"),
            "tuned": hub(llama, prompt=prompt),
            "base": hub(base, prompt=prompt),
        }.items():
            write_source(tmp_path / "source", source)
            found[name, prompt] = opened(tmp_path / "source").backend.identity("propose")
    marked = {one for one, identity in found.items() if "next question" in identity}
    assert marked == {("text", "math_steps"), ("base", "math_steps")}


def test_a_server_without_embeddings_ranks_nothing(tmp_path: Path) -> None:
    write_source(tmp_path, served())
    models = opened(tmp_path)
    with pytest.raises(ParamsError, match=r"generator\.math: given a server without embeddings"):
        models.embedding()
    assert models.backend.sizes() == Sizes(None, 0, 0)


def test_a_server_with_embeddings_can_be_ranked_by_them(tmp_path: Path) -> None:
    embeddings = ServedEmbedder(**{**SERVER, "model": "embedder"}, dimension=4, batch=8)
    write_source(tmp_path, served(embeddings=embeddings, structured=True))
    models = opened(tmp_path, domain="math_structured")
    assert isinstance(models.domain, MathStructured)
    assert models.embedding() is not None
    assert "embedder" in models.backbone


@pytest.mark.parametrize("source", [served(), hub(Path("some/folder")), Tool(kind="tool")])
def test_a_source_is_read_as_it_was_written(
    tmp_path: Path, source: Served | PretrainedParams | Tool
) -> None:
    write_source(tmp_path, source)
    read = read_verifier_source if isinstance(source, Tool) else read_generator_source
    assert read(tmp_path) == source


def test_a_source_that_is_none_is_refused(tmp_path: Path) -> None:
    text = '{"schema": "generator.source", "version": 1, "data": {"kind": "magic"}}'
    (tmp_path / "source.json").write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=r"source\.json"):
        read_generator_source(tmp_path)
    with pytest.raises(ArtifactError, match=r"source\.json"):
        read_verifier_source(tmp_path / "nowhere")


def test_a_tool_verifies_what_a_trained_backbone_proposes(tmp_path: Path) -> None:
    """Countdown, with the backbone that is shipped: reachable or not is exactly known."""
    write_source(tmp_path, Tool(kind="tool"))
    sampling = SAMPLING.model_copy(update={"max_move_tokens": 14, "max_moves": 4})
    models = open_models(
        "countdown",
        sampling,
        seed=1,
        device="cpu",
        generator=ROOT / "models/countdown-small",
        verifier=tmp_path,
    )
    domain = models.domain
    problem = domain.read("use 1 2 3 4 to make 24 .", problem_id="c")
    state = domain.initial_state(problem, budget=1)
    moves = ("2 * 3 = 6 left 1 4 6 ;", "4 - 3 = 1 left 1 1 2 ;")
    items = tuple(VerifyItem(state, (parsed(domain.parse(text)),)) for text in moves)
    verdicts = models.backend.answer(Verify(items))
    assert [verdict.score for verdict in verdicts] == [1.0, 0.0]
    ((sample,),) = models.backend.answer(Propose((ProposeItem(state, 0, 1),)))
    assert sample.tokens > 0
    assert models.backend.identity("verify").startswith("tool: ")
    model = LlamaForCausalLM.from_pretrained(ROOT / "models/countdown-small")
    assert models.backend.sizes() == Sizes(model.num_parameters(), 0, 0)
    assert models.backend.tokens("2 * 3 = 6 left 1 4 6 ;") == 10


def parsed(candidate: object) -> Move:
    if not isinstance(candidate, Move):
        pytest.fail(f"{candidate} is no move")
    return candidate


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """As many CUDA devices as the test says, of which none is ever used."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)


@pytest.mark.parametrize(
    ("cards", "device", "expected"),
    [
        (0, "cuda", "cpu"),
        (0, "cuda:0", "cpu"),
        (1, "cuda:1", "cpu, cuda, cuda:0"),
        *((2, one, "cpu, cuda, cuda:0, cuda:1") for one in ("cuda:9", "tpu", "", "cuda:-1")),
        *((2, one, "cpu, cuda, cuda:0, cuda:1") for one in ("cpu:0", "cuda:\u0661")),
    ],
    indirect=["cards"],
)
@pytest.mark.usefixtures("cards")
def test_a_device_that_is_not_there_is_refused(llama: Path, device: str, expected: str) -> None:
    """In one sentence, for any models and before any is read."""
    for folder in (ROOT / "models/countdown-small", llama, Path("nowhere")):
        with pytest.raises(ParamsError) as caught:
            open_models("countdown", SAMPLING, seed=1, device=device, generator=folder)
        assert f"device: given {device!r}, expected one of {expected}; the n" in str(caught.value)


@pytest.mark.parametrize("cards", [1], indirect=True)
@pytest.mark.usefixtures("cards")
def test_a_device_that_no_model_uses_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Models that were trained here stay on the CPU; a server's run elsewhere."""
    write_source(tmp_path, served())
    for domain, folder in (("countdown", ROOT / "models/countdown-small"), ("math", tmp_path)):
        caplog.clear()
        open_models(domain, SAMPLING, seed=1, device="cuda", generator=folder)
        assert "device cuda is not used: models that were trained here stay" in caplog.text
        caplog.clear()
        open_models(domain, SAMPLING, seed=1, device="cpu", generator=folder)
        assert caplog.text == ""


SURE = '{"reason": "It adds up.", "verdict": "right", "confidence": 80}'


def verifier_in(folder: Path) -> Verifier:
    """Behind a server that says of each step that it is right."""
    stand_in = tiny_reward_models.Server(lambda body: {"choices": [{"message": {"content": SURE}}]})
    return open_verifier(folder, Surroundings(MathSteps(), "cpu", lambda server: stand_in))


def settings(kind: str, **changes: Any) -> VerifierSource:
    """What parameters could say of a published model, here or behind a server."""
    here = kind in ("step_token", "value_head")
    given = PRETRAINED if here else {**SERVER, "tokenizer": None}
    return verifier_source({"kind": kind, "revision": None, **given, **changes})


def test_a_judge_is_asked_by_the_rubric(tmp_path: Path) -> None:
    write_source(
        tmp_path, ServedJudge(kind="judge", **SERVER, max_tokens=200, schema_constrained=True)
    )
    (verdict,) = verifier_in(tmp_path).verify((math_item("2 + 3 = 5", "So 5."),))
    assert verdict == Verdict(0.9, (0.9, 0.9))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (settings("step_token", format="shepherd"), "'shepherd', expected one of math_shepherd, r"),
        (settings("value_head", format="x"), "the format 'x', expected one of skywork, qwen_math"),
        (settings("pooled", format="qwen_math"), "given no tokenizer, expected the model's own"),
        (settings("step_token_chat", format="math_shepherd"), "expected one of rlhflow"),
        (Tool(kind="tool"), "given a tool for the domain 'math'"),
    ],
)
def test_unknown_formats_and_missing_tools_are_refused(
    tmp_path: Path, source: VerifierSource, message: str
) -> None:
    write_source(tmp_path, source)
    with pytest.raises(ParamsError, match=message):
        verifier_in(tmp_path)


@pytest.mark.parametrize(
    ("kind", "format"),
    [
        ("step_token", "rlhflow"),
        ("value_head", "qwen_math"),
        ("pooled", "qwen_math"),
        ("step_token_chat", "rlhflow"),
    ],
)
def test_published_reward_models_are_opened_by_their_format(
    tmp_path: Path, kind: str, format: str
) -> None:
    """In this process they are loaded; of one behind a server at most the tokenizer is."""
    folder, here = tmp_path / "prm", kind in ("step_token", "value_head")
    if format == "rlhflow":
        tiny_reward_models.save_llama(folder)
    else:
        layers = {"score.0": torch.nn.Linear(32, 32), "score.2": torch.nn.Linear(32, 2)}
        tiny_reward_models.save_qwen(folder, layers, architecture="Qwen2ForProcessRewardModel")
    place = {"model" if here else "tokenizer": str(folder)}
    write_source(tmp_path / "verifier", settings(kind, format=format, **place))
    verifier = verifier_in(tmp_path / "verifier")
    assert format in verifier.identity()
    if here:
        (verdict,) = verifier.verify((math_item("2 + 3 = 5", "So 5."),))
        assert len(verdict.step_scores) == 2
        assert all(0 < score < 1 for score in verdict.step_scores)
