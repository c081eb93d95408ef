"""Recorded runs in the place of models: what a log holds answers, what it lacks is a counted miss.

Knows: recorded lists and samples, the states they belong to, how a miss is answered. Does not know:
files, budgets, the rules of any search, the truth.

A miss is answered with what cannot help a search: a blank sample, which no domain reads as a move,
and a verdict of 0, which no tau above 0 accepts. So a search goes on in a defined way, and whether
it was touched by a miss is known of every one (``replay``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from selverify.audit.schema import Candidate, RecordedList, RecordedSample
from selverify.domains.base import Domain
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.search.backend import Ranker
from selverify.search.driver import Result, Search, run_lockstep
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Propose,
    ProposeItem,
    Rank,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.types import Move, Problem, Sample, State, Verdict

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Key = tuple[str, tuple[str, ...]]
"""A state: its problem, and the canonical texts of the moves before it."""
BLANK = Sample("", 0, 0.0)
"""Stands for a sample that was not recorded, and for what is asked for beyond a whole list."""


@dataclass(frozen=True, slots=True)
class ByScore:
    """The verdict of the recorded verifier: (score - low) / (high - low), cut off at 0 and 1.

    Its ``repr`` identifies it.

    Raises:
        ParamsError: ``low`` is not below ``high``, or one is not finite.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise ParamsError(
                f"score map: given {self.low} and {self.high}, expected low < high, both finite"
            )

    def __call__(self, candidate: Candidate) -> float | None:
        """The score on [0, 1]."""
        return None if candidate.score is None else self.scaled(candidate.score)

    def scaled(self, score: float) -> float:
        """Where a recorded score, or a threshold for it, lies on [0, 1]."""
        return min(1.0, max(0.0, (score - self.low) / (self.high - self.low)))


