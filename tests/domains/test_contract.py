"""What every domain promises, over every domain there is."""

import dataclasses
import random
import time
from collections.abc import Iterator

import fuzz_domains
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.domains import DOMAINS, GENERATED, domain_by_name, generated_by_name
from selverify.domains.base import Domain, GeneratedDomain, split_moves
from selverify.errors import ParamsError
from selverify.search.gates import reject
from selverify.types import Malformed, Move, Problem, State, Truth

SIZES = {"word_problems": (4, 8), "countdown": (4, 4)}
SEEDS = st.integers(0, 2**32)
HOSTILE = {
    "a long move": "4 + 8 = 12 left " + "7 " * 500_000 + ";",
    "look-alike digits": "answer = \uff12\uff14 ;",
    "other scripts' digits": "answer = \u0662\u0664 ;",
    "superscript digits": "answer = \u00b2\u2074 ;",
    "some digits": "answer = 99999999999999999999 ;",
    "tower": "answer = 9**9**9 ;",
    "tower of words": "answer = 9 ** 9 ** 9 ;",
    "exponent": "answer = 1e999 ;",
    "sign": "answer = -1 ;",
    "leading zero": "answer = 01 ;",
    "underscore": "answer = 1_0 ;",
    "code": "__import__('os').system('true') ;",
    "special tokens": "<bos> answer = 1 ; <eos>",
    "null": "answer = 1\x00 ;",
    "no end": "answer = 1",
    "two moves": "answer = 1 ; answer = 1 ;",
    "empty": "",
    "blank": " \n\t ",
}

over_every_domain = pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
over_domains = pytest.mark.parametrize("domain", GENERATED.values(), ids=GENERATED)


def draw(domain: GeneratedDomain, seed: int) -> tuple[Problem, Truth, tuple[Move, ...]]:
    rng = random.Random(seed)
    minimum, maximum = SIZES[domain.name]
    problem, truth = domain.generate(
        rng, problem_id="p", minimum=minimum, maximum=maximum, hard=0.5
    )
    return problem, truth, domain.solution(problem, truth, rng)


def states(domain: GeneratedDomain, problem: Problem, moves: tuple[Move, ...]) -> Iterator[State]:
    """The states along a derivation, the first and the last among them."""
    state = domain.initial_state(problem, budget=5)
    yield state
    for move in moves:
        state = domain.apply(state, move)
        yield state


def words_of(domain: GeneratedDomain, seed: int) -> set[str]:
    problem, _, moves = draw(domain, seed)
    return set(" ".join([problem.text, problem.goal, *(move.text for move in moves)]).split())


def test_every_domain_is_under_test() -> None:
    """The contract skips no domain, and each is found by its own name."""
    assert SIZES.keys() == GENERATED.keys()
    assert all(generated_by_name(name).name == name for name in GENERATED)
    assert all(domain_by_name(name).name == name for name in DOMAINS)
    assert DOMAINS.keys() - GENERATED.keys() == {"grade_school", "math", "math_structured"}


def test_an_unknown_domain_is_refused() -> None:
    """The message names what was given and what there is."""
    with pytest.raises(ParamsError, match="given 'chess', expected one of word_problems, count"):
        domain_by_name("chess")
    with pytest.raises(ParamsError, match="given 'math', expected one that draws its own problems"):
        generated_by_name("math")


@over_domains
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_a_right_derivation_passes_and_stays_alive(domain: GeneratedDomain, seed: int) -> None:
    """Every move of a solution passes both gates; the last one gives the true answer."""
    problem, truth, moves = draw(domain, seed)
    path = list(states(domain, problem, moves))
    for state, move in zip(path, moves, strict=False):
        assert domain.alive(state, truth)
        assert not domain.is_final(state)
        assert domain.answer(state) is None
        assert reject(domain, state, candidate=move) is None
    assert domain.is_final(path[-1])
    assert domain.answer(path[-1]) == truth.answer
    assert domain.alive(path[-1], truth)
    assert reject(domain, path[-1], candidate=moves[-1]) is not None


@over_domains
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_a_move_is_what_its_text_says(domain: GeneratedDomain, seed: int) -> None:
    """Parsing a move's text gives the move; its arguments are those of its operator."""
    for move in draw(domain, seed)[2]:
        assert domain.parse(move.text) == move
        assert type(move.args) is domain.operators[move.op]
        assert move.text.split().count(domain.end_of_move) == 1
        assert move.text.split()[-1] == domain.end_of_move


@over_domains
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_texts_use_the_vocabulary_only(domain: GeneratedDomain, seed: int) -> None:
    """Problem, goal and moves have no word that a tokenizer built on the domain lacks."""
    assert words_of(domain, seed) <= set(domain.vocabulary)


