"""Reward models behind HTTP: what is asked, and what is made of replies, good and bad."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_reward_models import QWEN_CHAT, QWEN_TOKENS, Server, byte_tokenizer, item

from selverify.errors import ProtocolError
from selverify.models.prompting import disarmed
from selverify.models.verifiers.pooled import PoolingVerifier, score_of
from selverify.models.verifiers.step_token import RLHFLOW
from selverify.models.verifiers.step_token_chat import TOP_LOGPROBS, StepTokenChatVerifier
from selverify.models.verifiers.steps import Encoder
from selverify.models.verifiers.value_head import QWEN_MATH, SKYWORK, ValueHeadFormat

Body = Mapping[str, Any]
QUESTION = "How much do 4 pens cost?"
ITEMS = (
    item(QUESTION, ("So.",), ("Then 12.", "The answer is 12.")),
    item(QUESTION, ("So.",), ("Then 13.",)),
    item(QUESTION, (), ("The answer is 12.",)),
)


def encoder(format: ValueHeadFormat) -> Encoder:
    """A tokenizer of the family, a token a byte."""
    return Encoder(byte_tokenizer(QWEN_TOKENS, QWEN_CHAT), format.script)


def value(tokens: Sequence[int]) -> float:
    """A probability that follows from tokens."""
    return sum(place * token for place, token in enumerate(tokens, 1)) % 97 / 96


def row(format: ValueHeadFormat, probability: float) -> list[float] | float:
    """The values of a place as the family's server gives them."""
    if format.outputs == 1:
        return 30.0 * probability - 15.0
    return [1 - probability, probability]


def wanted(format: ValueHeadFormat, probability: float) -> float:
    """The score that these values mean."""
    if format.outputs == 1:
        return 1 / (1 + math.exp(15.0 - 30.0 * probability))
    return probability


def pooling(format: ValueHeadFormat, *, per: str) -> Server:
    """A server of the family that gives values for each token or for each of its marks."""
    mark = encoder(format).token(format.script.mark)

    def reply(body: Body) -> Any:
        tokens = body["input"]
        ends = [at for at, token in enumerate(tokens) if per == "token" or token == mark]
        values = [row(format, value(tokens[: at + 1])) for at in ends]
        return {"object": "list", "data": [{"index": 0, "object": "pooling", "data": values}]}

    return Server(reply)


def expected(format: ValueHeadFormat) -> list[list[float]]:
    """The scores of ITEMS, from their tokens."""
    lines = [encoder(format).line(asked) for asked in ITEMS]
    return [
        [wanted(format, value(line.tokens[: read + 1])) for read in line.reads[-line.new :]]
        for line in lines
    ]


@pytest.mark.parametrize(
    ("format", "per"),
    [(QWEN_MATH, "step"), (QWEN_MATH, "token"), (SKYWORK, "token")],
)
def test_values_of_a_place_become_its_score(format: ValueHeadFormat, per: str) -> None:
    """Whether the server gives them for marks only or for all tokens."""
    server = pooling(format, per=per)
    verifier = PoolingVerifier(server, model="prm", format=format, encoder=encoder(format))
    verdicts = verifier.verify((*ITEMS, ITEMS[0]))
    for verdict, scores in zip(verdicts, (*expected(format), expected(format)[0]), strict=True):
        assert verdict.step_scores == pytest.approx(scores)
        assert verdict.score == verdict.step_scores[-1]
    assert server.calls == ["/pooling"] and len(server.bodies) == 3
    assert {body["model"] for body in server.bodies} == {"prm"}
    assert verifier.verify(()) == () and len(server.calls) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({}, "given .* at data, expected another value there: Field required"),
        ({"error": "no such model"}, "no such model.* at data"),
        ({"data": []}, "at data, .* at least 1 item"),
        ({"data": [{"data": [[0.5, 0.5]]}] * 2}, "at data, .* at most 1 item"),
        ({"data": [{"data": "AAAA"}]}, r"given 'AAAA' at data\.0\.data"),
        ({"data": [{"data": [["0.5", 0.5]]}]}, r"given '0\.5' at data\.0\.data\.0"),
        ({"data": [{"data": [[True, False]]}]}, "given 'True' at"),
        ({"data": [{"data": [[0.5, 0.5]] * 3}]}, r"values of 3 places, expected 1, one a step"),
        ({"data": [{"data": [[0.2, 0.2]]}]}, r"given \[0\.2, 0\.2\] for a step, expected two prob"),
        ({"data": [{"data": [[-1.0, 2.0]]}]}, "expected two probabilities"),
        ({"data": [{"data": [[1.0]]}]}, "expected two probabilities"),
        ({"data": [{"data": [float("nan")]}]}, "given 'nan' at"),
        ([], "at the reply"),
    ],
)
def test_a_malformed_reply_is_named(reply: Any, message: str) -> None:
    """With what was given, and where."""
    verifier = PoolingVerifier(
        Server(lambda _: reply),
        model="prm",
        format=QWEN_MATH,
        encoder=encoder(QWEN_MATH),
    )
    with pytest.raises(ProtocolError, match=message):
        verifier.verify(ITEMS[2:])


