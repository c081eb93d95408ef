"""Training of the backbone and of the reward model, on the smallest problems that show it works."""

import random
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import pytest
import torch

from selverify.data.benchmark import Task, build
from selverify.data.grading import Grader
from selverify.domains import domain_by_name
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.models.assembly import OpenModels
from selverify.models.generators.checkpoints import load_backbone, load_reward_model
from selverify.models.heuristic.embedding import (
    Embeddings,
    concatenate,
    pack_moves,
    unpack_moves,
)
from selverify.models.tokenizer import Words
from selverify.models.verifiers.head import load_head, read_of, single_steps
from selverify.models.verifiers.reward import SEEN, TokenLogprobHead, token_logprobs
from selverify.params import Benchmark, Generator, Shape, Split, VerifierParams
from selverify.search.requests import Complete, Propose, ProposeItem, RankItem
from selverify.training.fit import Batches, Epoch, adamw, fit, one_cycle
from selverify.training.generator import _drill, train_generator
from selverify.training.head import embed_moves, train_head, whole_solution
from selverify.training.language import encode
from selverify.training.reproducible import _ONEDNN, reproducible, side_by_side
from selverify.training.rollouts import (
    SampledSolution,
    ValuedSolution,
    explore_candidates,
    of_solved_problems,
    sample_training_solutions,
    solution_rows,
    solutions_from,
    state_values,
    up_to_the_first_wrong,
    value_solutions,
    written_solutions,
    written_values,
)
from selverify.training.token_logprobs import _gather
from selverify.training.tuning import BatchesOfLike, held_out, load_trainable, with_targets
from selverify.types import Move, Sample, State, Truth
from tasks import residual as residual_stage
from tasks.verifier import TRAINERS

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
    aggregation={"word_problems": "prod", "countdown": "last"},
    kind={"word_problems": "token_logprobs"},
    source={},
    rank=2,
    targets={"word_problems": "soft"},
    share={"strong": 1.0, "weak": 0.5},
    threshold="youden",
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
    audit_rollouts=0,
    seed=6,
)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> tuple[Path, list[float]]:
    folder = tmp_path_factory.mktemp("backbone")
    losses: list[float] = []
    train_generator(
        DOMAIN,
        SMALL,
        GENERATOR,
        forbidden=(),
        folder=folder,
        report=lambda step, loss: losses.append(loss),
    )
    return folder, losses


def test_the_backbone_learns_and_loads(backbone):
    """A hundred steps bring the loss well below that of a uniform guess, and the files load."""
    folder, losses = backbone
    assert losses[-1] < 3.6  # a uniform guess among the words costs 4.7 nats
    loaded = load_backbone(folder, DOMAIN.vocabulary)
    assert loaded.words.words[3:] == DOMAIN.vocabulary


def test_held_out_problems_are_never_trained_on(tmp_path, monkeypatch):
    """A forbidden problem is drawn again, so no batch is made from it."""
    rng = random.Random(GENERATOR.seed)
    first, _ = DOMAIN.generate(rng, problem_id="", minimum=2, maximum=3, hard=SMALL.hard)
    solved: list[str] = []
    solve = WordProblems.solution

    def noted(self, problem, truth, rng, misread):
        solved.append(problem.text)
        return solve(self, problem, truth, rng, misread=misread)

    monkeypatch.setattr(WordProblems, "solution", noted)
    short = GENERATOR.model_copy(update={"stop": 1})
    for forbidden in ((), (DOMAIN.fingerprint(first),)):
        solved.clear()
        train_generator(DOMAIN, SMALL, short, forbidden=forbidden, folder=tmp_path, report=print)
        assert (first.text in solved) is (not forbidden)
    monkeypatch.setattr(WordProblems, "fingerprint", lambda self, problem: "same")
    with pytest.raises(ParamsError, match="expected fewer problems"):
        train_generator(DOMAIN, SMALL, short, forbidden={"same"}, folder=tmp_path, report=print)


