"""A frozen, strict mirror of ``params.yaml``: every number of the project lives there, once.

Knows: names, types, ranges. Does not know: defaults (there are none here) or what a stage does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    SerializeAsAny,
    Tag,
    ValidationError,
    model_validator,
)

from selverify.errors import ParamsError

Positive = Annotated[int, Field(ge=1)]
Several = Annotated[int, Field(ge=2)]
NonNegative = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Of 63 bits, which every generator of random numbers takes."""
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(gt=0.0)]
KeyName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
"""Of a domain or a backbone."""
Aggregation = Literal["last", "min", "prod"]
RewardKind = Literal["token_logprobs", "value", "head", "adapter", "source"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
GeneratorPrecision = Literal["auto", "float32", "bfloat16", "float16", "int8"]


class ParamsSection(BaseModel):
    """A part of the parameters: frozen, strict, no unknown key."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Split(ParamsSection):
    """How many problems a split has, and the seed that draws them."""

    problems: Positive
    seed: Seed


class Benchmark(ParamsSection):
    """Which problems: sizes are quantities (word_problems) or cards (countdown).

    ``hard`` is the share of statements in the phrasing that is easily misread, which is what makes
    verification worth its calls.
    """

    minimum: Positive
    maximum: Positive
    hard: Fraction
    train: Split
    validation: Split
    test: Split

    @model_validator(mode="after")
    def _ordered(self) -> Benchmark:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} exceeds maximum {self.maximum}")
        return self


class TextSplit(ParamsSection):
    """Problems of the public benchmark ``source``, from the hub or from a copy at ``path``.

    ``source`` is one of ``data.text_benchmarks.KNOWN``, or ``file`` for any other questions and
    answers at ``path``. Where fewer problems are wanted than there are, ``seed`` draws them.
    """

    source: str
    path: str | None
    problems: Positive
    seed: Seed


class TextBenchmark(ParamsSection):
    """Which problems of a domain of text: no two splits may share one.

    ``further``: training questions of which the generator may have learned, for verifier and ranker
    alone; null: none. ``transfer``: questions of another benchmark, on which all that was trained
    and chosen on this one is measured, too; null: none.
    """

    train: TextSplit
    validation: TextSplit
    test: TextSplit
    further: TextSplit | None
    transfer: TextSplit | None


def _stated(given: object, key: str) -> object:
    """What ``given``, a mapping or a section, has under ``key``; None without it."""
    return given.get(key) if isinstance(given, dict) else getattr(given, key, None)


def _benchmark_kind(given: object) -> str:
    split = _stated(given, "test")
    named = "source" in split if isinstance(split, dict) else hasattr(split, "source")
    return "<text>" if named else "<generated>"


AnyBenchmark = Annotated[
    Annotated[Benchmark, Tag("<generated>")] | Annotated[TextBenchmark, Tag("<text>")],
    Discriminator(_benchmark_kind),
]


class Shape(ParamsSection):
    """A ``LlamaForCausalLM`` configuration."""

    width: Positive
    layers: Positive
    heads: Positive
    feed_forward: Positive
    max_positions: Positive


class Generator(ParamsSection):
    """Training of a backbone from scratch (the frozen stage).

    Rates are those of a training of ``steps`` that ends at step ``stop``. Its teachers misread
    ``misread`` of the hard statements.
    """

    shape: Shape
    steps: Positive
    stop: Positive
    tokens_per_batch: Positive
    matrix_rate: Rate
    other_rate: Rate
    warmup_steps: NonNegative
    decay_fraction: Fraction
    curriculum_fraction: Fraction
    drill_fraction: Fraction
    misread: Fraction
    bfloat16: bool
    seed: Seed

    @model_validator(mode="after")
    def _ordered(self) -> Generator:
        if self.stop > self.steps:
            raise ValueError(f"stop {self.stop} exceeds steps {self.steps}")
        return self


class Tuning(ParamsSection):
    """An adapter on a pretrained model (LoRA, Hu et al. 2021), trained by the frozen stage.

    It learns from the written solutions of the pool that the training split is drawn from, but for
    the problems of the benchmark and those that share a phrase with one. ``rank`` and ``alpha`` are
    of each matrix, whose change is multiplied by alpha / rank; ``words``: whether moves begin with
    a label; ``values``: whether it learns the values that the domain can compute. Every
    ``saved_steps`` steps the training can be resumed from.
    """

    rank: Positive
    alpha: Rate
    words: bool
    values: bool
    epochs: Positive
    tokens_per_batch: Positive
    rate: Rate
    warmup_fraction: Fraction
    bfloat16: bool
    saved_steps: Positive
    seed: Seed


class PretrainedParams(ParamsSection):
    """A causal language model of the hub (``model`` is owner/name), of a package, or of a folder.

    ``prompt``: which few-shot prompt it is shown (``models/prompts``); null shows it the bare text.
    ``kept_tokens``: how many tokens' keys and values are kept for prompts that begin alike.
    ``exact_values``: what the domain computes of a move is not sampled. ``alphabet``: only words of
    these characters are sampled; null: any. ``tuning``: null leaves the model as it is.
    """

    kind: Literal["transformers"]
    model: str
    revision: str | None
    dtype: GeneratorPrecision
    prompt: str | None
    kept_tokens: Positive
    exact_values: bool
    alphabet: Annotated[str, Field(min_length=1)] | None
    tuning: Tuning | None

    @model_validator(mode="after")
    def _samples_what_it_learns(self) -> PretrainedParams:
        if self.tuning is not None and self.tuning.words and self.alphabet is not None:
            raise ValueError(
                f"tuning.words true and alphabet {self.alphabet!r}: given both, expected alphabet "
                "null where the words of labels are learned"
            )
        return self


class Server(ParamsSection):
    """An OpenAI-compatible server and the model to ask it for.

    ``url`` goes up to and with the version, like http://127.0.0.1:8000/v1. ``key_variable`` names
    the environment variable that holds the key; null sends none.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # a key may stand in the wrong place

    url: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$")]
    model: str
    key_variable: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] | None
    concurrency: Positive
    timeout_seconds: Annotated[Rate, Field(allow_inf_nan=True)]
    max_retries: NonNegative


