"""Gated competition with state-conditional verification (paper, Algorithm 1), and exploration.

Knows: propose, retrieve, gate, rank, trust, allocate, verify, commit, retry, backtrack. Does not
know: any model, the gold answer, or who counts. The ablation rows and exploration are this search
with other settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from selverify.domains.base import Domain
from selverify.errors import BudgetError
from selverify.search.allocation import dispersion
from selverify.search.candidates import inadmissible, sift
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, note, propose, rank, verify
from selverify.search.requests import ProposeItem, RankItem, VerifyItem
from selverify.search.rules import Decisions, GatedSettings
from selverify.types import Move, Outcome, Problem, Sample, State

REJECT_PROBABILITY = "reject_probability"
"""The scorer that a Rank request names to be told each move's probability of being rejected."""
SURE = 1e-6
"""Scores are kept this far from 0 and 1, so that they have log odds."""


@dataclass(frozen=True, slots=True)
class CandidateList:
    """The post-gating list of one visited state with verifier labels (paper, Eq. verifier_label).

    ``moves``, ``scores`` and ``labels`` (score at least tau) are parallel. ``committed`` is the
    index of the move last committed here, or None.
    """

    state: State
    moves: tuple[Move, ...]
    scores: tuple[float, ...]
    labels: tuple[bool, ...]
    committed: int | None


@dataclass(frozen=True, slots=True)
class Exploration:
    """The candidate lists of all visited states, in order of visit, and how the walk ended."""

    lists: tuple[CandidateList, ...]
    outcome: Outcome

    @property
    def answered(self) -> bool:
        """Whether the walk ended with an answer, right or wrong."""
        return self.outcome.answer is not None


@dataclass(frozen=True, slots=True)
class _Judged:
    """A verified move: its verifier score and its rank score h."""

    move: Move
    score: float
    h: float


@dataclass(slots=True)
class _Visit:
    """What is known at one visited state; ``pool`` holds unverified survivors, oldest first."""

    state: State
    parent: _Visit | None
    drawn: int
    pool: dict[str, Move]
    counts: dict[str, int]
    judged: dict[str, _Judged]
    taken: list[str]
    forced: bool


@dataclass(slots=True)
class _Run:
    """One search under way: its rules, what they decided, and the calls and samples left."""

    domain: Domain
    settings: GatedSettings
    decisions: Decisions
    calls: int
    samples: int
    traced: bool
    visits: list[_Visit]


def gated_competition(
    domain: Domain,
    problem: Problem,
    *,
    settings: GatedSettings,
    budget: int,
    generation_cap: int,
    traced: bool = False,
    decisions: Decisions | None = None,
) -> Asking[Outcome]:
    """Algorithm 1 with at most ``budget`` verifier calls and ``generation_cap`` sampled moves.

    Ends ``answered``, or without an answer for want of calls (``budget``), of samples
    (``generation``) or, without fallback, of anything left to try (``exhausted``); the derivation
    is then the one it stood at.

    Args:
        decisions: an empty record of ``settings``, filled on the way.

    Raises:
        BudgetError: ``budget`` or ``generation_cap`` is below 1.
    """
    run = _start(domain, decisions or Decisions(settings), budget, generation_cap, traced=traced)
    return (yield from _walk(run, problem))


def explore(
    domain: Domain,
    problem: Problem,
    *,
    proposals: int,
    tau: float,
    max_retries: int,
    max_moves: int,
) -> Asking[Exploration]:
    """Gated competition with every survivor verified, logging the candidate lists.

    It may draw as many samples as a straight derivation with every retry would; each is verified
    at most once, so the same number bounds the calls.
    """
    settings = GatedSettings(
        proposals=proposals,
        k_base=1.0,
        beta=0.0,
        k_min=1,
        k_max=1,
        tau=tau,
        max_retries=max_retries,
        max_moves=max_moves,
        scorer="none",
        skip_below=0.0,
        allocation="all",
        reference_dispersion=0.0,
        gates=GATES,
        patterns=(),
        commit="verifier",
        rank_weight=0.0,
        fallback=False,
    )
    cap = proposals * (max_retries + 1) * max_moves
    run = _start(domain, Decisions(settings), cap, cap, traced=False)
    outcome = yield from _walk(run, problem)
    lists = tuple(_candidate_list(visit, tau) for visit in run.visits if visit.judged)
    return Exploration(lists, outcome)