def test_drills_come_first_and_fade():
    """Of recall, then of moves; none once their share of the training is over."""
    settings = GENERATOR.model_copy(update={"drill_fraction": 0.2})
    rng = random.Random(3)
    drilled = [
        sum(_drill(DOMAIN, rng, progress, settings) is not None for _ in range(300)) / 300
        for progress in (0.0, 0.15, 0.3, 0.6)
    ]
    assert drilled == pytest.approx([0.67, 0.67 / 4, 0.3, 0.0], abs=0.08)


class Scripted:
    """Answers every completion with the right rest of the solution, the first with a wrong answer.

    ``before`` is said first, again.
    """

    def __init__(self, tasks: Sequence[Task], before: str = "") -> None:
        self.truths = {task.problem.problem_id: task.truth for task in tasks}
        self.before = before

    def concurrency(self, kind: str) -> int:
        return 0

    def identity(self, kind: str) -> str:
        return "scripted"

    def answer(self, request: Complete) -> tuple[tuple[Sample, ...], ...]:
        return tuple(
            tuple(self._rest(item.state, index) for index in range(item.count))
            for item in request.items
        )

    def _rest(self, state: State, index: int) -> Sample:
        truth = self.truths[state.problem.problem_id]
        moves = [m.text for m in DOMAIN.solution(state.problem, truth, random.Random(1))]
        rest = moves[len(state.derivation) :]
        if index == 0 and not self.before:
            rest[-1] = f"answer {(int(truth.answer) + 1) % 23} ;"
        return Sample(" ".join([self.before, *rest]), len(rest), 0.0)


def test_values_are_shares_of_rollouts_that_reach_the_gold():
    """With one wrong rollout in four every step is worth 3/4; a final step what its answer is.

    The first sample ends in an answer that a gate refuses, and is cut before it.
    """
    tasks = [task for task in build(DOMAIN, SMALL) if task.split == "train"][:3]
    backend = Scripted(tasks)
    sampled = sample_training_solutions(DOMAIN, backend, tasks, solutions=3)
    assert [one.count for one in sampled] == [1, 2] * 3
    pairs = zip(sampled[::2], sampled[1::2], strict=True)
    assert all(len(cut.states) + 1 == len(whole.states) for cut, whole in pairs)
    assert [one.fresh for one in sampled] == [
        fresh for cut in sampled[::2] for fresh in (0, len(cut.states))
    ]
    values = state_values(DOMAIN, backend, sampled, solutions=4, rollouts=4, grader=GRADER)
    assert {values[task.problem.problem_id, ()] for task in tasks} == {0.5}  # 2 of 4 samples
    valued = value_solutions(sampled, values)
    for cut, whole in zip(valued[::2], valued[1::2], strict=True):
        assert set(cut.values) == {0.75}
        assert whole.values == (*cut.values, 1.0)
    rows = solution_rows(DOMAIN, valued, sampled)
    assert solutions_from(rows) == valued
    assert all(all(row["alive"]) for row in rows)


def test_rollouts_through_a_refused_move_do_not_count():
    """A right answer reached by defining a quantity twice says nothing of the steps before."""
    task = next(task for task in build(DOMAIN, SMALL) if task.split == "train")
    sampled = sample_training_solutions(DOMAIN, Scripted([task]), [task], solutions=2)
    backend = Scripted([task], before=sampled[0].states[0].derivation[0].text)
    values = state_values(DOMAIN, backend, sampled, solutions=2, rollouts=2, grader=GRADER)
    valued = value_solutions(sampled, values)
    assert {value for one in valued for value in one.values[:-1]} == {0.0}


def test_problems_that_no_solution_answers_are_left_out():
    task = next(task for task in build(DOMAIN, SMALL) if task.split == "train")
    sampled = sample_training_solutions(DOMAIN, Exploring([task]), [task], solutions=2)
    right = [DOMAIN.answer(one.states[-1]) == task.truth.answer for one in sampled]
    assert sorted(right) == [False, True]
    assert of_solved_problems(DOMAIN, sampled, grader=GRADER) == sampled
    wrong = [one for one, is_right in zip(sampled, right, strict=True) if not is_right]
    cut = [replace(one, states=one.states[:1]) for one in sampled]
    assert of_solved_problems(DOMAIN, wrong, grader=GRADER) == []
    assert of_solved_problems(DOMAIN, cut, grader=GRADER) == []


