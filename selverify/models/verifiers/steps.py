"""A question and its steps as a published process reward model expects them: tokens, or texts.

Knows: layouts as data, chat templates, tokenizers, and where each step's score is read. Does not
know: models, servers, how a score is found.

Text of a problem or a step is hostile. It never passes through a chat template, no special token is
recognised in it, and nothing is searched for in it: a position is known because it was put there.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jinja2 import TemplateError
from tokenizers import Tokenizer

from selverify.errors import ProtocolError, SchemaError
from selverify.models.chat_template import render_chat
from selverify.search.requests import VerifyItem
from selverify.types import State, Verdict

_QUESTION, _STEP, _MARK = "\ue000", "\ue001", "\ue002"
"""Private characters in place of the three while a layout is rendered."""
Pieces = tuple[tuple[str, str], ...]
StepQuestion = tuple[str, tuple[str, ...]]
"""A problem's text, and the steps up to the one to be judged."""
_Asked = TypeVar("_Asked", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Script:
    """How a question and its steps are laid out, and where a step's score is read.

    ``first`` is the beginning with one step, ``later`` what each further step adds; both are pieces
    (role, text). A role opens a message of a chat, the role "" continues the text before it. In a
    piece ``{question}``, ``{step}``, ``{mark}`` and ``{bos}`` are replaced by the parts.

    Attributes:
        mark: the token after a step as the vocabulary spells it.
        before_mark: the score is read where the mark is predicted, not at the mark itself.
        one_line: line breaks inside a step become spaces, where a line break ends a step.
        anchor: the mark as text. For tokenizers that put a space before any text: what follows a
            mark is then encoded behind it, as it would be in one text.
    """

    first: Pieces
    later: Pieces
    mark: str
    before_mark: bool
    one_line: bool = False
    anchor: str = ""

    def messages(self, question: str, steps: Sequence[str], mark: str, bos: str) -> Pieces:
        """(role, text) of each message; one of role "" where the layout is no chat."""
        whole: list[tuple[str, str]] = []
        said = iter(steps)
        for pieces in (self.first, *(self.later for _ in steps[1:])):
            filling = {"{question}": question, "{step}": next(said), "{mark}": mark, "{bos}": bos}
            for role, text in pieces:
                filled = "".join(filling.get(part, part) for part in re.split(r"(\{\w+\})", text))
                if role or not whole:
                    whole.append((role, filled))
                else:
                    whole[-1] = (whole[-1][0], whole[-1][1] + filled)
        return tuple(whole)


@dataclass(frozen=True, slots=True)
class Line:
    """The tokens of a question with T steps, up to the place of the last score.

    ``reads`` [T] are the places of the steps' scores, ``keys`` [T] name the tokens up to each.
    The last ``new`` steps are the item's own.
    """

    tokens: tuple[int, ...]
    reads: tuple[int, ...]
    keys: tuple[bytes, ...]
    new: int


class Encoder:
    """Turns items into tokens by one script and one tokenizer."""

    def __init__(self, tokenizer: Any, script: Script) -> None:
        """
        Raises:
            SchemaError: the tokenizer is not of the fast kind, lacks the mark or a chat template,
                finds special tokens in plain text, or its template treats later steps differently.
        """
        self.script = script
        self._vocabulary: dict[str, int] = tokenizer.get_vocab()
        self._plain = _without_added_tokens(tokenizer)
        added = tokenizer.added_tokens_decoder
        self._special = {token.content: place for place, token in added.items()}
        for place, token in added.items():
            guarded = token.special or token.content == script.mark
            known = place != tokenizer.unk_token_id  # which any strange text may give
            if guarded and known and place in self._plain.encode(token.content).ids:
                raise SchemaError(
                    f"tokenizer: plain text {token.content!r} gives the special token itself, "
                    "expected one that can tell them apart"
                )
        self._mark = self.token(script.mark)
        layout = _layout(tokenizer, script)
        self._layout = [self._trusted(text) for text in layout]
        special = sorted(self._special.items())
        content = json.dumps([repr(script), *layout, special, self._plain.to_str()])
        self.digest = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def token(self, spelling: str) -> int:
        """The id of a token as the vocabulary spells it.

        Raises:
            SchemaError: the vocabulary has none of that spelling.
        """
        if spelling not in self._vocabulary:
            raise SchemaError(
                f"tokenizer: no token {spelling!r} among {len(self._vocabulary)}, expected the "
                "tokenizer of the model that the format is for"
            )
        return self._vocabulary[spelling]

    def line(self, item: VerifyItem) -> Line:
        """The tokens of an item and the places of its scores.

        Raises:
            ProtocolError: the item has no step.
        """
        tokens: list[int] = []
        reads: list[int] = []
        text = ""
        for part in self._parts(item):
            if isinstance(part, str):
                text += part
                continue
            tokens += self._encode(text, after_mark=tokens[-1:] == [self._mark])
            text = ""
            if part is None:
                reads.append(len(tokens) - self.script.before_mark)
            tokens.append(self._mark if part is None else part)
        last = reads[-1] + 1
        return Line(tuple(tokens[:last]), tuple(reads), _keys(tokens, reads), len(item.steps))

    def _parts(self, item: VerifyItem) -> Iterator[str | int | None]:
        """Plain text and special tokens in their order; None is a mark."""
        question, steps = _texts(item, one_line=self.script.one_line)
        head, after_question, before_mark, after_mark = self._layout
        yield from head
        yield question
        yield from after_question
        for place, step in enumerate(steps):
            if place:
                yield from after_mark
            yield step
            yield from before_mark
            yield None

    def _trusted(self, text: str) -> tuple[str | int, ...]:
        """Text of a layout as plain text and special tokens."""
        found = "|".join(map(re.escape, sorted(self._special, key=len, reverse=True)))
        parts: list[str] = re.split(f"({found})", text) if found else [text]
        return tuple(self._special.get(part, part) for part in parts if part)

    def _encode(self, text: str, *, after_mark: bool) -> list[int]:
        anchor = self.script.anchor if after_mark else ""
        if not text:
            return []
        ids: list[int] = self._plain.encode(anchor + text, add_special_tokens=False).ids
        if not anchor:
            return ids
        before: list[int] = self._plain.encode(anchor, add_special_tokens=False).ids
        if ids[: len(before)] != before:
            raise SchemaError(
                f"tokenizer: {anchor!r} merges with the text after it, expected it to stand alone"
            )
        return ids[len(before) :]


def _texts(item: VerifyItem, *, one_line: bool) -> StepQuestion:
    """The question, and the derivation's steps with the item's own, stripped.

    Raises:
        ProtocolError: the item has no step.
    """
    if not item.steps:
        raise ProtocolError(
            f"{item.state.problem.problem_id}: given an item without a step, expected one or more"
        )
    steps = [move.text.strip() for move in (*item.state.derivation, *item.steps)]
    return item.state.problem.text.strip(), tuple(map(_one_line, steps) if one_line else steps)


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def step_questions(item: VerifyItem, *, one_line: bool) -> list[StepQuestion]:
    """One for each new step, with the steps before it.

    Raises:
        ProtocolError: the item has no step.
    """
    problem, steps = _texts(item, one_line=one_line)
    return [
        (problem, steps[: count + 1]) for count in range(len(item.state.derivation), len(steps))
    ]


def verdicts_by_question(
    asked: Sequence[Sequence[_Asked]], scores_of: Callable[[Sequence[_Asked]], Sequence[float]]
) -> tuple[Verdict, ...]:
    """One verdict an item, from one question a step; equal questions are scored once."""
    distinct = list(dict.fromkeys(one for part in asked for one in part))
    scores = dict(zip(distinct, scores_of(distinct), strict=True))
    return tuple(verdict_of([scores[one] for one in part]) for part in asked)


def verdict_of(scores: Sequence[float]) -> Verdict:
    """The verdict of an item from its steps' scores: the last one's is its own.

    Raises:
        ProtocolError: there is no score.
    """
    if not scores:
        raise ProtocolError("verifier: given an item without a step, expected one or more")
    return Verdict(scores[-1], tuple(scores))


def state_key(state: State) -> tuple[str, ...]:
    """Equal for states of one question and one derivation."""
    return (state.problem.text, *(move.text for move in state.derivation))


def _without_added_tokens(tokenizer: Any) -> Any:
    """The tokenizer's rules for plain text, which recognise no added token."""
    if not tokenizer.is_fast:
        raise SchemaError(
            f"tokenizer {type(tokenizer).__name__}: not of the fast kind, expected tokenizer.json"
        )
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    rules |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(rules))


