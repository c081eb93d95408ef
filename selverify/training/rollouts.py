"""Values of the steps of solutions: Monte-Carlo (Wang et al. 2024; Snell et al. 2024), or by what
is written.

Knows: which states are rolled out, and their values. Does not know: how a reward
model is trained. Runs on training problems (and, for audits, on validation problems).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selverify.data.benchmark import Task
from selverify.data.grading import Grader
from selverify.domains.base import Domain, knows_truth
from selverify.search.backend import Backend, sample_completions, sample_moves
from selverify.search.candidates import sift
from selverify.search.gates import GATES, reject
from selverify.search.solutions import read_solution
from selverify.types import Sample, State

Key = tuple[str, tuple[str, ...]]
"""Which state is meant: its problem and its moves' texts."""
Values = dict[Key, float]
"""The value of each state."""


@dataclass(frozen=True, slots=True)
class ValuedSolution:
    """One sampled solution, or the beginning of one, with a value in [0, 1] a move.

    ``count`` as in ``SampledSolution``. ``start`` is the value of the problem's start. ``fresh`` is
    the first move to learn from: those before it stand in another solution too. ``embedded`` is
    what a head reads of the moves from there on (``embed_moves``), or empty.
    """

    problem_id: str
    text: str
    moves: tuple[str, ...]
    values: tuple[float, ...]
    count: int
    start: float
    fresh: int = 0
    embedded: bytes = b""

    @property
    def before(self) -> tuple[float, ...]:
        """The value of the state before each move."""
        return (self.start, *self.values[:-1])

    @property
    def explored(self) -> bool:
        """Whether it is a solution's beginning and a candidate."""
        return self.count == 0


@dataclass(frozen=True, slots=True)
class SampledSolution:
    """A solution of a training problem and the states after its moves, up to the first refused.

    ``count`` samples begin like this; 0: its last move is a candidate, explored at a state of a
    solution. ``fresh`` as in ``ValuedSolution``.
    """

    task: Task
    states: tuple[State, ...]
    count: int
    fresh: int = 0

    @property
    def explored(self) -> bool:
        """Whether it is a solution's beginning and a candidate."""
        return self.count == 0


def sample_training_solutions(
    domain: Domain, backend: Backend, tasks: Sequence[Task], *, solutions: int
) -> list[SampledSolution]:
    """The distinct solutions of each task, each cut before its first move that a gate refuses.

    Each move is to be learned from in the first solution that it stands in; one that only begins
    an earlier one has no such move. Samples without a parsable answer are dropped, and those that
    start with a refused move: the verifier never sees a move that a gate refuses.
    """
    starts = [domain.initial_state(task.problem, budget=1) for task in tasks]
    replies = sample_completions(backend, starts, count=solutions)
    found: list[SampledSolution] = []
    for task, start, samples in zip(tasks, starts, replies, strict=True):
        cut: dict[tuple[str, ...], SampledSolution] = {}
        for sample in samples:
            if states := _legal_states(domain, start, sample.text):
                key = states[-1].said
                count = cut[key].count if key in cut else 0
                cut[key] = SampledSolution(task, states, count + 1)
        known: set[Key] = set()
        for one in cut.values():
            keys = [_key(state) for state in one.states]
            found.append(replace(one, fresh=sum(key in known for key in keys)))
            known.update(keys)
    return found


def _legal_states(domain: Domain, start: State, text: str) -> tuple[State, ...]:
    """The states after each move of a solution before the first that a gate refuses; none where
    ``text`` has no answer that can be read."""
    solution = read_solution(domain, start, text=text, count=1)
    states, state = [], start
    for move in solution.state.derivation if solution is not None else ():
        if reject(domain, state, candidate=move) is not None:
            break
        state = domain.apply(state, move)
        states.append(state)
    return tuple(states)


def of_solved_problems(
    domain: Domain, sampled: Sequence[SampledSolution], *, grader: Grader
) -> list[SampledSolution]:
    """Those of problems that one of these solutions answers rightly.

    For relative targets the others are not rolled out. Some of their states have a value above 0,
    which are few for what it would cost to find them.
    """
    solved = {one.task.problem.problem_id for one in sampled if _is_right(domain, one, grader)}
    return [one for one in sampled if one.task.problem.problem_id in solved]