def test_what_a_written_solution_computes_is_right_and_all_else_wrong():
    """Without a rollout; lines in another order count, and all of a right solution's."""
    domain = domain_by_name("grade_school")
    text = "Tom buys 3 boxes of 4 pens and 2 more pens. He loses 5 pens. How many has he?"
    task = replace(
        next(iter(build(DOMAIN, SMALL))),
        problem=domain.read(text, problem_id="q"),
        truth=Truth("q", "9", "{}"),
    )
    moves = ("3 * 4 = 12", "12 + 2 = 14", "14 - 5 = 9", "Answer 9")
    (solution,) = written_solutions(domain, [task], {"q": moves})
    assert solution.states[-1].said == moves and solution.count == 1
    start = domain.initial_state(task.problem, budget=1)

    def sampled(*said: str) -> SampledSolution:
        states, state = [], start
        for one in said:
            state = domain.apply(state, domain.parse(one))
            states.append(state)
        return SampledSolution(task, tuple(states), 1)

    def check(wanted: dict[SampledSolution, tuple[float, ...]]) -> None:
        values = written_values(domain, [solution], list(wanted), grader=GRADER)
        rows = value_solutions(list(wanted), values)
        assert [one.values for one in rows] == list(wanted.values())
        assert {one.start for one in rows} == {1.0}
        assert with_targets(rows, "written") == rows

    check(
        {
            sampled("3 + 4 = 7"): (0.0,),
            sampled("4 * 3 = 12", "12 - 5 = 7"): (1.0, 0.0),
            sampled("3 * 4 = 12", "2 + 12 = 14", "Answer 14"): (1.0, 1.0, 0.0),
            sampled("3 * 4 = 12", "4 + 4 + 4 = 12"): (1.0, 0.0),
            sampled("3 * 4 = 12", "12 + 2 = 14", "14 - 5 = 9", "Answer 9.0"): (1.0,) * 4,
        }
    )
    check({sampled("2 - 5 = -3"): (0.0,)})
    other_way = sampled("2 - 5 = -3", "3 * 4 = 12", "12 + -3 = 9", "Answer 9")
    check({sampled("2 - 5 = -3", "Answer -3"): (1.0, 0.0), other_way: (1.0,) * 4})
    assert written_solutions(domain, [task], {}) == []
    twice = ("3 * 4 = 12", "2 * 5 = 10", "5 + 5 = 10", "10 / 3 = 3.333", "Answer 9")
    (solution,) = written_solutions(domain, [task], {"q": twice})
    check(
        {
            sampled(*twice[:3], "3 + 3 + 4 = 10"): (1.0, 1.0, 1.0, 0.0),
            sampled(*twice[:3], "10 / 3 = 3.33"): (1.0,) * 4,
        }
    )
    (short,) = written_solutions(domain, [task], {"q": (moves[0], "99 + 77 = 176", moves[3])})
    assert short.states[-1].said == moves[:1]


