"""Embeddings of recorded moves of game of 24, by the pipeline's countdown backbone and by facts.

Knows: which hidden states and which facts stand for what. Does not know: verdicts, training.

The backbone's part is zero where its vocabulary cannot say a move's numbers. The facts are about
each number on the table before and after the move; none combines two numbers, for whether two
numbers make 24 is the answer and not a fact that leads to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, lru_cache
from hashlib import blake2b
from math import copysign, log1p

import torch
from game24_notation import TARGET, Numbers, made
from game24_states import (
    COUNTDOWN,
    DOMAIN,
    Visited,
    countdown_move,
    countdown_state,
    with_survivors,
)
from recorded import ROOT
from torch import Tensor

from selverify.audit.log import RecordedList
from selverify.domains.countdown import SIGNS
from selverify.models.generators.checkpoints import load_backbone
from selverify.models.generators.local import LocalGenerator
from selverify.models.heuristic.embedding import SHARED, Embeddings
from selverify.models.verifiers.reward import SEEN
from selverify.params import Sampling
from selverify.search.requests import RankItem
from selverify.types import Move, State

BACKBONE = ROOT / "models" / "countdown-small"
SAMPLING = Sampling(
    temperature=1.0, max_move_tokens=14, max_solution_tokens=48, max_moves=4, batch_rows=1024
)
"""Nothing is sampled here; the backend asks for it."""
SMALL = range(-4, 26)
MOST_CARDS = 4
UNSAYABLE = -30.0
"""Log probability in nats of a move that the backbone cannot say: below all that it can."""
STATES = ("state", "move", "after", "goal")
_READ: dict[Visited, Embeddings] = {}


@cache
def backbone() -> LocalGenerator:
    """The countdown backbone of the pipeline."""
    loaded = load_backbone(BACKBONE, COUNTDOWN.vocabulary)
    return LocalGenerator(COUNTDOWN, loaded, SAMPLING, seed=0, kept_moves=0)


@cache
def held_out_hands() -> frozenset[str]:
    """Short hashes of the hands that the backbone was not trained on."""
    told = json.loads((BACKBONE / "held_out.json").read_text(encoding="utf-8"))
    return frozenset(told["data"]["marks"])


def is_held_out(hand: str) -> bool:
    """Whether the backbone never saw a solution of this hand."""
    problem = COUNTDOWN.read(f"use {hand} to make {TARGET} .", problem_id=hand)
    mark = blake2b(COUNTDOWN.fingerprint(problem).encode(), digest_size=8).hexdigest()
    return mark in held_out_hands()


def embedded(found: Sequence[Visited]) -> list[Embeddings]:
    """One row a survivor of each state, where there is one; each state is read once."""
    fresh = [(one, item) for one, item in with_survivors(found) if one not in _READ]
    said = _said([_asked(one, item) for one, item in fresh]) if fresh else []
    for (one, item), rows in zip(fresh, said, strict=True):
        _READ[one] = _beside(_facts(one, item), rows)
    return [_READ[one] for one, _ in with_survivors(found)]


def is_sayable(one: Visited, text: str) -> bool:
    """Whether the backbone has words for the state and for the move."""
    return _told(one) is not None and countdown_move(text) is not None


def _asked(one: Visited, item: RecordedList) -> tuple[RankItem | None, list[int], int]:
    """What the backbone is asked, the candidates that it is asked about, and how many there are."""
    state = _told(one)
    moves = [countdown_move(candidate.text) for candidate in item.candidates]
    places = [place for place, move in enumerate(moves) if state is not None and move is not None]
    told = tuple(move for move in moves if move is not None)
    return RankItem(state, told, "") if state and places else None, places, len(moves)


def _told(one: Visited) -> State | None:
    """The state in the backbone's words; None where it lacks one.

    The moves before are told where it has words for them, else the table is a problem of its own.
    """
    problem = COUNTDOWN.read(f"use {one.hand} to make {TARGET} .", problem_id=one.hand)
    state = COUNTDOWN.initial_state(problem, budget=0)
    for text in one.whole.prefix:
        move = countdown_move(text)
        if move is None:
            return countdown_state(one)
        state = COUNTDOWN.apply(state, move)
    return state


def _said(asked: Sequence[tuple[RankItem | None, list[int], int]]) -> list[Embeddings]:
    """What the backbone says of all candidates; what it cannot say is zero."""
    items = {_key(item): item for item, _, _ in asked if item is not None}
    with torch.inference_mode():
        known = dict(zip(items, backbone().embed(list(items.values())), strict=True))
    width = len(next(iter(known.values())).state[0])
    found = []
    for item, places, count in asked:
        rows = _silent(count, width)
        if item is not None:
            own = known[_key(item)]
            for name in Embeddings._fields:
                column, part = getattr(rows, name), getattr(own, name)
                if name in SHARED:
                    column[:] = part[:1]
                else:
                    column[places] = part
        found.append(rows)
    return found


def _key(item: RankItem) -> tuple[str, str, tuple[str, ...]]:
    texts = tuple(move.text for move in item.moves)
    return item.state.problem.text, item.state.trace, texts


def _silent(count: int, width: int) -> Embeddings:
    state, move, after, goal = (torch.zeros(count, width) for _ in STATES)
    unsaid = torch.full((count,), UNSAYABLE)
    return Embeddings(state, move, after, goal, torch.zeros(count, SEEN), unsaid)


def _beside(facts: Sequence[Tensor], said: Embeddings) -> Embeddings:
    """Facts and hidden states side by side; the last column marks a move that cannot be said, of
    state and goal a state at which no move can."""
    silent = (said.logprob == UNSAYABLE).to(torch.float32)[:, None]
    whole = silent.amin(0).expand_as(silent)
    state, move, after, goal = (
        torch.cat((own, getattr(said, name), whole if name in SHARED else silent), -1)
        for own, name in zip(facts, STATES, strict=True)
    )
    return Embeddings(state, move, after, goal, said.token_logprobs, said.logprob)


def _facts(one: Visited, item: RecordedList) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For state, move, state after and goal [candidate, width]."""
    moves, after = [], []
    for candidate in item.candidates:
        move = DOMAIN.parse(candidate.text)
        if not isinstance(move, Move):
            raise TypeError(f"given {candidate.text!r}, expected a move")
        found = made(one.table.numbers, move)
        after.append(_of_table(tuple(sorted(found.after))))
        operator = tuple(float(move.op == op) for op in SIGNS)
        moves.append((*operator, *sum(map(_of_number, found.operands), ()), *after[-1]))
    rows, width = len(after), len(moves[0])
    before, goal = _of_table(one.table.numbers), _of_table((TARGET,))
    return (
        _padded([before], width).expand(rows, width),
        _padded(moves, width),
        _padded(after, width),
        _padded([goal], width).expand(rows, width),
    )


@lru_cache(maxsize=2**13)
def _of_table(numbers: Numbers) -> tuple[float, ...]:
    """Summed facts of ascending numbers, their sizes, how many there are."""
    summed = [sum(column) for column in zip(*map(_of_number, numbers), strict=True)]
    sizes = [_size(one) for one in numbers]
    empty = [0.0] * (MOST_CARDS - len(sizes))
    return (*summed, *sizes, *empty, *(float(len(sizes) == count) for count in range(1, 5)))


@lru_cache(maxsize=2**13)
def _of_number(number: Fraction) -> tuple[float, ...]:
    """Which small whole number it is, and what kind."""
    whole = number.denominator == 1
    return (
        *(float(number == small) for small in SMALL),
        _size(number),
        float(whole),
        float(number < 0),
        float(number > TARGET),
        float(number != 0 and (TARGET / number).denominator == 1),
    )


def _size(number: Fraction) -> float:
    return copysign(log1p(abs(number)), number)


def _padded(rows: Sequence[Sequence[float]], width: int) -> Tensor:
    found = torch.zeros(len(rows), width)
    found[:, : len(rows[0])] = torch.tensor(rows)
    return found
