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
from selverify.models.generators.causal import CausalModel
from selverify.models.generators.hidden_states import HiddenStates
from selverify.models.generators.prefixes import Prefixes
from selverify.models.generators.pretrained import Pretrained, load_pretrained
from selverify.models.prompting import Prompting, load_prompt
from selverify.models.verifiers.head import HeadVerifier, StepHead
from selverify.models.verifiers.reward import SEEN
from selverify.params import Precision, Sampling
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.types import Move, Sample, State

T = TypeVar("T")
SHAPES = {
    "1b": {
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
}
SEED = 3


def main() -> None:
    """Measure and print."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--device", required=True)
    read.add_argument("--dtype", required=True, choices=get_args(Precision))
    read.add_argument("--problems", type=int, required=True)
    read.add_argument("--samples", type=int, required=True)
    read.add_argument("--tokens", type=int, required=True)
    given = read.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        save_random(Path(folder), given.dtype)
        loaded = load_pretrained(folder, revision=None, dtype=given.dtype, device=given.device)
    measure(loaded, given)


def save_random(folder: Path, dtype: str) -> None:
    torch.manual_seed(SEED)
    torch.set_default_dtype(getattr(torch, dtype))
    LlamaForCausalLM(LlamaConfig(**SHAPES["1b"])).save_pretrained(folder)
    torch.set_default_dtype(torch.float32)
    tokenizer_of_bytes().save_pretrained(folder)


def measure(pretrained: Pretrained, given: argparse.Namespace) -> None:
    domain, prompt = MathSteps(), load_prompt("math_steps")
    prompting = Prompting(prompt, end_of_move=domain.end_of_move)
    positions = SHAPES["1b"]["max_position_embeddings"]
    prefixes = Prefixes(pretrained.model, capacity=400_000, positions=positions)
    sampling = Sampling(
        temperature=0.8,
        max_move_tokens=given.tokens,
        max_solution_tokens=given.tokens,
        max_moves=8,
        batch_rows=given.problems * given.samples,
    )
    model = CausalModel(
        pretrained,
        prefixes,
        end_of_move=domain.end_of_move,
        prompting=prompting,
        prompting_id=prompt.identity,
        sampling=sampling,
        seed=SEED,
    )
    states = [
        start(domain, f"{number}: {prompt.examples[0].question}")
        for number in range(given.problems)
    ]
    items = [ProposeItem(state, 0, given.samples) for state in states]
    first, _ = timed("first round, with the prompts", lambda: model.propose(items), tokens_of)
    second, samples = timed(
        "second round, prompts kept",
        lambda: model.propose([ProposeItem(s, given.samples, given.samples) for s in states]),
        tokens_of,
    )
    print(f"the kept prompts make it {first / second:.2f} times as fast")
    embed = HiddenStates(
        pretrained,
        prefixes,
        prompting=prompting,
        end_of_move=domain.end_of_move,
    ).embed
    head = StepHead(SHAPES["1b"]["hidden_size"], SEEN, 64).eval()
    verifier = HeadVerifier(embed, head, identity="random")
    steps = [
        VerifyItem(state, (move,))
        for state, some in zip(states, samples, strict=True)
        for move in moves_of(domain, some)
    ]
    timed("verifier calls", lambda: verifier.verify(steps), len)
    print(f"memory: {memory(given.device):.1f} GiB")


def start(domain: MathSteps, text: str) -> State:
    return domain.initial_state(domain.read(text, problem_id=text[:8]), budget=1)


def moves_of(domain: MathSteps, samples: tuple[Sample, ...]) -> list[Move]:
    read = [domain.parse(sample.text) for sample in samples]
    return [move for move in read if isinstance(move, Move)]


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
