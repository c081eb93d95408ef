"""Published reward models behind HTTP: pooled values of a server, or log probabilities of a token.

Knows: bodies and replies of the two, and that a server may reply anything. Does not know:
connections, retries, keys, models in process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from selverify.errors import ParamsError, ProtocolError
from selverify.models.prompting import disarmed
from selverify.models.verifiers.loading import content_id
from selverify.models.verifiers.step_token import StepTokenFormat
from selverify.models.verifiers.steps import Encoder, Line, Script, texts
from selverify.models.verifiers.value_head import QWEN_MATH, SKYWORK
from selverify.search.requests import VerifyItem
from selverify.types import Verdict

POOLING = "/pooling"
"""Of vLLM, which has it beside the versions: the server's url is then the one without /v1."""
CHAT = "/chat/completions"
QUOTED = 80
"""Characters of a reply in an error."""
ROUNDING = 0.01
"""By how much two probabilities in half precision may miss 1 together."""

Reply = TypeVar("Reply", bound=BaseModel)
Body = dict[str, object]


Fault = Callable[[Mapping[str, Any]], str | None]
"""What is wrong with a reply, or None."""


class Asks(Protocol):
    """What talks to a server: many bodies in, as many replies out, in their order."""

    def ask(
        self, path: str, bodies: Sequence[Mapping[str, object]], *, fault: Fault
    ) -> list[dict[str, Any]]:
        """The JSON object that the server replies to each body at ``path``.

        ``fault`` says what is wrong with one; such a reply is asked for again.
        """
        ...


def ask(
    asks: Asks, path: str, bodies: Sequence[Body], *, kind: type[BaseModel]
) -> list[dict[str, Any]]:
    """The reply to each body, in the shape of ``kind``; nothing is asked for none.

    Raises:
        ProtocolError: there are more or fewer replies than bodies.
    """
    replies = asks.ask(path, bodies, fault=partial(_misshapen, kind)) if bodies else []
    if len(replies) != len(bodies):
        raise ProtocolError(f"{path}: given {len(replies)} replies to {len(bodies)} bodies")
    return replies


def _misshapen(kind: type[BaseModel], reply: Mapping[str, Any]) -> str | None:
    try:
        parsed(kind, reply, "a reply")
    except ProtocolError as error:
        return str(error)
    return None


def parsed(kind: type[Reply], reply: object, where: str) -> Reply:
    """A reply of the given shape.

    Raises:
        ProtocolError: it has another; the message names the first place that is wrong.
    """
    try:
        return kind.model_validate(reply)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the reply"
        raise ProtocolError(
            f"{where}: given {str(first['input'])[:QUOTED]!r} at {place}, expected another value "
            f"there: {first['msg']}"
        ) from error


@dataclass(frozen=True, slots=True)
class PooledFormat:
    """A served family: its layout, and what the values of a place are.

    A place has 1 or 2 ``outputs``, of which number ``positive`` is the one for right. They are
    probabilities, or logits where the server applies no activation.
    """

    name: str
    script: Script
    outputs: int
    positive: int
    values: Literal["probabilities", "logits"]

    def score(self, row: Sequence[float]) -> float | None:
        """The score in [0, 1] from the values of a place; None if they are not such values."""
        if len(row) != self.outputs:
            return None
        if self.values == "logits":
            other = row[1 - self.positive] if self.outputs == 2 else 0.0
            return _sigmoid(row[self.positive] - other)
        total_is_one = self.outputs == 1 or abs(sum(row) - 1) < ROUNDING
        return row[self.positive] if total_is_one and all(0 <= one <= 1 for one in row) else None


QWEN_MATH_POOLED = PooledFormat("qwen_math", QWEN_MATH.script, 2, 1, "probabilities")
"""vLLM gives two probabilities for each ``<extra_0>``, or for each token."""
SKYWORK_POOLED = PooledFormat("skywork", SKYWORK.script, 1, 0, "logits")
"""Skywork's plugin of vLLM gives a logit for each token."""

POOLED_FORMATS: Mapping[str, PooledFormat] = MappingProxyType(
    {one.name: one for one in (QWEN_MATH_POOLED, SKYWORK_POOLED)}
)


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _Values(_Strict):
    data: list[list[FiniteFloat] | FiniteFloat]


class _Pooling(_Strict):
    data: list[_Values] = Field(min_length=1, max_length=1)


