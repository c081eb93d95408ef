"""Gold moves of ``grade_school`` from the calculator annotations of written solutions.

Knows: annotations (``sold 48/2 = <<48/2=24>>24 clips``) in the records of a benchmark's file, and
how a label is made of the sentence around one. Does not know: models, or splits of a training.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from selverify.data.text_benchmarks import Questions, TextQuestion
from selverify.domains.base import context_of
from selverify.domains.grade_school import Computation, GradeSchool, Sheet
from selverify.domains.line_arithmetic import NotAnExpression, read_expression, read_numeral
from selverify.domains.stated_numbers import CARDINALS
from selverify.search.gates import reject
from selverify.types import Candidate, Malformed, Move, Problem, State

MOST_LABEL_WORDS = 6
_LEAST_TAIL = 2
_SENTENCE = 500
NO_ANNOTATIONS = "no annotations"
OTHER_END = "ends in another number"
TOO_LONG = "too long"
MAX_SOLUTION = 10_000
"""Characters; a longer solution is left out."""
_NUMBER = r"\$?(?:\d[\d,]{0,15}(?:\.\d{1,12})?|\.\d{1,12})%?"
_ANNOTATION = re.compile(r"<<([^<>=]*)=([^<>=]*)>>")
_BEGINS = r"(?:(?=\$)|(?<![\d,.$]))(?<![-+*/x])(?<![-+*/x] )"
"""Not inside of a number or expression, from where the same text would be read once more."""
_STEP = re.compile(
    rf"{_ANNOTATION.pattern}"
    rf"|{_BEGINS}({_NUMBER}(?: ?[-+*/x] ?{_NUMBER})++) ?= ?({_NUMBER})(?![\w/]| ?[-+*/=])"
)
_GOES_ON = tuple("+-*/=x(.,")
_COMPUTES = re.compile(r".[-+*/]")
_WORD = re.compile(r"[A-Za-z]+(?:['\u2019-][A-Za-z]+)*")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[;:,\n]")
_TAIL_END = re.compile(r"[.!?](?=\s|$)|[;:,\n(=]|(?<=\s)[\d$]")
_EXPRESSION = re.compile(r"[\d$(]")
_OPENING = frozenset(
    """
    a also an and are be because but by each find finally first had has have hence if in is it means
    next now of so that the then there therefore they this thus to was we were which will would
    """.split()  # noqa: SIM905
)
_JOINING = frozenset(
    """
    a an and are as at because by each for from if in is more of on or per so than that the then to
    was when which while with
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class GoldSolution:
    """A question and the texts of right moves that answer it, the last one ``Answer 72``."""

    question_id: str
    question: str
    moves: tuple[str, ...]


def gold_solutions(
    questions: Questions, *, words: bool
) -> tuple[list[GoldSolution], Mapping[str, int]]:
    """The annotated solutions of a benchmark, and how many were left out for which reason.

    A solution is used where its last annotated value is the gold and the gates refuse none of its
    moves. Annotations that compute nothing, or the same again, are passed over. With ``words`` a
    move begins with a label.
    """
    found, left_out = [], Counter[str]()
    for question in questions.items:
        moves = _moves(question, words=words)
        if isinstance(moves, str):
            left_out[moves] += 1
        else:
            found.append(GoldSolution(question.question_id, question.text, moves))
    return found, dict(left_out.most_common())


def annotated_moves(solution: str, *, words: bool) -> Iterator[Candidate]:
    """The annotations of a solution's text that compute something, as moves, in their order.

    A right equation of plain numbers counts as one, as some solutions annotate only a part.
    """
    domain = GradeSchool()
    for found in _STEP.finditer(solution):
        annotated = found[1] is not None
        expression, value = found.group(1, 2) if annotated else found.group(3, 4)
        if not _COMPUTES.search(expression):
            continue
        label = label_of(solution, *found.span()) if words else ""
        move = domain.parse(f"{label}: {expression.replace('//', '/')} = {value}")
        if annotated or (_stands_alone(solution, found.start()) and _is_right(move)):
            yield move


