"""Gated competition with state-conditional verification (paper, Algorithm 1).

Knows: propose, retrieve, gate, rank, skip or verify the top k(w), commit, recover. Does not know:
any model, the gold answer, who counts, or how a rule decides (``rules``, ``recover``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from selverify.domains.base import Domain
from selverify.errors import BudgetError
from selverify.search.allocation import dispersion
from selverify.search.candidates import Sifted
from selverify.search.protocol import Asking, note, rank, verify
from selverify.search.requests import RankItem, VerifyItem
from selverify.search.walk import Judged, Visit, Walk
from selverify.types import Move, Outcome, Problem, Sample, State

REJECT_PROBABILITY = "reject_probability"
"""The scorer of a Rank request whose reply is each move's probability of being rejected."""

Decision = tuple[Walk, Move | None]
"""The walk after a rule was followed, and the move to commit at its place, if there is one."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one gated competition, each a callable.

    ``propose``: (visit, samples left) -> new samples, Gen(w). ``retrieve``: state -> moves of the
    pattern store that pass the gates, Ret(w). ``gates``: (state, samples) -> their distinct
    survivors (Eq. gated_moves). ``rank``: visit -> h(w, m) of its pool, lower is better (Eq.
    hybrid_score). ``settled``: (state, move) -> whether the move ends in an answer that checks for
    free; None: no answer does. ``skip``: probability that the verifier rejects this move, or one
    committed without a call since the last verified one -> whether this one is, too; None: never.
    ``width``: (scores h of the pool, most that can be verified) -> k(w) (Eq. kw). ``accept``:
    verifier score -> V. ``commit``: accepted move -> its worth, higher is better. ``recover``: the
    next step where a round ends without a move. ``one_by_one``: without an accepted move the
    survivors that are left are verified before more are drawn. A state that is ``max_moves`` deep
    has no candidates.
    """

    propose: Callable[[Visit, int], Asking[tuple[Sample, ...]]]
    retrieve: Callable[[State], tuple[Move, ...]]
    gates: Callable[[State, Sequence[Sample]], Sifted]
    rank: Callable[[Visit], Asking[tuple[float, ...]]]
    settled: Callable[[State, Move], bool] | None
    skip: Callable[[float], bool] | None
    width: Callable[[Sequence[float], int], int]
    accept: Callable[[float], bool]
    commit: Callable[[Judged], float]
    recover: Callable[[Walk, Rules], Asking[Decision]]
    one_by_one: bool
    max_moves: int


def gated_competition(
    domain: Domain, problem: Problem, *, rules: Rules, budget: int, generation_cap: int
) -> Asking[Outcome]:
    """Algorithm 1 with at most ``budget`` verifier calls and ``generation_cap`` sampled moves.

    Ends ``answered``, or without an answer for want of calls (``budget``), of samples
    (``generation``) or of anything left to try (``exhausted``); the derivation is then that of the
    last state.

    Raises:
        BudgetError: ``budget`` or ``generation_cap`` is below 1.
    """
    walk = yield from gated_walk(
        domain, problem, rules=rules, budget=budget, generation_cap=generation_cap
    )
    return outcome(domain, walk)


def gated_walk(
    domain: Domain, problem: Problem, *, rules: Rules, budget: int, generation_cap: int
) -> Asking[Walk]:
    """As ``gated_competition``, but with all visits as the result."""
    if budget < 1:
        raise BudgetError(f"budget: given {budget} verifier calls, expected at least 1")
    if generation_cap < 1:
        raise BudgetError(f"generation_cap: given {generation_cap} samples, expected at least 1")
    start = Visit(domain.initial_state(problem, budget=budget))
    walk = Walk((start,), here=0, calls=budget, samples=generation_cap)
    while not domain.is_final(walk.state):
        walk, move = yield from compete(walk, rules)
        if move is None:
            walk, move = yield from rules.recover(walk, rules)
        if move is None:
            break
        yield note("commit", walk.state, move=move.text)
        walk = walk.committed(move, domain.apply(walk.state, move))
    end = outcome(domain, walk)
    yield note("end", walk.state, reason=end.reason, answer=end.answer)
    return walk


def outcome(domain: Domain, walk: Walk) -> Outcome:
    """How a walk ended: its answer, its derivation and the reason."""
    answer = domain.answer(walk.state)
    reason = "exhausted" if walk.samples else "generation"
    reason = reason if walk.calls else "budget"
    return Outcome(answer, walk.state.derivation, reason if answer is None else "answered")


