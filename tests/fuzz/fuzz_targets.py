"""The targets by name, and one input before one of them.

Knows: what each parser promises of any text. Does not know: where inputs come from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fuzz_domains import begin, feed
from fuzz_input import pieces_of

from selverify.data import algebra, grading
from selverify.domains import DOMAINS, GENERATED
from selverify.domains.answers import extract_boxed, stated_answer
from selverify.domains.base import split_moves
from selverify.domains.claims import MAX_CLAIM_TEXT, canonical_answer, find_claims
from selverify.errors import SchemaError
from selverify.models.generators import served
from selverify.models.verifiers.judge import read_opinion
from selverify.types import Problem

CORPUS = Path(__file__).parent / "corpus"
"""What was found, a folder a target; ``tests/hostile`` feeds it to the targets again."""
STATUSES = frozenset({"correct", "wrong", "unparsed"})
MATH = (
    *"0123456789+-*/^=!%(){}[]$.,;:?#&~|<>\\\n ",
    *(" = ", " + ", " / ", "12", "1,000", "0.5", "\\frac", "\\sqrt", "\\binom", "{", "}"),
    *("\\boxed{", "\\text{", "\\left(", "\\right)", "\\times", "\\cdot", "\\approx", "\\neq"),
    *("####", "The answer is ", " apples", " red", " if", " about", " remainder", " of", " and "),
    *("Check: ", " not ", "\x0c", "\u00d7", "\u2212", "\u2248", "\uff11", "\u00b2", "\u0661"),
    *("\u200f", "\x00", "\ud800", "\t", "**", "9**9**9", "9^{9^{9}}", "x"),
    *("\\quad", "\\\\", "mod "),
)
"""Words of mathematics that several targets put texts together from."""


COUNTDOWN = (
    *begin("countdown").problem.text.split(),
    *("answer", "=", "left", "+", "-", "*", "/", ";", ";", ";"),
    *map(str, range(26)),
    "200",
    "201",
    "\u0662",
    "-1",
    "1e3",
)
GRADE_SCHOOL = (
    *("Answer", "answer:", "Answered", "=", "=", "=", "+", "-", "*", "/", "x", "(", ")", ":", "%"),
    *("3", "4", "5", "12", "0", "1,200", "$4", ".5", "3.33", "20%", "3 1/2", "1/0", "1 / 0", "7."),
    *("apples left:", "3 + 4 = 7", "3 + 4 =", "12 / 5 = 2.4", "12 / 7 = 1.71", "Answer 7", "\n"),
    *("9" * 13, "-1", "1e3", "**", "\u00a0", "\u00d7", "\u2212", "\uff11", "\u0661", "\u00bd"),
    *("\x00", "\ud800"),
)
JUDGE = (
    *('{"reason": "', '", "verdict": "', '", "confidence": ', "}", "{", '"', ",", ":", "[", "]"),
    *("right", "wrong", "unsure", "0", "100", "100.5", "-1", "1e999", "NaN", "Infinity", "true"),
    *("```", "```json", "\n", " ", "\\", "\\u0031", "\\ud800", "\x00", "a", "null", "\ud800"),
)
STRUCTURED = (
    *('{"op": "', '", "args": {', "}}", '"', '", "', '": "', '": ', "{", "}", "[", "]", ",", "\\"),
    *("define", "require", "bound", "bind", "compute", "derive", "answer"),
    *("symbol", "meaning", "condition", "relation", "value", "because", "expression", "equation"),
    *("premises", "integer", "even", "odd", "positive", "negative", "nonzero", "<", ">=", "!="),
    *('{"op": "define", "args": {"symbol": "k", "meaning": "m"}}',),
    *('{"op": "bind", "args": {"symbol": "k", "because": "b", "value": "',),
    *('{"op": "compute", "args": {"symbol": "k", "because": "b", "expression": "', '", "value": "'),
    *('{"op": "derive", "args": {"premises": [1], "because": "b", "equation": "',),
    *('{"op": "require", "args": {"symbol": "k", "condition": "even"}}',),
    *('{"op": "bound", "args": {"symbol": "k", "relation": "<", "value": "',),
    *('{"op": "answer", "args": {"symbol": "k", "value": "', '"}}', '"}}', '"}}'),
    *"0123456789+-*/^=!%(). kxnAB_$",
    *("\\frac", "\\\\frac", "\\sqrt", "sqrt(", "1/3", "0.33", "20%", "\\text{", "\\not", "1e999"),
    *(
        "```",
        "```json",
        "\n",
        "NaN",
        "null",
        "\\u0031",
        "\\ud800",
        "\x00",
        "about ",
        "if ",
        "\uff11",
    ),
)
PROBLEMS = tuple(
    """
    e1 e2 e3 : : + + - = / * ( ) . . . find is x y z xx yy positive negative even odd above below
    not 0 1 2 3 4 5 -1 -2 8 200 201 use to make 24 how many apples pears ? find apples ? of are
    there plus minus times equal [asy] [/asy] $AB=5$ \\boxed{ #1. base if 12_5 a*b A_1 \n \x00
    \ud800 \u200f \uff11
    """.split()  # noqa: SIM905
)
REPLIES = (
    *('{"choices": [', "]}", '{"index": 0, ', '"text": "', '"message": {"content": "', '"}', '"}}'),
    *('"finish_reason": "stop"', '"stop_reason": "', '"matched_stop": ', '], "usage": {'),
    *('"completion_tokens": ', "0", "1", "-1", "9" * 30, "1e999", "NaN", "true", "null", ",", '"'),
    *("{", "}", "[", "]", ":", " ", "\\n", "\\n\\n", ";", " ;", "a", "\\ud800", "\\u0000", "\\"),
    *('"data": [{"index": 0, "embedding": [', "]}]"),
)
WORD_PROBLEMS = (
    *(word for word in begin("word_problems").problem.text.split() if word != "."),
    *("answer", "=", "+", "-", "*", ";", ";", ";"),
    *map(str, range(12)),
    *GENERATED["word_problems"].vocabulary[:6],
    "\uff11",
    "-1",
    "1_0",
    "01",
)


@dataclass(frozen=True)
class Target:
    """What texts are put together from, with ``between`` between two words, and what reads them.

    ``feed`` gives the state after a piece; whatever it raises is a find.
    """

    words: Sequence[str]
    between: str
    feed: Callable[[Any, str], Any]
    start: Callable[[], Any] = lambda: None


def stateless(read: Callable[[str], None]) -> Callable[[Any, str], None]:
    """A ``feed`` that depends on the text alone."""
    return lambda _, text: read(text)


def domain_target(name: str, words: Sequence[str], between: str) -> Target:
    """Moves of a domain, gated and applied."""
    return Target(words, between, partial(feed, name), partial(begin, name))


def read_answers(text: str) -> None:
    """What is stated is a part of the text; what is compared has a status or is left open."""
    stated = stated_answer(text)
    assert stated is None or stated in text
    if len(text) <= grading.MAX_ANSWER:
        box = extract_boxed(text)
        assert box is None or box in text
    gold, _, answer = text.partition("=")
    for one, other in ((gold, answer), ("24", answer), (gold, text)):
        settled = grading.compare_quickly(one, other)
        assert settled is None or settled.status in STATUSES
    if len(text) <= grading.MAX_ANSWER:
        algebra._delimited(text)
        algebra._said(text)


def read_claims(text: str) -> None:
    """Claims have two sides and a truth value; the form of an answer has a cap."""
    for claim in find_claims(text):
        assert claim.left and claim.right and claim.holds in (True, False)
    assert len(canonical_answer.__wrapped__(text)) <= 4 * MAX_CLAIM_TEXT


def read_judge(text: str) -> None:
    """A verdict with a score in [0, 1], or nothing."""
    opinion = read_opinion(text)
    assert opinion is None or 0.0 <= opinion.score <= 1.0


def read_problems(text: str) -> None:
    """A problem with a first state that can be written down, or the one error that is told."""
    for name, domain in DOMAINS.items():
        try:
            problem = domain.read(text, problem_id="p")
            assert (problem.text + problem.goal).encode()
            domain.initial_state(problem, budget=1)
        except (SchemaError, UnicodeEncodeError) as error:
            # Such a text is stopped where a file is read; a domain need not look for it.
            assert isinstance(error, SchemaError) or name not in ("math", "math_structured")
        try:
            domain.initial_state(Problem("p", name, text, ""), budget=1)
        except SchemaError:
            continue


def read_replies(text: str) -> None:
    """A reply is of the form and all its texts can be written, or its fault is one short line."""
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(reply, dict):
        return
    for fault in (served._wrong_choices(reply), served._wrong_vectors(reply, 1)):
        assert fault is None or (fault and "\n" not in fault)
    if served._wrong_choices(reply) is None:
        read = served._Choices.model_validate(reply)
        said = [choice.said for choice in served._distinct(read.choices)]
        assert all(one is not None and one.encode() is not None for one in said)
        assert all(count >= 0 for count in served._tokens(read.usage, [one or "" for one in said]))
        for one in said:
            assert all(move.strip() for move in split_moves(one or "", ";"))


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "answers": Target(MATH, "", stateless(read_answers)),
        "claims": Target(MATH, "", stateless(read_claims)),
        "countdown": domain_target("countdown", COUNTDOWN, " "),
        "grade_school": domain_target("grade_school", GRADE_SCHOOL, " "),
        "judge": Target(JUDGE, "", stateless(read_judge)),
        "math_steps": domain_target("math", MATH, ""),
        "math_structured": domain_target("math_structured", STRUCTURED, ""),
        "problems": Target(PROBLEMS, " ", stateless(read_problems)),
        "replies": Target(REPLIES, "", stateless(read_replies)),
        "word_problems": domain_target("word_problems", WORD_PROBLEMS, " "),
    }
)


def slowest_piece(target: Target, data: bytes) -> float:
    """Feed the pieces of an input; seconds of this thread's processor that the slowest took."""
    state, longest = target.start(), 0.0
    for piece in pieces_of(data, target.words, target.between):
        began = time.thread_time()
        state = target.feed(state, piece)
        longest = max(longest, time.thread_time() - began)
    return longest


def best_of_three(target: Target, data: bytes) -> float:
    """As ``slowest_piece``, on a machine that may be busy with something else."""
    return min(slowest_piece(target, data) for _ in range(3))