def _layout(tokenizer: Any, script: Script) -> tuple[str, str, str, str]:
    """The text before the question, after it, before a mark, and between a mark and a step."""
    parts = _rendered(tokenizer, script, steps=3)
    head, after_question, before_mark, after_mark, *_ = (*parts[::2], "", "", "")
    step = [_STEP, before_mark, _MARK]
    wanted = [head, _QUESTION, after_question, *step, after_mark, *step, after_mark, *step]
    if parts[:-1] != wanted or _rendered(tokenizer, script, steps=1)[:-1] != wanted[:6]:
        raise SchemaError(
            "chat template: it does not lay out every step alike, expected the template of the "
            f"model that the format is for, whose layout begins {script.first!r}"
        )
    return head, after_question, before_mark, after_mark


def _rendered(tokenizer: Any, script: Script, *, steps: int) -> list[str]:
    """The layout's text, cut before and after each of the private characters."""
    if any("{bos}" in text for _, text in script.first) and tokenizer.bos_token is None:
        raise SchemaError("tokenizer: no token that begins a text, expected the one of the model")
    said = script.messages(_QUESTION, [_STEP] * steps, _MARK, tokenizer.bos_token or "")
    text = _chat(tokenizer, said) if said[0][0] else said[0][1]
    return re.split(f"([{_QUESTION}{_STEP}{_MARK}])", text)


def _chat(tokenizer: Any, said: Pieces) -> str:
    if not tokenizer.chat_template:
        raise SchemaError("tokenizer: no chat template, expected the one of the model")
    try:
        return render_chat(tokenizer, said, answer=False)
    except TemplateError as error:
        roles = [role for role, _ in said]
        raise SchemaError(f"chat template: given the roles {roles}, it fails: {error}") from error


def _keys(tokens: Sequence[int], reads: Sequence[int]) -> tuple[bytes, ...]:
    """A name for the tokens up to and with each place."""
    total = hashlib.blake2b(digest_size=16)
    keys, start = [], 0
    for read in reads:
        total.update(array("I", tokens[start : read + 1]).tobytes())
        keys.append(total.digest())
        start = read + 1
    return tuple(keys)
