"""``make throughput``: how fast a causal model proposes, and a head on it verifies.

The weights are random and of the shape of Llama 3.2 1B, so nothing is downloaded; the tokenizer is
the tests' own, a token a byte. Prompts are the few-shot prompt of ``math_steps`` and its questions.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, get_args

import torch
from tiny_text_models import tokenizer_of_bytes
from transformers import LlamaConfig, LlamaForCausalLM

from selverify.domains.math_steps import MathSteps
from selverify.models.assembly import EMBEDDED_AT
from selverify.models.generators.causal import CausalModel
from selverify.models.generators.pretrained import HubModel, load_hub_model
from selverify.models.prompting import Prompting, load_prompt
from selverify.models.verifiers.head import HeadVerifier, StepHead
from selverify.models.verifiers.loading import number_type
from selverify.models.verifiers.reward import SEEN
from selverify.params import GeneratorPrecision, Sampling
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.types import Move, Sample

T = TypeVar("T")
SHAPE = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
SEED = 3


def main() -> None:
    """Measure and print."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--device", required=True)
    read.add_argument("--dtype", required=True, choices=get_args(GeneratorPrecision))
    for name in ("--problems", "--samples", "--tokens"):
        read.add_argument(name, type=int, required=True)
    given = read.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        save_random(Path(folder), given.dtype, given.device)
        loaded = load_hub_model(folder, revision=None, dtype=given.dtype, device=given.device)
    measure(loaded, given)


def save_random(folder: Path, dtype: str, device: str) -> None:
    torch.manual_seed(SEED)
    if dtype != "int8":
        torch.set_default_dtype(number_type(dtype, device))
    LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(folder)
    torch.set_default_dtype(torch.float32)
    tokenizer_of_bytes().save_pretrained(folder)


def measure(pretrained: HubModel, given: argparse.Namespace) -> None:
    domain, prompt = MathSteps(), load_prompt("math_steps")
    model = writer(pretrained, tokens=given.tokens, rows=given.problems * given.samples)
    questions = [f"{number}: {prompt.examples[0].question}" for number in range(given.problems)]
    problems = [domain.read(text, problem_id=text[:8]) for text in questions]
    states = [domain.initial_state(problem, budget=1) for problem in problems]

    def propose(start: int) -> tuple[tuple[Sample, ...], ...]:
        return model.propose([ProposeItem(state, start, given.samples) for state in states])

    first, _ = timed("first round, with the prompts", lambda: propose(0), tokens_of)
    second, samples = timed("second round, prompts kept", lambda: propose(given.samples), tokens_of)
    print(f"the kept prompts make it {first / second:.2f} times as fast")
    head = StepHead(SHAPE["hidden_size"], SEEN, 64).eval()
    verifier = HeadVerifier(model.embed, head, identity="random")
    steps = [
        VerifyItem(state, (move,))
        for state, some in zip(states, samples, strict=True)
        for move in (domain.parse(sample.text) for sample in some)
        if isinstance(move, Move)
    ]
    timed("verifier calls", lambda: verifier.verify(steps), len)
    print(f"memory: {memory(given.device):.1f} GiB")


def writer(pretrained: HubModel, *, tokens: int, rows: int) -> CausalModel:
    """Moves of at most ``tokens`` under the few-shot prompt, which is not read yet."""
    domain, prompt = MathSteps(), load_prompt("math_steps")
    return CausalModel(
        pretrained,
        kept_tokens=400_000,
        depth=EMBEDDED_AT,
        domain=domain,
        exact_values=False,
        prompting=Prompting(prompt, end_of_move=domain.end_of_move),
        prompting_id=prompt.identity,
        sampling=Sampling(
            temperature=0.8,
            max_move_tokens=tokens,
            max_solution_tokens=tokens,
            max_moves=8,
            batch_rows=rows,
        ),
        seed=SEED,
        kept_moves=0,
    )


def tokens_of(replies: tuple[tuple[Sample, ...], ...]) -> int:
    return sum(sample.tokens for samples in replies for sample in samples)


def timed(name: str, work: Callable[[], T], count: Callable[[T], int]) -> tuple[float, T]:
    """Seconds and what came of it; prints how many a second."""
    began = time.perf_counter()
    found = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    print(f"{name}: {count(found)} in {seconds:.2f} s, {count(found) / seconds:.1f} a second")
    return seconds, found


def memory(device: str) -> float:
    """The most that was used, in GiB: of the device, or of the process."""
    if device.startswith("cuda"):
        return float(torch.cuda.max_memory_allocated() / 2**30)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
