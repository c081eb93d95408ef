"""Training of the backbone and of the reward model, on the smallest problems that show it works."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from selverify.data.benchmark import Task, build
from selverify.data.grading import Grader
from selverify.domains import domain_by_name
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.models.generators.checkpoints import load_backbone, load_reward_model
from selverify.models.tokenizer import Words
from selverify.params import Benchmark, Generator, Shape, Split, VerifierParams
from selverify.search.requests import Complete
from selverify.training.best import Best
from selverify.training.generator import Progress, train_generator
from selverify.training.reproducible import side_by_side
from selverify.training.rollouts import (
    ValuedSolution,
    from_rows,
    sample_solutions,
    to_rows,
    value_solutions,
)
from selverify.training.tuning import batches_of_like, held_out, target, tune
from selverify.training.verifier import KINDS, train_verifier
from selverify.types import Sample

DOMAIN = domain_by_name("word_problems")
SMALL = Benchmark(
    minimum=4,
    maximum=4,
    hard=0.3,
    train=Split(problems=8, seed=1),
    validation=Split(problems=4, seed=2),
    test=Split(problems=4, seed=3),
)
SHAPE = Shape(width=16, layers=1, heads=2, feed_forward=32, max_positions=160)
GENERATOR = Generator(
    shape=SHAPE,
    steps=100,
    stop=100,
    tokens_per_batch=400,
    matrix_rate=0.02,
    other_rate=1e-2,
    warmup_steps=5,
    decay_fraction=0.3,
    curriculum_fraction=0.5,
    drill_fraction=0.0,
    misread=0.1,
    bfloat16=False,
    seed=5,
)
GRADER = Grader(seconds=5.0, workers=1)  # starts no process for whole numbers
VERIFIER = VerifierParams(
    kind={"word_problems": "token_logprobs"},
    source={},
    targets="soft",
    share={"strong": 1.0, "weak": 0.5},
    tune_epochs=1,
    tune_rows=16,
    tune_rate=1e-3,
    tune_value=0.9,
    hidden=8,
    epochs=16,
    rows_per_batch=16,
    rate=1e-2,
    validation_fraction=0.2,
    audit_samples=1,
    seed=6,
)


HARDER = {"tune_epochs": 15, "tune_rate": 1e-2}  # a value model has nothing to start from


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> tuple[Path, list[Progress]]:
    folder = tmp_path_factory.mktemp("backbone")
    seen: list[Progress] = []
    train_generator(
        DOMAIN,
        SMALL,
        GENERATOR,
        forbidden=(),
        folder=folder,
        report=seen.append,
    )
    return folder, seen


def test_the_backbone_learns_and_loads(backbone):
    """A hundred steps bring the loss well below that of a uniform guess, and the files load."""
    folder, seen = backbone
    assert seen[-1].loss < 3.6  # a uniform guess among the words costs 4.7 nats
    loaded = load_backbone(folder, DOMAIN.vocabulary)
    assert loaded.words.words[3:] == DOMAIN.vocabulary


def test_held_out_problems_are_never_trained_on(tmp_path, monkeypatch):
    """A forbidden problem is drawn again, so no batch is made from it."""
    rng = random.Random(GENERATOR.seed)
    first, _ = DOMAIN.generate(rng, problem_id="", minimum=2, maximum=3, hard=SMALL.hard)
    told: list[str] = []
    solve = WordProblems.solution
    monkeypatch.setattr(
        WordProblems,
        "solution",
        lambda self, problem, truth, rng, misread: (
            told.append(problem.text),
            solve(self, problem, truth, rng, misread=misread),
        )[1],
    )
    settings = GENERATOR.model_copy(update={"stop": 1})
    for forbidden, expected in (((), True), ((DOMAIN.fingerprint(first),), False)):
        told.clear()
        train_generator(
            DOMAIN,
            SMALL,
            settings,
            forbidden=forbidden,
            folder=tmp_path,
            report=print,
        )
        assert (first.text in told) is expected


def test_a_benchmark_that_holds_every_problem_leaves_none_to_train_on(tmp_path, monkeypatch):
    """An error instead of a search without end."""
    monkeypatch.setattr(WordProblems, "fingerprint", lambda self, problem: "same")
    with pytest.raises(ParamsError, match="expected fewer problems"):
        train_generator(DOMAIN, SMALL, GENERATOR, forbidden={"same"}, folder=tmp_path, report=print)


class Scripted:
    """Answers every completion with the right rest of the solution, or with a wrong answer."""

    def __init__(self, tasks: Sequence[Task], *, right: bool) -> None:
        self.truths = {task.problem.problem_id: task.truth for task in tasks}
        self.right = right

    def identity(self, kind: str) -> str:
        return "scripted"

    def answer(self, request: Complete) -> tuple[tuple[Sample, ...], ...]:
        return tuple(
            tuple(self._rest(item.state, index) for index in range(item.count))
            for item in request.items
        )

    def _rest(self, state, index: int) -> Sample:
        truth = self.truths[state.problem.problem_id]
        moves = [m.text for m in DOMAIN.solution(state.problem, truth, random.Random(1))]
        rest = moves[len(state.derivation) :]
        if not self.right or index == 0:
            rest[-1] = f"answer {(int(truth.answer) + 1) % 23} ;"
        return Sample(" ".join(rest), len(rest), 0.0)


def test_values_are_shares_of_rollouts_that_reach_the_gold():
    """With one wrong rollout in four every step is worth 3/4; a final step what its answer is.

    The first sample ends in an answer that a gate refuses, and is cut before it.
    """
    tasks = [task for task in build(DOMAIN, SMALL) if task.split == "train"][:3]
    backend = Scripted(tasks, right=True)
    sampled = sample_solutions(DOMAIN, backend, tasks, solutions=3)
    assert [one.count for one in sampled] == [1, 2] * 3
    pairs = zip(sampled[::2], sampled[1::2], strict=True)
    assert all(len(cut.states) + 1 == len(whole.states) for cut, whole in pairs)
    valued = value_solutions(DOMAIN, backend, sampled, rollouts=4, grader=GRADER)
    for cut, whole in zip(valued[::2], valued[1::2], strict=True):
        assert set(cut.values) == {0.75}
        assert whole.values == (*cut.values, 1.0)
    rows = to_rows(DOMAIN, valued, sampled)
    assert from_rows(rows) == valued
    assert all(all(row["alive"]) for row in rows)


def solutions(count: int) -> list[ValuedSolution]:
    """Solutions whose last step is right exactly when it is one that a backbone would say."""
    rng = random.Random(8)
    found = []
    for index in range(count):
        problem, truth = DOMAIN.generate(rng, problem_id=f"p{index}", minimum=4, maximum=5)
        moves = [move.text for move in DOMAIN.solution(problem, truth, rng)][:2]
        good = index % 2 == 0
        moves[-1] = moves[-1] if good else "together together ;"
        found.append(ValuedSolution(f"p{index}", problem.text, tuple(moves), (0.5, float(good))))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_reward_model_learns_its_targets(kind, backbone, tmp_path):
    """A step that the backbone finds odd is worth nothing: the loss falls below the coin's."""
    folder, _ = backbone
    metrics = train_verifier(
        solutions(120),
        kind,
        VERIFIER if kind == "token_logprobs" else VERIFIER.model_copy(update=HARDER),
        Words(DOMAIN.vocabulary),
        share=1.0,
        end_of_move=DOMAIN.end_of_move,
        backbone=folder,
        folder=tmp_path,
        report=print,
    )
    # Half of the steps are worth 1/2, which costs log 2; the others can be known.
    assert metrics["verifier_validation_loss"] < 0.45
    assert metrics["verifier_training_solutions"] == 96
    loaded = load_reward_model(tmp_path, DOMAIN.vocabulary)
    assert loaded.multiplies == (kind == "token_logprobs")


