"""A ranker of your own: learned from a log, saved, loaded, and asked which steps to verify.

>>> ranker = selverify.Ranker.load("ranker/")
>>> plan = ranker.plan(question, steps_so_far, candidates)
>>> [candidates[place] for place in plan.order[: plan.verify]]

Knows: logs of judged candidate lists, encoders, the chosen rule, the files of a ranker. Does not
know: searches, models that propose or verify.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import Tensor, nn

from selverify.audit.encoders import Embedder, open_embedder
from selverify.audit.judged_lists import JudgedList, judge
from selverify.audit.learned_orders import (
    ALWAYS,
    FOLDS,
    RANKER_SETTINGS,
    WITH_TRAJECTORIES,
    held_out,
    mean_dispersion,
    named_scorers,
    rounded,
)
from selverify.audit.list_audit import LARGEST_SEED, accept_rule
from selverify.audit.log import (
    LONGEST_TEXT,
    MOST_ENTRIES,
    RecordedCandidate,
    RecordedList,
    in_order,
)
from selverify.audit.ranker_card import Learned, card_of, savings_of
from selverify.audit.ranking_rule import Rule, choose_rule
from selverify.audit.records import fault, shown
from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.experiment.audits import BoolArray
from selverify.models.heuristic.embedding import Embeddings, concatenate
from selverify.models.heuristic.familiarity import Familiarity
from selverify.models.heuristic.hybrid import Heuristic
from selverify.search.allocation import calls_at
from selverify.storage import DIGESTS, atomic_path, check_place, read_checked, write_digests
from selverify.training.policy import LabelledList, MappedLists, train_policy

T = TypeVar("T")
DESCRIBED, WEIGHTS, CARD = "ranker.json", "ranker.safetensors", "README.md"
SCHEMA = 1
DEFAULT_ENCODER = "wordllama+free"
PROBE = "Natalia sold 48 clips in April, and half as many in May."
"""Is embedded again when a ranker is loaded: another encoder would give other numbers."""
PROBED, PROBE_TOLERANCE = 8, 1e-3
WRITING = 8
"""Numbers that say how a state is written."""
RESAMPLES = 2_000
UNKNOWN, SURELY = 1.0, 1.0 - 1e-6
"""The score and the chance of a rejection of all candidates at an unfamiliar state; the most that
the chance is elsewhere, in as many digits as are kept."""
MOST_LISTS = 20_000
"""To learn from; more take memory and say little more."""
FEWEST_PROBLEMS = 100
"""That these are of, where the log has as many."""


@dataclass(frozen=True, slots=True)
class CandidateList:
    """Candidate steps at a state: after ``steps`` of a solution of ``question``."""

    question: str
    steps: Sequence[str]
    candidates: Sequence[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which candidates to verify.

    Attributes:
        order: places of the distinct candidates, the most promising first; of equal texts the
            first place.
        verify: how many of ``order`` to verify, at once or one by one until one is accepted. Where
            none is, plan again with the others.
        skip: whether to commit ``order[0]`` without a call; ``verify`` is then 0.
        reject_probability: of each candidate, in their order, that the verifier rejects it.
        familiar: whether the state is like those that the ranker was trained on. Where it is not,
            nothing the ranker says counts: ``order`` is as given, and all are to be verified.
    """

    order: tuple[int, ...]
    verify: int
    skip: bool
    reject_probability: tuple[float, ...]
    familiar: bool


@dataclass(frozen=True, slots=True)
class Picked:
    """Which of many partial solutions to verify, for a search that wants a score of each.

    Attributes:
        places: of those to verify.
        same: of each text the place of the first equal one to the same question.
        unverified: of each text what stands for its score where it is not verified: in (0, 1] for
            one that is committed without a call, else in [-1, 0], below every verified one.
    """

    places: tuple[int, ...]
    same: tuple[int, ...]
    unverified: tuple[float, ...]

    def fill(self, verified: Sequence[T], unverified: Callable[[float], T]) -> list[T]:
        """One score a text, in their order: those of ``places``, made for the others."""
        known = dict(zip(self.places, verified, strict=True))
        return [
            known[first] if first in known else unverified(self.unverified[first])
            for first in self.same
        ]