PATIENCE: Mapping[str, Any] = MappingProxyType(
    {"key_variable": None, "concurrency": 16, "timeout_seconds": 120.0, "max_retries": 5}
)
"""Of a server for which nobody said otherwise."""


class ServedEmbedder(Server):
    """A model behind an embeddings endpoint: numbers a text, and texts a request."""

    dimension: Positive
    batch: Positive


class Served(Server):
    """A generator behind a server, by its completions or its chat endpoint.

    ``structured`` asks for moves under the domain's JSON schema. Without ``embeddings`` nothing can
    be ranked, and no head trained.
    """

    kind: Literal["server"]
    api: Literal["completions", "chat"]
    structured: bool
    embeddings: ServedEmbedder | None
    prompt: str | None


class VerifierSource(ParamsSection):
    """A verifier that is not trained here; ``kind`` names its row of ``VERIFIERS``."""

    kind: str


class Tool(VerifierSource):
    """A verifier that executes a tool: enumeration in countdown."""

    kind: Literal["tool"]


class PretrainedVerifier(VerifierSource):
    """A published process reward model of the hub, or of a folder.

    ``format`` names its family: math_shepherd or rlhflow (step tokens), skywork or qwen_math (value
    heads). ``batch_tokens`` are read at once; ``kept_tokens`` as for generators.
    """

    kind: Literal["step_token", "value_head"]
    format: str
    model: str
    revision: str | None
    dtype: Precision
    batch_tokens: Positive
    kept_tokens: NonNegative


class ServedVerifier(Server, VerifierSource):
    """A process reward model behind a server: vLLM's pooling endpoint, or the chat endpoint.

    ``tokenizer`` and ``revision``: of the model, for pooling, which is sent tokens.
    """

    kind: Literal["pooled", "step_token_chat"]
    format: str
    tokenizer: str | None
    revision: str | None


class ServedJudge(Server, VerifierSource):
    """A chat model as judge of each step, under the rubric of ``selverify/models/verifiers``."""

    kind: Literal["judge"]
    max_tokens: Positive
    schema_constrained: bool


