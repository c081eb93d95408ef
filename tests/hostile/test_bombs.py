"""Every gate and parser of text before every bomb: an answer at once, and never a strange error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import fuzz_domains
import pytest
from bombs import BOMBS, LIMIT, LOOKALIKES, quickest

from selverify.data import algebra, grading
from selverify.domains import DOMAINS, GENERATED
from selverify.domains.answers import extract_boxed, stated_answer
from selverify.domains.base import close_move, split_moves
from selverify.domains.claims import canonical_answer, find_claims
from selverify.errors import SelverifyError
from selverify.models.generators.served import _wrong_choices
from selverify.models.prompting import Prompting, disarmed, load_prompt, plain, plain_text
from selverify.models.verifiers.judge import read_opinion
from selverify.types import Malformed, Problem, State

LONGEST_PROBLEM = 50_000
"""Characters of a question that a file may hold; a longer one is refused there."""
LONGEST_MOVE = 4_000
LONGEST_MESSAGE = 5_000


def told(read: Callable[[str], object]) -> Callable[[str], None]:
    """``read`` may refuse a text with an error of the tree."""

    def tried(text: str) -> None:
        try:
            read(text)
        except SelverifyError as error:
            assert 0 < len(str(error)) < LONGEST_MESSAGE

    return tried


def gate(name: str) -> Callable[[str], object]:
    """Parse, gate and apply at a state of the domain."""
    state = fuzz_domains.begin(name)
    return lambda text: fuzz_domains.feed(name, state, text)


def read_problem(name: str) -> Callable[[str], object]:
    domain = DOMAINS[name]
    return told(
        lambda text: domain.initial_state(
            domain.read(text[:LONGEST_PROBLEM], problem_id="p"), budget=1
        )
    )


def begin_problem(name: str) -> Callable[[str], object]:
    """A problem of a table that somebody else wrote, of the longest that ``read`` lets in."""
    domain = DOMAINS[name]
    return told(
        lambda text: domain.initial_state(
            Problem("p", name, text[: 4 * LONGEST_MOVE], ""), budget=1
        )
    )


def instantiate(name: str) -> Callable[[str], object]:
    """A pattern of a checkpoint that somebody else trained."""
    state = fuzz_domains.begin(name)
    return lambda text: DOMAINS[name].instantiate(state, text)


def prompted(text: str) -> None:
    """A problem and a step of the longest that pass, as they are shown to a model."""
    domain = DOMAINS["math"]
    problem = Problem("p", "math", text[: 4 * LONGEST_MOVE], "")
    state = State(problem, (), None, 1)
    prompting = Prompting(load_prompt("math_steps"), end_of_move="\n\n")
    for shown in (prompting(state), plain(domain)(state)):
        assert disarmed(plain_text(shown)).count("<|") <= text.count("<|")


def compared(text: str) -> None:
    """All of grading that needs no process; what is longer than the cap goes to none."""
    grading.compare_quickly("24", text)
    grading.compare_quickly(text, "24")
    if len(text) <= grading.MAX_ANSWER:
        algebra._delimited(text)
        algebra._said(text)


def said_by_a_server(text: str) -> None:
    """A choice of a reply, and a reply that is no such thing."""
    for reply in ({"choices": [{"text": text}]}, {"choices": text}, {text[:99]: [text]}):
        fault = _wrong_choices(reply)
        assert fault is None or len(fault) < 500


def moves_up_to(end: str) -> Callable[[str], object]:
    return lambda text: list(split_moves(text, end))


ENTRIES: Mapping[str, Callable[[str], object]] = {
    **{f"gates of {name}": gate(name) for name in DOMAINS},
    **{f"problems of {name}": read_problem(name) for name in DOMAINS},
    **{f"begin {name}": begin_problem(name) for name in DOMAINS},
    **{f"patterns of {name}": instantiate(name) for name in DOMAINS},
    "claims": find_claims,
    "one form of an answer": canonical_answer.__wrapped__,
    "grading": compared,
    "judge": read_opinion,
    "prompts": prompted,
    "replies": said_by_a_server,
    **{f"moves up to {end!r}": moves_up_to(end) for end in (";", "\n", "\n\n", " ")},
    "a move's end": lambda text: close_move(text[:LONGEST_MOVE], ";"),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_bomb_is_settled_at_once(entry: str) -> None:
    """Within 50 ms, and with no error but those of the tree."""
    taken = {name: quickest(partial(ENTRIES[entry], text)) for name, text in BOMBS.items()}
    assert {name: seconds for name, seconds in taken.items() if seconds > LIMIT} == {}


@pytest.mark.parametrize("read", [stated_answer, extract_boxed])
def test_an_answer_is_read_in_a_tenth_of_that(read: Callable[[str], object]) -> None:
    """Many samples a problem are read one after the other."""
    limit = LIMIT / 10
    taken = {name: quickest(partial(read, text), limit=limit) for name, text in BOMBS.items()}
    assert {name: seconds for name, seconds in taken.items() if seconds > limit} == {}


@pytest.mark.parametrize("stated", [r"\boxed{7}", r"\boxed 7", "The answer is 7", "#### 7"])
def test_an_answer_is_looked_for_at_the_end(stated: str) -> None:
    """In the last 20,000 characters, which is more than a recorded solution has."""
    assert stated_answer("a\n" * 500_000 + stated) == "7"
    assert stated_answer(stated + "\n" + "a" * 19_000) == "7"
    assert stated_answer(stated + "\n" + "a" * 20_000) is None


@pytest.mark.parametrize("name", GENERATED)
def test_what_only_looks_like_a_digit_or_a_letter_is_no_move(name: str) -> None:
    """Digits of other scripts, full width, invisible marks, letters of another alphabet."""
    domain = DOMAINS[name]
    for text in LOOKALIKES:
        for ended in (text, f"{text} {domain.end_of_move}"):
            assert isinstance(domain.parse(ended), Malformed), ascii(ended)


@pytest.mark.parametrize("text", LOOKALIKES, ids=ascii)
def test_what_only_looks_like_a_digit_makes_no_claim_and_no_answer(text: str) -> None:
    """It is left to the grader, whose parser is another process."""
    assert [claim for claim in find_claims(f"{text} = 24") if not claim.holds] == []
    assert grading.compare_quickly("24", text) is None
    assert isinstance(DOMAINS["math_structured"].parse(text), Malformed)


def test_a_whole_solution_of_a_megabyte_is_read_up_to_the_caps() -> None:
    """As many moves as a state can take in a second, and no more of the text than 200,000."""
    assert len(list(split_moves("a\n\n" * 300_000, "\n\n"))) == 4_096
    assert len(list(split_moves("answer 1 ; " * 100_000, ";"))) == 4_096
    assert "".join(split_moves("a" * 1_000_000, "\n")) == "a" * 200_000