def check_folder(folder: Path) -> None:
    """See whether a ranker may be written there, before it is trained.

    Raises:
        ArtifactError: it may not.
    """
    if not folder.name:
        raise ArtifactError(f"{folder}: given no name, expected a folder for the ranker")
    held = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    other = sorted(held - {DESCRIBED, WEIGHTS, CARD, DIGESTS})
    if other or (held and DESCRIBED not in held):
        raise ArtifactError(
            f"{folder}: given a folder that holds something else than a ranker"
            f"{f' ({other[0]!r})' if other else ''}, expected a new one"
        )
    check_place(folder, folder=True)
    if folder.exists() and not folder.is_dir():
        raise ArtifactError(f"{folder}: given a file, expected a folder for the ranker")


class _Read(NamedTuple):
    """Of each distinct candidate its score and the probability of a rejection."""

    scores: list[float]
    chances: list[float]
    familiar: bool


def _usable(rule: Rule) -> Rule:
    """The rule of a file, if training can have written it."""
    expected = {
        "scorer": rule.scorer in ALWAYS + WITH_TRAJECTORIES,
        "k_base": 1.0 <= rule.k_base < math.inf,
        "beta": math.isfinite(rule.beta),
        "k_max": 1 <= rule.k_max <= MOST_ENTRIES,
        "skip_below": rule.skip_below is None or 0.0 < rule.skip_below < 1.0,
    }
    for name, fits in expected.items():
        if not fits:
            raise ValueError(f"rule.{name}: given {shown(getattr(rule, name))}")
    return rule


_Size = Annotated[int, Field(ge=1, le=1 << 16)]


class Described(BaseModel):
    """``ranker.json``.

    ``savings`` is what the log promises, in a sentence, and ``promised`` its numbers: ``calls`` a
    state, ``calls_ratio`` to those of all candidates, ``found`` (share of the states that hold an
    accepted step), each with ``_low`` and ``_high``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int
    encoder: str
    width: _Size
    seen: _Size
    hidden: _Size
    rule: Annotated[Rule, AfterValidator(_usable)]
    savings: str
    promised: dict[str, float]
    probe: tuple[float, ...]


class _Known(nn.Module):
    """Which states are like those of the training: in what they say, and in how it is written."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.meaning = Familiarity(width)
        self.writing = Familiarity(WRITING)

    def is_unlike(self, embedded: Sequence[Embeddings], states: Sequence[RecordedList]) -> Tensor:
        """[states], True for one that is unlike in either."""
        unlike: Tensor = self.meaning.is_unlike(_meanings(embedded))
        return unlike | self.writing.is_unlike(_writings(states))


class _Weights(nn.Module):
    """All that is learned: the heads, and which states they were learned at."""

    def __init__(self, heuristic: Heuristic, known: _Known) -> None:
        super().__init__()
        self.heuristic = heuristic
        self.known = known


