"""A model on an accelerator: samples, step scores, and what the machine could do at most.

Random weights in the shape of Llama 3.2 1B in bfloat16, a token a byte, under the first example of
the few-shot prompt of ``math_steps`` and its question with a number in front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch
from hub import generated, in_one_batch, products, state_of
from random_llama import SEED, SHAPE, save_random, tokens_of, writer
from rows import Row, compared, median, median_rates, rate
from transformers import LlamaForCausalLM

from selverify.domains.math_steps import MathSteps
from selverify.models.generators.causal import CausalModel
from selverify.models.generators.pretrained import HubModel, load_hub_model
from selverify.models.prompting import Prompting, load_prompt
from selverify.models.verifiers.head import HeadVerifier, StepHead
from selverify.models.verifiers.opening import Surroundings
from selverify.models.verifiers.reward import SEEN
from selverify.models.verifiers.step_token import open_step_token
from selverify.models.verifiers.value_head import open_value_head
from selverify.params import PretrainedVerifier, Server
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.types import Move, Verdict

PROMPTS, TOKENS = 64, 64
FEW, MANY = 4, 16
"""Samples of a prompt: 256 and 1,024 rows."""
PROMPTS_AT_ONCE = 16
"""In a batch of ``generate``, which copies each prompt for each of its ``MANY`` rows."""
PROMPTS_ALONE = 4
"""Whose samples are timed where prompts go one at a time."""
SIBLINGS, STEPS_ALONE = 16, 32
STEP = "The sum is {} + 1 = {}."
COPIED = 2**30
NUMBER_BYTES = 2
DTYPE = torch.bfloat16
DOMAIN = MathSteps()


class Verifies(Protocol):
    """What scores steps."""

    def verify(self, items: list[VerifyItem]) -> tuple[Verdict, ...]:
        """A verdict an item."""
        ...


def measure(device: str, repeats: int) -> list[Row]:
    """Tokens a second each way and at most; step scores a second of three kinds of verifier."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        save_random(Path(folder), DTYPE)
        loaded = load_hub_model(folder, revision=None, dtype="bfloat16", device=device)
        model = LlamaForCausalLM.from_pretrained(folder, dtype=DTYPE).to(device)
        plain = replace(loaded, model=model.eval())
        return [*_sampled(plain, loaded, repeats), *_scored(loaded, Path(folder), device, repeats)]


def _sampled(plain: HubModel, pretrained: HubModel, repeats: int) -> list[Row]:
    """``plain`` is the model as transformers runs it."""
    prompt = load_prompt("math_steps")
    prompt = prompt.model_copy(update={"examples": prompt.examples[:1]})
    states = [state_of(f"{n}: {prompt.examples[0].question}") for n in range(PROMPTS)]
    prompting = Prompting(prompt, end_of_move=DOMAIN.end_of_move)
    tokens = [pretrained.encode(prompting(state)) for state in states]
    prompts = [torch.tensor([one], device=pretrained.model.device) for one in tokens]
    model = partial(writer, pretrained, prompt, tokens=TOKENS, rows=PROMPTS * MANY)

    def one_by_one() -> int:
        some = prompts[:PROMPTS_ALONE]
        return sum(
            generated(plain, one, torch.ones_like(one), samples=MANY, tokens=TOKENS) for one in some
        )

    def in_batches() -> int:
        parts = range(0, PROMPTS, PROMPTS_AT_ONCE)
        batches = [prompts[start : start + PROMPTS_AT_ONCE] for start in parts]
        return sum(in_one_batch(plain, one, samples=MANY, tokens=TOKENS) for one in batches)

    def proposed(model: CausalModel, start: int, samples: int) -> int:
        return tokens_of(model.propose([ProposeItem(state, start, samples) for state in states]))

    ours = model()
    proposed(ours, 0, MANY)  # memory is taken, kernels are chosen
    ways: dict[str, Callable[[], int]] = {
        f"`generate`, one prompt at a time, {MANY} rows": one_by_one,
        f"`generate`, {PROMPTS_AT_ONCE * MANY} rows at once": in_batches,
        f"ours, prompts read, {PROMPTS * MANY:,} rows": lambda: proposed(model(), 0, MANY),
        f"ours, prompts kept, {PROMPTS * FEW} rows": lambda: proposed(ours, MANY, FEW),
        f"ours, prompts kept, {PROMPTS * MANY:,} rows": lambda: proposed(ours, MANY, MANY),
        f"matrix products alone, {PROMPTS * FEW} rows": partial(
            products, pretrained, rows=PROMPTS * FEW, tokens=TOKENS
        ),
        f"matrix products alone, {PROMPTS * MANY:,} rows": partial(
            products, pretrained, rows=PROMPTS * MANY, tokens=TOKENS
        ),
    }
    rates = median_rates(ways, repeats)
    speed = median([_copied(pretrained.model.device) for _ in range(repeats)])
    found, base = compared(rates, "tokens a second"), rates[next(iter(ways))]
    for samples in (FEW, MANY):
        rows = PROMPTS * samples
        limit = rows * speed / _bytes_of_a_step(pretrained, tokens, rows)
        name = f"weights, keys and values read at the rate of a copy, {rows:,} rows"
        found.append(Row(name, limit, "tokens a second", limit / base))
    return [*found, Row("a copy, read and written", speed / 1e9, "GB a second", None)]