@dataclass(frozen=True, slots=True)
class VerifierKind:
    """A kind of verifier that is not trained here.

    ``opens`` is the "module:object" that makes the verifier: a callable of the settings and of
    ``models.verifiers.opening.Surroundings``. Models are imported only where one is opened.
    """

    settings: type[VerifierSource]
    opens: str


_MODULES = "selverify.models.verifiers"
VERIFIERS = {
    "tool": VerifierKind(Tool, f"{_MODULES}.tool:ToolVerifier.open"),
    "step_token": VerifierKind(PretrainedVerifier, f"{_MODULES}.step_token:open_step_token"),
    "value_head": VerifierKind(PretrainedVerifier, f"{_MODULES}.value_head:open_value_head"),
    "pooled": VerifierKind(ServedVerifier, f"{_MODULES}.pooled:PoolingVerifier.open"),
    "step_token_chat": VerifierKind(
        ServedVerifier, f"{_MODULES}.step_token_chat:StepTokenChatVerifier.open"
    ),
    "judge": VerifierKind(ServedJudge, f"{_MODULES}.judge:Judge.open"),
}
"""Adding a verifier takes one class in one file and one row here."""


def verifier_source(given: object) -> VerifierSource:
    """The settings of a verifier, checked by the row of its kind.

    Raises:
        ValueError: there is no such kind, or a setting is unknown, missing or out of range.
    """
    if isinstance(given, VerifierSource):
        return given
    if not isinstance(given, dict):
        raise ValueError("the settings of a verifier")
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in VERIFIERS:
        raise ValueError(f"given the kind {kind!r}, expected one of {', '.join(VERIFIERS)}")
    return VERIFIERS[kind].settings.model_validate(given)


AnyVerifier = Annotated[SerializeAsAny[VerifierSource], PlainValidator(verifier_source)]


def _generator_kind(given: object) -> str:
    kind = _stated(given, "kind")
    name = "trained" if kind is None else kind if isinstance(kind, str) else type(kind).__name__
    return f"<{name}>"


AnyGenerator = Annotated[
    Annotated[Generator, Tag("<trained>")]
    | Annotated[PretrainedParams, Tag("<transformers>")]
    | Annotated[Served, Tag("<server>")],
    Discriminator(_generator_kind),
]


class Sampling(ParamsSection):
    """How moves and solutions are sampled.

    ``batch_rows`` bounds one decoding batch; of a model of the hub, the tokens of several prompts
    together are at most a fourth of ``kept_tokens``. ``max_moves``: a step-level search goes no
    deeper.
    """

    temperature: Rate
    max_move_tokens: Positive
    max_solution_tokens: Positive
    max_moves: Positive
    batch_rows: Positive


class Rollouts(ParamsSection):
    """Values of steps, Monte-Carlo (Wang et al. 2024; Snell et al. 2024) or by what is written.

    ``share``: which part of the training problems is valued and learned from; the exploration walks
    the others. Of these, as many as ``threshold_share`` of all are valued too, for tau alone.
    ``proposals`` are sampled at each state of the solutions from which at least ``explored_from``
    of the continuations are right, and the survivors valued too; 0: none. Tau is chosen at states
    of the same kind.
    """

    share: Annotated[float, Field(gt=0.0, lt=1.0)]
    threshold_share: Fraction
    solutions: Positive
    rollouts: Positive
    proposals: NonNegative
    explored_from: Fraction
    seed: Seed

    @model_validator(mode="after")
    def _within_the_training_problems(self) -> Rollouts:
        if self.share + self.threshold_share > 1.0:
            raise ValueError(
                f"share {self.share} and threshold_share {self.threshold_share} are more than all "
                "training problems"
            )
        return self


