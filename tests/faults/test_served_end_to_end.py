"""A real server process with a backbone that the pipeline trained: outcomes are those in process.

The server is ``transformers serve``. It takes ``seed`` and a list of stop strings, and answers one
choice whatever ``n`` is.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import proxy
import pytest
import torch
from proxy import Proxy, says, status
from transformers import AutoTokenizer, LlamaForCausalLM

from selverify.domains.word_problems import WordProblems
from selverify.errors import Refusal
from selverify.models.generators.checkpoints import load_backbone
from selverify.models.generators.local import LocalGenerator
from selverify.models.prompting import Prompt
from selverify.models.tokenizer import BOS
from selverify.params import Sampling, Server
from selverify.search.requests import CompleteItem, ProposeItem
from selverify.types import Problem, Sample, State

client = pytest.importorskip("selverify.models.generators.client")
served = pytest.importorskip("selverify.models.generators.served")

pytestmark = pytest.mark.soak

TRAINED = Path(__file__).parents[2] / "models" / "word_problems-small"
DOMAIN = WordProblems()
SAMPLING = Sampling(
    temperature=0.8, max_move_tokens=12, max_solution_tokens=96, max_moves=12, batch_rows=64
)
SEED = 11
START_SECONDS = 180.0
SEARCHED = 3
"""Problems that are searched, one sample after the other; all are solved greedily."""

WATCH = """
import subprocess, sys, threading, time

def end():
    sys.stdin.read()
    server.terminate()
    time.sleep(20.0)
    server.kill()

server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=end, daemon=True).start()
sys.exit(server.wait())
"""
"""Ends a server when the pipe to the tests closes, however they end."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained backbone as it is served: sampling is on unless the temperature is 0."""
    folder = tmp_path_factory.mktemp("served") / "small"
    shutil.copytree(TRAINED, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "do_sample": True}))
    # transformers finds stop strings in a vocabulary with the help of a word of its own.
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"]["abcdef"] = len(tokenizer["model"]["vocab"])
    path.write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="module")
