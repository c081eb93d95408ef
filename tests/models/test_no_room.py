"""A verifier that cannot hold a step, in its context or in memory, does not end the run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_reward_models import (
    POSITIONS,
    QWEN_CHAT,
    QWEN_TOKENS,
    Server,
    byte_tokenizer,
    item,
    save_llama,
)

from selverify.errors import ParamsError, Refusal
from selverify.models.verifiers.judge import Judge, load_rubric
from selverify.models.verifiers.pooled import PoolingVerifier
from selverify.models.verifiers.prefix_reader import HiddenStateVerifier
from selverify.models.verifiers.published import load_published
from selverify.models.verifiers.step_token import RLHFLOW
from selverify.models.verifiers.step_token_chat import StepTokenChatVerifier
from selverify.models.verifiers.steps import Encoder
from selverify.models.verifiers.value_head import QWEN_MATH
from selverify.params import PretrainedVerifier
from selverify.search.backend import Verifier

QUESTION = "Is it?"
LONG = "word " * 100
TOO_LONG = Refusal("This model's maximum context length is 99 tokens", status=400)
OTHER = Refusal("no such model", status=400)
ITEMS = (
    item(QUESTION, ("So.",), ("Yes.", LONG, "No.")),
    item(QUESTION, (), (LONG,)),
    item(QUESTION, (), ("Yes.",)),
)
HELD = [(True, False, False), (False,), (True,)]
"""Of which steps there is room."""


def opinion(body: Mapping[str, Any]) -> Any:
    """A judge's reply."""
    said = json.dumps({"reason": "so", "verdict": "right", "confidence": 90})
    return {"choices": [{"message": {"content": said}}]}


def completion(body: Mapping[str, Any]) -> Any:
    """The tokens for right and wrong, equally likely."""
    listed = [{"token": token, "logprob": -1.0} for token in "+-"]
    return {"choices": [{"logprobs": {"content": [{"top_logprobs": listed}]}}]}


def pooling(body: Mapping[str, Any]) -> Any:
    """Two probabilities a token."""
    return {"data": [{"data": [[0.3, 0.7]] * len(body["input"])}]}


def judge(server: Server) -> Verifier:
    return Judge(server, model="m", rubric=load_rubric(), max_tokens=9, schema=False)


def chat(server: Server) -> Verifier:
    return StepTokenChatVerifier(server, model="m", format=RLHFLOW)


def pooled(server: Server) -> Verifier:
    encoder = Encoder(byte_tokenizer(QWEN_TOKENS, QWEN_CHAT), QWEN_MATH.script)
    return PoolingVerifier(server, model="m", format=QWEN_MATH, encoder=encoder)


SERVED = pytest.mark.parametrize(
    ("make", "reply", "score"),
    [(judge, opinion, 0.95), (chat, completion, 0.5), (pooled, pooling, 0.7)],
)
Reply = Callable[[Mapping[str, Any]], Any]


def is_long(body: Mapping[str, Any]) -> bool:
    """Whether the long step is in it."""
    return len(body.get("input", ())) > 400 or "word word" in str(body.get("messages"))


