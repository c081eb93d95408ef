"""Lines of arithmetic: what they say, what the gates refuse, what can be computed ahead."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction

import pytest
from gated_walks import GatedWalks
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.domains.base import MAX_MOVE_TEXT, context_of
from selverify.domains.grade_school import (
    MAX_GOAL,
    MAX_LABEL,
    MAX_MOVES,
    Computation,
    FinalNumber,
    GradeSchool,
    Sheet,
)
from selverify.domains.math_steps import MathSteps
from selverify.errors import ProtocolError, SchemaError
from selverify.search.gates import reject
from selverify.search.solutions import read_solution
from selverify.types import Malformed, Move, State

DOMAIN = GradeSchool()
TEXT = (
    "A baker has 480 rolls and sells a third of them at $1.75 each. "
    "She gives 35% of the rest to 13 shelters. How many rolls are left?"
)
WALKS = GatedWalks(DOMAIN, TEXT)
start, after, why = WALKS.start, WALKS.after, WALKS.why
NUMBERS = ("480", "1.75", "13", "35%", "3", "1/3", "1,480", "0.65")
SMALL = st.integers(0, 500).map(str) | st.sampled_from(NUMBERS)
EXPRESSIONS = st.recursive(
    SMALL,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=5,
)


def move(text: str) -> Move:
    """The move that ``text`` is."""
    parsed = DOMAIN.parse(text)
    assert isinstance(parsed, Move), parsed
    return parsed


def sheet(state: State) -> Sheet:
    return context_of(state, Sheet)


def test_a_solution_from_the_question_to_its_answer() -> None:
    """Its lines pass the gates, its values are exact, and it is written one line a move."""
    lines = ("rolls sold: 480 / 3 = 160", "480 - 160 = 320", "given: 320 * 35% = 112")
    lines = (*lines, "rolls left: 320 - 112 = 208", "Answer 208")
    state = after(*lines)
    assert sheet(state).computed == (160, 320, 112, 208)
    assert DOMAIN.is_final(state) and DOMAIN.answer(state) == "208"
    assert DOMAIN.serialise(state) == "\n".join((TEXT, *lines))
    assert why(state, "480 / 13 = 36.92") == "structural: after the answer"
    assert not DOMAIN.is_final(after(*lines[:-1]))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("480/3=160", "480 / 3 = 160"),
        ("  rolls   sold :480/3 = $160.00 ", "rolls sold: 480 / 3 = 160"),
        ("$1,480.50*2=2,961", "1480.5 * 2 = 2961"),
        ("1\u00a0480 \u00d7 2 = 2\u202f960", "1480 * 2 = 2960"),
        ("(480 - 13) \u2212 .50 = 466.5.", "(480 - 13) - 0.5 = 466.5"),
        ("((480 - 13))=467", "480 - 13 = 467"),
        ("-13+3=-10", "-13 + 3 = -10"),
        ("35% x 480 = 168", "35% * 480 = 168"),
        ("3 1/2 * 2 = 7", "3 1/2 * 2 = 7"),
        ("480 / 7 = 68.57", "480 / 7 = 68.57"),
        ("1 / 3 * 0.01 = 0.00", "1 / 3 * 0.01 = 0.00"),
        ("from 8:30 on: 3 + 4 = 7", "from 8:30 on: 3 + 4 = 7"),
        (": 3 + 4 = 7", "3 + 4 = 7"),
        ("Answer: $1,480.00", "Answer 1480"),
        ("answer 0.50", "Answer 0.5"),
        ("ANSWER 35%", "Answer 35"),
        ("Answer -4.", "Answer -4"),
    ],
)
def test_equal_moves_have_one_text(text: str, canonical: str) -> None:
    """Blanks, currency, separators and idle zeros go; the text says the move again."""
    assert move(text).text == canonical
    assert move(canonical) == move(text)


def test_the_parts_of_a_move() -> None:
    computed, final = move("rolls sold: 480/3 = 160"), move("Answer 160")
    assert computed.args == Computation(label="rolls sold", expression="480 / 3", claim="160")
    assert (computed.op, final.op) == ("compute", "answer")
    assert final.args == FinalNumber(value="160")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither a computation nor an answer"),
        ("Answered 3", "neither a computation nor an answer"),
        ("Answered 3 = 3", "not numbers, + - * / and parentheses alone"),
        ("Answer 3 = 3", "not numbers, + - * / and parentheses alone"),
        ("Answer", "neither a computation nor an answer"),
        ("Answer three", "the value is no number"),
        ("Answer 1/3", "the answer is no whole or decimal number"),
        ("Answer 3 rolls", "the value is no number"),
        ("480 / 3", "neither a computation nor an answer"),
        ("480 = 480", "nothing is computed"),
        ("(480) = 480", "nothing is computed"),
        ("480 / 0 = 0", "division by zero"),
        ("480 / (3 - 3) = 0", "division by zero"),
        ("3 1/0 + 2 = 5", "division by zero"),
        ("480 / 3 = 160 = 160", "more than one ="),
        ("480 / 3 =", "the value is no number"),
        ("480 rolls / 3 = 160", "not numbers, + - * / and parentheses alone"),
        ("480 / = 3", "a number is missing"),
        ("(480 / 3 = 160", "a parenthesis is left open"),
        ("480 / 3) = 160", "the expression does not end"),
        ("2 ** 9 = 512", "a number is missing"),
        ("2 ^ 9 = 512", "not numbers, + - * / and parentheses alone"),
        ("1e3 + 1 = 1001", "not numbers, + - * / and parentheses alone"),
        ("9" * 13 + " + 1 = 2", "a number of more than 12 digits"),
        ("(" * 9 + "1 + 2" + ")" * 9 + " = 3", "nested too deeply"),
        ("+".join("1" * 18) + " = 18", "more than 16 operations"),
        (" + ".join(["123456789"] * 12) + " = 1", "an expression longer than 100 characters"),
        ("1 + 1 = 2" + " " * 200, f"longer than {MAX_MOVE_TEXT} characters"),
        ("1 + 1\x00 = 2", "control characters"),
        ("\uff11 + \u0661 = 2", "not numbers, + - * / and parentheses alone"),
    ],
)
def test_what_is_no_move_has_a_reason(text: str, reason: str) -> None:
    """Data, never an exception."""
    assert DOMAIN.parse(text) == Malformed(text[:MAX_MOVE_TEXT], reason)


def test_a_label_is_cut_and_reads_the_same_again() -> None:
    """A long one cannot push the line over the cap of a move."""
    long = move("rolls " * 20 + ": 480 / 3 = 160")
    assert isinstance(long.args, Computation) and len(long.args.label) <= MAX_LABEL
    assert move(long.text) == long


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("480 * 1/3 = 160", None),
        ("480 / 3 = 161", "context: arithmetic: 480 / 3 is not 161"),
        ("480 / 13 = 36.92", None),
        ("480 / 13 = 36.9", None),
        ("480 / 13 = 36.93", "context: arithmetic: 480 / 13 is not 36.93"),
        ("480 / 13 = 37", "context: arithmetic: 480 / 13 is not 37"),
        ("1.75 / 16 = 0.11", None),
        ("1.75 / 16 = 0.1", "context: arithmetic: 1.75 / 16 is not 0.1"),
        ("35 / 100 = 35%", None),
        ("35% * 100 = 35%", None),
        ("1 - 35% = 0.65", None),
        ("100% - 35% = 65%", None),
        ("0.65 * 480 = 312", None),
        ("480 * 0.33 = 158.4", None),
        ("480 - 7777 = -7297", "structural: scope: 7777 is neither stated nor computed"),
        ("Answer 480", None),
        ("Answer 161", "context: answer: neither stated nor computed"),
        ("480 / 0 = 1", "structural: malformed: division by zero"),
    ],
)
def test_gates(text: str, reason: str | None) -> None:
    """Stated numbers, a third rounded, shares and complements may be used; claims must be right."""
    assert why(start(), text) == reason


def test_a_computed_value_may_be_used_as_it_was_written() -> None:
    """Exact, rounded as claimed, rounded further; a percentage as share and as number."""
    state = after("480 / 13 = 36.9231")
    for operand in ("36.9231", "36.92", "36.9"):
        assert (
            why(state, f"{operand} * 480 = 1") == f"context: arithmetic: {operand} * 480 is not 1"
        )
    assert why(state, "36.8888 * 480 = 1") == (
        "structural: scope: 36.8888 is neither stated nor computed"
    )
    state = after("13 / 480 = 2.71%")
    assert why(state, "2.71 * 1.75 = 4.7425") is None
    assert why(after("480 / 13 = 36.92"), "Answer 36.92") is None


@pytest.mark.parametrize(
    ("question", "line", "known"),
    [
        ("What percent of 20 apples are the 7 red ones?", "Answer 35%", True),
        ("What percentage of 20 apples are the 7 red ones?", "Answer 35", True),
        ("What % of 20 apples are the 7 red ones?", "Answer 35", True),
        ("What percent of 20 apples are the 7 red ones?", "Answer 36", False),
        ("Of 20 apples 7 are red. How many are left after 10% rot?", "Answer 35", False),
        ("Of 20 apples 7 are red. How many are left after 10 percent rot?", "Answer 35", False),
    ],
)
def test_what_is_asked_in_percent_may_be_computed_as_a_share(
    question: str, line: str, known: bool
) -> None:
    state = DOMAIN.apply(start(question), move("7 / 20 = 0.35"))
    assert (why(state, line) is None) == known


def test_a_number_one_step_away_may_be_used() -> None:
    """As writers leave out 480 - 13 = 467, but not two steps."""
    assert why(start(), "467 * 35% = 163.45") is None
    assert why(start(), "454.77 * 35% = 159.1695") is not None


def test_nothing_is_computed_three_times() -> None:
    """The order of terms and factors does not tell two computations apart."""
    state = after("480 * (13 + 3) = 7680")
    assert why(state, "for her brother: (3 + 13) * 480 = 7680") is None
    state = DOMAIN.apply(state, move("for her brother: (3 + 13) * 480 = 7680"))
    again = "480 * (3 + 13) = 7680"
    assert why(state, again) == "structural: repeat: computed twice before"
    assert why(state, "480 * 13 + 3 = 6243") is None


def test_a_hostile_derivation_takes_time_by_its_length() -> None:
    """Beyond what the gates allow nothing is tracked any more."""
    state = start()
    for number in range(2 * MAX_MOVES):
        state = DOMAIN.apply(state, move(f"{number} + 1 = {number + 1}"))
    assert len(sheet(state).computed) == MAX_MOVES
    assert len(state.derivation) == 2 * MAX_MOVES


def test_an_endless_derivation_is_stopped() -> None:
    state = start()
    for number in range(MAX_MOVES):
        state = DOMAIN.apply(state, move(f"{number} + 1 = {number + 1}"))
    assert why(state, "480 / 3 = 160") == f"structural: more than {MAX_MOVES} moves"


def test_apply_without_gates() -> None:
    """A number from nowhere has a value; a division by zero has none, and nor has another move."""
    state = DOMAIN.apply(start(), move("7777 - 480 = 7000"))
    assert sheet(state).computed == (7297,)
    zero = replace(move("3 + 4 = 7"), args=Computation(label="", expression="3 / 0", claim="7"))
    with pytest.raises(ProtocolError, match="p: given '3 / 0', which divides by zero; expected"):
        DOMAIN.apply(start(), zero)
    assert DOMAIN.structural_violation(start(), zero) == "division by zero"
    other = MathSteps().parse("So 3 + 4 = 7.")
    assert isinstance(other, Move)
    with pytest.raises(ProtocolError, match="expected a move with the arguments Computation"):
        DOMAIN.apply(start(), other)


def test_a_whole_text_is_a_solution() -> None:
    """Legal or not; what stands behind the answer is not read."""
    good = read_solution(DOMAIN, start(), text="480 / 3 = 160\n\nAnswer 160\nmore", count=1)
    bad = read_solution(DOMAIN, start(), text="480 / 7777 = 3\nAnswer 3", count=1)
    assert good is not None and good.legal and DOMAIN.answer(good.state) == "160"
    assert bad is not None and not bad.legal
    assert read_solution(DOMAIN, start(), text="480 / 0 = 3\nAnswer 3", count=1) is None


@pytest.mark.parametrize(
    ("begun", "forced"),
    [
        ("480 / 3 =", " 160\n"),
        ("480/3=", " 160\n"),
        ("rolls sold: 480 / 3 =", " 160\n"),
        ("480 / 13 =", " 36.92\n"),
        ("1.75 / 16 =", " 0.109375\n"),
        ("1.75 / 13 / 480 =", None),  # it would say 0.00
        ("13 - 480 =", " -467\n"),
        ("480 * 1,000,000,000,000 =", None),
        ("100 * 100 * 100 * 100 * 100 * 100 * 100 * 100 =", None),
        ("7777 / 3 =", None),
        ("480 / 0 =", None),
        ("480 / 3 ==", None),
        ("480 / 3 = =", None),
        ("480 / 3 =-", None),
        ("480 / 3 = ", None),
        ("480 / 3", None),
        ("480 =", None),
        ("=", None),
        ("", None),
        ("Answer 3 =", None),
        ("rolls =", None),
        ("a" * 300 + ": 480 / 3 =", None),
    ],
)
def test_what_must_follow(begun: str, forced: str | None) -> None:
    """The value where it is known and short; nothing else."""
    assert DOMAIN.forced(start(), begun) == forced


def test_nothing_must_follow_an_answer() -> None:
    assert DOMAIN.forced(after("Answer 480"), "480 / 3 =") is None


@given(expression=EXPRESSIONS, label=st.sampled_from(["", "rolls: ", "x" * 170 + ": "]))
@settings(max_examples=300, deadline=None)
def test_a_forced_value_is_a_right_move(expression: str, label: str) -> None:
    """It parses, no gate refuses it, and it is the value or that rounded to two decimals."""
    begun = f"{label}{expression} ="
    forced = DOMAIN.forced(start(), begun)
    if forced is None:
        return
    assert forced.startswith(" ") and forced.endswith("\n") and len(forced) <= 16
    said = move(begun + forced)
    assert reject(DOMAIN, start(), candidate=said) is None
    value = sheet(DOMAIN.apply(start(), said)).computed[0]
    assert abs(Fraction(forced.strip()) - value) <= Fraction(1, 200)


@given(expression=EXPRESSIONS, claim=SMALL)
@settings(max_examples=300, deadline=None)
def test_any_line_reads_the_same_again(expression: str, claim: str) -> None:
    """The text of a move is its own, and a move may follow any state."""
    parsed = DOMAIN.parse(f"{expression} = {claim}")
    if isinstance(parsed, Move):
        assert DOMAIN.parse(parsed.text) == parsed
        assert hash(DOMAIN.apply(start(), parsed)) is not None


def test_the_goal_is_what_is_asked() -> None:
    """With white space made one blank each, and no longer than its cap."""
    problem = DOMAIN.read(
        " A pen costs\n\t$3.  How much are 4\u00a0pens? They are red. ", problem_id="p"
    )
    assert problem.text == "A pen costs $3. How much are 4 pens? They are red."
    assert problem.goal == "How much are 4 pens?"
    assert DOMAIN.read("Take 3. Add 4.", problem_id="p").goal == "Add 4."
    assert len(DOMAIN.read("pens " * 500 + "?", problem_id="p").goal) <= MAX_GOAL
    assert DOMAIN.read("It costs 1\u00a0200.", problem_id="p").text == "It costs 1,200."


@pytest.mark.parametrize(
    "text", ["How many?", "\u4f60\u6709\u51e0\u4e2a\u82f9\u679c\uff1f", "Wie viele \u00c4pfel?"]
)
def test_a_question_without_numbers_is_a_problem(text: str) -> None:
    """Constants are all that its lines can use."""
    assert sheet(start(text)).stated == frozenset()
    assert why(start(text), "2 + 3 = 5") is None


def test_a_question_that_is_none_is_refused() -> None:
    """Empty, of ten thousand words, or with control characters: one sentence."""
    for text, said in (
        ("", "given a problem of 0 characters"),
        ("word " * 10_000, "given a problem of 49999 characters, expected 1 to 16000"),
        ("a\x00b", "expected no control characters"),
    ):
        with pytest.raises(SchemaError, match=f"p: given.*{said.removeprefix('given')}"):
            DOMAIN.read(text, problem_id="p")


@pytest.mark.parametrize(
    "line",
    [
        "(" * 100 + ")" * 100,
        "-" * 190 + "1=1",
        "1+" * 90 + "1=91",
        " " * 190 + "=",
        "1,000" * 39,
        ":" * 199,
        "3 1/2 " * 30 + "=",
        "9/7+" * 45 + "1=1",
    ],
)
def test_hostile_lines_are_settled_at_once(line: str) -> None:
    """At a state of many numbers, none of which is the operand."""
    text = " ".join(f"{number}/7 {number}.13" for number in range(1_001, 2_000))
    state = start(text[:15_000])
    began = time.process_time()
    parsed = DOMAIN.parse(line)
    reject(DOMAIN, state, candidate=parsed)
    DOMAIN.forced(state, line)
    assert time.process_time() - began < 0.2