@over_domains
def test_the_vocabulary_is_a_plain_list_of_words(domain: GeneratedDomain) -> None:
    """No word twice, none with white space, none of the tokenizer's own."""
    assert len(set(domain.vocabulary)) == len(domain.vocabulary)
    assert all(word.split() == [word] for word in domain.vocabulary)
    assert not any(word.startswith("<") for word in domain.vocabulary)
    assert domain.end_of_move in domain.vocabulary


@over_domains
@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_serialise_is_problem_then_trace(domain: GeneratedDomain, seed: int) -> None:
    """A state's text is single-spaced, and apply adds the move's text and keeps the budget."""
    problem, _, moves = draw(domain, seed)
    for count, state in enumerate(states(domain, problem, moves)):
        text = domain.serialise(state)
        assert text.split(" ") == text.split()
        assert text == " ".join([problem.text, *(move.text for move in moves[:count])])
        assert (state.derivation, state.budget) == (moves[:count], 5)


@over_domains
@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_everything_is_a_function_of_the_seed(domain: GeneratedDomain, seed: int) -> None:
    """The same seed gives the same problem, truth and solution; states can be hashed."""
    assert draw(domain, seed) == draw(domain, seed)
    problem, _, moves = draw(domain, seed)
    first, second = (tuple(states(domain, problem, moves)) for _ in range(2))
    assert len({*first, *second}) == len(moves) + 1


@over_domains
def test_fingerprints_tell_problems_apart(domain: GeneratedDomain) -> None:
    """A fingerprint depends on the problem's text alone and is not one for all."""
    problems = [draw(domain, seed)[0] for seed in range(50)]
    renamed = [dataclasses.replace(problem, problem_id="q") for problem in problems]
    prints = [domain.fingerprint(problem) for problem in problems]
    assert prints == [domain.fingerprint(problem) for problem in renamed]
    assert len(set(prints)) > 40


@over_domains
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_malformed_at_once(domain: GeneratedDomain, text: str) -> None:
    """Model text that is no move is data with a short reason, quickly and without evaluation."""
    began = time.perf_counter()
    parsed = domain.parse(text)
    assert time.perf_counter() - began < 0.5
    assert isinstance(parsed, Malformed)
    assert 0 < len(parsed.reason) < 80
    assert len(parsed.text) < 1_000


@over_every_domain
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_settled_in_every_domain(domain: Domain, text: str) -> None:
    """A move or a short reason, quickly, and nothing that must follow it."""
    state = fuzz_domains.begin(domain.name)
    began = time.perf_counter()
    fuzz_domains.feed(domain.name, state, text)
    assert domain.forced(state, text) is None
    assert time.perf_counter() - began < 0.5


@over_every_domain
def test_what_must_follow_completes_a_move(domain: Domain) -> None:
    """Text up to the end of a move that passes the gates; None is always allowed."""
    state = fuzz_domains.begin(domain.name)
    for begun in ("", "=", "3 + 4 =", "use 3 =", "answer ="):
        forced = domain.forced(state, begun)
        if forced is not None:
            (text,) = split_moves(begun + forced, domain.end_of_move)
            assert forced.endswith(domain.end_of_move)
            assert reject(domain, state, candidate=domain.parse(text)) is None


@over_domains
@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_retrieved_moves_pass_the_gates(domain: GeneratedDomain, seed: int) -> None:
    """Patterns of verified moves come back as moves whose preconditions hold."""
    problem, _, moves = draw(domain, seed)
    path = tuple(states(domain, problem, moves))
    names = {domain.pattern(state, move) for state, move in zip(path, moves, strict=False)}
    names.discard(None)
    assert names
    for state in path[:-1]:
        for move in (found for name in names for found in domain.instantiate(state, str(name))):
            assert domain.parse(move.text) == move
            assert reject(domain, state, candidate=move) is None


@over_domains
def test_a_problem_holds_no_answer(domain: GeneratedDomain) -> None:
    """A search sees id, domain, text and goal; no answer passes the gates at the start."""
    fields = {field.name for field in dataclasses.fields(Problem)}
    assert fields == {"problem_id", "domain", "text", "goal"}
    for seed in range(50):
        problem, truth, moves = draw(domain, seed)
        assert problem.domain == domain.name
        assert problem.problem_id == truth.problem_id == "p"
        assert truth.facts not in problem.text + problem.goal
        start = domain.initial_state(problem, budget=1)
        assert reject(domain, start, candidate=moves[-1]) is not None


@pytest.mark.parametrize(
    "domain",
    [domain for domain in GENERATED.values() if not domain.checks_answers()],
    ids=lambda domain: domain.name,
)
def test_the_text_does_not_state_the_answer(domain: GeneratedDomain) -> None:
    """Where answers are not free to check, the answer's word is in the text by chance only."""
    drawn = [draw(domain, seed)[:2] for seed in range(200)]
    stated = sum(truth.answer in problem.text.split() for problem, truth in drawn)
    assert stated < 100
    assert not any(truth.answer in problem.goal.split() for problem, truth in drawn)
