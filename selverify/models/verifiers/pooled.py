"""Published reward models behind vLLM's pooling endpoint, which gives values for tokens.

Knows: what the values of a value head mean. Does not know: connections, retries, models in process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field, FiniteFloat

from selverify.errors import ParamsError, ProtocolError
from selverify.models.no_room import NO_ROOM_SCORE
from selverify.models.verifiers.loading import content_id, load_encoder
from selverify.models.verifiers.opening import Surroundings, format_named
from selverify.models.verifiers.server import QUOTED_CHARACTERS, Asks, Body, ReplyShape, ask
from selverify.models.verifiers.steps import Encoder, Line, verdict_of
from selverify.models.verifiers.value_head import VALUE_HEAD_FORMATS, ValueHeadFormat
from selverify.params import ServedVerifier
from selverify.search.requests import VerifyItem
from selverify.types import Verdict

POOLING = "/pooling"
"""Of vLLM, which has it beside the versions: the server's url is then the one without /v1."""
_ROUNDING = 0.01
"""By how much two probabilities in half precision may miss 1 together."""
_EXPECTED = {1: "one logit", 2: "two probabilities"}
"""By the outputs of a family's head: vLLM gives two probabilities for each ``<extra_0>`` of Qwen's,
or for each token; Skywork's plugin of vLLM gives a logit for each token."""


class _Values(ReplyShape):
    data: list[list[FiniteFloat] | FiniteFloat]


class _Pooling(ReplyShape):
    data: list[_Values] = Field(min_length=1, max_length=1)


class PoolingVerifier:
    """A reward model behind vLLM's pooling endpoint.

    It is sent tokens, not text: the server would take a mark in a step's text for a mark. The reply
    has values for each mark or for each token; which places are meant is known either way.
    """

    def __init__(
        self, asks: Asks, *, model: str, format: ValueHeadFormat, encoder: Encoder
    ) -> None:
        """
        Args:
            model: the name under which the server has it.
            encoder: of the model's own tokenizer, with the script of ``format``.
        """
        self._asks = asks
        self._model = model
        self._format = format
        self._encoder = encoder

    @classmethod
    def open(cls, source: ServedVerifier, surroundings: Surroundings) -> PoolingVerifier:
        """The verifier of these settings.

        Raises:
            ArtifactError, ParamsError, SchemaError: no such format, or no tokenizer of its model.
        """
        format = format_named(VALUE_HEAD_FORMATS, source.format)
        if source.tokenizer is None:
            raise ParamsError("verifier.source: given no tokenizer, expected the model's own")
        encoder = load_encoder(source.tokenizer, format.script, revision=source.revision)
        return cls(surroundings.ask(source), model=source.model, format=format, encoder=encoder)

    def identity(self) -> str:
        """Content id of the model's name, the layout and the tokenizer."""
        content = content_id(self._format, self._encoder.digest)
        return f"pooling {self._model} {self._format.name} {content}"

    def parameters(self) -> None:
        """Unknown: a server does not tell."""

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """One verdict an item; the same tokens are sent once.

        Raises:
            ProtocolError: an item has no step, or a reply is not what the endpoint gives.
        """
        scores = self._scores([self._encoder.line(item) for item in items])
        return tuple(map(verdict_of, scores))

    def _scores(self, lines: Sequence[Line]) -> list[list[float]]:
        """Of each line's new steps; one that finds no room is sent again without its last step."""
        sent = list(dict.fromkeys(line.tokens for line in lines))
        bodies: list[Body] = [{"model": self._model, "input": list(tokens)} for tokens in sent]
        told = ask(self._asks, POOLING, bodies, _Pooling, model=self._model)
        replies = dict(zip(sent, told, strict=True))
        long = [line for line in lines if replies[line.tokens] is None and line.new > 1]
        shorter = iter(self._scores([_without_last_step(line) for line in long]) if long else ())
        scores = []
        for line in lines:
            reply = replies[line.tokens]
            if reply is not None:
                scores.append(self._read(line, reply.data[0].data))
            else:
                scores.append([*(next(shorter) if line.new > 1 else ()), NO_ROOM_SCORE])
        return scores

    def _read(self, line: Line, values: list[list[float] | float]) -> list[float]:
        if len(values) == len(line.tokens):
            values = [values[read] for read in line.reads]
        elif len(values) != len(line.reads):
            raise ProtocolError(
                f"{self._model} at {POOLING}: given values of {len(values)} places, expected "
                f"{len(line.reads)}, one a step, or {len(line.tokens)}, one a token"
            )
        return [self._score(value) for value in values[-line.new :]]

    def _score(self, value: list[float] | float) -> float:
        row = value if isinstance(value, list) else [value]
        score = score_of(row, outputs=self._format.outputs)
        if score is None:
            raise ProtocolError(
                f"{self._model} at {POOLING}: given {str(row)[:QUOTED_CHARACTERS]} for a step, "
                f"expected {_EXPECTED[self._format.outputs]}"
            )
        return score


def _without_last_step(line: Line) -> Line:
    reads, keys = line.reads[:-1], line.keys[:-1]
    return replace(
        line, tokens=line.tokens[: reads[-1] + 1], reads=reads, keys=keys, new=line.new - 1
    )


def score_of(row: Sequence[float], *, outputs: int) -> float | None:
    """The score in [0, 1] from the values of a place; None if they are not such values.

    Two probabilities are those of a wrong and of a right step; a logit is that of a right one.
    """
    if outputs == 1:
        return sigmoid(row[0]) if len(row) == 1 else None
    are_probabilities = all(0 <= one <= 1 for one in row) and abs(sum(row) - 1) < _ROUNDING
    return row[1] if len(row) == 2 and are_probabilities else None


def sigmoid(log_odds: float) -> float:
    """The probability of these log odds, of any size."""
    return 0.5 * (1.0 + math.tanh(log_odds / 2))
