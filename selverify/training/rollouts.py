"""Monte-Carlo values of the steps of sampled solutions (Wang et al. 2024; Snell et al. 2024).

Knows: which states are rolled out, and their values. Does not know: how a reward
model is trained. Runs on training problems (and, for audits, on validation problems).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from selverify.data.benchmark import Task
from selverify.data.grading import Grader
from selverify.domains.base import Domain, knows_truth
from selverify.search.backend import Backend, sample_completions
from selverify.search.gates import reject
from selverify.search.solutions import Solution, read_solution
from selverify.types import Sample, State


@dataclass(frozen=True, slots=True)
class ValuedSolution:
    """One sampled solution: its problem's text, its moves' texts, one value in [0, 1] a move."""

    problem_id: str
    text: str
    moves: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SampledSolution:
    """A solution of a training problem and the states after its moves, up to the first refused.

    ``count`` samples begin like this.
    """

    task: Task
    states: tuple[State, ...]
    count: int


def sample_training_solutions(
    domain: Domain, backend: Backend, tasks: Sequence[Task], *, solutions: int
) -> list[SampledSolution]:
    """The distinct solutions of each task, each cut before its first move that a gate refuses.

    Samples without a parsable answer are dropped, and those that start with a refused move: the
    verifier never sees a move that a gate refuses.
    """
    starts = [domain.initial_state(task.problem, budget=1) for task in tasks]
    replies = sample_completions(backend, starts, count=solutions)
    found: list[SampledSolution] = []
    for task, start, samples in zip(tasks, starts, replies, strict=True):
        cut: dict[tuple[str, ...], SampledSolution] = {}
        for sample in samples:
            solution = read_solution(domain, start, text=sample.text, count=1)
            states = _legal_states(domain, start, solution) if solution is not None else ()
            if states:
                key = states[-1].said
                count = cut[key].count if key in cut else 0
                cut[key] = SampledSolution(task, states, count + 1)
        found += cut.values()
    return found


def _legal_states(domain: Domain, start: State, solution: Solution) -> tuple[State, ...]:
    """The states after each move of ``solution`` before the first that a gate refuses."""
    states, state = [], start
    for move in solution.state.derivation:
        if reject(domain, state, candidate=move) is not None:
            break
        state = domain.apply(state, move)
        states.append(state)
    return tuple(states)


def value_solutions(
    domain: Domain,
    backend: Backend,
    sampled: Sequence[SampledSolution],
    *,
    rollouts: int,
    grader: Grader,
) -> list[ValuedSolution]:
    """The share of ``rollouts`` continuations of each state that reach the gold answer.

    Only rollouts whose every move passes the gates count: an illegal one can undo a wrong step, by
    defining a quantity again for example, and the step would seem harmless. A state that several
    solutions pass through is rolled out once; the value of a final state is 1 if its answer is
    right, else 0.
    """
    open_states = {
        (one.task.problem.problem_id, state.said): (one.task, state)
        for one in sampled
        for state in one.states
        if not domain.is_final(state)
    }
    replies = sample_completions(
        backend, [state for _, state in open_states.values()], count=rollouts
    )
    values = {
        key: sum(_reaches(domain, state, sample, task.truth.answer, grader) for sample in samples)
        / rollouts
        for (key, (task, state)), samples in zip(open_states.items(), replies, strict=True)
    }

    def value(task: Task, state: State) -> float:
        if domain.is_final(state):
            return float(grader.matches(task.truth.answer, domain.answer(state)))
        return values[task.problem.problem_id, state.said]

    return [
        ValuedSolution(
            one.task.problem.problem_id,
            one.task.problem.text,
            one.states[-1].said,
            tuple(value(one.task, state) for state in one.states),
        )
        for one in sampled
    ]


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
            "count": source.count,
        }
        for one, source in zip(valued, sampled, strict=True)
    ]


def solutions_from(rows: Sequence[dict[str, Any]]) -> list[ValuedSolution]:
    """The inverse of ``solution_rows``, without the truth."""
    return [
        ValuedSolution(row["problem_id"], row["text"], tuple(row["moves"]), tuple(row["values"]))
        for row in rows
    ]


def _reaches(domain: Domain, state: State, sample: Sample, gold: str, grader: Grader) -> bool:
    solution = read_solution(domain, state, text=sample.text, count=1)
    if solution is None or not solution.legal:
        return False
    return grader.matches(gold, domain.answer(solution.state))