def test_a_weak_verifier_is_tuned_on_fewer_batches():
    """A tuning stops after its share of the batches, in the middle of an epoch."""
    settings = VERIFIER.model_copy(update={"tune_epochs": 3, "tune_rows": 8})
    for share, expected in ((0.0, [1]), (0.5, [4, 2]), (1.0, [4, 4, 4])):
        module = torch.nn.Linear(1, 1)
        batches: list[int] = []

        def loss_of(rows: list[int], batches=batches, module=module) -> torch.Tensor:
            batches.append(len(rows))
            return module.weight.sum()

        epochs = list(tune(module, settings, [5] * 30, loss_of, share=share))
        assert len(epochs) == len(expected)
        assert len(batches) == sum(expected)


def test_a_weak_evidence_model_sees_fewer_batches(backbone, tmp_path):
    """Neither its backbone nor its head is trained to the end."""
    folder, _ = backbone
    losses = {}
    for strength, share in (("strong", 1.0), ("weak", 0.02)):
        metrics = train_verifier(
            solutions(60),
            "token_logprobs",
            VERIFIER,
            Words(DOMAIN.vocabulary),
            share=share,
            end_of_move=DOMAIN.end_of_move,
            backbone=folder,
            folder=tmp_path,
            report=lambda epoch: None,
        )
        losses[strength] = metrics["verifier_validation_loss"]
    assert losses["weak"] > losses["strong"] + 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_do_not_depend_on_how_many_threads_there_are(kind, backbone, tmp_path):
    """Two trainings under another number of threads write the same bytes."""
    folder, _ = backbone
    before, written = torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            train_verifier(
                solutions(60),
                kind,
                VERIFIER,
                Words(DOMAIN.vocabulary),
                share=1.0,
                end_of_move=DOMAIN.end_of_move,
                backbone=folder,
                folder=tmp_path / str(threads),
                report=lambda _: None,
            )
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        files = ("model.safetensors", "reward_head.safetensors")
        written.append([(tmp_path / str(threads) / name).read_bytes() for name in files])
    assert written[0] == written[1]


