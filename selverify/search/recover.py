"""The rule for a round that ends without a move: retry, go back, and the fallbacks of record 16.

Knows: where to look for a move that can still be committed, and in which order. Does not know: what
a round does (``gated``), nor any model.
"""

from __future__ import annotations

from selverify.search.gated import (
    Decision,
    Rules,
    best_accepted,
    compete,
    draw,
    reopen,
    settled,
    top_ranked,
)
from selverify.search.protocol import Asking, note
from selverify.search.walk import Walk


def recover(walk: Walk, rules: Rules, *, max_retries: int, fallback: bool) -> Asking[Decision]:
    """Up to ``max_retries`` further rounds here, then the accepted moves of earlier states.

    Without ``fallback`` the search ends when both fail, or when calls run out. With ``fallback`` it
    goes on (docs/decisions/0016): without calls, or where none is worth one, it commits the
    top-ranked survivor unverified; with calls left it commits a rejected move, or draws more
    samples at the visited states.
    """
    walk, move = yield from _retry(walk, rules, max_retries=max_retries)
    here = walk.here  # a call may have rejected an earlier move
    if move is None and walk.calls == 0 and not fallback:
        return walk, None
    if move is None and fallback and (walk.calls == 0 or _not_worth_a_call(walk, rules)):
        walk, move = yield from _guess(walk, rules, max_retries=max_retries)
    if move is not None:
        return walk, move
    left = walk.calls
    walk, move = yield from _go_back(walk, rules)
    if move is None and fallback:
        walk, move = yield from _force_or_resample(walk, rules)
        here = walk.kept(here)
        if move is None and walk.calls == 0 < left:  # the last calls were spent on the way back
            walk, move = yield from _guess(walk.at(here), rules, max_retries=max_retries)
    return (walk.at(here), None) if move is None else (walk, move)


def _not_worth_a_call(walk: Walk, rules: Rules) -> bool:
    """Whether survivors are left here that ``rules`` give no call to."""
    return rules.one_by_one and bool(walk.visit.pool)


def _retry(walk: Walk, rules: Rules, *, max_retries: int) -> Asking[Decision]:
    """Further rounds at the same state while calls and candidates are left."""
    if walk.visit.depth >= rules.max_moves:
        return walk, None
    for attempt in range(1, max_retries + 1):
        if walk.calls == 0 or not (walk.visit.pool or walk.samples):
            break
        yield note("retry", walk.state, attempt=attempt)
        walk, move = yield from compete(walk, rules)
        if move is not None:
            return walk, move
    return walk, None


def _guess(walk: Walk, rules: Rules, *, max_retries: int) -> Asking[Decision]:
    """The top-ranked survivor, unverified; resamples only while there is none.

    Where calls are left, its risk counts: the next state may ask about it.
    """
    if walk.visit.depth >= rules.max_moves:
        return walk, None
    for _ in range(max_retries + 1):
        if not walk.visit.pool:
            walk = yield from draw(walk, rules)
        answer = yield from settled(walk, rules)
        if answer is not None:
            return walk, answer
        if walk.visit.pool:
            scores = yield from rules.rank(walk.visit)
            top = top_ranked(walk.visit, scores)
            yield note("fallback", walk.state, rule="unverified", move=top.text)
            if rules.one_by_one:  # h is then the probability that the verifier rejects the move
                walk = walk.changed(risk_after=walk.visit.risk_with(min(scores)))
            return walk, top
    return walk, None


def _go_back(walk: Walk, rules: Rules) -> Asking[Decision]:
    """The best accepted alternative of the latest ancestor that has one, or comes to have one.

    An ancestor without one has its unverified survivors verified, k(w) at a time. A committed move
    is never committed again, so no abandoned state is entered twice.
    """
    failed, parent = walk.state, walk.visit.parent
    while parent is not None:
        walk = walk.at(parent)
        walk = yield from reopen(walk, rules)
        move = best_accepted(walk.visit, rules)
        if move is not None:
            yield note("backtrack", failed.with_budget(walk.calls), to=walk.visit.depth)
            return walk, move
        parent = walk.visit.parent
    return walk, None


def _force_or_resample(walk: Walk, rules: Rules) -> Asking[Decision]:
    """A rejected move; where there is none, an accepted or a rejected one of further samples."""
    walk, move = _force(walk)
    if move is None:
        walk, move = yield from _resample(walk, rules)
        if move is not None:
            return walk, move
        walk, move = _force(walk)
    if move is not None:
        yield note("fallback", walk.state, rule="rejected", move=move.text)
    return walk, move


def _force(walk: Walk) -> Decision:
    """At the deepest visit (ties: the latest) with one, its best verified move; once a visit."""
    places = [
        (visit.depth, place)
        for place, visit in enumerate(walk.visits)
        if visit.open and not visit.forced
    ]
    if not places:
        return walk, None
    walk = walk.at(max(places)[1]).changed(forced=True)
    return walk, max(walk.visit.open, key=lambda judged: judged.score).move


def _resample(walk: Walk, rules: Rules) -> Asking[Decision]:
    """One more round at each visited state, first to last, over and over.

    Until a move is accepted, or calls, or samples and survivors, are spent. A state where no sample
    ever survived is left out, but for the first. A move that is rejected now can be forced later.
    """
    hopeful = [
        place
        for place, visit in enumerate(walk.visits)
        if (visit.counts or visit.parent is None) and visit.depth < rules.max_moves
    ]
    before = None
    while before != (walk.calls, walk.samples):
        before = walk.calls, walk.samples
        for place in hopeful:
            if walk.calls == 0:
                return walk, None
            if walk.visits[place].abandoned:
                continue
            walk = walk.at(place)
            yield note("resample", walk.state)
            known = len(walk.visit.judged)
            walk, move = yield from compete(walk, rules)
            if walk.here == place and len(walk.visit.judged) > known:
                walk = walk.changed(forced=False)
            if move is not None:
                return walk, move
    return walk, None
