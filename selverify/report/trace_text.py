"""One search's events as text for a reader who knows nothing of the method.

Knows: what gated competition records, and how to lay it out. Does not know: models, who searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from selverify.domains.base import Domain
from selverify.search.candidates import inadmissible
from selverify.search.gated import REJECT_PROBABILITY
from selverify.search.gates import GATES
from selverify.search.ledger import Ledger
from selverify.search.traces import Event
from selverify.types import Move, State

LEGEND = (
    "At each state the generator proposes next moves. Two gates refuse, for free, those that break "
    "a rule. h ranks the rest (lower first). Where the verifier would hardly reject the first, "
    "that one is committed at once. Elsewhere sigma is the spread of their h, and k(w) of them are "
    "shown to the verifier. Its score is the chance that a move is right: from tau on it is "
    "accepted. The best accepted move is committed; without one the state is tried again, then "
    "left for an earlier one."
)
KEPT, RETRIEVED = "kept", "retrieved"


@dataclass(frozen=True, slots=True)
class Row:
    """One distinct candidate of a round.

    ``times``: how often it was sampled in this round; with 0 it was ``KEPT`` from an earlier one
    or ``RETRIEVED``, as ``source`` says. ``gate`` and ``reason`` are "" where no gate refused it;
    ``h`` is None where it was not ranked, ``score`` where the verifier was not asked in this
    round. ``judged``: it was verified at this state before.
    """

    text: str
    times: int
    source: str = ""
    gate: str = ""
    reason: str = ""
    h: float | None = None
    score: float | None = None
    judged: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """One round of proposals at one state; survivors first, by h, then the refused.

    ``sampled`` counts the proposals, 0 at a state that was come back to for the survivors not yet
    verified; ``sigma`` and ``k`` are None where no call was allotted.
    """

    state: State
    sampled: int
    rows: tuple[Row, ...]
    sigma: float | None
    k: int | None


@dataclass(slots=True)
class _Draft:
    """A round whose events are still being read."""

    state: State
    texts: Counter[str] = field(default_factory=Counter)
    pool: Sequence[str] = ()
    scores: Sequence[float] = ()
    sigma: float | None = None
    k: int | None = None
    verdicts: dict[str, float] = field(default_factory=dict)


def read_rounds(domain: Domain, events: Sequence[Event]) -> Iterator[Round | Event]:
    """The rounds of a traced gated competition, and between them the events that end one."""
    draft: _Draft | None = None
    pooled: dict[str, set[str]] = {}
    for event in events:
        data = dict(event.data)
        if draft is not None and _ends(draft, event.event, data):
            yield _finish(domain, draft, pooled)
            draft = None
        if event.event in OUTCOMES:
            yield event
        else:
            draft = draft or _Draft(event.state)
            _add(draft, event.event, data)
    if draft is not None:
        yield _finish(domain, draft, pooled)


def _ends(draft: _Draft, kind: str, data: Mapping[str, Any]) -> bool:
    """Whether an event belongs to no round, or to the one after ``draft``."""
    allotted = draft.k is not None and kind != "verify"
    return kind in OUTCOMES or kind == "reopen" or "texts" in data or allotted


def _add(draft: _Draft, kind: str, data: Mapping[str, Any]) -> None:
    if "texts" in data:
        draft.texts.update(data["texts"])
    elif kind in ("propose", "reopen"):
        draft.pool = data["survivors"]
    elif kind == "rank" and data["scorer"] != REJECT_PROBABILITY:
        draft.pool, draft.scores = data["moves"], data["scores"]
    elif kind == "allocate":
        draft.sigma, draft.k = data["sigma"], data["k"]
    elif kind == "verify":
        draft.verdicts[data["steps"][-1]] = data["score"]


def _finish(domain: Domain, draft: _Draft, pooled: dict[str, set[str]]) -> Round:
    seen = pooled.setdefault(draft.state.trace, set())
    sampled: Counter[str] = Counter()
    refused: list[Row] = []
    for text, times in draft.texts.most_common():
        candidate = domain.parse(text)
        refusal = inadmissible(domain, draft.state, candidate=candidate, gates=GATES)
        if refusal is not None:
            refused.append(Row(text, times, gate=refusal.gate, reason=refusal.reason))
        elif isinstance(candidate, Move):
            sampled[candidate.text] += times
    scores = dict(zip(draft.pool, draft.scores, strict=False))
    rows = [
        Row(
            text,
            sampled[text],
            "" if sampled[text] else KEPT if text in seen else RETRIEVED,
            h=scores.get(text),
            score=draft.verdicts.get(text),
        )
        for text in sorted(draft.pool, key=lambda text: scores.get(text, 0.0))
    ]
    before = [Row(t, n, judged=True) for t, n in sampled.items() if t not in draft.pool]
    seen.update(draft.pool)
    count = sum(draft.texts.values())
    return Round(draft.state, count, (*rows, *before, *refused), draft.sigma, draft.k)


def render_trace(
    domain: Domain, events: Sequence[Event], *, tau: float, reference_dispersion: float
) -> Iterator[RenderableType]:
    """Every round as a table, with what led to it and what came of it.

    Args:
        events: of one traced gated competition.
        tau: the acceptance threshold it ran under.
        reference_dispersion: sigma-bar, shown beside each sigma.
    """
    yield Text(LEGEND, style="dim")
    shown: str | None = None
    for step in read_rounds(domain, events):
        if isinstance(step, Event):
            yield OUTCOMES[step.event](step)
            shown = shown if step.event in SAME_STATE else None
            continue
        if step.state.trace != shown:
            shown = step.state.trace
            yield _heading(step.state)
        yield summary(step)
        if step.rows:
            yield _table(step, tau)
        if step.k is not None and step.sigma is not None:
            yield allotment(step, step.k, step.sigma, reference_dispersion)


def _heading(state: State) -> Text:
    count = len(state.derivation)
    title = f"\nState after {count} move{'' if count == 1 else 's'}"
    text = Text(f"{title}; verifier calls left: {state.budget}\n", style="bold")
    for place, move in enumerate(state.derivation, start=1):
        text.append(f"  {place}. {move.text}\n", style="not bold")
    text.rstrip()
    return text


def summary(step: Round) -> Text:
    """How many proposals, and what each gate refused for which reason, counted."""
    if not step.sampled:
        return Text("Nothing new sampled.")
    refused: Counter[str] = Counter()
    for row in step.rows:
        if row.gate:
            refused[f"{row.gate}: {row.reason}"] += row.times
    passed = step.sampled - sum(refused.values())
    text = f"Sampled {step.sampled}; {passed} pass both gates"
    if refused:
        reasons = "; ".join(f"{reason} ({times})" for reason, times in refused.most_common())
        text += f", {step.sampled - passed} refused: {reasons}"
    return Text(f"{text}.")


def _table(step: Round, tau: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("candidate", overflow="fold")
    table.add_column("sampled", justify="right", no_wrap=True)
    table.add_column("h", justify="right", no_wrap=True)
    table.add_column("what became of it")
    for row in step.rows:
        h = "" if row.h is None else f"{row.h:.3f}"
        table.add_row(Text(row.text), row.source or f"{row.times} x", h, fate(row, tau))
    return table


def fate(row: Row, tau: float) -> Text:
    """What became of a candidate; the style says how to colour it."""
    if row.gate:
        return Text(f"refused: {row.gate}, {row.reason}", style="dim")
    if row.judged:
        return Text("verified here before", style="dim")
    if row.score is None:
        return Text("passes, verifier not asked")
    accepted = row.score >= tau
    verdict = "accepted" if accepted else f"rejected (tau {tau:g})"
    return Text(f"verifier: {row.score:.2f}, {verdict}", style="green" if accepted else "red")


def allotment(step: Round, k: int, sigma: float, reference: float) -> Text:
    """How k(w) came about, and how many survivors it sent to the verifier."""
    survivors = sum(not row.gate and not row.judged for row in step.rows)
    asked = sum(row.score is not None for row in step.rows)
    return Text(
        f"sigma {sigma:.3f} ({reference:.3f} on average in training) gives k(w) = {k}: "
        f"{asked} of {survivors} verified."
    )


def _committed(event: Event) -> Text:
    return Text(f"Commit: {dict(event.data)['move']}", style="bold green")


def _trusted(event: Event) -> Text:
    data = dict(event.data)
    return Text(
        f"Trusted without a call: the chance that the verifier rejects {data['move']} is put at "
        f"{data['reject_probability']:.3f}.",
        style="green",
    )


def _retried(event: Event) -> Text:
    return Text(f"Nothing accepted: retry {dict(event.data)['attempt']}.", style="yellow")


def _went_back(event: Event) -> Text:
    return Text(
        f"Nothing accepted: back from {len(event.state.derivation)} moves to "
        f"{dict(event.data)['to']}, to the next best accepted move there.",
        style="yellow",
    )


def _fell_back(event: Event) -> Text:
    data = dict(event.data)
    why = FALLBACKS[str(data["rule"])]
    return Text(f"{why}: {data['move']}", style="yellow")


def _resampled(event: Event) -> Text:
    return Text(
        f"Nothing left to try: more samples at the state after {len(event.state.derivation)} "
        "moves.",
        style="yellow",
    )


def _ended(event: Event) -> Text:
    return Text(f"Stop: {ENDS[str(dict(event.data)['reason'])]}.", style="bold")


def render_totals(events: Sequence[Event]) -> Text:
    """What the events sum to."""
    total = sum((event.ledger for event in events), start=Ledger())
    seen = Counter(event.event for event in events)
    return Text(
        f"Totals: verifier calls {total.verifier_calls}, moves sampled {total.generated_moves}, "
        f"tokens {total.generated_tokens}, commits {seen['commit']}, retries {seen['retry']}, "
        f"steps back {seen['backtrack']}, moves trusted without a call {seen['trust']}, "
        f"taken without acceptance {seen['fallback']}."
    )


FALLBACKS = MappingProxyType(
    {
        "unverified": "No calls left, so the best ranked move is taken unverified",
        "rejected": "Nothing accepted is left, so the best rejected move is taken",
    }
)
ENDS = MappingProxyType(
    {
        "answered": "the answer is committed",
        "budget": "no verifier calls left",
        "generation": "no samples left",
        "exhausted": "nothing left to try",
    }
)
OUTCOMES: Mapping[str, Callable[[Event], Text]] = MappingProxyType(
    {
        "trust": _trusted,
        "commit": _committed,
        "retry": _retried,
        "backtrack": _went_back,
        "fallback": _fell_back,
        "resample": _resampled,
        "end": _ended,
    }
)
"""The events that end a round, and how each reads."""
SAME_STATE = frozenset({"trust", "retry"})