@dataclass(frozen=True, slots=True)
class Count:
    """How many samples, or verdicts, were asked for, and how many of them were not recorded."""

    asked: int = 0
    missed: int = 0

    @property
    def answered(self) -> int:
        """How many the log held."""
        return self.asked - self.missed

    def __add__(self, other: Count) -> Count:
        """Both together."""
        return Count(self.asked + other.asked, self.missed + other.missed)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was asked of a log by kind of request: single moves, whole solutions, verdicts."""

    propose: Count = Count()
    complete: Count = Count()
    verify: Count = Count()

    @property
    def touched(self) -> bool:
        """Whether anything that was asked for was not recorded."""
        return bool(self.propose.missed or self.complete.missed or self.verify.missed)

    def __add__(self, other: Coverage) -> Coverage:
        """Both together."""
        return Coverage(
            self.propose + other.propose,
            self.complete + other.complete,
            self.verify + other.verify,
        )


@dataclass(frozen=True, slots=True)
class Unused:
    """Entries that cannot be asked for.

    ``lists``: a text of the prefix is no move of the domain. ``samples``: without one score a
    step; their texts answer, their scores do not.
    """

    lists: int
    samples: int


class ReplayBackend:
    """Answers from recorded entries; a pure function of each item, as every backend is.

    Propose gives the candidates of all lists at the state in recorded order, one ``times`` times
    over in a row; Complete, from the start only, the samples run by run; Verify the verdict of each
    step after the ones before it, from lists and from step scores, the first that is recorded;
    Rank what ``ranker`` says. Tokens and log probabilities that were not recorded are 0.
    """

    def __init__(
        self,
        domain: Domain,
        entries: Iterable[RecordedList | RecordedSample],
        *,
        judge: ByScore,
        whole_lists: bool,
        ranker: Ranker | None,
    ) -> None:
        """Index the entries of one run or more.

        Args:
            domain: reads the recorded texts; what it cannot read is ``unused``.
            judge: the verdict of a candidate; a step score is asked about as a candidate's score.
            whole_lists: whether one reply holds all next moves of a state, as with a prompt that
                asks for them, so that a recorded list is all that there is: what is asked for
                beyond its end is blank and no miss. Else each move was sampled by itself, and a
                further one was not recorded.
            ranker: answers Rank; without one such a request is refused.
        """
        self.domain = domain
        self._judge = judge
        self._whole = whole_lists
        self._ranker = ranker
        self._proposals: dict[Key, list[Sample]] = {}
        self._verdicts: dict[Key, float] = {}
        self._solutions: dict[str, list[Sample]] = {}
        self._identity = hashlib.sha256(f"{domain.name} {whole_lists}".encode())
        unused = [self._take(entry) for entry in _in_order(entries)]
        self.unused = Unused(unused.count("list"), unused.count("sample"))

    def identity(self, kind: str) -> str:
        """Of the entries, and of the judge or the ranker where they matter."""
        if kind == Rank.kind:
            return "none" if self._ranker is None else self._ranker.identity()
        said = f"replay:{self._identity.hexdigest()}"
        return f"{said}:{self._judge!r}" if kind == Verify.kind else said

    def answer(self, request: Request) -> Reply:
        """The recorded reply to each item, with a blank or a 0 for what was not recorded.

        Raises:
            ProtocolError: a Rank without a ranker, or a Note.
        """
        if isinstance(request, Propose):
            return tuple(_filled(self._proposed(item)) for item in request.items)
        if isinstance(request, Complete):
            return tuple(_filled(self._completed(item)) for item in request.items)
        if isinstance(request, Verify):
            return tuple(self._verdict(item) for item in request.items)
        if isinstance(request, Rank) and self._ranker is not None:
            return self._ranker.rank(request.items)
        raise ProtocolError(
            f"given a {type(request).__name__}, expected a Propose, a Complete, a Verify"
            + (" or a Rank" if self._ranker else "; this replay has no ranker")
        )

    def coverage(self, request: Request) -> Coverage:
        """How much of what ``request`` asks for is recorded. A Rank and a Note ask for nothing."""
        if isinstance(request, Propose):
            return Coverage(propose=_count(self._proposed(item) for item in request.items))
        if isinstance(request, Complete):
            return Coverage(complete=_count(self._completed(item) for item in request.items))
        if isinstance(request, Verify):
            missed = sum(None in self._scores(item) for item in request.items)
            return Coverage(verify=Count(len(request.items), missed))
        return Coverage()

    def _proposed(self, item: ProposeItem) -> list[Sample | None]:
        known = self._proposals.get(_key(item.state))
        return _places(known or (), item, beyond=BLANK if known and self._whole else None)

    def _completed(self, item: CompleteItem) -> list[Sample | None]:
        """A greedy solution, or one from within a derivation, is never recorded as such."""
        if item.greedy or item.state.derivation:
            return [None] * item.count
        return _places(self._solutions.get(item.state.problem.problem_id, ()), item, beyond=None)

    def _scores(self, item: VerifyItem) -> list[float | None]:
        problem_id, said = _key(item.state)
        found = []
        for move in item.steps:
            said = (*said, move.text)
            found.append(self._verdicts.get((problem_id, said)))
        return found

    def _verdict(self, item: VerifyItem) -> Verdict:
        scores = tuple(0.0 if score is None else score for score in self._scores(item))
        return Verdict(scores[-1], scores)

    def _take(self, entry: RecordedList | RecordedSample) -> str | None:
        """Bring an entry into the index; its kind where it cannot be used."""
        self._identity.update(entry.model_dump_json().encode())
        if isinstance(entry, RecordedList):
            return self._take_list(entry)
        return self._take_sample(entry)

    def _take_list(self, item: RecordedList) -> str | None:
        prefix = self._said(item.prefix)
        if prefix is None:
            return item.kind
        samples = [
            Sample(one.text, 0, one.logprob or 0.0)
            for one in item.candidates
            for _ in range(one.times)
        ]
        self._proposals.setdefault((item.problem_id, prefix), []).extend(samples)
        for one in item.candidates:
            self._learn(item.problem_id, prefix, one)
        return None

    def _take_sample(self, item: RecordedSample) -> str | None:
        between = " " if self.domain.end_of_move.strip() else self.domain.end_of_move
        sample = Sample(between.join(item.steps), item.tokens or 0, 0.0)
        self._solutions.setdefault(item.problem_id, []).append(sample)
        scores = item.step_scores or ()
        if len(scores) != len(item.steps):
            return item.kind
        said: tuple[str, ...] = ()
        for text, score in zip(item.steps, scores, strict=True):
            after = self._learn(item.problem_id, said, Candidate(text=text, score=score))
            if after is None:
                return item.kind
            said = after
        return None

    def _learn(
        self, problem_id: str, said: tuple[str, ...], candidate: Candidate
    ) -> tuple[str, ...] | None:
        """Keep a move's verdict; what was said after it, or None if it is no move."""
        move = self.domain.parse(candidate.text)
        if not isinstance(move, Move):
            return None
        verdict = self._judge(candidate)
        if verdict is not None:
            self._verdicts.setdefault((problem_id, (*said, move.text)), verdict)
        return (*said, move.text)

    def _said(self, texts: Sequence[str]) -> tuple[str, ...] | None:
        moves = [self.domain.parse(text) for text in texts]
        said = tuple(move.text for move in moves if isinstance(move, Move))
        return said if len(said) == len(moves) else None


