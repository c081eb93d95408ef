"""A language model as the judge of steps, by a fixed rubric and a verdict that is parsed.

Knows: the rubric, what a verdict looks like, and the score that it means. Does not know:
connections, models, searches.

The score of a step is 0.5 + c / 200 for ``right`` and 0.5 - c / 200 for ``wrong``, with c in
[0, 100] the judge's confidence. ``unsure`` scores 0.499, and ``wrong`` no more: the default
threshold of 0.5 accepts neither. A reply that cannot be parsed is requested once more; after that
the step scores 0.0, because a threshold may lie below 0.5 and a judge that fails must not accept.

A step's text is put between fences with a code that it cannot contain: a digest of the text. Only
the judge's own reply is parsed, in which one JSON object may stand after thoughts and among prose.
All of the reply must be that object where the judge could quote one: where the texts that it was
shown have the names of all three entries. What models get wrong in JSON is read all the same: LaTeX
with single backslashes, line breaks in a text, a comma before the end, ``Right``, ``"95"``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from selverify.models.prompting import disarmed
from selverify.models.verifiers.loading import content_id
from selverify.models.verifiers.opening import Surroundings
from selverify.models.verifiers.server import CHAT, Asks, Body, ReplyShape, ask
from selverify.models.verifiers.steps import StepQuestion, step_questions, verdicts_by_question
from selverify.params import ServedJudge
from selverify.search.requests import VerifyItem
from selverify.types import Verdict

LONGEST_REPLY = 8_000
"""Characters of a reply that may be a verdict."""
UNREADABLE_SCORE = 0.0
UNSURE_SCORE = 0.499
"""Below the default threshold, which accepts at 0.5."""
OPINION_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "verdict": {"type": "string", "enum": ["right", "wrong", "unsure"]},
        "confidence": {"type": "number"},
    },
    "required": ["reason", "verdict", "confidence"],
    "additionalProperties": False,
}
"""The JSON schema of ``Opinion``, without ranges and lengths, which some servers do not support."""
_RUBRIC = Path(__file__).with_name("judge_rubric.json")
_CODE = "{code}"
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9A-Fa-f]{4})?')
"""With what makes it an escape of JSON, if anything does: in LaTeX most begin none."""
_THOUGHTS, _END_OF_THOUGHTS = "<think>", "</think>"
_log = logging.getLogger(__name__)


class Rubric(BaseModel):
    """The judge's prompt: its task, the request, and what is added after an unreadable reply.

    ``{code}`` in ``ask`` is replaced by the code of the fences. ``version`` is also raised when the
    same reply comes to mean another score.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(min_length=1)
    version: int = Field(ge=1)
    system: str = Field(min_length=1)
    ask: str = Field(pattern=r"\{code\}")
    again: str = Field(min_length=1)


def _lower(given: object) -> object:
    return given.strip().lower() if isinstance(given, str) else given


def _number(given: object) -> object:
    return float(given) if isinstance(given, str) else given


class Opinion(BaseModel):
    """A judge's reply; the reason comes first, so that the verdict is sampled after it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    reason: str
    verdict: Annotated[Literal["right", "wrong", "unsure"], BeforeValidator(_lower)]
    confidence: Annotated[float, BeforeValidator(_number), Field(ge=0, le=100)]

    @property
    def score(self) -> float:
        """See the module's text."""
        if self.verdict == "right":
            return 0.5 + self.confidence / 200
        if self.verdict == "wrong":
            return min(0.5 - self.confidence / 200, UNSURE_SCORE)
        return UNSURE_SCORE


_NO_ROOM = Opinion(reason="There is no room for the step.", verdict="wrong", confidence=100)


class _Message(ReplyShape):
    content: str | None = None


class _Choice(ReplyShape):
    message: _Message


class _Chat(ReplyShape):
    choices: list[_Choice] = Field(min_length=1, max_length=1)


