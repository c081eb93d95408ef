"""A language model as the judge of steps, by a fixed rubric and a verdict that is parsed.

Knows: the rubric, what a verdict looks like, and the score that it means. Does not know:
connections, models, searches.

The score of a step is 0.5 + c / 200 for ``right`` and 0.5 - c / 200 for ``wrong``, with c in
[0, 100] the judge's confidence, and 0.5 for ``unsure``. A reply that cannot be read is asked for
once more; after that the step scores 0.0 and is counted, because a threshold may lie below 0.5 and
a judge that fails must not accept.

A step's text stands between fences whose code it cannot know, for it is a digest of the text. Only
the judge's own reply is parsed, and all of it must be one JSON object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.models.prompting import disarmed
from selverify.models.verifiers.loading import content_id
from selverify.models.verifiers.pooled import CHAT, Asks, Body, ask, parsed
from selverify.models.verifiers.steps import texts
from selverify.search.requests import VerifyItem
from selverify.types import Verdict

RUBRIC = Path(__file__).with_name("judge_rubric.json")
UNREADABLE = 0.0
LONGEST = 8_000
"""Characters of a reply that may be a verdict."""
CODE = "{code}"
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "verdict": {"type": "string", "enum": ["right", "wrong", "unsure"]},
        "confidence": {"type": "number"},
    },
    "required": ["reason", "verdict", "confidence"],
    "additionalProperties": False,
}
"""What a server is told of ``Opinion``; ranges and lengths are left out, as some know none."""


class Rubric(BaseModel):
    """What the judge is told: its task, what it is asked for, and what after an unreadable reply.

    In ``ask`` the text ``{code}`` stands for the code of the fences.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(min_length=1)
    version: int = Field(ge=1)
    system: str = Field(min_length=1)
    ask: str = Field(pattern=r"\{code\}")
    again: str = Field(min_length=1)


class Opinion(BaseModel):
    """A judge's reply; the reason comes first, so that it is thought of before the verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    reason: str
    verdict: Literal["right", "wrong", "unsure"]
    confidence: float = Field(ge=0, le=100)

    @property
    def score(self) -> float:
        """See the module's text."""
        sign = {"right": 1, "wrong": -1, "unsure": 0}[self.verdict]
        return 0.5 + sign * self.confidence / 200


class _Message(BaseModel):
    model_config = ConfigDict(strict=True)

    content: str | None = None


class _Choice(BaseModel):
    model_config = ConfigDict(strict=True)

    message: _Message


class _Chat(BaseModel):
    model_config = ConfigDict(strict=True)

    choices: list[_Choice] = Field(min_length=1, max_length=1)


@dataclass(frozen=True, slots=True)
class Question:
    """A problem, the steps before, and the step to be judged."""

    problem: str
    steps: tuple[str, ...]


class Judge:
    """Asks a chat model about each step; ``unreadable`` counts the steps without a verdict."""

    def __init__(
        self, asks: Asks, *, model: str, rubric: Rubric, max_tokens: int, schema: bool
    ) -> None:
        """
        Args:
            model: the name under which the server has it.
            max_tokens: of a reply, thoughts included where the model thinks aloud.
            schema: whether the server is given the verdict's JSON schema to keep to.

        Raises:
            ParamsError: ``max_tokens`` is below 1.
        """
        if max_tokens < 1:
            raise ParamsError(f"{model}: given max_tokens {max_tokens}, expected at least 1")
        self._asks = asks
        self._model = model
        self._rubric = rubric
        self._settings: Body = {"model": model, "temperature": 0, "max_tokens": max_tokens}
        if schema:
            wanted = {"name": "verdict", "strict": True, "schema": SCHEMA}
            self._settings["response_format"] = {"type": "json_schema", "json_schema": wanted}
        self.unreadable = 0

    def identity(self) -> str:
        """Content id of the model's name, the rubric and the settings."""
        told_apart = content_id(self._rubric, sorted(self._settings.items()))
        return f"judge {self._model} {self._rubric.name} {self._rubric.version} {told_apart}"

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """One verdict an item; the same step of the same derivation is asked for once.

        Raises:
            ProtocolError: an item has no step, or a reply is no chat completion.
        """
        asked = [_questions(item) for item in items]
        questions = list(dict.fromkeys(one for part in asked for one in part))
        opinions = dict(zip(questions, self._ask(questions, again=False), strict=True))
        unread = [one for one, opinion in opinions.items() if opinion is None]
        opinions |= zip(unread, self._ask(unread, again=True), strict=True)
        self.unreadable += sum(opinion is None for opinion in opinions.values())
        scores = {
            one: UNREADABLE if opinion is None else opinion.score
            for one, opinion in opinions.items()
        }
        steps = [tuple(scores[one] for one in part) for part in asked]
        return tuple(Verdict(one[-1], one) for one in steps)

    def _ask(self, questions: Sequence[Question], *, again: bool) -> list[Opinion | None]:
        bodies = [self._body(one, again=again) for one in questions]
        replies = ask(self._asks, CHAT, bodies, kind=_Chat)
        return [self._opinion(reply) for reply in replies]

    def _body(self, question: Question, *, again: bool) -> Body:
        said = _fenced(question, self._rubric.ask)
        if again:
            said = f"{said}\n\n{self._rubric.again}"
        system = {"role": "system", "content": self._rubric.system}
        return {**self._settings, "messages": [system, {"role": "user", "content": said}]}

    def _opinion(self, reply: dict[str, Any]) -> Opinion | None:
        chat = parsed(_Chat, reply, f"{self._model} at {CHAT}")
        return read_opinion(chat.choices[0].message.content or "")


def load_rubric(path: Path = RUBRIC) -> Rubric:
    """The rubric in a JSON file.

    Raises:
        ArtifactError: there is no such file.
        SchemaError: it is no rubric.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected the rubric of a judge")
    try:
        return Rubric.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise SchemaError(
            f"{path}: no rubric, expected name, version, system, ask and again as text: "
            f"{place}: {first['msg']}"
        ) from error


def read_opinion(text: str) -> Opinion | None:
    """The verdict that a reply is; None if it is not exactly one.

    White space around the object, and one fence of code around all of it, are taken off.
    """
    said = text.strip()
    if len(said) > LONGEST:
        return None
    if said.startswith("```") and said.endswith("```") and len(said) >= 6:
        said = said[3:-3].removeprefix("json").strip()
    try:
        return Opinion.model_validate_json(said.encode("utf-8", "replace"))
    except ValidationError:
        return None


def _questions(item: VerifyItem) -> list[Question]:
    """One a new step."""
    problem, steps = texts(item, one_line=False)
    counts = range(len(item.state.derivation) + 1, len(steps) + 1)
    return [Question(problem, steps[:count]) for count in counts]


def _fenced(question: Question, request: str) -> str:
    """The texts between fences, and what is asked for."""
    code = content_id(question)[:12]
    *before, step = question.steps
    labelled = [("problem", question.problem)]
    labelled += [(f"step {number}", text) for number, text in enumerate(before, 1)]
    labelled.append((f"step {len(before) + 1}, the step to be judged", step))
    parts = [
        f"=== {label} {code} ===\n{disarmed(text)}\n=== end {code} ===" for label, text in labelled
    ]
    return "\n\n".join([*parts, request.replace(CODE, code)])
