"""One search's events as text for a reader new to the method.

Knows: what gated competition records, and how to lay it out. Does not know: models, who searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from selverify.domains.base import Domain
from selverify.search.allocation import margin
from selverify.search.candidates import inadmissible
from selverify.search.gated import REJECT_PROBABILITY
from selverify.search.gates import GATES
from selverify.search.ledger import Ledger
from selverify.search.traces import Event
from selverify.types import Move, State

LEGEND = (
    "At each state the generator proposes next moves. Two gates refuse, for free, those that break "
    "a rule. h ranks the rest (lower first). Where the verifier would hardly reject the first, or "
    "any move since its last call, that one is committed at once, to be judged with the next call. "
    "Elsewhere k(w) of them are shown to the verifier, more where the margin between the two best "
    "h is small (or, by the paper's equation, where sigma, their spread, is large). Its score is "
    "the chance that a move is right: from tau on it is accepted. The best accepted move is "
    "committed; without one the state is tried again, then left for an earlier one."
)
KEPT, RETRIEVED = "kept", "retrieved"
OUTCOMES = {
    "trust": (
        "Trusted without a call: the chance that the verifier rejects {move} is put at "
        "{reject_probability:.3f}, that it rejects any move since its last call at {risk:.3f}."
    ),
    "check": "The answer checks without a call: {move}",
    "retract": (
        "The call rejects {move}, committed before without one ({score:.2f}): back to the state "
        "after {to} moves."
    ),
    "commit": "Commit: {move}",
    "retry": "Nothing accepted: retry {attempt}.",
    "backtrack": (
        "Nothing accepted: back from {moves} moves to {to}, to the next best accepted move there."
    ),
    "fallback": "{rule}: {move}",
    "resample": "Nothing left to try: more samples at the state after {moves} moves.",
    "end": "Stop: {reason}.",
}
"""The events that end a round, and how each reads."""
_STYLES = {"trust": "green", "check": "green", "commit": "bold green", "end": "bold"}
"""Colours of the good ones; the others are warnings."""
FALLBACKS = {
    "unverified": "No calls left, so the best ranked move is taken unverified",
    "rejected": "Nothing accepted is left, so the best rejected move is taken",
}
END_REASONS = {
    "answered": "the answer is committed",
    "budget": "no verifier calls left",
    "generation": "no samples left",
    "exhausted": "nothing left to try",
}


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One distinct candidate of a round.

    ``times``: how often it was sampled in this round; with 0 it was ``KEPT`` from an earlier one
    or ``RETRIEVED``, as ``source`` says. ``gate`` and ``reason`` are "" where no gate refused it;
    ``h`` is None where it was not ranked, ``score`` where it was not verified in this round.
    ``judged``: it was verified at this state before.
    """

    text: str
    times: int
    source: str = ""
    gate: str = ""
    reason: str = ""
    h: float | None = None
    score: float | None = None
    judged: bool = False

    def fate(self, tau: float) -> tuple[str, str]:
        """What became of it: refused, judged, passed, accepted or rejected, and the same in words.

        Judged: verified here before; passed: no gate refused it, and no call was made.
        """
        if self.gate:
            return "refused", f"refused: {self.gate}, {self.reason}"
        if self.judged:
            return "judged", "verified here before"
        if self.score is None:
            return "passed", "passes, verifier not asked"
        verdict = "accepted" if self.score >= tau else "rejected"
        threshold = "" if verdict == "accepted" else f" (tau {tau:g})"
        return verdict, f"verifier: {self.score:.2f}, {verdict}{threshold}"

    def cells(self, tau: float) -> tuple[str, str, str, str, str]:
        """Candidate, how often it was sampled, h, what became of it in words and in one."""
        kind, fate = self.fate(tau)
        h = "" if self.h is None else f"{self.h:.3f}"
        return self.text, self.source or f"{self.times} x", h, fate, kind


@dataclass(frozen=True, slots=True)
class Round:
    """One round of proposals at one state; survivors first, by h, then the refused.

    ``sampled`` counts the proposals, 0 where the search came back to a state for survivors not
    yet verified; ``sigma``, ``margin`` and ``k`` are None where no call was allotted.
    """

    state: State
    sampled: int
    rows: tuple[CandidateRow, ...]
    sigma: float | None
    margin: float | None
    k: int | None

    @property
    def summary(self) -> str:
        """How many proposals, and what each gate refused for which reason, counted."""
        if not self.sampled:
            return "Nothing new sampled."
        refused: Counter[str] = Counter()
        for row in self.rows:
            if row.gate:
                refused[f"{row.gate}: {row.reason}"] += row.times
        text = f"Sampled {self.sampled}; {self.sampled - refused.total()} pass both gates"
        if refused:
            reasons = "; ".join(f"{reason} ({times})" for reason, times in refused.most_common())
            text += f", {refused.total()} refused: {reasons}"
        return f"{text}."

    def allotment(self, reference: float) -> str:
        """How k(w) came about, and how many survivors it sent to the verifier; "" without k.

        ``reference`` is sigma-bar.
        """
        if self.k is None or self.sigma is None or self.margin is None:
            return ""
        survivors = sum(not row.gate and not row.judged for row in self.rows)
        verified = sum(row.score is not None for row in self.rows)
        return (
            f"Margin {self.margin:.3f}, sigma {self.sigma:.3f} ({reference:.3f} on average in "
            f"training): k(w) = {self.k}, {verified} of {survivors} verified."
        )