class Exploring(Scripted):
    """Proposes at every state the right solution's next move and, half of the time, a wrong one."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(tasks)
        self.proposed: list[ProposeItem] = []

    def answer(self, request):
        if not isinstance(request, Propose):
            return super().answer(request)
        self.proposed += request.items
        return tuple(
            tuple(self.sample_move(item.state, index) for index in range(item.count))
            for item in request.items
        )

    def sample_move(self, state: State, index: int) -> Sample:
        said = self._rest(state, 1).text.split(" ;")[0] + " ;"
        words = said.split()
        wrong = " ".join([*words[:-2], str((int(words[-2]) + 1) % 23), ";"])
        return Sample(wrong if index % 2 else said.strip(), len(words), 0.0)


def test_candidates_are_the_survivors_at_solvable_states_that_no_solution_goes_on_with():
    """A given number misread passes the gates; its value is learned from, its prefix is not."""
    task = next(task for task in build(DOMAIN, SMALL) if task.split == "train")
    backend = Exploring([task])
    sampled = sample_training_solutions(DOMAIN, backend, [task], solutions=2)
    valued_by = partial(state_values, DOMAIN, backend, solutions=2, rollouts=4, grader=GRADER)
    values = valued_by(sampled)
    assert values[task.problem.problem_id, ()] == 0.5
    explore = partial(
        explore_candidates, DOMAIN, backend, sampled, proposals=4, skipped=8, explored_from=0.5
    )
    found = explore(values)
    assert found and all(one.count == 0 for one in found)
    assert not any((task.problem.problem_id, one.states[-1].said) in values for one in found)
    values |= valued_by(found)
    for one, valued in zip(found, value_solutions(found, values), strict=True):
        assert valued.fresh == len(valued.moves) - 1 == len(one.states) - 1
        assert valued.values[:-1] == tuple(
            values[task.problem.problem_id, state.said] for state in one.states[:-1]
        )
    assert not explore(dict.fromkeys(values, 0.0))
    assert {item.start for item in backend.proposed} == {8}  # other seeds than the continuations'


def test_where_a_solution_was_cut_candidates_are_explored() -> None:
    """The generator made a refused move there; behind an answer there is nothing."""
    task = next(task for task in build(DOMAIN, SMALL) if task.split == "train")
    backend = Exploring([task])
    _, whole = sample_training_solutions(DOMAIN, Scripted([task]), [task], solutions=2)
    cut = replace(whole, states=whole.states[:-2])
    values = {(task.problem.problem_id, state.said): 1.0 for state in whole.states}
    for one, last in ((cut, cut.states[-1]), (whole, whole.states[-2])):
        explore_candidates(
            DOMAIN, backend, [one], values, proposals=4, skipped=0, explored_from=0.5
        )
        asked = [item.state.said for item in backend.proposed]
        assert last.said in asked and whole.states[-1].said not in asked


def solutions(count: int, *, odd: str = "together together ;") -> list[ValuedSolution]:
    """Solutions whose last step is right unless it is the ``odd`` one."""
    rng = random.Random(8)
    found = []
    for index in range(count):
        problem, truth = DOMAIN.generate(rng, problem_id=f"p{index}", minimum=4, maximum=5)
        moves = [move.text for move in DOMAIN.solution(problem, truth, rng)][:2]
        good = index % 2 == 0
        moves[-1] = moves[-1] if good else odd
        found.append(
            ValuedSolution(f"p{index}", problem.text, tuple(moves), (0.5, float(good)), 1, 0.5)
        )
    return found


def train(kind: str, count: int, settings: VerifierParams, backbone: Path, folder: Path, **options):
    """Train a reward model of ``kind`` on ``count`` solutions; its losses."""
    return TRAINERS[kind](
        solutions(count),
        settings,
        Words(DOMAIN.vocabulary),
        end_of_move=DOMAIN.end_of_move,
        backbone=backbone,
        folder=folder,
        **{"share": 1.0, "report": print, **options},
    )


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_reward_model_learns_its_targets(kind, backbone, tmp_path):
    """A step that the backbone finds odd is worth nothing: the loss falls below the coin's."""
    changes = {} if kind == "token_logprobs" else {"tune_epochs": 15, "tune_rate": 1e-2}
    metrics = train(kind, 120, VERIFIER.model_copy(update=changes), backbone[0], tmp_path)
    # Half of the steps are worth 1/2, which costs log 2; the others can be known.
    assert metrics["verifier_validation_loss"] < 0.45
    assert metrics["verifier_training_solutions"] == 96
    loaded = load_reward_model(tmp_path, DOMAIN.vocabulary)
    assert isinstance(loaded.head, TokenLogprobHead) == (kind == "token_logprobs")


