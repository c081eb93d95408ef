"""The trained policy on its own: load it, give it problems, get answers and what they cost.

Knows: which models stand where in a models folder, and the full method's rules. Does not know:
stages, the truth of any problem.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TypeVar

from selverify.domains.base import Domain, knows_truth
from selverify.errors import ArtifactError, BudgetError, SchemaError
from selverify.experiment.methods import FULL_SCORER, full_settings
from selverify.models.assembly import open_models
from selverify.models.generators.checkpoints import REWARD_HEAD
from selverify.models.policy_settings import PolicySettings, load_policy_settings
from selverify.models.sources import has_source
from selverify.search.backend import Backend
from selverify.search.driver import Result, Search, run_searches
from selverify.search.gated import gated_competition
from selverify.search.ledger import Ledger
from selverify.search.protocol import Asking
from selverify.search.rules import GatedSettings
from selverify.search.traces import Event
from selverify.types import Outcome, Problem

T = TypeVar("T")
VERIFIER, POLICY = "verifier", "policy"
CHECKPOINT = ("config.json", "model.safetensors")


@dataclass(frozen=True, slots=True)
class Solved:
    """What came of one problem.

    ``answer`` is None when the search found none; ``reason`` says how it ended: ``answered``,
    ``budget`` (no calls left), ``generation`` (no samples left), ``exhausted`` (without fallback)
    or, of methods that vote on whole solutions, ``no answer``. ``derivation`` holds the committed
    moves' texts. The ledgers of ``events`` sum to ``ledger``.
    """

    problem: Problem
    answer: str | None
    reason: str
    derivation: tuple[str, ...]
    ledger: Ledger
    events: tuple[Event, ...]

    @property
    def verifier_calls(self) -> int:
        """How many were made."""
        return self.ledger.verifier_calls

    @property
    def unaccepted(self) -> tuple[str, ...]:
        """The moves of ``derivation`` that a fallback took: no call had accepted them."""
        taken = {dict(one.data)["move"] for one in self.events if one.event == "fallback"}
        return tuple(move for move in self.derivation if move in taken)

    @property
    def generated_tokens(self) -> int:
        """How many were sampled."""
        return self.ledger.generated_tokens


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    """A domain, what answers its requests, and the rules of the full method.

    ``reference_dispersion`` is sigma-bar. ``longest`` is the number of words that a problem's text
    may have so that every derivation fits the models.
    """

    domain: Domain
    backend: Backend
    policy_settings: PolicySettings
    reference_dispersion: float
    patterns: tuple[str, ...]
    longest: int | None

    def solve(self, problem: str | Problem, *, budget: int) -> Solved:
        """Solve one problem; see ``solve_many``."""
        (solved,) = self.solve_many((problem,), budget=budget)
        return solved

    def solve_many(self, problems: Sequence[str | Problem], *, budget: int) -> tuple[Solved, ...]:
        """Solve problems together, each with at most ``budget`` verifier calls.

        A problem is a text in the domain's words, set off by spaces, or a ``Problem``, whose id
        then seeds the sampling. Which problems stand beside it changes a problem's scores by
        rounding only (about 1e-7).

        Raises:
            BudgetError: ``budget`` is below 1, or no whole number.
            SchemaError: no text, a problem of another domain, with a word that the models do not
                know, without a question, or too long for the models.
        """
        budget = checked_calls("budget", budget)
        found = [self.read(problem) for problem in listed("problems", problems)]
        searches = {
            place: Search(self._search(problem, budget), budget=budget)
            for place, problem in enumerate(found)
        }
        results = run_searches(
            searches, self.backend, end_of_move=self.domain.end_of_move, traced=True
        )
        return tuple(solved_of(problem, results[place]) for place, problem in enumerate(found))

    def read(self, problem: str | Problem) -> Problem:
        """The problem as a search sees it, its goal built from its question.

        Raises:
            SchemaError: as in ``solve_many``.
        """
        given = problem.text if isinstance(problem, Problem) else problem
        if not isinstance(given, str):
            raise SchemaError(f"problem: given a {type(given).__name__}, expected a text")
        text = " ".join(given.split()) if knows_truth(self.domain) else given.strip()
        name = problem.problem_id if isinstance(problem, Problem) else name_of(text)
        if isinstance(problem, Problem) and problem.domain != self.domain.name:
            raise SchemaError(
                f"{name}: a problem of {problem.domain}, expected one of {self.domain.name}, for "
                "which this policy was trained"
            )
        if knows_truth(self.domain):
            self._check_words(name, text.split(), frozenset(self.domain.vocabulary))
        return self.domain.read(text, problem_id=name)

    def _check_words(self, name: str, words: Sequence[str], known: frozenset[str]) -> None:
        """Refuse what models that were trained on words alone cannot be told."""
        unknown = next((word for word in words if word not in known), None)
        if unknown is not None:
            raise SchemaError(
                f"{name}: unknown word {unknown[:40]!r}; expected words of {self.domain.name}, "
                "with a space before and after each word and each mark"
            )
        if self.longest is not None and len(words) > self.longest:
            raise SchemaError(f"{name}: {len(words)} words, expected at most {self.longest}")

    def settings(self, budget: int) -> GatedSettings:
        """The full method's rules at ``budget``, as the evaluation runs it."""
        return full_settings(
            self.policy_settings.search,
            budget=budget,
            max_moves=self.policy_settings.sampling.max_moves,
            reference_dispersion=self.reference_dispersion,
            patterns=self.patterns,
        )

    def generation_cap(self, budget: int) -> int:
        """Sampled moves allowed at ``budget``: so many a step, for every step there may be."""
        return budget * self.policy_settings.sampling.max_moves

    def _search(self, problem: Problem, budget: int) -> Asking[Outcome]:
        return gated_competition(
            self.domain,
            problem,
            rules=self.settings(budget).rules(self.domain),
            budget=budget,
            generation_cap=self.generation_cap(budget),
        )