class VerifierParams(ParamsSection):
    """The process reward model.

    ``kind`` token_logprobs judges a move by how probable its words are, value by the state after
    it, head is a small one on the generator's hidden states, adapter one on a copy of the
    generator that is tuned with it by LoRA of ``rank``, source is that of ``source``, not trained
    here. ``aggregation``: how the scores of its moves make the score of a state.
    ``targets``: the value of the state after a step (``soft``), whether it is above 0 (``hard``),
    the share of the value before that is left of it, where there was some (``relative``), or
    whether what was computed so far is part of the problem's written solution, without rollouts
    (``written``). ``threshold``: how tau is chosen where it is not given (``models.threshold``).
    ``tune_*``: the backbone is tuned for so many epochs; that of token_logprobs on solutions up
    to their last step whose target is ``tune_value`` or more. ``share``: of its batches, after
    which every training of a model of that strength stops; one that stops early is the
    deliberately poor one. ``audit_samples``: solutions of each validation problem whose steps are
    scored. Where their truth is not known, each step is continued ``audit_rollouts`` times.
    """

    kind: dict[KeyName, RewardKind]
    aggregation: dict[KeyName, Aggregation]
    source: dict[KeyName, AnyVerifier]
    targets: dict[KeyName, Literal["soft", "hard", "relative", "written"]]
    threshold: Literal["youden", "median"]
    share: dict[str, Fraction]
    tune_epochs: NonNegative
    tune_rows: Positive
    tune_rate: Rate
    tune_value: Fraction
    rank: Positive
    hidden: Positive
    epochs: Positive
    rows_per_batch: Positive
    rate: Rate
    validation_fraction: Fraction
    audit_samples: Positive
    audit_rollouts: NonNegative
    seed: Seed


class Difficulty(ParamsSection):
    """pass@1 from ``samples`` samples, in ``bins`` equal bins.

    The halves of the samples are compared, so there are two or more.
    """

    samples: Several
    bins: Positive
    seed: Seed


class ExplorationParams(ParamsSection):
    """The gated loop on training problems, which verifies every survivor; ``tau`` as in search."""

    proposals: Positive
    tau: Fraction | None
    max_retries: NonNegative
    seed: Seed


class Residual(ParamsSection):
    """The distance, the residual and the acceptance; ``rank_on``: which score L_rank orders.

    A state is trusted without a call only if it lies as near to the training states as the share
    ``familiar`` of the held-out ones.
    """

    hidden: Positive
    epochs: Positive
    rate: Rate
    weight_decay: Annotated[float, Field(ge=0.0)]
    pairs_per_state: Positive
    trajectory_weight: Annotated[float, Field(ge=0.0)]
    trajectory_scale: Annotated[float, Field(ge=0.0)]
    rank_on: Literal["residual", "hybrid"]
    familiar: Fraction
    validation_fraction: Fraction
    retrieval_patterns: NonNegative
    seed: Seed


class SearchParams(ParamsSection):
    """Settings of gated competition; the grid of ``evaluation`` replaces some of them.

    A top-ranked move whose chance of being rejected is put below ``skip_below`` costs no call; 0
    verifies at every state. ``allocation``: what k(w) reads, the ``margin`` of the two best scores
    or, as the paper's equation has it (``adaptive``), their spread; or nothing (``fixed``).
    ``rank_weight``: how much of h counts in a ``joint`` commit. ``tau`` None is the one chosen for
    the verifier on training problems.
    """

    allocation: Literal["margin", "adaptive", "fixed"]
    k_base: Rate
    beta: float
    k_min: Positive
    k_max: Positive
    tau: Fraction | None
    skip_below: Fraction
    max_retries: NonNegative
    proposals: Positive
    retrieval: bool
    commit: Literal["verifier", "heuristic", "joint"]
    rank_weight: Annotated[float, Field(ge=0.0)]
    fallback: bool


class Grid(ParamsSection):
    """Settings that two-fold cross-validation chooses between; each method has some of the axes.

    ``temperature`` None is that of ``sampling``. ``width``, ``expansion`` and ``every`` (moves a
    verifier call) are of beams. ``aggregation`` is of the step scores of a whole solution,
    ``threshold`` the score that ends best-of-N, ``rule`` and ``confidence`` what ends a vote.
    """

    k_base: tuple[Rate, ...] = Field(strict=False, min_length=1)
    beta: tuple[float, ...] = Field(strict=False, min_length=1)
    tau: tuple[Fraction | None, ...] = Field(strict=False, min_length=1)
    skip_below: tuple[Fraction, ...] = Field(strict=False, min_length=1)
    proposals: tuple[Positive, ...] = Field(strict=False, min_length=1)
    temperature: tuple[Rate | None, ...] = Field(strict=False, min_length=1)
    width: tuple[Positive, ...] = Field(strict=False, min_length=1)
    expansion: tuple[Positive, ...] = Field(strict=False, min_length=1)
    every: tuple[Positive, ...] = Field(strict=False, min_length=1)
    aggregation: tuple[Aggregation, ...] = Field(strict=False, min_length=1)
    threshold: tuple[Fraction, ...] = Field(strict=False, min_length=1)
    rule: tuple[Literal["beta", "supermajority"], ...] = Field(strict=False, min_length=1)
    confidence: tuple[Fraction, ...] = Field(strict=False, min_length=1)