def _start(
    domain: Domain, decisions: Decisions, budget: int, generation_cap: int, *, traced: bool
) -> _Run:
    if budget < 1:
        raise BudgetError(f"budget: given {budget} verifier calls, expected at least 1")
    if generation_cap < 1:
        raise BudgetError(f"generation_cap: given {generation_cap} samples, expected at least 1")
    return _Run(domain, decisions.settings, decisions, budget, generation_cap, traced, [])


def _walk(run: _Run, problem: Problem) -> Asking[Outcome]:
    """The loop of Algorithm 1: commit a move, or go back, until a final answer or the end."""
    visit = _enter(run, run.domain.initial_state(problem, budget=run.calls), None)
    while not run.domain.is_final(visit.state):
        step = yield from _next_step(run, visit)
        if step is None:
            visit.state = replace(visit.state, budget=run.calls)
            break
        origin, move = step
        # What was spent below a state that is come back to stays spent.
        origin.state = replace(origin.state, budget=run.calls)
        origin.taken.append(move.text)
        visit = _enter(run, run.domain.apply(origin.state, move), origin)
        if run.traced:
            yield from note("commit", origin.state, move=move.text)
    answer = run.domain.answer(visit.state)
    reason = "answered" if answer is not None else _why(run)
    if run.traced:
        yield from note("end", visit.state, reason=reason, answer=answer)
    return Outcome(answer, visit.state.derivation, reason)


def _enter(run: _Run, state: State, parent: _Visit | None) -> _Visit:
    visit = _Visit(state, parent, 0, {}, {}, {}, [], False)
    run.visits.append(visit)
    return visit


def _why(run: _Run) -> str:
    if run.calls == 0:
        return "budget"
    return "generation" if run.samples == 0 else "exhausted"


def _next_step(run: _Run, visit: _Visit) -> Asking[tuple[_Visit, Move] | None]:
    """The next move to commit and the visit it starts from; None at the end of the search."""
    move = None
    if run.calls > 0:
        move = yield from _compete(run, visit)
    if move is None and run.calls == 0:
        if not run.settings.fallback:
            return None
        move = yield from _guess(run, visit)
    if move is not None:
        return visit, move
    left = run.calls
    back = yield from _go_back(run, visit)
    if back is None and run.calls == 0 < left and run.settings.fallback:
        move = yield from _guess(run, visit)  # the last calls were spent on the way back
        back = None if move is None else (visit, move)
    return back


def _compete(run: _Run, visit: _Visit) -> Asking[Move | None]:
    """Rounds of propose, gate, rank and verify at one state until a move is accepted.

    Until something was verified here, a round may end with a move that is trusted, for no call
    (docs/decisions/0024). After a failed round the next-best unverified survivors compete with
    fresh samples; a move once verified at this state is not verified here again.
    """
    if len(visit.state.derivation) >= run.settings.max_moves:
        return None
    for attempt in range(run.settings.max_retries + 1):
        if attempt and run.traced:
            yield from note("retry", visit.state, attempt=attempt)
        move = yield from _round(run, visit)
        if move is not None or run.calls == 0:
            return move
        if not visit.pool and run.samples == 0:
            break
    return None


def _round(run: _Run, visit: _Visit) -> Asking[Move | None]:
    """Draw once, then trust the top-ranked survivor or verify the top k(w)."""
    yield from _draw(run, visit)
    if not visit.pool:
        return None
    scores = yield from _scores(run, visit)
    trusted = None if visit.judged else (yield from _trusted(run, visit, scores))
    if trusted is not None:
        return trusted
    yield from _verify_top(run, visit, scores)
    return _best_accepted(run, visit)


