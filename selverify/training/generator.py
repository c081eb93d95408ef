"""Training of a backbone from scratch on freshly generated problems.

Knows: the curriculum, the loss (on the solution only), the optimiser. Does not know: which problems
are test problems; those are refused by fingerprint.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention

from selverify.domains.base import GeneratedDomain
from selverify.errors import ParamsError
from selverify.models.tokenizer import Words
from selverify.params import Benchmark, Generator, Shape
from selverify.storage import write_digests
from selverify.training.fit import Update, descend
from selverify.training.language import Encoded, encode, language_loss, length, like_lengths, pad
from selverify.training.reproducible import reproducible
from selverify.types import Problem, Truth

_POOL_BATCHES = 16
_DRAWS = 10_000
_QUERY_KEY_GAIN = 0.7
_VALUE_OUTPUT_GAIN = 0.4
_RECALL_SHARE = 0.67
_MOVE_SHARE = 0.3
_DRILLS_END = 2.5
_LOCAL_PLANES = 4
_LOCAL_GAIN = 6.0
_LOCAL_CONTENT = 0.2


def build_backbone(shape: Shape, words: Words) -> LlamaForCausalLM:
    """A randomly initialised Llama of ``shape`` with tied embeddings."""
    config = LlamaConfig(
        vocab_size=len(words.words),
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.max_positions,
        tie_word_embeddings=True,
        bos_token_id=words.bos,
        eos_token_id=words.eos,
        pad_token_id=words.pad,
        attention_bias=True,  # without it no head can attend to the previous word by position alone
        attn_implementation="eager",  # faster than the fused kernel at 80 words on a CPU
    )
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        _start_mimetic(layer.self_attn)
    _start_local(model.model.layers[0].self_attn, model.model.rotary_emb.inv_freq, shape.heads)
    return model


@reproducible()
def train_generator(
    domain: GeneratedDomain,
    benchmark: Benchmark,
    settings: Generator,
    *,
    forbidden: Collection[str],
    folder: Path,
    report: Callable[[int, float], None],
) -> dict[str, float]:
    """Train and write config, weights and tokenizer to ``folder``; returns the last loss.

    Files that are in ``folder`` before belong to the checkpoint, and get a digest, too.

    Args:
        forbidden: fingerprints (the benchmark's); problems that have one are drawn again.
        report: called after every 100 steps with the step and the smoothed loss in nats a word.

    Raises:
        ParamsError: the domain has no other problems of these sizes.
    """
    torch.manual_seed(settings.seed)
    words = Words(domain.vocabulary)
    model = build_backbone(settings.shape, words)
    examples = _batches(domain, benchmark, settings, words, forbidden)
    update = _update(model, settings)
    smoothed, tokens = 0.0, 0
    for step, rows in enumerate(islice(examples, settings.stop), start=1):
        batch, lengths = pad(rows, words)
        loss = language_loss(model, batch, lengths, words, bfloat16=settings.bfloat16)
        trained = descend(model, loss, update)
        tokens += batch.numel()
        smoothed = trained if step == 1 else 0.98 * smoothed + 0.02 * trained
        if step % 100 == 0:
            report(step, smoothed)
    model.save_pretrained(folder)
    words.save(folder)
    write_digests(folder)
    return {"generator_loss": smoothed, "generator_tokens": float(tokens)}


@torch.no_grad()
def _start_mimetic(attention: LlamaAttention) -> None:
    """Start a layer where words attend to equal words and copy them.

    W_Q^T W_K and W_O W_V start as multiples of the identity (Trockman and Kolter 2023), which
    brings look-up within reach of a short training.
    """
    width = attention.q_proj.weight.shape[1]
    like, copied = (torch.linalg.qr(torch.randn(width, width))[0] for _ in range(2))
    attention.q_proj.weight.copy_(_QUERY_KEY_GAIN * like)
    attention.k_proj.weight.copy_(_QUERY_KEY_GAIN * like)
    attention.v_proj.weight.copy_(_VALUE_OUTPUT_GAIN * copied)
    attention.o_proj.weight.copy_(_VALUE_OUTPUT_GAIN * copied.T)


@torch.no_grad()
def _start_local(attention: LlamaAttention, frequencies: Tensor, heads: int) -> None:
    """Start the first layer's heads at the words 1, 2, 3, ... back, by position alone.

    A query bias that lags its key bias by that many words, in the planes that rotate fastest, makes
    the rotated product largest there. Looking up the words beside a name needs the previous word;
    the path to it is learned late from a start without one (Olsson et al. 2022 on induction).
    """
    half = len(frequencies)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight.mul_(_LOCAL_CONTENT)
    for head in range(heads):
        lag = frequencies[:_LOCAL_PLANES] * (head + 1)
        start = 2 * half * head
        attention.k_proj.bias[start : start + _LOCAL_PLANES] = _LOCAL_GAIN
        attention.q_proj.bias[start : start + _LOCAL_PLANES] = _LOCAL_GAIN * lag.cos()
        after = start + half
        attention.q_proj.bias[after : after + _LOCAL_PLANES] = -_LOCAL_GAIN * lag.sin()


def _update(model: LlamaForCausalLM, settings: Generator) -> Update:
    """Muon for the matrices of the blocks (Jordan et al. 2024), AdamW for everything else."""
    named = list(model.named_parameters())
    matrices = [weight for name, weight in named if weight.ndim == 2 and ".layers." in name]
    others = [weight for name, weight in named if weight.ndim != 2 or ".layers." not in name]
    optimisers = (
        torch.optim.Muon(matrices, lr=settings.matrix_rate, weight_decay=0.01),
        torch.optim.AdamW(others, lr=settings.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
    )
    factor = partial(_schedule, settings=settings)
    schedules = [torch.optim.lr_scheduler.LambdaLR(one, factor) for one in optimisers]

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser, schedule in zip(optimisers, schedules, strict=True):
            optimiser.step()
            schedule.step()

    return update


def _schedule(step: int, settings: Generator) -> float:
    """Linear warm-up, constant, linear decay to 2 % over the last ``decay_fraction``."""
    warm = min(1.0, (step + 1) / max(1, settings.warmup_steps))
    left = (settings.steps - step) / (settings.steps * max(settings.decay_fraction, 1e-9))
    return warm * max(0.02, min(1.0, left))


def _drill(
    domain: GeneratedDomain, rng: random.Random, progress: float, settings: Generator
) -> tuple[str, str] | None:
    """Recall drills for _RECALL_SHARE of the first examples, fading; then drills of moves.

    Recall first: once arithmetic was learned, recall did not come for a long time. Recall drills
    end at ``drill_fraction`` of the training and those of moves at _DRILLS_END times that.
    """
    if progress >= _DRILLS_END * settings.drill_fraction:
        return None
    picked = rng.random()
    if progress >= settings.drill_fraction:
        return domain.drill(rng, recall=False) if picked < _MOVE_SHARE else None
    share = _RECALL_SHARE * (1.0 - progress / settings.drill_fraction)
    return domain.drill(rng, recall=True) if picked < share else None


def _sizes(fraction: float, benchmark: Benchmark, curriculum: float) -> tuple[int, int]:
    """Sizes of problems at this fraction of the training: from the smallest to the benchmark's."""
    grown = 1.0 if curriculum == 0 else min(1.0, fraction / curriculum)
    start = min(3, benchmark.minimum)
    high = start + int(grown * (benchmark.maximum - start))
    low = min(start, 2) if grown < 0.5 else start
    return max(low, 2), max(high, low)


def _batches(
    domain: GeneratedDomain,
    benchmark: Benchmark,
    settings: Generator,
    words: Words,
    forbidden: Collection[str],
) -> Iterator[list[Encoded]]:
    """Batches of about ``tokens_per_batch`` words; rows of a batch have like lengths."""
    rng = random.Random(settings.seed)
    step = 0
    while True:
        progress = step / settings.steps
        sizes = _sizes(progress, benchmark, settings.curriculum_fraction)
        examples: list[Encoded] = []
        size, wanted = 0, _POOL_BATCHES * settings.tokens_per_batch
        while size < wanted:
            example = _drill(domain, rng, progress, settings)
            if example is None:
                problem, truth = _problem(domain, rng, sizes, benchmark.hard, forbidden)
                moves = domain.solution(problem, truth, rng, misread=settings.misread)
                example = problem.text, " ".join(move.text for move in moves)
            text, solution = example
            question, answer = encode(text, [solution], words)
            examples.append((question, [*answer, words.eos]))
            size += length(examples[-1])
        yield from (batches := like_lengths(examples, settings.tokens_per_batch, rng))
        step += len(batches)


def _problem(
    domain: GeneratedDomain,
    rng: random.Random,
    sizes: tuple[int, int],
    hard: float,
    forbidden: Collection[str],
) -> tuple[Problem, Truth]:
    """A problem that is not held out."""
    low, high = sizes
    for _ in range(_DRAWS):
        drawn = domain.generate(rng, problem_id="", minimum=low, maximum=high, hard=hard)
        if domain.fingerprint(drawn[0]) not in forbidden:
            return drawn
    raise ParamsError(
        f"benchmark.{domain.name}: its splits hold all of {_DRAWS} problems drawn for the "
        "generator, expected fewer problems in them"
    )