@given(log_odds=st.floats(-1_600, 1_600))
def test_a_logit_of_any_size_has_a_score(log_odds: float) -> None:
    """In [0, 1], and above a half exactly where right is likelier."""
    score = score_of([log_odds], outputs=1)
    assert score is not None and 0 <= score <= 1
    if abs(log_odds) > 1e-9:
        assert (score > 0.5) is (log_odds > 0)


def top(*pairs: tuple[str, float]) -> dict[str, Any]:
    """A chat completion of one token with these alternatives."""
    listed = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in pairs]
    place = {"token": listed[0]["token"], "logprob": 0.0, "top_logprobs": listed}
    message = {"role": "assistant", "content": listed[0]["token"]}
    return {"choices": [{"index": 0, "message": message, "logprobs": {"content": [place]}}]}


def likely(body: Body) -> dict[str, Any]:
    """Right with a probability that follows from the whole conversation."""
    said = "".join(f"{one['role']}:{one['content']};" for one in body["messages"])
    probability = (sum(map(ord, said)) % 89 + 1) / 91
    return top((" +", -9.0), ("+", math.log(probability)), ("-", math.log(1 - probability)))


def test_the_next_token_says_whether_a_step_is_right() -> None:
    """One conversation a step, each step before it answered by a plus."""
    server = Server(likely)
    chat = StepTokenChatVerifier(server, model="prm", format=RLHFLOW)
    verdicts = chat.verify((*ITEMS, ITEMS[0]))
    assert [len(one.step_scores) for one in verdicts] == [2, 1, 1, 2]
    assert verdicts[0] == verdicts[3]
    assert len(server.bodies) == 4 and server.calls == ["/chat/completions"]
    body = server.bodies[1]
    assert body == {
        "model": "prm",
        "messages": [
            {"role": "user", "content": f"{QUESTION} So."},
            {"role": "assistant", "content": "+"},
            {"role": "user", "content": "Then 12."},
            {"role": "assistant", "content": "+"},
            {"role": "user", "content": "The answer is 12."},
        ],
        "max_tokens": 1,
        "temperature": 1.0,
        "logprobs": True,
        "top_logprobs": TOP_LOGPROBS,
    }
    said = "".join(f"{one['role']}:{one['content']};" for one in body["messages"])
    assert verdicts[0].score == pytest.approx((sum(map(ord, said)) % 89 + 1) / 91)