def compete(walk: Walk, rules: Rules) -> Asking[Decision]:
    """One round at a state: draw, then commit the top-ranked survivor or verify the top k(w).

    An answer that checks for free is committed without a call, also when none is left.
    Verification can be skipped only until a move was verified at the state. What was committed
    without a call is verified with the next call (docs/decisions/0024).
    Survivors that were left unverified compete again in the next round; a move once verified at a
    state is not verified there again.
    """
    if walk.visit.depth >= rules.max_moves or (walk.calls == 0 and rules.settled is None):
        return walk, None
    walk = yield from draw(walk, rules)
    answer = yield from settled(walk, rules)
    if answer is not None:
        return walk, answer
    if walk.calls == 0 or not walk.visit.pool:
        return walk, None
    scores = yield from rules.rank(walk.visit)
    if rules.skip is not None and not walk.visit.judged:
        top = top_ranked(walk.visit, scores)
        walk, skipped = yield from _skips(walk, rules.skip, top=top)
        if skipped:
            return walk, top
    here = walk.here
    walk = yield from verify_top(walk, rules, scores=scores)
    if walk.here != here or rules.one_by_one:
        walk = yield from reopen(walk, rules)
    return walk, best_accepted(walk.visit, rules)


def draw(walk: Walk, rules: Rules) -> Asking[Walk]:
    """With the new survivors of M(w) = Gen(w) U Ret(w) in the pool (Eq. move_union)."""
    visit = walk.visit
    samples = yield from rules.propose(visit, walk.samples)
    sifted = rules.gates(visit.state, samples)
    retrieved = () if visit.drawn else rules.retrieve(visit.state)
    pooled = visit.pooled(
        (*zip(sifted.survivors, sifted.counts, strict=True), *((move, 0) for move in retrieved))
    )
    pooled = pooled._replace(drawn=visit.drawn + len(samples))
    survivors = [move.text for move in pooled.pool]
    yield note("propose", visit.state, survivors=survivors, refused=dict(sifted.refused))
    return walk.with_visit(pooled)._replace(samples=walk.samples - len(samples))


def settled(walk: Walk, rules: Rules) -> Asking[Move | None]:
    """The first survivor that ends in an answer that checks for free, if there is one."""
    if rules.settled is not None:
        for move in walk.visit.pool:
            if rules.settled(walk.state, move):
                yield note("check", walk.state, move=move.text)
                return move
    return None


def top_ranked(visit: Visit, scores: Sequence[float]) -> Move:
    """The survivor of lowest h; ties in proposal order."""
    return visit.pool[min(range(len(visit.pool)), key=scores.__getitem__)]


def _skips(walk: Walk, skip: Callable[[float], bool], *, top: Move) -> Asking[tuple[Walk, bool]]:
    """Whether ``top`` is committed without a verifier call."""
    ((probability,),) = yield from rank(RankItem(walk.state, (top,), REJECT_PROBABILITY))
    risk = walk.visit.risk_with(probability)
    if not skip(risk):
        return walk, False
    yield note("trust", walk.state, move=top.text, reject_probability=probability, risk=risk)
    return walk.changed(risk_after=risk), True


def verify_top(walk: Walk, rules: Rules, *, scores: Sequence[float]) -> Asking[Walk]:
    """Verify the top min(k(w), calls left) of the pool by h, ties in proposal order.

    A call is on the pending moves too. Where one of these is rejected, the walk is back at the
    state where it was committed.
    """
    visit, pool = walk.visit, walk.visit.pool
    most = min(len(pool), walk.calls)
    k = rules.width(scores, most)
    yield note("allocate", visit.state, sigma=dispersion(scores), k=k, scores=list(scores))
    order = sorted(range(len(pool)), key=scores.__getitem__)[: min(k, most)]
    last = walk.visits[walk.unverified[0]].state if visit.pending else visit.state
    last = last.with_budget(walk.calls)
    verdicts = yield from verify(
        *(VerifyItem(last, (*visit.pending, pool[index])) for index in order)
    )
    known = walk.with_judged(
        [
            Judged(pool[index], verdict.score, scores[index])
            for index, verdict in zip(order, verdicts, strict=True)
        ]
    )
    if not (visit.pending and verdicts):
        return known
    checked = known.checked(verdicts[0].step_scores[:-1], rules.accept)
    if checked.here != known.here:
        rejected = checked.visit.judged[-1]
        data = {"move": rejected.move.text, "score": rejected.score, "to": checked.visit.depth}
        yield note("retract", known.state, **data)
    return checked


def reopen(walk: Walk, rules: Rules) -> Asking[Walk]:
    """Verify the survivors that were left here, k(w) at a time, until one is accepted or k is 0."""
    before = walk.calls + 1
    while best_accepted(walk.visit, rules) is None and walk.visit.pool and 0 < walk.calls < before:
        before = walk.calls
        survivors = [one.text for one in walk.visit.pool]
        yield note("reopen", walk.state, survivors=survivors)
        scores = yield from rules.rank(walk.visit)
        walk = yield from verify_top(walk, rules, scores=scores)
    return walk


def best_accepted(visit: Visit, rules: Rules) -> Move | None:
    """The accepted move of highest worth that was not committed yet; ties: verified first."""
    accepted = [judged for judged in visit.open if rules.accept(judged.score)]
    return max(accepted, key=rules.commit).move if accepted else None