@dataclass(frozen=True, slots=True, eq=False)
class Ranker:
    """Orders candidate steps and says how many of them are worth a verifier call."""

    described: Described
    card: str
    _weights: _Weights = field(repr=False)
    _embedder: Embedder = field(repr=False)

    @classmethod
    def train(
        cls,
        lists: Collection[RecordedList],
        *,
        encoder: str = DEFAULT_ENCODER,
        by: str | None = None,
        tau: float | None = None,
        wanted: float = 0.98,
        seed: int = 0,
        source: str = "a log",
        report: Callable[[str], None] = lambda line: None,
    ) -> Ranker:
        """Learn from lists whose candidates all have a verdict; the others are left out.

        The order of ``lists`` does not matter.

        Args:
            encoder: what turns texts into numbers; see ``audit.encoders.open_embedder``.
            by, tau: what counts as accepted; see ``audit.list_audit.accept_rule``.
            wanted: in which share of the states with an accepted step one is to be found.
            source: what the card calls the log.
            report: is given lines of progress.

        Raises:
            ParamsError: a setting that there is not, or that the lists cannot serve.
            SchemaError: too few lists to learn from, to choose the rule on and to count on.
        """
        if not 0.0 <= wanted <= 1.0:
            raise ParamsError(f"wanted: given {wanted:g}, expected a share from 0 to 1")
        if not 0 <= seed <= LARGEST_SEED:
            raise ParamsError(f"seed: given {seed}, expected from 0 to {LARGEST_SEED}")
        embedder = open_embedder(encoder)
        drawn = in_order(_some_lists(lists, seed))
        if len(drawn) < len(lists):
            source = f"{source} ({len(drawn):,} of its {len(lists):,} lists, drawn at random)"
        accepts = accept_rule(drawn, by=by, tau=tau)
        states, coverage = judge(drawn, accepts.accepts, complete=True)
        _, recorded = judge(drawn, accepts.accepts, complete=False)
        _check_verdicts(states, len(drawn), accepts.words)
        settings = RANKER_SETTINGS.model_copy(update={"seed": seed})
        report(f"{len(states)} lists of {coverage.problems} problems; {FOLDS} folds")
        rows, folds, scored, names = held_out(states, embedder, settings)
        known, strange = _known_states(rows, [state.recorded for state in states], folds)
        rule, savings = choose_rule(
            states, scored, names, wanted=wanted, strange=strange, seed=seed, resamples=RESAMPLES
        )
        report("all lists")
        mapped = MappedLists(rows)
        heuristic, _ = train_policy(mapped, settings, report=lambda epoch: None, also=())
        several = [item for item in rows if len(item.labels) > 1]
        reference = mean_dispersion(named_scorers(heuristic)[rule.scorer], several)
        rule = replace(rule, reference=reference)
        learned = Learned(source, accepts.words, encoder, wanted, rule, coverage, recorded)
        described = Described(
            schema_version=SCHEMA,
            encoder=encoder,
            **heuristic.sizes,
            rule=rule,
            savings=savings_of(learned, savings),
            promised={
                name + end: float(savings.table[name + end].iloc[0])
                for name in ("calls", "calls_ratio", "found")
                for end in ("", "_low", "_high")
            },
            probe=_probe(_probed(embedder)),
        )
        weights = _Weights(heuristic, known).eval()
        return cls(described, card_of(learned, savings), weights, embedder)

    def save(self, folder: str | Path) -> None:
        """Write the folder, whole or not at all; a ranker that is there is replaced.

        Raises:
            ArtifactError: it cannot be written, or holds something else than a ranker.
        """
        check_folder(Path(folder))
        with atomic_path(Path(folder)) as temporary:
            temporary.mkdir()
            save_file(self._weights.state_dict(), temporary / WEIGHTS)
            (temporary / DESCRIBED).write_text(_written(self.described), encoding="utf-8")
            (temporary / CARD).write_text(self.card, encoding="utf-8")
            write_digests(temporary)

    @classmethod
    def load(cls, folder: str | Path) -> Ranker:
        """The ranker that ``save`` wrote.

        An encoder's server that the folder names gets the key of the environment only if its
        address is in ``SELVERIFY_ENCODER_URL``.

        Raises:
            ArtifactError: a file is missing or cannot be read.
            SchemaError: a file is damaged or of another version, or the encoder is another one.
            ParamsError: the encoder's package is not installed.
            ProtocolError: the encoder's server refuses or does not reply.
        """
        folder = Path(folder)
        content = read_checked(
            folder, (DESCRIBED, WEIGHTS, CARD), expected="a ranker (selverify train LOG)"
        )
        described = _read(content[DESCRIBED], folder / DESCRIBED)
        try:
            tensors = load_tensors(content[WEIGHTS])
            with torch.device("meta"):  # sizes that a file states take no memory
                weights = _Weights(
                    Heuristic(described.width, described.seen, described.hidden),
                    _Known(described.width),
                )
            weights.load_state_dict(
                {name: one.to(torch.float32, copy=True) for name, one in tensors.items()},
                assign=True,
            )
        except SafetensorError as error:
            raise SchemaError(f"{folder / WEIGHTS}: {error}; expected its weights") from error
        except RuntimeError as error:  # PyTorch names every one of them
            raise SchemaError(
                f"{folder / WEIGHTS}: the weights do not fit {DESCRIBED}; train it again"
            ) from error
        embedder = open_embedder(described.encoder, from_file=True)
        rows = _probed(embedder)
        sizes = rows.after.shape[1], rows.token_logprobs.shape[1]
        if sizes != (described.width, described.seen) or not all(
            math.isclose(one, other, abs_tol=PROBE_TOLERANCE)
            for one, other in zip_longest(_probe(rows), described.probe, fillvalue=math.inf)
        ):
            raise SchemaError(
                f"{folder}: the encoder {described.encoder!r} gives other numbers than when the "
                "ranker was trained; expected the same version, or train it again"
            )
        return cls(described, content[CARD].decode(errors="replace"), weights.eval(), embedder)

    def plan(self, question: str, steps: Sequence[str], candidates: Sequence[str]) -> Plan:
        """The plan of one state; see ``plan_many``."""
        (plan,) = self.plan_many([CandidateList(question, steps, candidates)])
        return plan

    def pick(self, questions: Sequence[str], texts: Sequence[str], *, separator: str) -> Picked:
        """Which partial solutions to verify: the last step of each is a candidate at its state.

        Args:
            questions: one a text.
            texts: partial solutions; those to one question that differ in the last step alone are
                candidates at one state.
            separator: stands between two steps; one at the end belongs to the last step.

        Raises:
            ParamsError: the separator is empty.
            SchemaError: as many questions as texts are not given, or something else than texts.
        """
        if not separator:
            raise ParamsError("separator: given an empty text, expected what stands between steps")
        if len(questions) != len(texts):
            raise SchemaError(
                f"given {len(questions)} questions and {len(texts)} texts, expected as many"
            )
        for place, pair in enumerate(zip(questions, texts, strict=True)):
            if not all(isinstance(one, str) for one in pair):
                raise SchemaError(f"text {place}: expected it and its question to be texts")
        said = [text.removesuffix(separator) for text in texts]
        first: dict[tuple[str, str], int] = {}
        for place, key in enumerate(zip(questions, said, strict=True)):
            first.setdefault(key, place)
        same = tuple(first[key] for key in zip(questions, said, strict=True))
        groups: dict[tuple[str, tuple[str, ...]], dict[str, int]] = {}
        for (question, text), place in first.items():
            *steps, last = text.split(separator)
            groups.setdefault((question, tuple(steps)), {})[last] = place
        states = [
            CandidateList(question, steps, tuple(places))
            for (question, steps), places in groups.items()
        ]
        unverified, picked = [0.0] * len(texts), list[int]()
        for places, plan in zip(groups.values(), self.plan_many(states), strict=True):
            where = list(places.values())
            for place, chance in zip(where, plan.reject_probability, strict=True):
                unverified[place] = -chance
            if plan.skip:
                unverified[where[plan.order[0]]] += 1.0
            picked += [where[place] for place in plan.order[: plan.verify]]
        return Picked(tuple(picked), same, tuple(unverified[place] for place in same))

    def digest(self) -> str:
        """Content id of all that its numbers depend on."""
        content = hashlib.sha256(_written(self.described).encode())
        for name, weights in sorted(self._weights.state_dict().items()):
            content.update(name.encode() + weights.numpy().tobytes())
        return f"ranker {content.hexdigest()[:16]}"

    def scores(
        self, states: Sequence[CandidateList]
    ) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]:
        """Of each state's candidates the scores that order them, and the chances of a rejection.

        All are ``UNKNOWN`` at an unfamiliar state. Errors as in ``plan_many``.
        """
        found = []
        for one, distinct, read in self._read(states):
            texts = one.candidates
            if read is None or not read.familiar:
                found.append(((UNKNOWN,) * len(texts), (UNKNOWN,) * len(texts)))
                continue
            row_of = dict(zip(distinct, range(len(distinct)), strict=True))
            rows = [row_of[text] for text in texts]
            columns = (read.scores, read.chances)
            scores, chances = (tuple(column[row] for row in rows) for column in columns)
            found.append((scores, chances))
        return tuple(found)

    def plan_many(self, states: Sequence[CandidateList]) -> tuple[Plan, ...]:
        """A plan for each state; what stands beside it changes its numbers by rounding only.

        A state that cannot be read, because a text of it is longer than a log may hold, is
        unfamiliar.

        Raises:
            SchemaError: a state without candidates, or with something else than texts.
            ProtocolError: the encoder's server refuses or does not reply.
        """
        return tuple(
            self._planned(one.candidates, distinct, read)
            for one, distinct, read in self._read(states)
        )

    @torch.inference_mode()
    def _read(
        self, states: Sequence[CandidateList]
    ) -> Iterator[tuple[CandidateList, dict[str, int], _Read | None]]:
        """Each state with its distinct candidates, and what the model says of them."""
        distinct = [self._distinct(place, one) for place, one in enumerate(states)]
        readable = [place for place, one in enumerate(states) if _fits(one)]
        items = [_recorded(states[place], distinct[place]) for place in readable]
        embedded = self._embedder.embed(items)
        read = dict(zip(readable, self._scored(items, embedded), strict=True))
        return ((one, distinct[place], read.get(place)) for place, one in enumerate(states))

    @staticmethod
    def _distinct(place: int, one: CandidateList) -> dict[str, int]:
        """The first place of each text."""
        if not isinstance(one, CandidateList):
            raise SchemaError(
                f"state {place}: given a {type(one).__name__}, expected a CandidateList"
            )
        for name, texts in (("steps", one.steps), ("candidates", one.candidates)):
            listed = isinstance(texts, Sequence) and not isinstance(texts, str)
            if not listed or not all(isinstance(text, str) for text in texts):
                raise SchemaError(f"state {place}: expected {name} to be a list of texts")
        if not isinstance(one.question, str):
            raise SchemaError(f"state {place}: expected the question to be a text")
        if not one.candidates:
            raise SchemaError(f"state {place}: given no candidates, expected at least one")
        found: dict[str, int] = {}
        for index, text in enumerate(one.candidates):
            found.setdefault(text, index)
        return found

    def _scored(self, items: Sequence[RecordedList], embedded: Sequence[Embeddings]) -> list[_Read]:
        if not embedded:
            return []
        heuristic = self._weights.heuristic
        rows = concatenate(list(embedded))
        sizes = [len(one.logprob) for one in embedded]
        scores, chances = (
            [list(map(rounded, part.tolist())) for part in torch.split(scorer(rows), sizes)]
            for scorer in (
                named_scorers(heuristic)[self.described.rule.scorer],
                heuristic.reject_probabilities,
            )
        )
        chances = [[min(one, SURELY) for one in part] for part in chances]
        unlike = self._weights.known.is_unlike(embedded, items).tolist()
        return [
            _Read(own, chance, not strange and all(map(math.isfinite, own + chance)))
            for own, chance, strange in zip(scores, chances, unlike, strict=True)
        ]

    def _planned(
        self, candidates: Sequence[str], distinct: dict[str, int], read: _Read | None
    ) -> Plan:
        places = list(distinct.values())
        if read is None or not read.familiar:
            unknown = (UNKNOWN,) * len(candidates)
            return Plan(tuple(places), len(places), False, unknown, familiar=False)
        rule, scores = self.described.rule, read.scores
        order = sorted(range(len(places)), key=lambda row: (scores[row], row))
        skip = rule.skip_below is not None and read.chances[order[0]] < rule.skip_below
        verify = calls_at(
            scores,
            allocation="adaptive",
            reference=rule.reference,
            k_base=rule.k_base,
            beta=rule.beta,
            k_min=1,
            k_max=rule.k_max,
        )
        chance_of = dict(zip(distinct, read.chances, strict=True))
        return Plan(
            tuple(places[row] for row in order),
            0 if skip else min(verify, len(places)),
            skip,
            tuple(chance_of[text] for text in candidates),
            familiar=True,
        )