def read_rounds(domain: Domain, events: Sequence[Event]) -> Iterator[Round | Event]:
    """The rounds of a traced gated competition, and between them the events that end one."""
    own: list[Event] = []
    pooled: dict[str, set[str]] = {}
    for event in events:
        if own and _ends(own, event):
            yield _round(domain, own, pooled)
            own = []
        if event.event in OUTCOMES:
            yield event
        else:
            own.append(event)
    if own:
        yield _round(domain, own, pooled)


def _ends(own: Sequence[Event], event: Event) -> bool:
    """Whether ``event`` belongs to no round, or to the one after that of ``own``."""
    allotted = any(one.event == "allocate" for one in own) and event.event != "verify"
    return allotted or event.event in (*OUTCOMES, "reopen") or "texts" in dict(event.data)


def _round(domain: Domain, events: Sequence[Event], pooled: dict[str, set[str]]) -> Round:
    """One round from its events; ``pooled`` are the survivors of earlier rounds at each state."""
    state, texts, verdicts = events[0].state, Counter[str](), dict[str, float]()
    pool, scores = list[str](), dict[str, float]()
    sigma, gap, k = None, None, None
    for event in events:
        data: dict[str, Any] = dict(event.data)
        if "texts" in data:
            texts.update(data["texts"])
        elif event.event in ("propose", "reopen"):
            pool = data["survivors"]
        elif event.event == "rank" and data["scorer"] != REJECT_PROBABILITY:
            pool, scores = data["moves"], dict(zip(data["moves"], data["scores"], strict=False))
        elif event.event == "allocate":
            sigma, gap, k = data["sigma"], margin(data["scores"]), data["k"]
        elif event.event == "verify":
            verdicts[data["steps"][-1]] = data["score"]
    sampled, refused = _sift(domain, state, texts)
    earlier = pooled.setdefault(state.trace, set())
    rows = [
        CandidateRow(
            text,
            sampled[text],
            "" if sampled[text] else KEPT if text in earlier else RETRIEVED,
            h=scores.get(text),
            score=verdicts.get(text),
        )
        for text in sorted(pool, key=lambda text: scores.get(text, 0.0))
    ]
    before = [CandidateRow(t, n, judged=True) for t, n in sampled.items() if t not in pool]
    earlier.update(pool)
    return Round(state, texts.total(), (*rows, *before, *refused), sigma, gap, k)


def _sift(
    domain: Domain, state: State, texts: Counter[str]
) -> tuple[Counter[str], list[CandidateRow]]:
    """The moves that pass the gates, counted, and the refused candidates."""
    sampled: Counter[str] = Counter()
    refused = []
    for text, times in texts.most_common():
        candidate = domain.parse(text)
        refusal = inadmissible(domain, state, candidate=candidate, gates=GATES)
        if refusal is not None:
            refused.append(CandidateRow(text, times, gate=refusal.gate, reason=refusal.reason))
        elif isinstance(candidate, Move):
            sampled[candidate.text] += times
    return sampled, refused


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
            yield Text(outcome_text(step), style=_STYLES.get(step.event, "yellow"))
            shown = shown if step.event in ("trust", "check", "retry") else None
            continue
        if step.state.trace != shown:
            shown = step.state.trace
            yield _heading(step.state)
        yield Text(step.summary)
        if step.rows:
            yield _table(step, tau)
        if allotment := step.allotment(reference_dispersion):
            yield Text(allotment)


def outcome_text(event: Event) -> str:
    """How an event that ends a round reads."""
    said = {"rule": FALLBACKS, "reason": END_REASONS}
    data = {name: said[name][str(value)] if name in said else value for name, value in event.data}
    return OUTCOMES[event.event].format(**data, moves=len(event.state.derivation))


def render_totals(events: Sequence[Event]) -> Text:
    """What the events sum to."""
    total = sum((event.ledger for event in events), start=Ledger())
    seen = Counter(event.event for event in events)
    return Text(
        f"Totals: verifier calls {total.verifier_calls}, moves sampled {total.generated_moves}, "
        f"tokens {total.generated_tokens}, commits {seen['commit']}, retries {seen['retry']}, "
        f"steps back {seen['backtrack'] + seen['retract']}, "
        f"moves trusted without a call {seen['trust']}, "
        f"taken without acceptance {seen['fallback']}."
    )


def _heading(state: State) -> Text:
    count = len(state.derivation)
    title = f"\nState after {count} move{'' if count == 1 else 's'}"
    text = Text(f"{title}; verifier calls left: {state.budget}\n", style="bold")
    for place, move in enumerate(state.derivation, start=1):
        text.append(f"  {place}. {move.text}\n", style="not bold")
    text.rstrip()
    return text


def _table(step: Round, tau: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("candidate", overflow="fold")
    table.add_column("sampled", justify="right", no_wrap=True)
    table.add_column("h", justify="right", no_wrap=True)
    table.add_column("what became of it")
    styles = {"refused": "dim", "judged": "dim", "accepted": "green", "rejected": "red"}
    for row in step.rows:
        text, sampled, h, fate, kind = row.cells(tau)
        table.add_row(Text(text), sampled, h, Text(fate, style=styles.get(kind, "")))
    return table