class Judge:
    """A chat model that judges each step."""

    def __init__(
        self, asks: Asks, *, model: str, rubric: Rubric, max_tokens: int, schema: bool
    ) -> None:
        """
        Args:
            model: the name under which the server has it.
            max_tokens: of a reply, thoughts included where the model thinks aloud.
            schema: whether the server is given the verdict's JSON schema to keep to.
        """
        self._asks = asks
        self._model = model
        self._rubric = rubric
        self._settings: Body = {"model": model, "temperature": 0, "max_tokens": max_tokens}
        if schema:
            wanted = {"name": "verdict", "strict": True, "schema": OPINION_SCHEMA}
            self._settings["response_format"] = {"type": "json_schema", "json_schema": wanted}
        self._warned = False

    @classmethod
    def open(cls, source: ServedJudge, surroundings: Surroundings) -> Judge:
        """The judge of these settings, under the library's rubric."""
        return cls(
            surroundings.ask(source),
            model=source.model,
            rubric=load_rubric(),
            max_tokens=source.max_tokens,
            schema=source.schema_constrained,
        )

    def identity(self) -> str:
        """Content id of the model's name, the rubric and the settings."""
        content = content_id(self._rubric, sorted(self._settings.items()))
        return f"judge {self._model} {self._rubric.name} {self._rubric.version} {content}"

    def parameters(self) -> None:
        """Unknown: a server does not tell."""

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """One verdict an item; the same step of the same derivation is judged once.

        Raises:
            ProtocolError: an item has no step, or a reply is no chat completion.
        """
        return verdicts_by_question(
            [step_questions(item, one_line=False) for item in items], self._scores
        )

    def _scores(self, asked: Sequence[StepQuestion]) -> list[float]:
        opinions = dict(zip(asked, self._opinions(asked, again=False), strict=True))
        unread = [one for one, opinion in opinions.items() if opinion is None]
        opinions |= zip(unread, self._opinions(unread, again=True), strict=True)
        if None in opinions.values() and not self._warned:
            self._warned = True
            _log.warning(
                "judge %s: given two replies that cannot be read, expected one JSON object each "
                "(schema_constrained, a larger max_tokens); such a step scores %s",
                self._model,
                UNREADABLE_SCORE,
            )
        return [UNREADABLE_SCORE if one is None else one.score for one in opinions.values()]

    def _opinions(self, asked: Sequence[StepQuestion], *, again: bool) -> list[Opinion | None]:
        bodies = [self._body(one, again=again) for one in asked]
        replies = ask(self._asks, CHAT, bodies, _Chat, model=self._model)
        return [
            read_opinion(reply.choices[0].message.content or "", whole=_quotable(*one))
            if reply is not None
            else _NO_ROOM
            for one, reply in zip(asked, replies, strict=True)
        ]

    def _body(self, asked: StepQuestion, *, again: bool) -> Body:
        said = _fenced(*asked, self._rubric.ask)
        if again:
            said = f"{said}\n\n{self._rubric.again}"
        system = {"role": "system", "content": self._rubric.system}
        return {**self._settings, "messages": [system, {"role": "user", "content": said}]}


def load_rubric() -> Rubric:
    """The library's own."""
    return Rubric.model_validate_json(_RUBRIC.read_bytes())


def read_opinion(text: str, *, whole: bool = False) -> Opinion | None:
    """The one verdict that a reply holds, behind thoughts and among prose, or None.

    Prose with braces may only stand before the verdict, and has no entry's name in quotes there.

    ``whole``: all of it must be the verdict, but for white space and one fence of code around it.
    """
    opinion = _opinion(text)
    if opinion is not None or whole:
        return opinion
    said = text.rpartition(_END_OF_THOUGHTS)[2]
    if _THOUGHTS in said:  # which did not end
        return None
    names = [f'"{name}"' for name in Opinion.model_fields]
    # The last brace before any name in quotes: behind one, the judge may be quoting a step.
    start = said.rfind("{", 0, max(0, min(map(said.find, names))))
    found = said[start if start >= 0 else said.find("{") : said.rfind("}") + 1]
    # Of names that are written in another way it cannot be told whether they are quoted.
    return _opinion(found) if all(name in found for name in names) else None


def _opinion(text: str) -> Opinion | None:
    said = text.strip()
    if len(said) > LONGEST_REPLY:
        return None
    if said.startswith("```") and said.endswith("```") and len(said) >= 6:
        said = said[3:-3].removeprefix("json").strip()
    said = said.encode("utf-8", "replace").decode()
    said = _BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", said)
    said = re.sub(r",\s*\}$", "}", said)
    try:
        entries = json.loads(said, strict=False, object_pairs_hook=_entries)
        return Opinion.model_validate(entries)
    except (ValueError, RecursionError):
        return None


def _entries(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The entries of a JSON object; of two that share a name none can be told to be the judge's."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)


def _quotable(problem: str, steps: tuple[str, ...]) -> bool:
    """Whether the texts have all that a verdict is made of."""
    texts = "\n".join([problem, *steps])
    return all(name in texts for name in Opinion.model_fields)


def _fenced(problem: str, steps: tuple[str, ...], request: str) -> str:
    """The texts between fences, and what is requested."""
    code = content_id(problem, steps)[:12]
    *before, step = steps
    labelled = [("problem", problem)]
    labelled += [(f"step {number}", text) for number, text in enumerate(before, 1)]
    labelled.append((f"step {len(steps)}, the step to be judged", step))
    parts = [
        f"=== {label} {code} ===\n{disarmed(text)}\n=== end {code} ===" for label, text in labelled
    ]
    return "\n\n".join([*parts, request.replace(_CODE, code)])