def _stands_alone(text: str, start: int) -> bool:
    """Whether no longer expression or equation goes on at ``start``."""
    return not text[max(start - 8, 0) : start].rstrip().endswith(_GOES_ON)


def _is_right(move: Candidate) -> bool:
    if not isinstance(move, Move):
        return False
    domain = GradeSchool()
    state = domain.initial_state(Problem("", domain.name, "", ""), budget=0)
    return domain.context_violation(state, move) is None


def ends_in(candidates: list[Candidate], gold: str) -> bool:
    """Whether the last move's value is the gold number."""
    last = candidates[-1] if candidates else None
    if not isinstance(last, Move) or not isinstance(last.args, Computation):
        return False
    try:
        return read_numeral(gold).value in read_numeral(last.args.claim).values
    except NotAnExpression:
        return False


def label_of(text: str, start: int, end: int) -> str:
    """A few words that say what the annotation between ``start`` and ``end`` computes.

    Those behind it, as ``clips in may``; where they are fewer than two or begin with a word that
    joins, as ``per minute``, the nearest before it are put first. Numbers are left out.
    """
    begun = max(0, start - _SENTENCE)
    ends = [begun, *(found.end() for found in _SENTENCE_END.finditer(text, begun, start))]
    before = _words(_EXPRESSION.split(text[ends[-1] : start])[0])
    behind = re.sub(r"^\s*[$]?[\d,.]*\d%?", "", text[end : end + 200])
    stop = _TAIL_END.search(behind)
    tail = _words(behind[: stop.start()] if stop else behind)[:MOST_LABEL_WORDS]
    if len(tail) < _LEAST_TAIL or tail[0] in _JOINING:
        tail = [*_begun(before)[-max(MOST_LABEL_WORDS - len(tail), 3) :], *tail]
    return " ".join(_ended(_begun(tail)[:MOST_LABEL_WORDS]))


def _moves(question: TextQuestion, *, words: bool) -> tuple[str, ...] | str:
    """The moves' texts, or why there are none."""
    if len(question.written) > MAX_SOLUTION:
        return TOO_LONG
    candidates = list(annotated_moves(question.written, words=words))
    if not candidates:
        return NO_ANNOTATIONS
    if not ends_in(candidates, question.answer):
        return OTHER_END
    domain = GradeSchool()
    state = domain.initial_state(
        domain.read(question.text, problem_id=question.question_id), budget=0
    )
    for candidate in (*candidates, domain.parse(f"Answer {question.answer}")):
        if _is_done(state, candidate):
            continue
        refusal = reject(domain, state, candidate=candidate)
        if refusal is not None or isinstance(candidate, Malformed):
            return refusal.reason.partition(":")[0] if refusal else "malformed"
        state = domain.apply(state, candidate)
    return state.said


def _is_done(state: State, candidate: Candidate) -> bool:
    """Whether a line before computes the same."""
    if not isinstance(candidate, Move) or not isinstance(candidate.args, Computation):
        return False
    return read_expression(candidate.args.expression).key in context_of(state, Sheet).done


def _words(text: str) -> list[str]:
    found = (word.lower().replace("\u2019", "'") for word in _WORD.findall(_plain(text)))
    return [word for word in found if word not in CARDINALS and (len(word) > 1 or word == "a")]


def _plain(text: str) -> str:
    """Without annotations and whatever has a digit."""
    return re.sub(r"\S*\d\S*", " ", _ANNOTATION.sub(" ", text))


def _begun(words: list[str]) -> list[str]:
    """From the first word on that says something."""
    first = next((place for place, word in enumerate(words) if word not in _OPENING), len(words))
    return words[first:]


def _ended(words: list[str]) -> list[str]:
    """Up to the last word that does not wait for another."""
    while words and words[-1] in _JOINING:
        words = words[:-1]
    return words