def test_a_head_learns_from_what_whole_solutions_say(backbone):
    """Read together after their problems they say what each says when it is read alone."""
    given, words = solutions(24), Words(DOMAIN.vocabulary)
    judge, generator = (load_trainable(backbone[0]) for _ in range(2))
    torch.nn.init.normal_(judge.model.norm.weight)
    end = words.ids[DOMAIN.end_of_move]
    found = _gather(
        (judge, given), Event(), generator=generator, words=words, end_of_move=DOMAIN.end_of_move
    )
    for one, (seen, states, values, learned) in zip(given, found, strict=True):
        problem, moves = encode(one.text, one.moves, words)
        tokens = torch.tensor([[*problem, *moves]])
        ends = torch.where(tokens[0] == end)[0]
        begun = (tokens[0] == end) | (torch.arange(tokens.shape[1]) < len(problem))
        with torch.inference_mode():
            logprobs = judge(input_ids=tokens).logits[0, :-1].log_softmax(-1)
            read = generator.model(input_ids=tokens).last_hidden_state[0]
        expected = token_logprobs(logprobs, tokens[0, 1:], begun[1:])[ends - 1]
        torch.testing.assert_close(seen, expected, atol=1e-5, rtol=1e-4)
        starts = torch.cat((torch.tensor([len(problem) - 1]), ends[:-1]))
        torch.testing.assert_close(states, read[starts], atol=1e-5, rtol=1e-4)
        assert values.tolist() == pytest.approx(one.values)
        assert learned.tolist() == [float(at >= one.fresh) for at in range(len(one.moves))]


def embed(items: Sequence[RankItem]) -> list[Embeddings]:
    """Embeddings that tell of each move how deep it is, and whether it is an answer."""
    found = []
    for item in items:
        odd = torch.tensor([[float(move.op == "answer")] for move in item.moves])
        depth = torch.full_like(odd, len(item.state.derivation))
        rows = torch.cat((odd, 1 - odd, depth), 1)
        unsaid = torch.zeros(len(rows), SEEN)
        found.append(Embeddings(rows, rows, rows, rows, unsaid, odd.squeeze(1)))
    return found


@pytest.mark.parametrize("share", [1.0, 0.01])
def test_a_head_on_a_frozen_generator_learns_its_targets(share, tmp_path):
    """Given a hidden state that says it; a weak one is trained on its share of the batches."""
    seen: list[Epoch] = []
    metrics = train_head(
        solutions(120, odd="answer 5 ;"),
        VERIFIER,
        DOMAIN,
        embed,
        share=share,
        backbone="frozen",
        folder=tmp_path,
        report=seen.append,
    )
    assert (metrics["verifier_validation_loss"] < 0.45) is (share == 1.0)
    assert len(seen) == (VERIFIER.epochs if share == 1.0 else 1)
    head, _ = load_head(tmp_path, backbone="frozen")
    items = single_steps(whole_solution(solutions(2, odd="answer 5 ;")[1], DOMAIN))
    usual, odd = torch.sigmoid(head(read_of(concatenate(embed(items))))).tolist()
    assert (odd < 0.3 < usual) is (share == 1.0)


def test_what_was_embedded_before_is_not_read_again(tmp_path):
    """Solutions that were embedded with their samples give the same head, also some of them; moves
    that stand in another solution are neither read nor learned from."""
    plain = solutions(30, odd="answer 5 ;")
    given = [replace(one, fresh=index % 2) for index, one in enumerate(plain)]
    read: list[int] = []

    def counting(items: list[RankItem]) -> list[Embeddings]:
        read.append(len(items))
        return embed(items)

    kept = embed_moves(given, DOMAIN, counting)
    assert read == [15 * 2 + 15 * 1]
    assert embed_moves(kept, DOMAIN, counting) == kept and len(read) == 1
    heads = []
    for part, some in enumerate((given, kept, [*kept[:7], *given[7:]])):
        folder = tmp_path / str(part)
        folder.mkdir()
        train_head(some, VERIFIER, DOMAIN, counting, share=0.2, backbone="frozen", folder=folder,
                   report=lambda _: None)  # fmt: skip
        heads.append((folder / "head.safetensors").read_bytes())
    assert len(set(heads)) == 1
    assert read[1:] == [45, sum(2 - one.fresh for one in given[7:])]


