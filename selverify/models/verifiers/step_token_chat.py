"""Step-token reward models behind chat completions: the next token says whether a step is right.

Knows: the body and the reply. Does not know: connections, retries, keys, models in process.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from pydantic import AliasPath, Field, FiniteFloat

from selverify.errors import ProtocolError
from selverify.models.no_room import NO_ROOM_SCORE
from selverify.models.prompting import disarmed
from selverify.models.verifiers.loading import content_id
from selverify.models.verifiers.opening import Surroundings, format_named
from selverify.models.verifiers.pooled import sigmoid
from selverify.models.verifiers.server import CHAT, QUOTED_CHARACTERS, Asks, Body, ReplyShape, ask
from selverify.models.verifiers.step_token import RLHFLOW, StepTokenFormat
from selverify.models.verifiers.steps import (
    Pieces,
    StepQuestion,
    step_questions,
    verdicts_by_question,
)
from selverify.params import ServedVerifier
from selverify.search.requests import VerifyItem
from selverify.types import Verdict

TOP_LOGPROBS = 20
"""Alternatives to a token that servers give at most."""
CHAT_FORMATS: Mapping[str, StepTokenFormat] = {RLHFLOW.name: RLHFLOW}
"""Those whose steps are turns that the assistant answers by a mark alone."""


class _Alternative(ReplyShape):
    token: str
    logprob: FiniteFloat


class _Completion(ReplyShape):
    alternatives: list[_Alternative] = Field(
        validation_alias=AliasPath("choices", 0, "logprobs", "content", 0, "top_logprobs"),
        min_length=1,
    )


class StepTokenChatVerifier:
    """A request a step. The score is the probability of the token for right between the two.

    One for right that is not listed counts as impossible. One for wrong that is not counts as
    probable as it can be: as the least probable that is listed, or as all that are not listed, if
    that is less. Both can only lower the score.
    """

    def __init__(self, asks: Asks, *, model: str, format: StepTokenFormat) -> None:
        """``model`` is the name under which the server has it."""
        self._asks = asks
        self._model = model
        self._format = format

    @classmethod
    def open(cls, source: ServedVerifier, surroundings: Surroundings) -> StepTokenChatVerifier:
        """The verifier of these settings.

        Raises:
            ParamsError: there is no such format.
        """
        format = format_named(CHAT_FORMATS, source.format)
        return cls(surroundings.ask(source), model=source.model, format=format)

    def identity(self) -> str:
        """Content id of the model's name, the layout and the number of alternatives."""
        return f"chat {self._model} {self._format.name} {content_id(self._format, TOP_LOGPROBS)}"

    def parameters(self) -> None:
        """Unknown: a server does not tell."""

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """One verdict an item; the same conversation is sent once.

        Raises:
            ProtocolError: an item has no step, or a reply is not what the endpoint gives.
        """
        one_line = self._format.script.one_line
        return verdicts_by_question(
            [step_questions(item, one_line=one_line) for item in items], self._scores
        )

    def _scores(self, asked: Sequence[StepQuestion]) -> list[float]:
        bodies = [self._body(self._messages(*one)) for one in asked]
        replies = ask(self._asks, CHAT, bodies, _Completion, model=self._model)
        return [NO_ROOM_SCORE if one is None else self._score(one.alternatives) for one in replies]

    def _messages(self, problem: str, steps: tuple[str, ...]) -> Pieces:
        script = self._format.script
        return script.messages(disarmed(problem), [*map(disarmed, steps)], script.mark, "")[:-1]

    def _body(self, messages: Pieces) -> Body:
        # At temperature 1 the log probabilities are the model's, whether a server scales them or
        # not; the sampled token is not used.
        return {
            "model": self._model,
            "messages": [{"role": role, "content": text} for role, text in messages],
            "max_tokens": 1,
            "temperature": 1.0,
            "logprobs": True,
            "top_logprobs": TOP_LOGPROBS,
        }

    def _score(self, listed: Sequence[_Alternative]) -> float:
        found = {one.token: one.logprob for one in reversed(listed)}  # the first of equals counts
        good, bad = found.get(self._format.good), found.get(self._format.bad)
        if good is None and bad is None:
            raise ProtocolError(
                f"{self._model} at {CHAT}: given the tokens "
                f"{str(sorted(found))[:QUOTED_CHARACTERS]}, expected {self._format.good!r} or "
                f"{self._format.bad!r} among them"
            )
        if good is None:
            return 0.0
        return sigmoid(good - (_most_unlisted(found.values()) if bad is None else bad))


def _most_unlisted(listed: Collection[float]) -> float:
    """The highest log probability that a token beside the ``listed`` ones can have."""
    left = 1.0 - sum(math.exp(min(one, 0.0)) for one in listed)
    return min(*listed, math.log(left)) if left > 0 else -math.inf