@pytest.mark.parametrize(
    ("alternatives", "score"),
    [
        ([("+", -1.0), ("-", -1.0)], 0.5),
        ([("+", -0.1), ("a", -3.1)], 1 / (1 + math.exp(-3.0))),
        ([("+", math.log(0.9))], 0.9),
        ([("+", math.log(0.2))], 0.5),
        ([("+", math.log(0.5)), ("a", math.log(0.4))], 0.5 / 0.6),
        ([("+", 0.0)], 1.0),
        ([("-", -0.1), ("a", -3.0)], 0.0),
        ([("+", -0.5), ("-", -0.5), ("+", -9.0)], 0.5),
        ([("+", -9_999.0), ("-", 0.0)], 0.0),
    ],
)
def test_a_token_that_is_not_listed_counts_against_the_step(
    alternatives: list[tuple[str, float]], score: float
) -> None:
    """A right one is impossible, a wrong one at most as probable as the last and all the others."""
    server = Server(lambda _: top(*alternatives))
    chat = StepTokenChatVerifier(server, model="prm", format=RLHFLOW)
    assert chat.verify(ITEMS[2:])[0].step_scores == pytest.approx((score,))


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"choices": []}, r"given .*choices.* at choices\.0\.logprobs\.content\.0\.top_logprobs"),
        ({"choices": [{"logprobs": None}]}, "given .*logprobs': None.* at choices"),
        ({"choices": [{"logprobs": {"content": [{"top_logprobs": []}]}}]}, "at least 1 item"),
        (top(("yes", -0.1), ("no", -2.0)), r"the tokens \['no', 'yes'\], expected '\+' or '-'"),
        (top(("+", float("-inf")), ("-", 0.0)), r"top_logprobs\.0\.logprob, .* finite number"),
    ],
)
def test_a_completion_without_its_logprobs_is_named(reply: Any, message: str) -> None:
    """With what was given, and where."""
    chat = StepTokenChatVerifier(Server(lambda _: reply), model="prm", format=RLHFLOW)
    with pytest.raises(ProtocolError, match=message):
        chat.verify(ITEMS[2:])


def test_identities_tell_what_replies_depend_on() -> None:
    """The model, the layout and the tokenizer."""
    server = Server(likely)
    swapped = replace(RLHFLOW, good="-", bad="+")
    chats = [
        StepTokenChatVerifier(server, model=model, format=format)
        for model, format in (("a", RLHFLOW), ("b", RLHFLOW), ("a", swapped))
    ]
    other = Encoder(byte_tokenizer((*QWEN_TOKENS, "<x>"), QWEN_CHAT), QWEN_MATH.script)
    pooled = [
        PoolingVerifier(server, model=model, format=format, encoder=encoded)
        for model, format, encoded in (
            ("a", QWEN_MATH, encoder(QWEN_MATH)),
            ("b", QWEN_MATH, encoder(QWEN_MATH)),
            ("a", SKYWORK, encoder(SKYWORK)),
            ("a", QWEN_MATH, other),
        )
    ]
    identities = [one.identity() for one in (*chats, *pooled)]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("<|eot_id|>", "< |eot_id|>"),
        ("a<extra_0></s>", "a< extra_0>< /s>"),
        ("[INST] x [/INST]", "[ INST] x [ /INST]"),
        ("<\uff5cUser\uff5c>", "< \uff5cUser\uff5c>"),
        ("if a < b and b<c then [1, 2] and x<2>1", "if a < b and b<c then [1, 2] and x< 2>1"),
        ("<|x|> </x> [INST]", "< |x|> < /x> [ INST]"),
        ("<fim-prefix> [IMG] [gMASK] [/gMASK]", "< fim-prefix> [ IMG] [ gMASK] [ /gMASK]"),
        ("a < b-c > d, [ABC] = 3 [x]", "a < b-c > d, [ABC] = 3 [x]"),
    ],
)
def test_control_tokens_in_text_for_a_server_are_broken_up(text: str, sent: str) -> None:
    """A server takes them for its own, and does not tell which; ordinary mathematics,
    inequalities and areas stay as they are."""
    assert disarmed(text) == sent
    server = Server(likely)
    chat = StepTokenChatVerifier(server, model="prm", format=RLHFLOW)
    chat.verify([item(QUESTION, (text,), ("x",))])
    assert server.bodies[0]["messages"][0]["content"] == f"{QUESTION} {sent}"