class Evaluation(ParamsSection):
    """Which methods run at which budgets, and how settings are chosen.

    ``leave_one_out``: also the full method with each part taken out, turned round or added.
    Every method runs once under each of ``sampling_seeds``; ``seed`` is for folds and intervals.
    ``calls``: verifier calls a problem at which methods are compared, rising. ``split``: a default
    of this file is chosen on validation problems, and test problems measure it.
    """

    split: Literal["test", "validation"]
    problems: Positive
    budgets: tuple[Positive, ...] = Field(strict=False)
    headline_budget: Positive
    calls: tuple[Positive, ...] = Field(strict=False, min_length=1)
    methods: tuple[str, ...] = Field(strict=False, min_length=1)
    leave_one_out: bool
    folds: Several
    repetitions: Positive
    resamples: Positive
    selection: Literal["one_standard_error", "accuracy"]
    grading_seconds: Rate
    grid: Grid
    sampling_seeds: tuple[Seed, ...] = Field(strict=False, min_length=1)
    seed: Seed

    @model_validator(mode="after")
    def _headline_is_run(self) -> Evaluation:
        if self.headline_budget not in self.budgets:
            raise ValueError(
                f"headline_budget: given {self.headline_budget}, expected one of the budgets "
                f"{list(self.budgets)}"
            )
        return self

    @model_validator(mode="after")
    def _calls_rise(self) -> Evaluation:
        if list(self.calls) != sorted(set(self.calls)):
            raise ValueError(f"calls: given {list(self.calls)}, expected rising numbers")
        return self

    @model_validator(mode="after")
    def _budgets_differ(self) -> Evaluation:
        if len(set(self.budgets)) < len(self.budgets):
            raise ValueError(f"budgets: given {list(self.budgets)}, expected each once")
        return self

    @model_validator(mode="after")
    def _folds_have_problems(self) -> Evaluation:
        if self.folds > self.problems:
            raise ValueError(f"folds {self.folds} above problems {self.problems}")
        return self


class Tracking(ParamsSection):
    """Where runs are recorded, and on what they run.

    No result depends on any of it, but for the rounding of large models on other processors, or on
    another number of their threads. ``runner`` maps the shards of a stage: ``local`` to ``threads``
    processes of this machine (to one with so many threads, where a model that is asked is of the
    hub, behind a server or a tool), or ``dask`` to the scheduler at the address ``dask``, or, where
    that is null, to ``threads`` workers on the loopback address. ``device`` is where a model from
    the hub runs: cpu, cuda or cuda:1; models trained here are small and stay on the CPU, and where
    there are no others, a warning says so. One that is not there is an error.
    """

    experiment: str
    threads: Positive
    runner: Literal["local", "dask"]
    dask: Annotated[str, Field(pattern=r"^(tcp|tls)://[^\s/@]+:\d{1,5}$")] | None
    reply_cache: Annotated[str, Field(pattern=r"^[^\x00]*[^/\x00]\.[A-Za-z0-9]+$")]
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")]


