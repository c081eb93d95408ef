"""What a ranker and a reward model learn from a second, and what event logs take."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import torch
from rows import Row, median

sys.path.extend([str(Path(__file__).parents[1] / part) for part in ("training", "search")])

import test_policy_training
from toy import ToyDomain, toy_problem

from selverify.domains import domain_by_name, generated_by_name
from selverify.domains.base import GeneratedDomain
from selverify.models.heuristic.embedding import Embeddings, packed
from selverify.models.tokenizer import load_words
from selverify.models.verifiers.head import StepRead
from selverify.models.verifiers.reward import SEEN
from selverify.params import load_params
from selverify.search.ledger import Ledger
from selverify.search.requests import RankItem
from selverify.search.traces import Event, read_events, write_events
from selverify.training.head import train_head
from selverify.training.policy import LabelledList, MappedLists, train_policy
from selverify.training.rollouts import ValuedSolution
from selverify.training.token_logprobs import train_token_logprob_model

MODELS = Path(__file__).parents[2] / "models"
STATES, MOVES, WIDTH, EPOCHS = 2_000, 8, 128, 4
SEARCHES, ROUNDS = 4_000, 25
QUERY = """
select event, count(*), sum(verifier_calls), count(distinct problem_id)
from read_parquet('{path}') group by event order by event
"""


def training(repeats: int) -> list[Row]:
    """Candidates a second of each epoch, two heads at a time; steps a second, on one thread."""
    torch.set_num_threads(1)
    lists = list(_lists(STATES))
    settings = test_policy_training.SETTINGS.model_copy(update={"epochs": EPOCHS, "hidden": 64})
    solutions = [_solution(item) for item in lists]
    told = load_params(Path(__file__).parents[2] / "params.yaml").verifier
    of_head = told.model_copy(update={"epochs": EPOCHS})

    generated, backbone = generated_by_name("word_problems"), MODELS / "word_problems-small"
    worked = [*_worked(generated, STATES // MOVES)]

    def tuned() -> None:
        with tempfile.TemporaryDirectory() as folder:
            train_token_logprob_model(
                worked,
                told,
                load_words(backbone, generated.vocabulary),
                share=1.0,
                end_of_move=generated.end_of_move,
                backbone=backbone,
                folder=Path(folder),
                report=lambda epoch: None,
            )

    def head() -> None:
        with tempfile.TemporaryDirectory() as folder:
            train_head(
                solutions,
                of_head,
                domain_by_name("math"),
                _unread,
                share=1.0,
                backbone="",
                folder=Path(folder),
                report=lambda epoch: None,
            )

    ranked = [
        _rate(lambda: train_policy(MappedLists(lists), settings, report=lambda epoch: None))
        for _ in range(repeats)
    ]
    valued = [_rate(head) for _ in range(repeats)]
    whole = [len(worked) / _seconds(tuned) for _ in range(repeats)]
    return [
        Row(f"a ranker, {STATES:,} lists of {MOVES}", median(ranked), "candidates a second", None),
        Row(
            f"a reward model's head, {STATES:,} solutions of {MOVES} steps",
            median(valued),
            "steps a second",
            None,
        ),
        Row(
            f"a reward model with its backbone, {len(worked):,} solutions, all epochs of all folds",
            median(whole),
            "solutions a second",
            None,
        ),
    ]


def logs(repeats: int) -> list[Row]:
    """A hundred thousand events: written, read by DuckDB and by our reader."""
    domain = ToyDomain()
    problems = {f"p{place}": toy_problem(3, f"p{place}") for place in range(SEARCHES)}
    events = {name: tuple(_events(domain, problem)) for name, problem in problems.items()}
    count = SEARCHES * ROUNDS
    written, asked, read = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.parquet")
        for _ in range(repeats):
            began = time.perf_counter()
            write_events(path, events)
            written.append(count / (time.perf_counter() - began))
            began = time.perf_counter()
            duckdb.sql(QUERY.format(path=path)).fetchall()
            asked.append(1e3 * (time.perf_counter() - began))
            began = time.perf_counter()
            read_events(path, domain, problems=problems)
            read.append(count / (time.perf_counter() - began))
        size = path.stat().st_size / count
    return [
        Row(f"{count:,} events written", median(written), "events a second", None),
        Row("an event takes", size, "bytes", None),
        Row("calls by kind of event, by DuckDB", median(asked), "ms", None),
        Row("read back as searches", median(read), "events a second", None),
    ]


def _rate(train: Callable[[], object]) -> float:
    """Moves a second and epoch."""
    return EPOCHS * STATES * MOVES / _seconds(train)


def _seconds(train: Callable[[], object]) -> float:
    began = time.perf_counter()
    train()
    return time.perf_counter() - began


def _worked(domain: GeneratedDomain, count: int) -> Iterator[ValuedSolution]:
    """Written solutions of drawn problems: each step is right."""
    rng = random.Random(7)
    for place in range(count):
        name = f"p{place}"
        problem, truth = domain.generate(rng, problem_id=name, minimum=4, maximum=8, hard=0.5)
        moves = tuple(move.text for move in domain.solution(problem, truth, rng, misread=0.0))
        yield ValuedSolution(name, problem.text, moves, (1.0,) * len(moves), 1, 1.0)


def _solution(item: LabelledList) -> ValuedSolution:
    """The same moves as steps of one solution, embedded when they were sampled."""
    read = StepRead(item.rows.after, item.rows.move, item.rows.move[:, :SEEN])
    values = tuple(map(float, item.labels))
    return ValuedSolution(
        item.problem_id, "", ("",) * MOVES, values, 1, 0.5, embedded=packed(read._asdict())
    )


def _unread(items: Sequence[RankItem]) -> list[Embeddings]:
    raise AssertionError(f"{len(items)} moves to read, expected all to be embedded")


def _lists(states: int) -> Iterator[LabelledList]:
    generator = torch.Generator().manual_seed(7)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    for index in range(states):
        state, move = drawn(1, WIDTH).expand(MOVES, WIDTH), drawn(MOVES, WIDTH)
        rows = Embeddings(state, move, state + move, state, drawn(MOVES, 2), torch.zeros(MOVES))
        labels = tuple((move[:, 0] > 0).tolist())
        first = labels.index(True) if any(labels) else None
        remaining = None if first is None else 1 + index % 4
        yield LabelledList(f"p{index}", rows, labels, first, remaining)


def _events(domain: ToyDomain, problem: object) -> list[Event]:
    state = domain.initial_state(problem, budget=64)  # type: ignore[arg-type]
    rng = random.Random(problem.problem_id)  # type: ignore[attr-defined]
    found = []
    for place in range(ROUNDS):
        texts = [f"add {rng.randint(1, 999)} ;" for _ in range(MOVES)]
        scores = [round(rng.random(), 6) for _ in texts]
        spent = Ledger(verifier_calls=1, generated_moves=MOVES, generated_tokens=rng.randint(9, 99))
        found.append(Event(place, "rank", state, spent, (("moves", texts), ("scores", scores))))
    return found
