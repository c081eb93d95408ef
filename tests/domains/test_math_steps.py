"""Steps of ordinary text: what is read off them, and what the gates refuse."""

from __future__ import annotations

import pytest
from gated_walks import GatedWalks

from selverify.domains.answers import stated_answer
from selverify.domains.base import split_moves
from selverify.domains.math_steps import FinalStep, MathSteps, TextStep
from selverify.errors import SchemaError
from selverify.types import Malformed, Move

DOMAIN = MathSteps()
TEXT = "A pen costs 3 dollars. How much do 4 pens cost?"
WALKS = GatedWalks(DOMAIN, TEXT)
start, after, why = WALKS.start, WALKS.after, WALKS.why


def test_what_is_read_off_a_step() -> None:
    """Its claims, and the answer that it states."""
    move = DOMAIN.parse("Four pens cost 4 * 3 = 12 dollars.")
    assert isinstance(move, Move) and isinstance(move.args, TextStep)
    assert (move.op, move.args.claims) == ("compute", (("4 * 3", "12", True),))
    final = DOMAIN.parse(r"So it is $\boxed{12}$.")
    assert isinstance(final, Move) and isinstance(final.args, FinalStep)
    assert (final.op, final.args.value) == ("answer", "12")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Four pens cost 4 * 3 = 12 dollars.", None),
        ("Four pens cost 4 * 3 = 11 dollars.", "context: arithmetic: 4 * 3 is not 11"),
        ("(by #7) It costs 12.", None),
        ("He lives in house #4. Then (by #5) it is far.", None),
        ("A pen is a pen.", None),
        ("Try two:\n2 * 3 = 12. This does not work.", None),
        ("", "structural: malformed: empty"),
        ("a\x00b", "structural: malformed: control characters"),
        ("x" * 4_001, "structural: malformed: longer than 4000 characters"),
    ],
)
def test_gates(text: str, reason: str | None) -> None:
    """Each with a reason that a reader understands."""
    assert why(after("A pen is a pen.", "He lives in house #4."), text) == reason


@pytest.mark.parametrize("blank", ["\x0b", "\x0c"])
def test_a_page_break_is_white_space(blank: str) -> None:
    """In a problem and in a step; at their ends it is cut off, as other white space is."""
    text = f"{blank}Ann has 3 pens.{blank}How many has she?{blank}"
    problem = DOMAIN.read(text, problem_id="p")
    assert problem.text == "Ann has 3 pens. How many has she?"
    assert problem.goal == "How many has she?"
    assert DOMAIN.parse(f"So 3 +{blank}4 = 7.{blank}") == DOMAIN.parse("So 3 + 4 = 7.")


@pytest.mark.parametrize("sign", ["\x00", "\x08", "\x0e", "\x1b", "\x7f", "\ud800"])
def test_other_control_characters_are_refused(sign: str) -> None:
    """They are in no text that somebody wrote."""
    with pytest.raises(SchemaError, match="expected no control characters"):
        DOMAIN.read(f"Ann has{sign} 3 pens.", problem_id="p")
    assert isinstance(DOMAIN.parse(f"So{sign} 7."), Malformed)


def test_a_state_with_an_answer_is_final() -> None:
    """The answer stands, and the text so far is the problem and its steps."""
    state = after("4 * 3 = 12", "The answer is 12.")
    assert DOMAIN.is_final(state) and DOMAIN.answer(state) == "12"
    assert DOMAIN.serialise(state) == f"{TEXT}\n\n4 * 3 = 12\n\nThe answer is 12."


def test_a_problem_has_text_and_its_last_sentence_is_its_goal() -> None:
    """An empty one is refused."""
    assert DOMAIN.read("Ann has 3 pens. How many?", problem_id="p").goal == "How many?"
    with pytest.raises(SchemaError, match="p: given a problem of 0 characters"):
        DOMAIN.read(" ", problem_id="p")


def test_steps_stand_between_empty_lines() -> None:
    """Lines without an empty one between them are one step."""
    assert [*split_moves("a\nb\n\n  \n c \n \nd\n", DOMAIN.end_of_move)] == ["a\nb", "c", "d"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("12 in all\n#### 1,234", "1,234"),
        ("The answer is $5$. The final answer is: 7 apples.", "7 apples"),
        (r"#### 3, or rather \boxed{4}", "4"),
        ("**The answer is 5.**", "5"),
        ("The answer is Tuesday.", "Tuesday"),
        (r"The answer is \(4\).", "4"),
        (r"#### \[ x + 1 \]", "x + 1"),
        (r"The answer is \(a\) and \(b\).", r"\(a\) and \(b\)"),
        ("The answer is 4. I am confident.", "4"),
        ("The answer is 3.5. So be it.", "3.5"),
        ("The answer is 18 dollars. She makes it daily.", "18 dollars"),
        ("The answer is Tuesday. I am sure.", "Tuesday"),
        ("The answer is St. Louis.", "St. Louis"),
        ("The Final Answer is 18.", "18"),
        ("The correct answer to the question is 18.", "18"),
        ("The answer is:\n\\[\n13\n\\]", "13"),
        ("The answer is $x=5$ and $y=3$.", "$x=5$ and $y=3$"),
        ("The answer is $(5,3)$, as required.", "(5,3)"),
        ("The answer is 18, since 3 * 6 = 18.", "18"),
        ("The answer is 18. The answer is reasonable.", "18"),
        ("The answer is incorrect.", None),
        ("#### $18", "18"),
        ("#### x = 5", "x = 5"),
        ("#### B", "B"),
        ("#### 42\n#### Conclusion", "42"),
        ("#### Step 2: Subtract", None),
        ("#### 1. Find the total cost", None),
        ("#### 1) Find x", None),
        ("#### Conclusion", None),
        ("#### \N{MINUS SIGN}5", "\N{MINUS SIGN}5"),
        ("#### x_1 = 2", "x_1 = 2"),
        ("#### [1, 2]", "[1, 2]"),
        ("#### 18. That is it.", "18"),
        ("#### Yes", "Yes"),
        ("#### **18**", "18"),
        ("#### **18 eggs**", "18 eggs"),
        ("#### **18** eggs", "18 eggs"),
        ("#### *18*", "18"),
        ("#### x*y + 1", "x*y + 1"),
        ("#### **1. Find x**", None),
        ("#### **A** note", None),
        ("The answer is 3. No wait. The answer is Tuesday.", "Tuesday"),
        ("The answer is 3. No wait. The answer is \N{EURO SIGN}18.", "\N{EURO SIGN}18"),
        ("The answer is no.", "no"),
        ("The answer to the issue is 18.", "18"),
        (r"The answer is \[ 18. \]", "18"),
        ("The answer is 2! = 2.", "2! = 2"),
        ("The answer is not obvious, so we try x = 1.", None),
        ("The answer is not 5.", None),
        ("#### TextStep 2: Find x\nWe have x = 1.", None),
        ("no answer", None),
        ("#### .", None),
    ],
)
def test_stated_answers(text: str, answer: str | None) -> None:
    """The last box counts most, then the last statement."""
    assert stated_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("A box holds 3 pears. How many are in two? Each pear is ripe.", "How many are in two?"),
        ("How long is x? [asy] draw((0,0)--(1,1)); [/asy]", "How long is x?"),
        ("Let a = 3. Find a + 1.", "Find a + 1."),
        ("[asy] dot((0,0)); [/asy]", "[asy] dot((0,0)); [/asy]"),
    ],
)
def test_the_goal_is_what_is_asked(text: str, goal: str) -> None:
    assert MathSteps().read(text, problem_id="p").goal == goal