def load_policy(folder: str | Path, *, device: str = "cpu") -> TrainedPolicy:
    """The policy that the pipeline trained.

    Args:
        folder: the project's ``models/<backbone>-<strength>``, with ``verifier/``, ``policy/`` and
            ``solver.json`` in it; the backbone's folder ``<domain>-<backbone>/`` is beside it.
        device: where a model of the hub runs: cpu, cuda or cuda:NUMBER. Models that were trained
            here stay on the CPU; where there are no others, a warning says so.

    Raises:
        ArtifactError: a file is missing; the message names the stage that writes it.
        SchemaError: a file was written under another schema, or models do not belong together.
        ParamsError: there is no such device, or a model's source names what is not there.
    """
    models = Path(os.path.realpath(folder))
    policy_settings = load_policy_settings(models)
    generator = models.parent / policy_settings.backbone
    if not has_source(generator):
        _require(generator, "generator", *CHECKPOINT, "tokenizer.json")
        if not has_source(models / VERIFIER):
            _require(models / VERIFIER, "verifier", *CHECKPOINT, "tokenizer.json", REWARD_HEAD)
    _require(models / POLICY, "residual", "policy.json", "heuristic.safetensors")
    opened = open_models(
        policy_settings.domain,
        policy_settings.sampling,
        seed=policy_settings.seed,
        device=device,
        generator=generator,
        verifier=models / VERIFIER,
        policy=models / POLICY,
    )
    if opened.policy is None:
        raise SchemaError(f"{models / POLICY}: given no policy, expected one")
    return TrainedPolicy(
        domain=opened.domain,
        backend=opened.backend,
        policy_settings=policy_settings,
        reference_dispersion=opened.policy.reference_dispersion[FULL_SCORER],
        patterns=opened.policy.patterns,
        longest=opened.longest,
    )


def _require(folder: Path, stage: str, *names: str) -> None:
    for name in names:
        if not (folder / name).is_file():
            raise ArtifactError(
                f"{folder / name}: no such file; stage {stage!r} writes it "
                f"(python -m flows {stage})"
            )


def name_of(text: str) -> str:
    """An id that follows from the text, so that equal texts are sampled alike."""
    told = text.encode(errors="surrogatepass")
    return f"text-{hashlib.blake2b(told, digest_size=4).hexdigest()}"


def listed(name: str, given: Iterable[T]) -> list[T]:
    """The texts or problems that are given, as a list.

    Raises:
        SchemaError: it is one text, or no list of any kind.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise SchemaError(f"{name}: given a {type(given).__name__}, expected a list of texts")
    return list(given)


def checked_calls(name: str, given: object) -> int:
    """A number of verifier calls.

    Raises:
        BudgetError: it is none, or below 1.
    """
    if not isinstance(given, Integral) or isinstance(given, bool) or given < 1:
        raise BudgetError(
            f"{name}: given {given!r} verifier calls, expected a whole number, at least 1"
        )
    return int(given)


def solved_of(problem: Problem, result: Result[Outcome]) -> Solved:
    """What a search came to."""
    outcome = result.outcome
    return Solved(
        problem=problem,
        answer=outcome.answer,
        reason=outcome.reason,
        derivation=tuple(move.text for move in outcome.derivation or ()),
        ledger=result.ledger,
        events=result.events,
    )