def written_solutions(
    domain: Domain, tasks: Sequence[Task], written: Mapping[str, Sequence[str]]
) -> list[SampledSolution]:
    """The tasks' written solutions, up to a move that a gate refuses, as if sampled once each.

    ``written``: moves' texts by the problem.
    """
    found = []
    for task in tasks:
        start = domain.initial_state(task.problem, budget=1)
        text = domain.end_of_move.join((*written.get(task.problem.problem_id, ()), ""))
        if states := _legal_states(domain, start, text):
            found.append(SampledSolution(task, states, 1))
    return found


def written_values(
    domain: Domain,
    written: Sequence[SampledSolution],
    sampled: Sequence[SampledSolution],
    *,
    grader: Grader,
) -> Values:
    """1 for the states of ``sampled`` solutions that have computed only what the written one of
    their problem does, not oftener than it does, and for all of those with the right answer; else
    0. A problem's start is worth 1.

    Nothing is rolled out: a label costs the sample that it is of. Only sampled moves should be
    learned from: written ones, which are all right, would be told by their style.
    """
    results = {one.task.problem.problem_id: domain.results(one.states[-1]) for one in written}
    values: Values = {(problem_id, ()): 1.0 for problem_id in results}
    for one in sampled:
        right, known = _is_right(domain, one, grader), results[one.task.problem.problem_id]
        for state in one.states:
            on_the_way = not domain.is_final(state) and domain.results(state) <= known
            values[_key(state)] = max(values.get(_key(state), 0.0), float(right or on_the_way))
    return values


def _is_right(domain: Domain, one: SampledSolution, grader: Grader) -> bool:
    """Whether the solution ends in the right answer."""
    end = one.states[-1]
    return domain.is_final(end) and grader.matches(one.task.truth.answer, domain.answer(end))


def up_to_the_first_wrong(
    sampled: Sequence[SampledSolution], values: Values
) -> list[SampledSolution]:
    """The distinct solutions, each cut after its first move that is worth 0.

    After it no step is right, so that none could be told from another. Each move is to be learned
    from in the first solution that it stands in; one without such a move is left out.
    """
    found: dict[Key, SampledSolution] = {}
    known: set[Key] = set()
    for one in sampled:
        right = [values[_key(state)] > 0 for state in one.states]
        states = one.states[: (*right, False).index(False) + 1]
        keys = [_key(state) for state in states]
        same = found.get(keys[-1])
        if same is None:
            fresh = sum(key in known for key in keys)
            if fresh < len(keys):
                found[keys[-1]] = SampledSolution(one.task, states, one.count, fresh)
        else:
            found[keys[-1]] = replace(same, count=same.count + one.count)
        known.update(keys)
    return list(found.values())


def explore_candidates(
    domain: Domain,
    backend: Backend,
    sampled: Sequence[SampledSolution],
    values: Values,
    *,
    proposals: int,
    skipped: int,
    explored_from: float,
) -> list[SampledSolution]:
    """What a search meets: the distinct survivors of ``proposals`` samples at solvable states that
    no solution goes on with.

    Of the states that the solutions pass through or end at, from which at least ``explored_from``
    of the continuations are right. The first ``skipped`` samples of a state have the seeds of its
    continuations, and would say again what these began with.
    """
    starts: dict[Key, SampledSolution] = {}
    for one in sampled:
        for length in range(len(one.states) + 1):
            state = one.states[length - 1] if length else _start(domain, one)
            if domain.is_final(state):
                break
            starts.setdefault(_key(state), SampledSolution(one.task, one.states[:length], 0))
    chosen = {key: one for key, one in starts.items() if values.get(key, 0.0) >= explored_from}
    places = [one.states[-1] if one.states else _start(domain, one) for one in chosen.values()]
    replies = sample_moves(backend, places, start=skipped, count=proposals)
    found = []
    for one, state, samples in zip(chosen.values(), places, replies, strict=True):
        for move in sift(domain, state, samples=samples, gates=GATES).survivors:
            after = domain.apply(state, move)
            if _key(after) not in values:
                states = *one.states, after
                found.append(SampledSolution(one.task, states, 0, fresh=len(one.states)))
    return found


