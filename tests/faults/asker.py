"""Searches over a paid server behind a reply cache, in processes that a test can kill.

``python asker.py URL`` imports once; for each line "CACHE RESULT" on stdin it forks a process that
solves the problems with the replies in CACHE and writes its outcomes to RESULT, and says its id.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import stand_in

from selverify.domains.math_steps import MathSteps
from selverify.models.generators.client import Client
from selverify.models.generators.served import ServedModel
from selverify.models.prompting import Prompt
from selverify.models.reply_cache import CachedBackend
from selverify.models.verifiers.judge import Judge, load_rubric
from selverify.params import Sampling, Server
from selverify.search.backend import ComposedBackend
from selverify.search.beam import beam_search
from selverify.search.driver import Search, run_lockstep

DOMAIN = MathSteps()
QUESTIONS = ("What is 2+3+4?", "What is 7+1+9?", "What is 5+5+6?")
SAMPLING = Sampling(
    temperature=1.0, max_move_tokens=32, max_solution_tokens=96, max_moves=6, batch_rows=1
)


def server(url: str) -> Server:
    """As a project would name it."""
    told = {"url": url, "model": "stand-in", "key_variable": None, "concurrency": 3}
    return Server.model_validate({**told, "timeout_seconds": 20.0, "max_retries": 4})


def solve(url: str, cache: Path, result: Path) -> None:
    """One search after the other, so that there are many batches."""
    client = Client(server(url))
    writer = ServedModel(
        client,
        end_of_move=DOMAIN.end_of_move,
        prompting=lambda state: Prompt((), DOMAIN.serialise(state) + DOMAIN.end_of_move),
        prompting_id="text",
        sampling=SAMPLING,
        seed=7,
        api="completions",
    )
    judge = Judge(client, model="stand-in", rubric=load_rubric(), max_tokens=50, schema=False)
    backend = CachedBackend(ComposedBackend(writer, ranker=None, verifier=judge), cache)
    found = []
    for number, question in enumerate(QUESTIONS):
        problem = DOMAIN.read(question, problem_id=f"p{number}")
        search = beam_search(
            DOMAIN,
            problem,
            n=6,
            variant="keep_b",
            width=2,
            expansion=2,
            gates=True,
            max_moves=5,
        )
        done = run_lockstep({number: Search(search, None)}, backend, end_of_move=DOMAIN.end_of_move)
        outcome, ledger = done[number].outcome, done[number].ledger
        found.append([repr(outcome), dataclasses.asdict(ledger)])
    backend.close()
    result.write_text(json.dumps(found), encoding="utf-8")


def main(url: str) -> None:
    """See the module's text."""
    for line in sys.stdin:
        cache, result = line.split()
        child = os.fork()
        if child == 0:
            solve(url, Path(cache), Path(result))
            os._exit(0)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    assert stand_in.WIDTH  # what the server is made of stands beside this file
    main(sys.argv[1])