def _check_verdicts(states: Sequence[JudgedList], given: int, accepted: str) -> None:
    """See whether there is an order to learn.

    Raises:
        SchemaError: no list holds both a candidate that was accepted and one that was not.
    """
    if any(one.accepted.any() and not one.accepted.all() for one in states):
        return
    verdicts = [bool(one) for state in states for one in state.accepted]
    several = sum(len(state.accepted) > 1 for state in states)
    raise SchemaError(
        f"log: given {given} lists, {len(states)} of them with a verdict on every candidate and "
        f"{several} of these with several candidates; of {len(verdicts)} verdicts {sum(verdicts)} "
        f"count as accepted ({accepted}); expected lists that hold both an accepted candidate and "
        "a rejected one"
    )


def _some_lists(lists: Collection[RecordedList], seed: int) -> Iterable[RecordedList]:
    """All lists, or ``MOST_LISTS`` of as many problems as that allows: some of large ones."""
    if len(lists) <= MOST_LISTS:
        return lists
    draws = defaultdict[str, list[bytes]](list)
    for one in lists:
        draws[one.problem_id].append(_draw(one, seed))
    names, kept = sorted(draws), set[bytes]()
    most = _most_of_a_problem(sorted(map(len, draws.values())))
    random.Random(seed).shuffle(names)
    for name in names:
        some = sorted(draws[name])[:most]
        if len(kept) + len(some) <= MOST_LISTS:
            kept.update(some)
    return (one for one in lists if _draw(one, seed) in kept)


