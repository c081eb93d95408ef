"""What a text model is shown of a state: messages, and the beginning of its own answer.

Knows: few-shot examples kept as data, and how a chat or a plain prompt is laid out. Does not know:
tokenizers, models, servers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema

from selverify.domains.answers import extract_boxed
from selverify.domains.base import Domain
from selverify.errors import ParamsError
from selverify.types import Arguments, State

_PROMPTS = "selverify.models.prompts"
CONTROL = re.compile(
    r"<(?=[|\uff5c]|/?[\w-]{1,40}[>|\uff5c])|\[(?=/?(?:[A-Z_]{4,40}|[a-z][A-Z]{3,40}|IMG)\])"
)
"""Where a control token of some chat template may begin: <|x|>, <x>, </x>, <fim-x>, [INST],
[/INST], [gMASK], [IMG]. Three other capitals in brackets may be a triangle's area."""
NEXT_QUESTION = "\nUser:"
"""What the next question begins with in ``plain_text``: a base model may invent one."""
_NEXT_QUESTION = re.compile(r"^[^\S\n]*User:", re.MULTILINE)
_BRACED_BOX = re.compile(r"\\boxed\s*\{")


@dataclass(frozen=True, slots=True)
class Prompt:
    """``messages`` are (role, text) pairs; ``begun`` is what the answer already begins with.

    Without messages the prompt is plain text, ``begun`` alone.
    """

    messages: tuple[tuple[str, str], ...]
    begun: str


def _as_text(step: object) -> object:
    """A step that is a JSON object, as one line."""
    return json.dumps(step, ensure_ascii=False) if isinstance(step, dict) else step


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_NotEmpty = Annotated[str, Field(min_length=1)]
_StepText = Annotated[_NotEmpty, BeforeValidator(_as_text)]


class FewShot(_Data):
    """A question, its right answer, and the moves' texts of a solution that ends with it."""

    question: _NotEmpty
    answer: _NotEmpty
    steps: Annotated[tuple[_StepText, ...], Field(min_length=1)]


class PromptData(_Data):
    """What is shown before every problem; ``system`` is a text line by line."""

    name: _NotEmpty
    version: Annotated[int, Field(ge=1)]
    system: Annotated[tuple[_NotEmpty, ...], Field(min_length=1)]
    examples: tuple[FewShot, ...]

    @property
    def identity(self) -> str:
        """Name, version and a digest of all that is shown, so that no change goes unseen."""
        digest = hashlib.sha256(self.model_dump_json().encode()).hexdigest()
        return f"{self.name} {self.version} {digest[:16]}"


def load_prompt(name: str) -> PromptData:
    """The prompt called ``name`` among those of the package.

    Raises:
        ParamsError: there is none.
    """
    known = {entry.name: entry for entry in files(_PROMPTS).iterdir()}
    if f"{name}.json" not in known:
        names = sorted(one.removesuffix(".json") for one in known if one.endswith(".json"))
        raise ParamsError(f"prompt: given {name!r}, expected one of {', '.join(names)}")
    return PromptData.model_validate_json(known[f"{name}.json"].read_bytes())


class Prompting:
    """Shows a state as a chat: the system's text, the examples, the problem, the steps so far."""

    def __init__(self, data: PromptData, *, end_of_move: str) -> None:
        """``end_of_move`` is the domain's; it is put between and after steps."""
        self._end = end_of_move
        self._identity = f"{data.identity} {end_of_move!r}"
        turns = [("system", "\n".join(data.system))]
        for example in data.examples:
            turns += [("user", example.question), ("assistant", end_of_move.join(example.steps))]
        self._shown = tuple(turns)

    def identity(self) -> str:
        """Content id of all that is shown beside the state."""
        return self._identity

    def __call__(self, state: State) -> Prompt:
        """The chat up to the next step; ``begun`` is empty, or ends with a move's end."""
        begun = "".join(disarmed(move.text) + self._end for move in state.derivation)
        return Prompt((*self._shown, ("user", disarmed(state.problem.text))), begun)


def disarmed(text: str) -> str:
    """Text that holds no control token of a chat template: what looks like one is broken up."""
    return CONTROL.sub(lambda found: found[0] + " ", text)


def plain_text(prompt: Prompt) -> str:
    """A prompt as plain text: paragraphs that begin with who speaks, the last one unfinished."""
    if not prompt.messages:
        return prompt.begun
    said = "".join(f"{role.capitalize()}: {text}\n\n" for role, text in prompt.messages)
    return f"{said}Assistant: {prompt.begun}".rstrip(" ")


def before_next_question(text: str) -> str:
    """What of a text that continues ``plain_text`` stands before the next question."""
    found = _NEXT_QUESTION.search(text)
    return text[: found.start()] if found else text


def finished_part(text: str, end: str) -> str:
    """The finished part of a text that the limit of tokens cut off: up to the last end of a move,
    or all of it if the last move holds a closed box, whose answer is complete."""
    before, found, behind = text.rpartition(end)
    complete = _BRACED_BOX.search(behind) and extract_boxed(behind)
    return text if complete else before + found


def plain(domain: Domain) -> Callable[[State], Prompt]:
    """The domain's own text of a state and no more, for models that were trained on it."""
    between = "" if domain.end_of_move.strip() else domain.end_of_move
    return lambda state: Prompt((), disarmed(domain.serialise(state)) + between)


class _Untitled(GenerateJsonSchema):
    """A schema without titles, which repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def move_schema(domain: Domain) -> dict[str, Any]:
    """The JSON schema of a move's object: an operator's name and its arguments.

    It is the ``schema`` of a ``response_format`` of type ``json_schema``. Its root is an ``anyOf``,
    which vLLM, SGLang and llama.cpp take; OpenAI's own strict mode wants an object at the root.
    """
    return {"anyOf": [_operator_schema(op, args) for op, args in domain.operators.items()]}


def _operator_schema(op: str, arguments: type[Arguments]) -> Mapping[str, Any]:
    schema = arguments.model_json_schema(schema_generator=_Untitled)
    schema.pop("title")
    return {
        "type": "object",
        "description": schema.pop("description", op),
        "properties": {"op": {"type": "string", "const": op}, "args": schema},
        "required": ["op", "args"],
        "additionalProperties": False,
    }