def _draw(run: _Run, visit: _Visit) -> Asking[None]:
    """Add to the pool the new survivors of M(w) = Gen(w) U Ret(w), none verified or committed."""
    samples: tuple[Sample, ...] = ()
    count = min(run.settings.proposals, run.samples)
    if count:
        (samples,) = yield from propose(ProposeItem(visit.state, visit.drawn, count))
    sifted = sift(run.domain, visit.state, samples, gates=run.settings.gates)
    for move, times in zip(sifted.survivors, sifted.counts, strict=True):
        _pool(visit, move, times)
    if not visit.drawn:
        for move in _retrieved(run, visit.state):
            _pool(visit, move, 0)
    visit.drawn += count
    run.samples -= count
    if run.traced:
        yield from note(
            "propose", visit.state, survivors=list(visit.pool), refused=dict(sifted.refused)
        )


def _pool(visit: _Visit, move: Move, times: int) -> None:
    if move.text not in visit.judged and move.text not in visit.taken:
        visit.pool.setdefault(move.text, move)
        visit.counts[move.text] = visit.counts.get(move.text, 0) + times


def _retrieved(run: _Run, state: State) -> list[Move]:
    """Ret(w): stored patterns instantiated at ``state``, gated like any other candidate."""
    return [
        move
        for pattern in run.settings.patterns
        for move in run.domain.instantiate(state, pattern)
        if inadmissible(run.domain, state, move, gates=run.settings.gates) is None
    ]


def _trusted(run: _Run, visit: _Visit, scores: Sequence[float]) -> Asking[Move | None]:
    """The top-ranked survivor if the verifier is almost sure to accept it, else None."""
    if not run.decisions.asks_for_reject_probability():
        return None
    top = _top(visit, scores)
    ((reject_probability,),) = yield from rank(RankItem(visit.state, (top,), REJECT_PROBABILITY))
    if not run.decisions.trusts(reject_probability):
        return None
    if run.traced:
        yield from note("trust", visit.state, move=top.text, reject_probability=reject_probability)
    return visit.pool.pop(top.text)


def _top(visit: _Visit, scores: Sequence[float]) -> Move:
    """The survivor of lowest h; ties in proposal order."""
    pool = tuple(visit.pool.values())
    return pool[min(range(len(pool)), key=scores.__getitem__)]


def _verify_top(run: _Run, visit: _Visit, scores: Sequence[float]) -> Asking[None]:
    """Verify the top min(k(w), calls left) of the pool by h, ties in proposal order."""
    pool = tuple(visit.pool.values())
    k = run.decisions.allowance(scores, most=min(len(pool), run.calls))
    if run.traced:
        sigma = dispersion(scores)
        yield from note("allocate", visit.state, sigma=sigma, k=k, scores=list(scores))
    order = sorted(range(len(pool)), key=scores.__getitem__)[: min(k, run.calls)]
    verdicts = yield from verify(*(VerifyItem(visit.state, (pool[index],)) for index in order))
    for index, verdict in zip(order, verdicts, strict=True):
        move = visit.pool.pop(pool[index].text)
        visit.judged[move.text] = _Judged(move, verdict.score, scores[index])
    run.calls -= len(order)
    visit.state = visit.state.spend(len(order))


def _scores(run: _Run, visit: _Visit) -> Asking[tuple[float, ...]]:
    """h(w, m) of the pool, lower first. One move alone needs no ranking: its h is 0."""
    scorer, pool = run.settings.scorer, tuple(visit.pool.values())
    if scorer == "none" or len(pool) == 1:
        return (0.0,) * len(pool)
    if scorer == "frequency":
        return tuple(-float(visit.counts[move.text]) for move in pool)
    (scores,) = yield from rank(RankItem(visit.state, pool, scorer))
    return scores


def _best_accepted(run: _Run, visit: _Visit) -> Move | None:
    """The best accepted move not yet committed, by the rule of ``commit``; ties: verified first."""
    open_moves = [
        judged
        for judged in visit.judged.values()
        if judged.move.text not in visit.taken and run.decisions.accepts(judged.score)
    ]
    best = max(open_moves, key=lambda judged: _worth(run.settings, judged), default=None)
    return None if best is None else best.move


def _worth(settings: GatedSettings, judged: _Judged) -> float:
    """What ``commit`` goes by, higher first. h is of log odds, like the score's (Eq. rank_loss)."""
    if settings.commit == "verifier":
        return judged.score
    if settings.commit == "heuristic":
        return -judged.h
    score = min(max(judged.score, SURE), 1.0 - SURE)
    return math.log(score / (1.0 - score)) - settings.rank_weight * judged.h