@SERVED
def test_a_step_that_a_server_cannot_hold_scores_zero(
    make: Callable[[Server], Verifier],
    reply: Reply,
    score: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others have their scores; it is said once, with the server's words."""
    server = Server(lambda body: TOO_LONG if is_long(body) else reply(body))
    verifier = make(server)
    for _ in range(2):
        scores = [verdict.step_scores for verdict in verifier.verify(ITEMS)]
        for found, held in zip(scores, HELD, strict=True):
            assert found == pytest.approx([score * one for one in held])
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "such a step scores 0.0: This model's maximum" in record.getMessage()


@SERVED
def test_another_refusal_ends_the_run(
    make: Callable[[Server], Verifier], reply: Reply, score: float
) -> None:
    """Whatever else was replied."""
    server = Server(lambda body: OTHER if is_long(body) else reply(body))
    with pytest.raises(Refusal, match="no such model"):
        make(server).verify(ITEMS)


def test_a_refused_step_is_not_judged_again() -> None:
    """Only a reply that cannot be read is."""
    server = Server(lambda body: TOO_LONG if is_long(body) else opinion(body))
    judge(server).verify(ITEMS[1:])
    assert len(server.bodies) == 2


@SERVED
def test_a_server_that_has_room_for_nothing_ends_the_run(
    make: Callable[[Server], Verifier], reply: Reply, score: float
) -> None:
    """A ``max_tokens`` beyond its context, say: a run whose every step scores 0 shows nothing."""
    with pytest.raises(Refusal, match="maximum context length"):
        make(Server(lambda body: TOO_LONG)).verify(ITEMS[2:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published model with few positions."""
    folder = tmp_path_factory.mktemp("published")
    save_llama(folder)
    return folder


def published(folder: Path, **given: int) -> HiddenStateVerifier:
    """The model in the folder."""
    told: dict[str, Any] = {"batch_tokens": 2_000, "kept_tokens": 0, **given}
    source = PretrainedVerifier(
        kind="step_token",
        format="rlhflow",
        model=str(folder),
        revision=None,
        dtype="float32",
        **told,
    )
    return load_published(source, RLHFLOW, device="cpu")


@pytest.mark.parametrize("kept_tokens", [0, 5_000])
def test_a_step_behind_the_last_position_scores_zero(
    folder: Path, kept_tokens: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Those before it have the scores that they have alone."""
    verifier = published(folder, kept_tokens=kept_tokens)
    (alone,) = published(folder).verify([replace(ITEMS[0], steps=ITEMS[0].steps[:1])])
    (yes,) = published(folder).verify(ITEMS[2:])
    for _ in range(2):
        first, second, third = (verdict.step_scores for verdict in verifier.verify(ITEMS))
        assert first == pytest.approx((*alone.step_scores, 0.0, 0.0), abs=1e-5)
        assert second == (0.0,)
        assert third == pytest.approx(yes.step_scores, abs=1e-5)
    (record,) = caplog.records
    assert f"at most {POSITIONS}, the model's positions; a step" in record.getMessage()


def test_the_last_position_can_be_scored(folder: Path) -> None:
    """And the one behind it cannot."""
    line = published(folder)._encoder.line(item(QUESTION, (), ("x",)))
    room = POSITIONS - len(line.tokens)
    for more, held in ((room, True), (room + 1, False)):
        (verdict,) = published(folder).verify([item(QUESTION, (), ("x" * (1 + more),))])
        assert (verdict.score > 0.0) is held


def with_memory_for(verifier: HiddenStateVerifier, tokens: int) -> HiddenStateVerifier:
    """Its backbone finds no memory for more tokens, with those that are kept."""
    usual = verifier._backbone.forward

    def forward(**told: Any) -> Any:
        kept = verifier._kept.size
        if told["attention_mask"].numel() + kept > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return usual(**told)

    verifier._backbone.forward = forward
    return verifier


def scores(verifier: HiddenStateVerifier, items: Sequence[Any]) -> list[float]:
    return [verdict.score for verdict in verifier.verify(items)]


@pytest.mark.parametrize("kept_tokens", [0, 100_000])
def test_a_batch_that_finds_no_memory_is_halved(
    folder: Path, kept_tokens: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Of many states or of one; the scores are the same, and what fits is remembered."""
    states = [item(f"Is it {number}?", (), ("Yes.",)) for number in range(16)]
    moves = [item(QUESTION, ("So.",), (f"It is {number}.",)) for number in range(16)]
    expected = scores(published(folder), [*states, *moves])
    verifier = published(folder, batch_tokens=32_768, kept_tokens=kept_tokens)
    with_memory_for(verifier, 700)
    assert scores(verifier, states) + scores(verifier, moves) == pytest.approx(expected, abs=1e-5)
    said = [record.getMessage() for record in caplog.records]
    assert said and all(one.startswith("verifier: no memory for ") for one in said)
    assert verifier._batch_tokens <= 700 and verifier._kept.capacity <= min(700, kept_tokens)
    caplog.clear()
    scores(verifier, [item(f"Is it {number}!", (), ("Yes.",)) for number in range(16)])
    assert not caplog.records


def test_a_line_alone_must_find_memory(folder: Path) -> None:
    """Also where nothing is kept beside it; another error passes."""
    verifier = with_memory_for(published(folder, kept_tokens=1_000), 20)
    message = r"verifier\.source: given a question with steps of \d+ tokens, expected memory"
    with pytest.raises(ParamsError, match=message):
        verifier.verify([item(f"Is it {number}?", (), ("Yes.",)) for number in range(4)])
    verifier = published(folder)

    def broken(**told: Any) -> Any:
        raise RuntimeError("device-side assert triggered")

    verifier._backbone.forward = broken
    with pytest.raises(RuntimeError, match="device-side"):
        verifier.verify(ITEMS)