def url(checkpoint: Path) -> Iterator[str]:
    """The server's, while it runs; it ends with the last test here, failed or not."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    log = checkpoint.with_name("server.log")
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(checkpoint)]
    options = ["--host", "127.0.0.1", "--port", port, "--device", "cpu"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(checkpoint.with_name("hub"))}
    with log.open("wb") as told:
        process = subprocess.Popen(
            [sys.executable, "-c", WATCH, *command, *options],
            stdin=subprocess.PIPE,
            stdout=told,
            stderr=told,
            env={**os.environ, **offline, "OMP_NUM_THREADS": "1"},
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.communicate()


def _wait(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(health, timeout=5.0):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"no server after {START_SECONDS} s or it ended:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    rng = random.Random(2024)
    return [DOMAIN.generate(rng, problem_id=f"p{n}", minimum=4, maximum=5)[0] for n in range(6)]


def text(state: State) -> str:
    """A state as the backbone was trained to read it."""
    return f"{BOS} {DOMAIN.serialise(state)}"


def over(url: str, checkpoint: Path, **changed: object) -> Any:
    """The model behind the server, one request at a time: its seed is one of the whole process."""
    server = Server(
        url=url,
        model=str(checkpoint),
        key_variable=None,
        concurrency=1,
        timeout_seconds=60.0,
        max_retries=3,
    )
    return served.ServedModel(
        client.Client(server.model_copy(update=changed)),
        end_of_move=DOMAIN.end_of_move,
        prompting=lambda state: Prompt((), text(state)),
        prompting_id="text",
        sampling=SAMPLING,
        seed=SEED,
        api="completions",
    )


class InProcess:
    """The same model by plain calls of ``generate``, one sample at a time."""

    def __init__(self, checkpoint: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        self._model = LlamaForCausalLM.from_pretrained(checkpoint, dtype="auto").eval()

    def identity(self) -> str:
        return "reference"

    def tokens(self, text: str) -> int:
        """The estimate for servers: four characters a token."""
        return math.ceil(len(text) / 4)

    def propose(self, items: Sequence[ProposeItem]) -> tuple[tuple[Sample, ...], ...]:
        rules = {"max_new_tokens": SAMPLING.max_move_tokens, "stop_strings": [DOMAIN.end_of_move]}
        return tuple(self._samples(item, False, rules) for item in items)

    def complete(self, items: Sequence[CompleteItem]) -> tuple[tuple[Sample, ...], ...]:
        rules = {"max_new_tokens": SAMPLING.max_solution_tokens}
        return tuple(self._samples(item, item.temperature == 0.0, rules) for item in items)

    def _samples(
        self, item: ProposeItem | CompleteItem, greedy: bool, rules: dict[str, Any]
    ) -> tuple[Sample, ...]:
        settings = copy.deepcopy(self._model.generation_config)
        settings.update(**rules, do_sample=not greedy)
        if not greedy:
            settings.temperature = SAMPLING.temperature
        indices = range(item.start, item.start + item.count)
        return tuple(self._sample(item.state, index, settings) for index in indices)

    def _sample(self, state: State, index: int, settings: Any) -> Sample:
        read = self._tokenizer(text(state), return_tensors="pt")
        with torch.random.fork_rng():
            torch.manual_seed(served.sample_seed(SEED, state, index))
            written = self._model.generate(
                **read, generation_config=settings, tokenizer=self._tokenizer
            )
        ids = written[0, read["input_ids"].shape[1] :]
        words = self._tokenizer.decode(ids, skip_special_tokens=True).split()
        # A move that the end of the text ended is closed: of two ways to stop, servers tell one.
        if settings.stop_strings and words[-1:] != [";"] and len(ids) < settings.max_new_tokens:
            words.append(";")
        return Sample(" ".join(words), len(ids), 0.0)


def test_greedy_solutions_are_those_of_the_embedded_backend(url, checkpoint, problems) -> None:
    """Word by word, and token by token."""
    starts = [DOMAIN.initial_state(problem, budget=1) for problem in problems]
    asked = [CompleteItem(start, 0, 1, temperature=0.0) for start in starts]
    backbone = load_backbone(TRAINED, DOMAIN.vocabulary)
    generator = LocalGenerator(DOMAIN, backbone, SAMPLING, seed=SEED, kept_moves=0)
    embedded = generator.complete(asked)
    told = over(url, checkpoint, concurrency=3).complete(asked)
    texts, expected = ([(one.text, one.tokens) for (one,) in some] for some in (told, embedded))
    assert texts == expected
    assert any("answer" in said for said, _ in texts)


@pytest.fixture(scope="module")
def in_process(checkpoint, problems, solve) -> dict[tuple[str, str], Any]:
    """What the searches come to without a server."""
    results = solve(problems[:SEARCHED], InProcess(checkpoint))
    assert {name for (_, name), one in results.items() if one.outcome.answer} == {
        "gated",
        "majority",
        "greedy",
    }
    return results


def test_searches_over_http_end_as_in_process(url, checkpoint, problems, solve, in_process) -> None:
    """Outcomes and costs; the server knows no ``n``, so each sample has a request and a seed."""
    proposer = over(url, checkpoint)
    assert solve(problems[:SEARCHED], proposer) == in_process
    assert proposer._takes.most == 1 and proposer._takes.capped


def test_searches_over_a_faulty_line_end_as_in_process(
    url, checkpoint, problems, solve, in_process
) -> None:
    """The server is real, what is between it and the client fails, and one problem is alone."""
    faults = [status(429), proxy.truncates, None, proxy.drops, None, says(b"<html>"), None, None]

    def forward(path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{url.removesuffix('/v1')}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60.0) as reply:
            return dict(json.load(reply))

    with Proxy(forward, faults * 4) as line:
        results = solve(problems[:1], over(line.url, checkpoint))
    assert results == {key: in_process[key] for key in results}


def test_another_model_is_refused_in_one_sentence(url, checkpoint, problems) -> None:
    """The server is pinned to its own, and says so."""
    item = ProposeItem(DOMAIN.initial_state(problems[0], budget=1), 0, 1)
    with pytest.raises(Refusal, match=r"refused with status 400: .+pinned to"):
        over(url, checkpoint, model="another").propose([item])