def test_the_moves_of_a_state_are_packed_with_what_they_share_once():
    """Half precision is kept; something else is refused with a sentence."""
    own = torch.randn(3, 4)
    rows = Embeddings(torch.ones(3, 4), own, -own, torch.zeros(3, 4), own[:, :2], own[:, 0])
    stored = pack_moves(rows)
    found = unpack_moves(stored)
    for name in ("state", "move", "after", "goal", "token_logprobs", "logprob"):
        wanted, given = getattr(rows, name), getattr(found, name)
        assert given.dtype == torch.float32 and torch.equal(given, wanted.half().float()), name
    alone = pack_moves(rows.take(torch.tensor([0])))
    assert len(stored) - len(alone) < 2 * 2 * (4 + 4 + 2 + 1) + 30
    with pytest.raises(SchemaError, match=r"stored embeddings: given 5 bytes, "):
        unpack_moves(b"apple")


def test_a_ranker_learns_from_embeddings_that_were_kept_and_from_others():
    """A list without any is read; both become rows of the same list."""
    problem, truth = DOMAIN.generate(random.Random(1), problem_id="p", minimum=4, maximum=4)
    state = DOMAIN.initial_state(problem, budget=1)
    moves = tuple(DOMAIN.solution(problem, truth, random.Random(1))[:2])
    items = [RankItem(state, moves, ""), RankItem(state, moves[:1], "")]
    kept = pack_moves(embed(items[:1])[0])
    labels = ([True, False], [True])
    rows = [
        {
            "problem_id": "p",
            "labels": own,
            "scores": [0.5 for _ in own],
            "committed": 0,
            "remaining": 1,
            "embedded": stored,
        }
        for own, stored in zip(labels, (kept, b""), strict=True)
    ]
    read: list[RankItem] = []

    def reading(asked: list[RankItem]) -> list[Embeddings]:
        read.extend(asked)
        return embed(asked)

    models = OpenModels(DOMAIN, Scripted([]), reading, "", None, None)
    lists = list(residual_stage._label(models, rows, items))
    assert read == items[1:]
    assert [one.labels for one in lists] == [(True, False), (True,)]
    for one, own in zip(lists, embed(items), strict=True):
        assert torch.equal(one.rows.move, own.move) and torch.equal(one.rows.state, own.state)


def test_a_solution_ends_with_its_first_wrong_move_and_each_move_is_learned_from_once():
    task = next(iter(build(DOMAIN, SMALL)))
    states = {}

    def sampled(*said: str, count: int = 1) -> SampledSolution:
        found = []
        for index in range(len(said)):
            moves = tuple(Move("", (), one) for one in said[: index + 1])
            state = replace(DOMAIN.initial_state(task.problem, budget=1), derivation=moves)
            found.append(states.setdefault(moves, state))
        return SampledSolution(task, tuple(found), count)

    values = {
        (task.problem.problem_id, said): float("x" not in said[-1])
        for said in [("a",), ("a", "b"), ("a", "x"), ("a", "x", "b"), ("a", "x", "c"), ("x",)]
    }
    given = [
        sampled("a", "x", "b", count=2), sampled("a", "b"), sampled("x"), sampled("a", "x", "c"),
        sampled("a"),
    ]  # fmt: skip
    found = up_to_the_first_wrong(given, values)
    assert [(one.states[-1].said, one.count, one.fresh) for one in found] == [
        (("a", "x"), 3, 0),
        (("a", "b"), 1, 1),
        (("x",), 1, 0),
    ]


def test_a_step_that_cannot_be_read_is_refused():
    """A head reads steps of its own domain only."""
    one = replace(solutions(1)[0], moves=("by heart",))
    with pytest.raises(SchemaError, match="p0: given 'by heart', expected a move of"):
        whole_solution(one, DOMAIN)