class Params(ParamsSection):
    """All of ``params.yaml``; whatever is stated by domain is stated for the one that is run.

    The pipeline runs for each pair of ``backbones`` and ``strengths`` (of the verifier); a stage
    that runs for one of them sees it alone.
    """

    domain: KeyName
    backbones: tuple[KeyName, ...] = Field(strict=False, min_length=1)
    strengths: tuple[str, ...] = Field(strict=False, min_length=1)
    benchmark: dict[KeyName, AnyBenchmark]
    generator: dict[KeyName, dict[KeyName, AnyGenerator]]
    sampling: dict[KeyName, Sampling]
    rollouts: Rollouts
    verifier: VerifierParams
    difficulty: Difficulty
    exploration: ExplorationParams
    residual: Residual
    search: SearchParams
    evaluation: Evaluation
    tracking: Tracking

    def narrowed(self, *, backbone: str | None = None, strength: str | None = None) -> Params:
        """The same for one backbone or one strength only."""
        kept = {
            "backbones": self.backbones if backbone is None else (backbone,),
            "strengths": self.strengths if strength is None else (strength,),
        }
        return self.model_copy(update=kept)

    @model_validator(mode="after")
    def _variants_are_known(self) -> Params:
        for name, given in (
            ("backbones", self.backbones),
            ("strengths", self.strengths),
            ("evaluation.sampling_seeds", self.evaluation.sampling_seeds),
        ):
            if len(set(given)) < len(given):
                raise ValueError(f"{name}: given {list(given)}, expected each once")
        untrained = self.verifier.kind.get(self.domain) == "source"
        if untrained and len(self.strengths) > 1:
            raise ValueError(
                f"strengths: given {list(self.strengths)}, expected one: the verifier of "
                f"{self.domain} is not trained here"
            )
        if untrained and self.domain not in self.verifier.source:
            raise ValueError(f"verifier.kind.{self.domain}: given source without verifier.source")
        if unknown := set(self.strengths) - set(self.verifier.share):
            raise ValueError(f"strengths: given {sorted(unknown)[0]} without a verifier.share")
        return self

    def _check_untrained(self, benchmark: Benchmark | TextBenchmark) -> None:
        """What cannot go together would otherwise be found out hours later."""
        kind = self.verifier.kind[self.domain]
        targets = self.verifier.targets[self.domain]
        if targets == "written" and self.domain != "grade_school":
            raise ValueError(
                f"verifier.targets.{self.domain}: given written, expected soft, hard or relative: "
                "written solutions can be read as moves of grade_school alone"
            )
        if kind == "token_logprobs" and targets == "relative":
            raise ValueError(
                f"verifier.targets.{self.domain}: given relative, expected soft or hard: "
                "token_logprobs takes the share that a step leaves from the values itself"
            )
        taus = {
            "exploration.tau": (self.exploration.tau,),
            "search.tau": (self.search.tau,),
            "evaluation.grid.tau": self.evaluation.grid.tau,
        }
        for name, given in taus.items():
            if kind == "source" and None in given:
                raise ValueError(
                    f"{name}: given null, expected a number: the verifier of {self.domain} is not "
                    "trained here (verifier.kind source) and has to be given its tau"
                )
        oracles = [name for name in self.evaluation.methods if name.startswith("oracle")]
        if oracles and isinstance(benchmark, TextBenchmark):
            raise ValueError(
                f"evaluation.methods: given {oracles[0]}, expected no oracle: the right steps "
                f"of {self.domain} are not known"
            )
        for name in self.backbones:
            trained = isinstance(self.generator[self.domain][name], Generator)
            if kind != "source" and (kind in ("head", "adapter")) == trained:
                raise ValueError(
                    f"verifier.kind.{self.domain}: given {kind}, expected "
                    f"{'token_logprobs, value' if trained else 'head, adapter'} or source, for "
                    f"the generator {name}"
                )
            if kind == "adapter" and isinstance(self.generator[self.domain][name], Served):
                raise ValueError(
                    f"verifier.kind.{self.domain}: given adapter, expected head or source: the "
                    f"generator {name} is behind a server"
                )

    @model_validator(mode="after")
    def _domain_is_complete(self) -> Params:
        domains = ", ".join(self.benchmark)
        if self.domain not in self.benchmark:
            raise ValueError(
                f"domain: given {self.domain!r}, expected one of {domains} (benchmark)"
            )
        by_domain: dict[str, Iterable[str]] = {
            "generator": self.generator,
            "sampling": self.sampling,
            "verifier.kind": self.verifier.kind,
            "verifier.aggregation": self.verifier.aggregation,
            "verifier.targets": self.verifier.targets,
        }
        for name, stated in by_domain.items():
            if self.domain not in stated:
                raise ValueError(f"domain {self.domain} without {name}.{self.domain}")
        for name, stated in (*by_domain.items(), ("verifier.source", self.verifier.source)):
            if unknown := set(stated) - self.benchmark.keys():
                raise ValueError(
                    f"{name}: given {min(unknown)!r}, expected one of {domains} (benchmark)"
                )
        for backbone in self.backbones:
            if backbone not in self.generator[self.domain]:
                raise ValueError(
                    f"backbones: given {backbone}, expected one of "
                    f"{', '.join(self.generator[self.domain])} (generator.{self.domain})"
                )
        deepest = self.sampling[self.domain].max_moves
        benchmark = self.benchmark[self.domain]
        if isinstance(benchmark, Benchmark) and deepest < benchmark.maximum:
            raise ValueError(
                f"sampling.{self.domain}.max_moves {deepest} below "
                f"benchmark.{self.domain}.maximum {benchmark.maximum}, which take as many moves"
            )
        self._check_untrained(benchmark)
        split = self.evaluation.split
        available = getattr(benchmark, split).problems
        if self.evaluation.problems > available:
            raise ValueError(
                f"evaluation.problems {self.evaluation.problems} above "
                f"benchmark.{self.domain}.{split}.problems {available}"
            )
        if self.difficulty.bins > self.evaluation.problems:
            raise ValueError(
                f"difficulty.bins {self.difficulty.bins} above evaluation.problems "
                f"{self.evaluation.problems}"
            )
        return self


