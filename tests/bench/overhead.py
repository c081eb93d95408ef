"""What a ranker's plan and the proxy take beside the models: neither calls one."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2
from rows import Row, median

sys.path.append(str(Path(__file__).parents[1]))

import test_ranker
import test_serving
import test_solving

from selverify.ranker import DEFAULT_ENCODER, CandidateList, Ranker
from selverify.solving import Solver, SolveSettings

BATCH, BATCHES = 64, 10
REQUESTS = 60


def plans(repeats: int) -> list[Row]:
    """Milliseconds a state, on one thread, with the default encoder."""
    import torch

    torch.set_num_threads(1)
    ranker = Ranker.train(test_ranker.sums(1), encoder=DEFAULT_ENCODER)
    states = [test_ranker.asked(one) for one in test_ranker.sums(2)]
    states = (states * (BATCH * BATCHES // len(states) + 1))[: BATCH * BATCHES]
    ranker.plan_many(states[:BATCH])
    times = []
    for _ in range(repeats):
        began = time.process_time()
        for start in range(0, len(states), BATCH):
            ranker.plan_many(states[start : start + BATCH])
        times.append(time.process_time() - began)
    return [
        Row(f"a state of {test_ranker.MOVES} candidates, {BATCH} at once", *_each(times, states)),
        Row(
            "a candidate",
            1e3 * median(times) / sum(len(one.candidates) for one in states),
            "ms",
            None,
        ),
    ]


def _each(times: Sequence[float], states: Sequence[CandidateList]) -> tuple[float, str, None]:
    return 1e3 * median(times) / len(states), "ms", None


def served(repeats: int) -> list[Row]:
    """Milliseconds a request, through the proxy and by a call of the solver."""
    settings = SolveSettings(concurrency=4)
    solver = Solver(generator=test_solving.generate, verifier=test_solving.score, settings=settings)
    body = {"model": "sums", "messages": [{"role": "user", "content": test_solving.QUESTIONS[0]}]}
    through, direct = [], []
    with test_serving.served() as address, httpx2.Client(base_url=address) as client:
        for _ in range(repeats):
            began = time.perf_counter()
            for _ in range(REQUESTS):
                client.post("/chat/completions", json=body).raise_for_status()
            through.append(1e3 * (time.perf_counter() - began) / REQUESTS)
            began = time.perf_counter()
            for _ in range(REQUESTS):
                solver.solve_many(test_solving.QUESTIONS[:1])
            direct.append(1e3 * (time.perf_counter() - began) / REQUESTS)
    beside = [one - other for one, other in zip(through, direct, strict=True)]
    return [
        Row("a search of functions, called", median(direct), "ms", 1.0),
        Row("the same through the proxy", median(through), "ms", median(through) / median(direct)),
        Row("what the proxy adds", median(beside), "ms", None),
    ]