def state_values(
    domain: Domain,
    backend: Backend,
    sampled: Sequence[SampledSolution],
    *,
    solutions: int,
    rollouts: int,
    grader: Grader,
) -> Values:
    """The share of ``rollouts`` continuations of each state that reach the gold answer.

    Only rollouts whose every move passes the gates count: an illegal one can undo a wrong step, by
    defining a quantity again for example, and the step would seem harmless. A state that several
    solutions pass through is rolled out once; the value of a final state is 1 if its answer is
    right, else 0. The value of a problem's start is the share of its ``solutions`` samples that do:
    one without an answer, or cut before a refused move, does not.
    """
    reached = {
        _key(state): (one.task, state)
        for one in sampled
        for state in (one.states[-1:] if one.explored else one.states)
    }
    ends = {key: pair for key, pair in reached.items() if domain.is_final(pair[1])}
    values = {
        key: float(grader.matches(task.truth.answer, domain.answer(state)))
        for key, (task, state) in ends.items()
    }
    rest = {key: pair for key, pair in reached.items() if key not in ends}
    replies = sample_completions(backend, [state for _, state in rest.values()], count=rollouts)
    for (key, (task, state)), samples in zip(rest.items(), replies, strict=True):
        right = sum(_reaches(domain, state, one, task.truth.answer, grader) for one in samples)
        values[key] = right / rollouts
    right_ends = {key for key in ends if values[key] == 1.0}
    reaching = Counter[Key]()
    for one in sampled:
        if not one.explored:
            right = _key(one.states[-1]) in right_ends
            reaching[one.task.problem.problem_id, ()] += one.count * right
    return values | {key: count / solutions for key, count in reaching.items()}


def value_solutions(sampled: Sequence[SampledSolution], values: Values) -> list[ValuedSolution]:
    """Each solution with the values of its states."""
    return [
        ValuedSolution(
            one.task.problem.problem_id,
            one.task.problem.text,
            one.states[-1].said,
            tuple(values[_key(state)] for state in one.states),
            one.count,
            values[one.task.problem.problem_id, ()],
            one.fresh,
        )
        for one in sampled
    ]


def _key(state: State) -> Key:
    return state.problem.problem_id, state.said


def _start(domain: Domain, one: SampledSolution) -> State:
    return domain.initial_state(one.task.problem, budget=1)


def solution_rows(
    domain: Domain, valued: Sequence[ValuedSolution], sampled: Sequence[SampledSolution]
) -> list[dict[str, Any]]:
    """Table rows: the solution, its values, and (for audits) the truth of each step if known."""
    return [
        {
            "problem_id": one.problem_id,
            "text": one.text,
            "moves": list(one.moves),
            "values": list(one.values),
            "alive": [domain.alive(state, source.task.truth) for state in source.states]
            if knows_truth(domain)
            else None,
            "count": one.count,
            "start": one.start,
            "fresh": one.fresh,
            "embedded": one.embedded,
        }
        for one, source in zip(valued, sampled, strict=True)
    ]


def solutions_from(rows: Sequence[dict[str, Any]]) -> list[ValuedSolution]:
    """The inverse of ``solution_rows``, without the truth."""
    return [
        ValuedSolution(
            row["problem_id"],
            row["text"],
            tuple(row["moves"]),
            tuple(row["values"]),
            row["count"],
            row["start"],
            row["fresh"],
            row["embedded"],
        )
        for row in rows
    ]


def _reaches(domain: Domain, state: State, sample: Sample, gold: str, grader: Grader) -> bool:
    solution = read_solution(domain, state, text=sample.text, count=1)
    if solution is None or not solution.legal:
        return False
    return grader.matches(gold, domain.answer(solution.state))