def test_a_weak_token_logprob_model_sees_fewer_batches(backbone, tmp_path):
    """Neither its backbone nor its head is trained to the end."""
    strong, weak = (
        train("token_logprobs", 60, VERIFIER, backbone[0], tmp_path, share=share)
        for share in (1.0, 0.02)
    )
    name = "verifier_validation_loss"
    assert weak[name] > strong[name] + 0.1


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_weights_do_not_depend_on_how_many_threads_there_are(kind, backbone, tmp_path):
    """Two trainings under another number of threads write the same bytes."""
    before, written = torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            train(kind, 60, VERIFIER, backbone[0], tmp_path / str(threads))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        files = ("model.safetensors", "reward_head.safetensors")
        written.append([(tmp_path / str(threads) / name).read_bytes() for name in files])
    assert written[0] == written[1]


def fitted(share: float, losses: Sequence[float], *, keep_start: bool) -> tuple[float, list[Epoch]]:
    """The weight left after epochs of 4 batches that each add 1, and the log.

    ``losses`` are the held-out ones.
    """
    module = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(module.weight)
    held, seen = iter(losses), []

    @torch.no_grad()
    def update() -> None:
        module.weight += 1

    lowest = fit(
        "one",
        module,
        lambda rows: module(rows[:1] * 0.0).sum(),
        Batches(count=30, rows=8, epochs=3, share=share),
        update=update,
        report=seen.append,
        validation=held.__next__ if losses else None,
        keep_start=keep_start,
    )
    assert lowest == min(losses, default=float("inf"))
    return module.weight.item(), seen


def test_the_best_weights_come_back():
    """Those of the epoch of the lowest held-out loss, the start among them where it counts."""
    assert fitted(1.0, [0.5, 0.2, 0.9], keep_start=False)[0] == 8
    assert fitted(1.0, [0.1, 0.5, 0.2, 0.9], keep_start=True)[0] == 0
    assert fitted(1.0, [], keep_start=False)[0] == 12
    with pytest.raises(ProtocolError, match="not a number"):
        fitted(0.3, [float("nan")], keep_start=False)