def _guess(run: _Run, visit: _Visit) -> Asking[Move | None]:
    """Out of calls: the top-ranked survivor, unverified; resamples only while there is none."""
    if len(visit.state.derivation) >= run.settings.max_moves:
        return None
    for _ in range(run.settings.max_retries + 1):
        if not visit.pool:
            yield from _draw(run, visit)
        if visit.pool:
            top = _top(visit, (yield from _scores(run, visit)))
            if run.traced:
                yield from note("fallback", visit.state, rule="unverified", move=top.text)
            return visit.pool.pop(top.text)
    return None


def _go_back(run: _Run, visit: _Visit) -> Asking[tuple[_Visit, Move] | None]:
    """The best accepted alternative of the latest ancestor that has one, or comes to have one.

    An ancestor without one has its unverified survivors verified, k(w) at a time. If no ancestor
    has any, with fallback, a rejected move, and at last more samples at the states seen so far. A
    committed move is never committed again, so no abandoned state is entered twice.
    """
    ancestor = visit.parent
    while ancestor is not None:
        best = _best_accepted(run, ancestor)
        ancestor.state = replace(ancestor.state, budget=run.calls)
        while best is None and ancestor.pool and run.calls > 0:
            if run.traced:
                yield from note("reopen", ancestor.state, survivors=list(ancestor.pool))
            yield from _verify_top(run, ancestor, (yield from _scores(run, ancestor)))
            best = _best_accepted(run, ancestor)
        if best is not None:
            if run.traced:
                yield from note("backtrack", visit.state, to=len(ancestor.state.derivation))
            return ancestor, best
        ancestor = ancestor.parent
    if not run.settings.fallback:
        return None
    forced = _force(run)
    if forced is None:
        found = yield from _again(run)
        if found is not None:
            return found
        forced = _force(run)
    if forced is not None and run.traced:
        origin, move = forced
        yield from note("fallback", origin.state, rule="rejected", move=move.text)
    return forced


def _again(run: _Run) -> Asking[tuple[_Visit, Move] | None]:
    """Nothing accepted is left: one more round at each visited state, first to last, over and over.

    Until a move is accepted, or calls, or samples and survivors, are spent. A state where no sample
    ever survived is left out, but for the first. What is rejected now can be forced afterwards.
    """
    hopeful = [
        visit
        for visit in run.visits
        if (visit.counts or visit.parent is None)
        and len(visit.state.derivation) < run.settings.max_moves
    ]
    before = None
    while before != (run.calls, run.samples):
        before = run.calls, run.samples
        for visit in hopeful:
            if run.calls == 0:
                return None
            visit.state = replace(visit.state, budget=run.calls)
            if run.traced:
                yield from note("resample", visit.state)
            known = len(visit.judged)
            move = yield from _round(run, visit)
            visit.forced = visit.forced and len(visit.judged) == known
            if move is not None:
                return visit, move
    return None


def _force(run: _Run) -> tuple[_Visit, Move] | None:
    """At the deepest visit (ties: the latest) with one, its best verified move; once a visit."""
    options = [(visit, _best_open(visit)) for visit in run.visits if not visit.forced]
    found = [(visit, move) for visit, move in options if move is not None]
    if not found:
        return None
    visit, move = max(reversed(found), key=lambda option: len(option[0].state.derivation))
    visit.forced = True
    return visit, move


def _best_open(visit: _Visit) -> Move | None:
    """The verified move of highest score, accepted or not, that was not committed yet."""
    open_moves = [one for text, one in visit.judged.items() if text not in visit.taken]
    best = max(open_moves, key=lambda judged: judged.score, default=None)
    return None if best is None else best.move


def _candidate_list(visit: _Visit, tau: float) -> CandidateList:
    judged = tuple(visit.judged.values())
    texts = list(visit.judged)
    return CandidateList(
        visit.state,
        tuple(one.move for one in judged),
        tuple(one.score for one in judged),
        tuple(one.score >= tau for one in judged),
        texts.index(visit.taken[-1]) if visit.taken else None,
    )