@dataclass(frozen=True, slots=True)
class Replayed(Generic[T]):
    """What a search returned and cost, and how much of what it asked for was recorded."""

    result: Result[T]
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class Bounds:
    """A rate of success over searches, some of which a miss touched.

    ``low``: those count as failures; ``high``: as successes; ``ended``: as they ended;
    ``left_out``: they do not count (None when no other is left). ``touched``: how many they are.
    """

    low: float
    high: float
    ended: float
    left_out: float | None
    touched: int
    searches: int


def replay(
    searches: Mapping[K, Search[T]], backend: ReplayBackend, *, traced: bool = False
) -> dict[K, Replayed[T]]:
    """``run_lockstep`` on recorded entries, with the coverage of every search beside its result."""
    asked: dict[K, list[Coverage]] = {key: [] for key in searches}
    watched = {
        key: replace(search, generator=_watched(search.generator, backend, asked[key]))
        for key, search in searches.items()
    }
    end = backend.domain.end_of_move
    results = run_lockstep(watched, backend, end_of_move=end, traced=traced)
    return {key: Replayed(result, sum(asked[key], Coverage())) for key, result in results.items()}


def bounds(ends: Iterable[tuple[bool, Coverage]]) -> Bounds:
    """The rate of success of searches, from both sides.

    Args:
        ends: of each search whether it succeeded, and its coverage.

    Raises:
        SchemaError: there is none.
    """
    found = list(ends)
    if not found:
        raise SchemaError("replayed searches: given none, expected at least one")
    whole = [success for success, coverage in found if not coverage.touched]
    touched = len(found) - len(whole)
    return Bounds(
        low=sum(whole) / len(found),
        high=(sum(whole) + touched) / len(found),
        ended=sum(success for success, _ in found) / len(found),
        left_out=sum(whole) / len(whole) if whole else None,
        touched=touched,
        searches=len(found),
    )


def recorded_problems(
    domain: Domain, entries: Iterable[RecordedList | RecordedSample]
) -> dict[str, Problem]:
    """The problems that the entries' questions state, by id, in the order of the entries.

    Raises:
        SchemaError: an id has two questions or none, or a question is none of the domain.
    """
    questions: dict[str, set[str]] = {}
    for entry in entries:
        own = questions.setdefault(entry.problem_id, set())
        if entry.question is not None:
            own.add(entry.question)
    for problem_id, texts in questions.items():
        if len(texts) != 1:
            raise SchemaError(
                f"recorded problem {problem_id!r}: given {len(texts)} questions, expected one"
            )
    return {
        problem_id: domain.read(text, problem_id=problem_id)
        for problem_id, (text,) in questions.items()
    }


def _watched(
    search: Generator[Request, Reply, T], backend: ReplayBackend, asked: list[Coverage]
) -> Generator[Request, Reply, T]:
    """The same search; the coverage of each of its requests is written down."""
    reply: Reply = None
    while True:
        try:
            request = search.send(reply)
        except StopIteration as stop:
            ended: T = stop.value
            return ended
        asked.append(backend.coverage(request))
        reply = yield request


def _in_order(
    entries: Iterable[RecordedList | RecordedSample],
) -> list[RecordedList | RecordedSample]:
    """Lists as they stand; samples of a run by their place in it, runs as they come first."""
    listed = list(entries)
    runs: dict[str, int] = {}
    for entry in listed:
        runs.setdefault(entry.run, len(runs))
    samples = [entry for entry in listed if isinstance(entry, RecordedSample)]
    samples.sort(key=lambda entry: (runs[entry.run], entry.sample))
    return [entry for entry in listed if isinstance(entry, RecordedList)] + samples


def _key(state: State) -> Key:
    return state.problem.problem_id, state.said


def _places(
    recorded: Sequence[Sample], item: ProposeItem | CompleteItem, *, beyond: Sample | None
) -> list[Sample | None]:
    """The samples of these places, ``beyond`` after the last recorded one; None is a miss."""
    found: list[Sample | None] = list(recorded[item.start : item.start + item.count])
    return found + [beyond] * (item.count - len(found))


def _filled(samples: Iterable[Sample | None]) -> tuple[Sample, ...]:
    return tuple(BLANK if sample is None else sample for sample in samples)


def _count(replies: Iterator[list[Sample | None]]) -> Count:
    asked = missed = 0
    for reply in replies:
        asked += len(reply)
        missed += reply.count(None)
    return Count(asked, missed)