def test_a_training_ends_after_its_share_of_the_batches():
    """In the middle of an epoch, and with one batch at least."""
    for share, expected in ((0.0, 1), (0.5, 6), (1.0, 12)):
        weight, seen = fitted(share, [], keep_start=False)
        assert weight == expected
        assert [one.epoch for one in seen] == list(range(1, 1 + -(-expected // 4)))
    assert Batches(count=0, rows=8, epochs=3).learned == 0
    assert str(Epoch("head", 2, 0.25, 0.5)) == "head, epoch 2, loss 0.2500, held out 0.5000"
    assert str(Epoch("head", 2, 0.25, None)) == "head, epoch 2, loss 0.2500"


@pytest.mark.parametrize("batches", [1, 2, 3, 9, 10, 11, 19, 20, 21, 40])
def test_the_rate_rises_and_falls_however_few_the_batches(batches, monkeypatch):
    module = torch.nn.Linear(1, 1)
    optimiser = adamw(module, rate=0.1, decay=0.0)
    monkeypatch.setattr("selverify.training.fit.adamw", lambda *_, **__: optimiser)
    update = one_cycle(module, rate=0.1, batches=batches)
    rates = []
    for _ in range(batches):
        rates.append(optimiser.param_groups[0]["lr"])
        update()
    top = rates.index(max(rates))
    assert all(0 <= rate <= 0.1 for rate in rates)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert batches == 1 or max(rates) > 0.09


def test_trainings_side_by_side_end_when_the_one_who_wants_them_is_interrupted():
    """What is under way ends at its next batch, and what has not begun never does."""
    begun: list[int] = []

    def endless(number, stop):
        begun.append(number)
        if number == 0:
            raise KeyboardInterrupt
        stop.wait()
        raise CancelledError

    with pytest.raises(KeyboardInterrupt):
        side_by_side(endless, range(20), workers=2)
    assert len(begun) < 20


def test_trainings_side_by_side_keep_their_order():
    """Results stand as their inputs do, each made on one thread and with oneDNN."""
    layer, rows = torch.nn.Linear(6, 5), torch.randn(2, 6)

    def train(one: int, _: Event) -> tuple[int, int, bool]:
        return one, torch.get_num_threads(), by_onednn(layer, rows)

    made = side_by_side(train, range(5), workers=2)
    assert made == [(number, 1, _ONEDNN) for number in range(5)]


def test_trainings_side_by_side_are_in_the_context_of_the_caller():
    """By which Prefect knows whose log lines they write."""
    whose = ContextVar("whose")
    whose.set("a stage")
    assert side_by_side(lambda *_: whose.get(), range(3), workers=2) == ["a stage"] * 3


def test_a_training_that_is_stopped_ends_before_its_next_batch():
    """Also within an epoch."""
    stop, learned = Event(), []
    head = torch.nn.Linear(1, 1)

    def loss_of(rows):
        learned.append(rows)
        stop.set()
        return head(torch.ones(1, 1)).sum()

    with pytest.raises(CancelledError):
        update = adamw(head, rate=0.1, decay=0.0).step
        fit("head", head, loss_of, Batches(8, 2, 5), update=update, report=print, stop=stop)
    assert len(learned) == 1


def test_batches_hold_each_example_once_and_pad_little():
    """Every index once, at most so many rows each, another order from other draws."""
    rng = random.Random(3)
    lengths = [rng.randint(10, 90) for _ in range(501)]
    draws = torch.Generator().manual_seed(1)
    batches = BatchesOfLike(count=501, rows=32, epochs=2, lengths=lengths, draws=draws)
    one, other = ([rows.tolist() for rows in batches.epoch()] for _ in range(2))
    assert batches.total == len(one) + len(other)
    assert sorted(index for batch in one for index in batch) == list(range(501))
    assert max(map(len, one)) == 32
    assert one != other
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in one)
    assert padded < 1.1 * sum(lengths)


def test_too_few_valued_problems_are_refused():
    """One to learn from is not enough for two folds."""
    with pytest.raises(SchemaError, match="solutions of 2 problems, expected of at least 3"):
        held_out(solutions(2), VERIFIER)


def test_targets():
    """Soft keeps the share, hard asks whether any rollout got there."""
    (one,) = solutions(1)
    valued = [replace(one, moves=("",) * 3, values=(0.0, 0.25, 1.0))]
    assert with_targets(valued, "soft") == valued
    assert with_targets(valued, "hard")[0].values == (0.0, 1.0, 1.0)


def by_onednn(layer: torch.nn.Linear, rows: torch.Tensor) -> bool:
    return "_Linear" in str(layer(rows).grad_fn.next_functions)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 6), (1, 6), (6,), (0, 6)])
@pytest.mark.parametrize("wide", [5, 1])
def test_a_linear_layer_is_the_same_by_either_library(bias, shape, wide):
    """Its product and its gradients."""
    torch.manual_seed(2)
    layer, rows = torch.nn.Linear(6, wide, bias=bias), torch.randn(shape, requires_grad=True)

    def made() -> list[torch.Tensor]:
        product = layer(rows)
        wanted = (rows, *layer.parameters())
        return [product.detach(), *torch.autograd.grad(product.square().sum(), wanted)]

    plain = made()
    with reproducible():
        for one, other in zip(plain, made(), strict=True):
            torch.testing.assert_close(one, other)
        assert by_onednn(layer, rows) == (_ONEDNN and rows.numel() > 0)
        if bias:
            layer.weight.requires_grad_(False)
            (summed,) = torch.autograd.grad(layer(rows.detach()).sum(), layer.bias)
            assert (summed == rows.numel() // 6).all()


def test_a_layer_in_bfloat16_is_left_as_it_is():
    """Its weights, or what autocast makes of them."""
    layer, rows = torch.nn.Linear(6, 5), torch.randn(2, 6)
    with reproducible():
        assert by_onednn(layer, rows) == _ONEDNN
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(rows).dtype == torch.bfloat16
        assert layer.bfloat16()(rows.bfloat16()).dtype == torch.bfloat16