def _most_of_a_problem(counts: Sequence[int]) -> int:
    """How many lists a problem gives at most, of these ``counts`` from the smallest: as many as let
    all problems in, but at least those that ``FEWEST_PROBLEMS`` have room for."""
    left = MOST_LISTS
    for place, count in enumerate(counts):
        share = left // (len(counts) - place)
        if count > share:
            break
        left -= count
    return max(share, MOST_LISTS // FEWEST_PROBLEMS)


def _draw(one: RecordedList, seed: int) -> bytes:
    """A number at random that sorts the lists of a problem run by run: what is left of a run to
    its end is learned from, too."""
    run = f"{seed}\x1f{one.problem_id}\x1f{one.run}"
    names = (run, f"{run}\x1f{one.state_id}\x1f{one.model}")
    return b"".join(hashlib.blake2b(name.encode(), digest_size=12).digest() for name in names)


def _written(described: Described) -> str:
    return json.dumps(described.model_dump(), indent=1, sort_keys=True) + "\n"


def _fits(one: CandidateList) -> bool:
    texts = (one.question, *one.steps, *one.candidates)
    return max(map(len, texts)) <= LONGEST_TEXT and max(len(one.steps), len(one.candidates)) <= (
        MOST_ENTRIES
    )


def _recorded(one: CandidateList, distinct: dict[str, int]) -> RecordedList:
    """The state as a log would have it, without its checks: they take longer than the ranker."""
    candidates = tuple(
        RecordedCandidate.model_construct(text=_writable(text), logprob=None) for text in distinct
    )
    return RecordedList.model_construct(
        problem_id="",
        state_id="",
        run="",
        model="",
        question=_writable(one.question),
        prefix=tuple(map(_writable, one.steps)),
        candidates=candidates,
    )


def _writable(text: str) -> str:
    """Half of a surrogate pair is in no encoding."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _meanings(states: Sequence[Embeddings]) -> Tensor:
    """z_w of each state, [states, D]."""
    return torch.stack([one.state[0] for one in states])


def _writings(states: Sequence[RecordedList]) -> Tensor:
    """How each state is written, [states, 8]: ``_writing`` of the question, and of all of it.

    Not of the candidates: a search asks of one of them again, and must be told the same.
    """
    return torch.tensor(
        [_writing(one.question) + _writing("".join((one.question, *one.prefix))) for one in states]
    )


def _writing(text: str) -> list[float]:
    """log(1 + characters), and the shares of letters, digits and white space in them."""
    count = max(len(text), 1)
    kinds = (str.isalpha, str.isdigit, str.isspace)
    return [math.log1p(len(text)), *(sum(map(kind, text)) / count for kind in kinds)]


def _known_states(
    lists: Sequence[LabelledList], states: Sequence[RecordedList], folds: Sequence[int]
) -> tuple[_Known, BoolArray]:
    """Which states are like these; of each whether it is unlike those of the other folds.

    A broad training set reaches far in meaning: statements of MATH are as far from each other as
    from a Game of 24. How a state is written tells those apart.
    """
    known = _Known(lists[0].rows.state.shape[1])
    strange = _fit(known.meaning, _meanings([one.rows for one in lists]), folds)
    strange |= _fit(known.writing, _writings(states), folds)
    return known, strange.numpy()


def _fit(familiarity: Familiarity, rows: Tensor, folds: Sequence[int]) -> Tensor:
    """Learn from all rows; the limit is of each fold's distances to the others.

    Returns which rows are beyond it, [rows].

    A limit of a few held-out problems would call every fifth new problem unlike.
    """
    share = math.sqrt(RANKER_SETTINGS.familiar)  # two of them have to find a state familiar
    fold_of, distances = torch.tensor(folds), torch.zeros(len(rows))
    for fold in sorted(set(folds)):
        held = fold_of == fold
        familiarity.fit(rows[~held], rows[held], familiar=share)
        distances[held] = familiarity(rows[held])
    familiarity.fit(rows, rows, familiar=share)
    familiarity.limit.copy_(torch.quantile(distances, share))
    return ~(distances <= familiarity.limit)


def _probed(embedder: Embedder) -> Embeddings:
    item = _recorded(CandidateList(PROBE, (), (PROBE,)), {PROBE: 0})
    (rows,) = embedder.embed([item])
    return rows


def _probe(rows: Embeddings) -> tuple[float, ...]:
    return (*rows.after[0, :PROBED].tolist(), *rows.token_logprobs[0, :PROBED].tolist())


def _read(content: bytes, path: Path) -> Described:
    try:
        stated = json.loads(content)
        version = stated.get("schema_version") if isinstance(stated, dict) else None
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{path}: not JSON: {error}") from error
    if version != SCHEMA:
        raise SchemaError(
            f"{path}: a ranker of version {version}, expected {SCHEMA}; train it again "
            "(selverify train LOG)"
        )
    try:
        described = Described.model_validate_json(content)
    except ValidationError as error:
        raise SchemaError(f"{path}: {fault(error)}; expected a ranker's description") from error
    return described