def _scored(pretrained: HubModel, folder: Path, device: str, repeats: int) -> list[Row]:
    prompt = load_prompt("math_steps")
    states = [state_of(f"{n}: {prompt.examples[0].question}") for n in range(PROMPTS)]
    said = [DOMAIN.parse(STEP.format(n, n + 1)) for n in range(SIBLINGS)]
    moves = [move for move in said if isinstance(move, Move)]
    steps = [VerifyItem(state, (move,)) for state in states for move in moves]
    torch.manual_seed(SEED)
    head = StepHead(SHAPE["hidden_size"], SEEN, 64).eval()

    def published(kind: str, format: str) -> Verifies:
        source = PretrainedVerifier.model_validate(
            {
                "kind": kind, "format": format, "model": str(folder), "revision": None,
                "dtype": "bfloat16", "batch_tokens": 32_768, "kept_tokens": 100_000,
            }
        )  # fmt: skip
        opened = open_step_token if kind == "step_token" else open_value_head
        return opened(source, Surroundings(DOMAIN, device, _no_server))

    kinds: Mapping[str, Callable[[], Verifies]] = {
        "a head": lambda: HeadVerifier(
            writer(pretrained, prompt, tokens=TOKENS, rows=PROMPTS).embed, head, identity="head"
        ),
        "step tokens": lambda: published("step_token", "rlhflow"),
        "a value head": lambda: published("value_head", "skywork"),
    }
    found = []
    for kind, opened in kinds.items():
        some = [[one] for one in steps[:: len(steps) // STEPS_ALONE]]
        rates = {
            f"{kind}, one at a time": _scores_a_second(opened, some, repeats),
            f"{kind}, siblings together": _scores_a_second(opened, [steps], repeats),
        }
        found += compared(rates, "step scores a second")
    return found


def _scores_a_second(
    opened: Callable[[], Verifies], parts: list[list[VerifyItem]], repeats: int
) -> float:
    """Of a verifier that has read nothing; the first of them is not counted."""
    rates = []
    for _ in range(1 + repeats):
        verify = opened().verify
        rates.append(rate(partial(_counted, verify, parts)))
    return median(rates[1:])


def _counted(verify: Callable[[list[VerifyItem]], tuple[Verdict, ...]], parts: list[Any]) -> int:
    return sum(len(verify(part)) for part in parts)


def _no_server(server: Server) -> Any:
    raise AssertionError(f"{server}: expected none")


def _copied(device: Any) -> float:
    """Bytes a second that a large copy reads and writes."""
    old = torch.randint(0, 255, (COPIED,), dtype=torch.uint8, device=device)
    new = torch.empty_like(old)
    new.copy_(old)
    return rate(lambda: new.copy_(old).numel() and 2 * COPIED)


def _bytes_of_a_step(pretrained: HubModel, prompts: list[tuple[int, ...]], rows: int) -> float:
    """Weights once, keys and values of what prompts share once, of each prompt's rest once, and of
    each row's own tokens, half of them on average."""
    weights = sum(one.numel() for one in pretrained.model.parameters())  # the tied head counts once
    token = 2 * SHAPE["num_hidden_layers"] * SHAPE["num_key_value_heads"] * SHAPE["head_dim"]
    same = [len(set(column)) == 1 for column in zip(*prompts, strict=False)]
    shared = [*same, False].index(False)
    told = shared + sum(len(one) - shared for one in prompts) + rows * TOKENS / 2
    return (weights + told * token) * NUMBER_BYTES