SECRET = {
    "key_variable": "the name of an environment variable, LIKE_THIS",
    "url": "http(s)://host/path, without a user, a query or spaces",
}
"""Fields whose values are not shown when they are wrong: somebody may have put a key there."""


def load_params(path: Path) -> Params:
    """Read and check ``params.yaml``.

    Raises:
        ParamsError: the file is missing, is no YAML mapping, or one field is unknown, missing or
            out of range; the message names the file, the field, what was given and what was
            expected.
    """
    if not path.is_file():
        raise ParamsError(f"{path}: no such file; expected a params.yaml")
    return check_params(read_yaml(path), path)


class _Loader(yaml.SafeLoader):
    """As DVC reads and writes: 1e-05 is a number, and no key stands twice."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGED:
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} stands here again", key.start_mark
                )
            seen.add((key.tag, key.value))
        return node


_MERGED = "tag:yaml.org,2002:merge"
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_yaml(text: str) -> Any:
    """What YAML says, by DVC's rules; nothing in it is run.

    Raises:
        yaml.YAMLError: it is none.
    """
    return _Loader(text).get_single_data()


def read_yaml(path: Path) -> Any:
    """What a YAML file holds.

    Raises:
        ParamsError: it cannot be read, or is no YAML; the message names the line where it is known.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except (PermissionError, IsADirectoryError) as error:
        raise ParamsError(f"{path}: {error.strerror}, expected a file that can be read") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}"
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ParamsError(f"{path}: not YAML{place}: {reason}") from error


def check_params(raw: object, path: Path) -> Params:
    """The parameters in ``raw``, which stands in ``path``.

    Raises:
        ParamsError: as in ``load_params``.
    """
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        raise ParamsError(f"{path}: {validation_sentence(error)}") from error


def validation_sentence(error: ValidationError, *, keys: Iterable[str] = ()) -> str:
    """The field that is wrong, what was given and what was expected; no secrets.

    ``keys``: those that there are, to be listed where another was given.
    """
    # A misspelt key is also a missing one; the word that was written is what the reader looks for.
    errors = error.errors()
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    places = [str(part) for part in first["loc"]]
    # Which kind of section it was read as is no key of the file.
    field = ".".join(part for part in places if not part.startswith("<")) or "(the whole file)"
    others = error.error_count() - 1
    more = f" (and {others} more)" if others else ""
    if first["type"] == "missing":
        return f"key {field!r} is missing{more}"
    if first["type"] == "extra_forbidden":
        if keys and len(places) == 1:
            return f"unknown key {field!r}{more}, expected one of {', '.join(keys)}"
        return f"unknown key {field!r}{more}; check its spelling, and that this version knows it"
    if places and places[-1] in SECRET:
        return f"{field}: expected {SECRET[places[-1]]}{more}"
    if first["type"] == "value_error" and isinstance(first["input"], dict):
        return f"{field}: {first['ctx']['error']}{more}"
    expected = first["msg"].removeprefix("Value error, ")
    return f"{field}: given {_shown(first['input'])}, expected: {expected}{more}"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of too many digits"