def test_trainings_side_by_side_end_when_the_one_who_wants_them_is_interrupted():
    """What is under way ends at its next batch, and what has not begun never does."""
    begun: list[int] = []

    def train(number, stop):
        begun.append(number)
        if number == 0:
            raise KeyboardInterrupt
        while True:
            stop.check()

    with pytest.raises(KeyboardInterrupt):
        side_by_side(train, range(20), workers=2)
    assert len(begun) < 20


def test_trainings_side_by_side_keep_their_order():
    """Results stand as their inputs do, each made on one thread."""
    made = side_by_side(lambda one, _: (one, torch.get_num_threads()), range(5), workers=2)
    assert made == [(number, 1) for number in range(5)]


def test_batches_hold_each_example_once_and_pad_little():
    """Every index once, at most so many rows each, another order from other draws."""
    rng = random.Random(3)
    lengths = [rng.randint(10, 90) for _ in range(501)]
    draws = torch.Generator().manual_seed(1)
    one, other = (batches_of_like(lengths, 32, draws) for _ in range(2))
    assert sorted(index for batch in one for index in batch) == list(range(501))
    assert max(map(len, one)) == 32
    assert one != other
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in one)
    assert padded < 1.1 * sum(lengths)


def test_too_few_valued_problems_are_refused():
    """One to learn from is not enough for two folds."""
    with pytest.raises(SchemaError, match="solutions of 2 problems, expected of at least 3"):
        held_out(solutions(2), VERIFIER)


def test_the_best_weights_come_back():
    """Those of the lowest loss, not the last; a loss that is no number is an error."""
    module = torch.nn.Linear(1, 1)
    best = Best(module)
    for value, loss in ((1.0, 0.5), (2.0, 0.2), (3.0, 0.9)):
        torch.nn.init.constant_(module.weight, value)
        best.offer(loss)
    best.restore()
    assert float(module.weight) == 2.0
    assert best.loss == 0.2
    with pytest.raises(ProtocolError, match="not a number"):
        best.offer(float("nan"))


@pytest.mark.parametrize(
    ("value", "targets", "expected"),
    [(0.25, "soft", 0.25), (0.25, "hard", 1.0), (0.0, "hard", 0.0), (1.0, "soft", 1.0)],
)
def test_targets(value, targets, expected):
    """Soft keeps the share, hard asks whether any rollout got there."""
    assert target(value, targets) == expected


def test_rollouts_through_a_refused_move_do_not_count():
    """A right answer reached by defining a quantity twice says nothing of the steps before."""
    task = next(task for task in build(DOMAIN, SMALL) if task.split == "train")
    backend = Scripted([task], right=True)
    sampled = sample_solutions(DOMAIN, backend, [task], solutions=2)
    repeat = sampled[0].states[0].derivation[0].text

    class Repeating(Scripted):
        def _rest(self, state, index: int) -> Sample:
            rest = super()._rest(state, 1)
            return Sample(f"{repeat} {rest.text}", rest.tokens, 0.0)

    valued = value_solutions(
        DOMAIN, Repeating([task], right=True), sampled, rollouts=2, grader=GRADER
    )
    assert {value for one in valued for value in one.values[:-1]} == {0.0}