class PoolingVerifier:
    """A reward model behind vLLM's pooling endpoint.

    It is sent tokens, not text: the server would take a mark in a step's text for a mark. The reply
    has values for each mark or for each token; which places are meant is known either way.
    """

    def __init__(self, asks: Asks, *, model: str, format: PooledFormat, encoder: Encoder) -> None:
        """
        Args:
            model: the name under which the server has it.
            encoder: of the model's own tokenizer, with the script of ``format``.

        Raises:
            ParamsError: the encoder is for another layout, or the format's numbers do not fit.
        """
        shapes = ((1, 0), (2, 0), (2, 1))
        if encoder.script != format.script or (format.outputs, format.positive) not in shapes:
            raise ParamsError(
                f"{model}: given the format {format.name} with place {format.positive} of "
                f"{format.outputs} values, expected one of at most 2 and an encoder of its script"
            )
        self._asks = asks
        self._model = model
        self._format = format
        self._encoder = encoder

    def identity(self) -> str:
        """Content id of the model's name, the layout and the tokenizer."""
        told_apart = content_id(self._format, self._encoder.digest)
        return f"pooling {self._model} {self._format.name} {told_apart}"

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """One verdict an item; the same tokens are asked for once.

        Raises:
            ProtocolError: an item has no step, or a reply is not what the endpoint gives.
        """
        lines = [self._encoder.line(item) for item in items]
        asked = list(dict.fromkeys(line.tokens for line in lines))
        bodies: list[Body] = [{"model": self._model, "input": list(tokens)} for tokens in asked]
        replies = dict(zip(asked, ask(self._asks, POOLING, bodies, kind=_Pooling), strict=True))
        return tuple(self._verdict(line, replies[line.tokens]) for line in lines)

    def _verdict(self, line: Line, reply: dict[str, Any]) -> Verdict:
        values = parsed(_Pooling, reply, self._where).data[0].data
        if len(values) == len(line.tokens):
            values = [values[read] for read in line.reads]
        elif len(values) != len(line.reads):
            raise ProtocolError(
                f"{self._where}: given values of {len(values)} places, expected {len(line.reads)}, "
                f"one a step, or {len(line.tokens)}, one a token"
            )
        scores = [self._score(value) for value in values[-line.new :]]
        return Verdict(scores[-1], tuple(scores))

    def _score(self, value: list[float] | float) -> float:
        row = value if isinstance(value, list) else [value]
        score = self._format.score(row)
        if score is None:
            raise ProtocolError(
                f"{self._where}: given {str(row)[:QUOTED]} for a step, expected "
                f"{self._format.outputs} {self._format.values}"
            )
        return score

    @property
    def _where(self) -> str:
        return f"{self._model} at {POOLING}"


class _Alternative(_Strict):
    token: str
    logprob: FiniteFloat


class _Place(_Strict):
    top_logprobs: list[_Alternative] = Field(min_length=1)


class _Logprobs(_Strict):
    content: list[_Place] = Field(min_length=1, max_length=1)


class _Choice(_Strict):
    logprobs: _Logprobs


class _Chat(_Strict):
    choices: list[_Choice] = Field(min_length=1, max_length=1)


class StepTokenChatVerifier:
    """A step-token model behind chat completions: the next token says whether the step is right.

    A request a step. The score is the probability of the token for right between the two. One that
    is not among the most probable counts as impossible, which can only lower the score.
    """

    def __init__(
        self, asks: Asks, *, model: str, format: StepTokenFormat, top_logprobs: int
    ) -> None:
        """
        Args:
            model: the name under which the server has it.
            top_logprobs: how many alternatives are asked for; servers often allow 20.

        Raises:
            ParamsError: the format's steps are not turns that a mark alone answers, or fewer than
                two alternatives.
        """
        script = format.script
        answered = all(
            part[-1:] == (("assistant", "{mark}"),) for part in (script.first, script.later)
        )
        if not (answered and script.before_mark) or top_logprobs < 2:
            raise ParamsError(
                f"{model}: given the format {format.name} and top_logprobs {top_logprobs}, "
                "expected steps that the assistant answers by a mark alone, and 2 or more"
            )
        self._asks = asks
        self._model = model
        self._format = format
        self._top = top_logprobs

    def identity(self) -> str:
        """Content id of the model's name, the layout and what is asked for."""
        return f"chat {self._model} {self._format.name} {content_id(self._format, self._top)}"

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """One verdict an item; the same conversation is asked for once.

        Raises:
            ProtocolError: an item has no step, or a reply is not what the endpoint gives.
        """
        told = [self._conversations(item) for item in items]
        asked = list(dict.fromkeys(one for conversations in told for one in conversations))
        replies = ask(self._asks, CHAT, [self._body(one) for one in asked], kind=_Chat)
        scores = {one: self._score(reply) for one, reply in zip(asked, replies, strict=True)}
        steps = [tuple(scores[one] for one in conversations) for conversations in told]
        return tuple(Verdict(one[-1], one) for one in steps)

    def _conversations(self, item: VerifyItem) -> list[tuple[tuple[str, str], ...]]:
        """For each new step the messages up to it."""
        script = self._format.script
        question, steps = texts(item, one_line=script.one_line)
        question, steps = disarmed(question), tuple(map(disarmed, steps))
        counts = range(len(item.state.derivation) + 1, len(steps) + 1)
        return [script.messages(question, steps[:n], script.mark, "")[:-1] for n in counts]

    def _body(self, messages: tuple[tuple[str, str], ...]) -> Body:
        # At temperature 1 the log probabilities are the model's, whether a server scales them or
        # not; the token that is sampled is not looked at.
        return {
            "model": self._model,
            "messages": [{"role": role, "content": text} for role, text in messages],
            "max_tokens": 1,
            "temperature": 1.0,
            "logprobs": True,
            "top_logprobs": self._top,
        }

    def _score(self, reply: dict[str, Any]) -> float:
        where = f"{self._model} at {CHAT}"
        listed = parsed(_Chat, reply, where).choices[0].logprobs.content[0].top_logprobs
        found = {one.token: one.logprob for one in reversed(listed)}  # the first of equals counts
        good, bad = found.get(self._format.good), found.get(self._format.bad)
        if good is None and bad is None:
            raise ProtocolError(
                f"{where}: given the tokens {str(sorted(found))[:QUOTED]}, expected "
                f"{self._format.good!r} or {self._format.bad!r} among them"
            )
        if good is None or bad is None:
            return 0.0 if good is None else _lower_bound(good, listed)
        return _sigmoid(good - bad)


def _lower_bound(good: float, listed: Sequence[_Alternative]) -> float:
    """The least score of a step whose token for wrong is less probable than all that are listed."""
    return _sigmoid(good - min(one.logprob for one in listed))


def _sigmoid(value: float) -> float:
    return 0.5 * (1.0 + math.tanh(value / 2))
