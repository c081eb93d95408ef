"""Rows that share what they continue, against the whole text read anew."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from tiny_text_models import build, tokenizer_of_bytes
from torch import Tensor
from transformers import (
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
)

from selverify.errors import ParamsError
from selverify.models.generators import (
    decoding,
    flash_attention,
    shared_attention,
    shared_prefix,
)
from selverify.models.generators.decoding import Decoding, Words, draw
from selverify.models.generators.prefix_cache import SPLIT, KeptPrefixes, Pieces
from selverify.models.generators.pretrained import HubModel, load_hub_model
from selverify.models.generators.shared_attention import NONE
from selverify.models.generators.shared_prefix import SharedPrefixes

WORDS = 261
EXAMPLES = tuple(range(10, 40))


@pytest.fixture(
    scope="module", params=["llama", "mistral", pytest.param("qwen2", marks=pytest.mark.soak)]
)
def pretrained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> HubModel:
    folder = build(tmp_path_factory.mktemp(request.param), request.param)
    return load_hub_model(str(folder), revision=None, dtype="float32", device="cpu")


@torch.inference_mode()
def logits_of(pretrained: HubModel, tokens: Sequence[int]) -> Tensor:
    found: Tensor = pretrained.model(torch.tensor([tokens])).logits[0]
    return found


def near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def _noted(out: list[Tensor], _: object, __: object, given: Tensor) -> None:
    out.append(given)


@pytest.mark.parametrize(("depth", "layer"), [(0.1, 1), (0.5, 1), (2 / 3, 1), (0.9, 2)])
def test_hidden_states_are_those_after_a_share_of_the_layers(
    pretrained: HubModel, depth: float, layer: int
) -> None:
    """Of both layers the nearest, brought to one size; of a prompt and of a row after it."""
    prefixes = SharedPrefixes(pretrained, capacity=100, depth=depth)
    past = prefixes.read([EXAMPLES])
    for text in (EXAMPLES, (*EXAMPLES, 7)):
        if text != EXAMPLES:
            prefixes.step(past, torch.tensor([7]))
        with torch.inference_mode():
            out: list[Tensor] = []
            at = pretrained.model.base_model.layers[layer - 1]
            hook = at.register_forward_hook(partial(_noted, out))
            pretrained.model(torch.tensor([text]))
            hook.remove()
        expected = out[0][0, -1]
        near(past.hidden[0], expected / expected.square().mean().sqrt())


WAYS = ["packed", "fixed", "kernel"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How rows lie: as on a processor; at slots of their own, as on an accelerator; so that its
    kernel reads what they share."""
    if request.param == "kernel":
        monkeypatch.setattr(flash_attention, "fits", lambda _: True)
        monkeypatch.setattr(flash_attention, "flash", slow_flash)
    return str(request.param)


FAST = [(60, 7), (10_000, 4096)]
"""What is kept and what is read at once, where rows do not lie as on a processor."""
LAID_OUT = [
    pytest.param(
        way,
        *sizes,
        marks=[] if way == "packed" or sizes in FAST else pytest.mark.soak,
    )
    for way in WAYS
    for sizes in product([1, 60, 10_000], [7, 4096])
]


@pytest.mark.parametrize(("way", "capacity", "at_once"), LAID_OUT, indirect=["way"])
def test_prompts_of_all_lengths_and_rows_after_them_are_read_as_whole_texts(
    pretrained: HubModel, monkeypatch: pytest.MonkeyPatch, capacity: int, at_once: int, way: str
) -> None:
    """With examples that all share, without; what is kept, what is not; in parts; rows dropped."""
    monkeypatch.setattr(shared_prefix, "READ_AT_ONCE", at_once)
    monkeypatch.setattr(shared_prefix, "READ_AT_LEAST", 1)
    monkeypatch.setattr(shared_attention, "ROOM", 2)
    prefixes = SharedPrefixes(pretrained, capacity=capacity, depth=1.0, fixed=way != "packed")
    rng = random.Random(5)
    prompts = [(*EXAMPLES, *(rng.randrange(WORDS) for _ in range(size))) for size in (1, 9, 4)]
    for some in (prompts, [(3, 4), *prompts], [(*one, 8, 9) for one in prompts], prompts[:1]):
        past = prefixes.read(some)
        for row, prompt in enumerate(some):
            near(past.logits[row], logits_of(pretrained, prompt)[-1])
    past = prefixes.read(prompts)
    prefixes.expect(past, rows=len(prompts) * WIDEST, width=WIDEST)
    past.take(torch.arange(len(prompts))[:, None].expand(-1, 2))
    rows = [prompt for prompt in prompts for _ in range(2)]
    turns = torch.arange(len(rows))
    found: dict[tuple[int, ...], Tensor] = {}
    for step in range(20):
        tokens = [rng.randrange(WORDS) for _ in rows]
        prefixes.step(past, torch.tensor(tokens)[turns])
        rows = [(*row, token) for row, token in zip(rows, tokens, strict=True)]
        found.update(zip([rows[at] for at in turns], past.logits, strict=True))
        if step in TAKEN:
            grid, kept = TAKEN[step]
            turns = past.take(torch.tensor(grid)).argsort().argsort()
            rows = [rows[at] for at in kept]
    known: dict[tuple[int, ...], Tensor] = {}
    for text in sorted(found, key=len, reverse=True):
        if text not in known:
            whole = logits_of(pretrained, text)
            known.update({text[: size + 1]: logits for size, logits in enumerate(whole)})
        near(found[text], known[text])


def test_one_row_after_one_prompt(pretrained: HubModel, way: str) -> None:
    """Whose keys and values nothing else shares."""
    prefixes = SharedPrefixes(pretrained, capacity=100, depth=1.0, fixed=way != "packed")
    text = (*EXAMPLES, 7)
    past = prefixes.read([text])
    prefixes.expect(past, rows=1, width=1)
    for token in (3, 1, 4):
        past.take(torch.tensor([[0]]))
        prefixes.step(past, torch.tensor([token]))
        text = (*text, token)
        near(past.logits[0], logits_of(pretrained, text)[-1])


def slow_flash(
    asked: Tensor, keys: Tensor, values: Tensor, texts: flash_attention.Texts
) -> tuple[Tensor, Tensor]:
    """What the kernel computes, a text and a head at a time."""
    found, sums = torch.full_like(asked, torch.nan), asked.new_full(asked.shape[1::-1], torch.nan)
    queries, begins = texts.queries.tolist(), texts.keys.tolist()
    several = asked.shape[1] // keys.shape[1]
    for text, (start, stop) in enumerate(pairwise(queries)):
        first, last = begins[text : text + 2]
        last = last if texts.used is None else first + int(texts.used[text])
        for head in range(asked.shape[1]):
            own = slice(first, last), head // several
            scores = asked[start:stop, head] @ keys[own].T
            found[start:stop, head] = scores.softmax(-1) @ values[own]
            sums[head, start:stop] = scores.logsumexp(-1)
    return found, sums


WIDEST = 3
TAKEN = {
    0: ([[0, 0, 1], [2, 3, 3], [4, 5, 4]], [0, 0, 1, 2, 3, 3, 4, 5, 4]),  # more than before
    2: ([[2, 0], [7, 8]], [2, 0, 7, 8]),
    7: ([[0, 1], [NONE, 3]], [0, 1, 3]),  # the grid stays, without one of its rows
    10: ([[1, 1], [3, NONE]], [1, 1, 2]),  # two rows continue one
    12: ([[NONE, 1], [NONE, 2]], [1, 2]),
    14: ([[1, NONE, 1], [3, NONE, NONE]], [0, 0, 1]),  # a wider grid
    17: ([[3]], [2]),
}
"""After which step which places of the grid are continued, and which of the rows these are."""


def test_moves_that_are_read_after_prompts(pretrained: HubModel) -> None:
    prefixes = SharedPrefixes(pretrained, capacity=100, depth=1.0)
    prompts = [(*EXAMPLES, 5), (*EXAMPLES, 6, 7)]
    past = prefixes.read(prompts)
    past.take(torch.arange(len(prompts))[:, None].expand(-1, 2))
    moves = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]])
    logits, _ = prefixes.extend(past, moves)
    for row, move in enumerate(moves.tolist()):
        near(logits[row], logits_of(pretrained, (*prompts[row // 2], *move))[-3:])


def test_a_longer_prefix_holds_the_pieces_of_the_one_before_and_is_counted_once() -> None:
    kept = KeptPrefixes(10)
    first, second = torch.zeros((1, 2, 1, 6, 4)), torch.zeros((1, 2, 1, 3, 4))
    kept.add((1,) * 6, lambda: (first,))
    kept.add((1,) * 9, lambda: (first, second))
    assert kept.longest((1,) * 12, most=11) == (first, second)
    assert kept.longest((1,) * 8, most=7) == (first,)
    third = torch.zeros((1, 2, 1, 2, 4))
    kept.add((2, 2), lambda: (third,))  # one token too many: the oldest entry goes, not its piece
    kept.add((2, 2), lambda: pytest.fail("it is kept"))
    assert kept.longest((2, 2), most=2) == (third,)
    kept.add((3,) * 10, lambda: (torch.zeros((1, 2, 1, 10, 4)),))
    assert kept.longest((1,) * 12, most=12) == kept.longest((2, 2), most=2) == ()


def test_a_prefix_is_kept_while_a_longer_one_that_continues_it_is() -> None:
    """Ten places: of a question, its continuation and another question, the continuation goes."""
    kept = KeptPrefixes(10)
    question, more, other = (torch.zeros((1, 2, 1, size, 4)) for size in (4, 3, 4))
    kept.add((1,) * 4, lambda: (question,))
    kept.add((1,) * 7, lambda: (question, more))
    kept.add((2,) * 4, lambda: (other,))
    assert kept.size == 8
    assert kept.longest((1,) * 9, most=9) == (question,)
    assert kept.longest((2,) * 9, most=9) == (other,)
    kept.add((3,) * 6, lambda: (torch.zeros((1, 2, 1, 6, 4)),))
    assert kept.longest((1,) * 9, most=9) == (), "it was used longest ago"
    assert kept.longest((2,) * 9, most=9) == (other,)


def test_a_common_beginning_of_prefixes_is_a_part_of_one_of_them() -> None:
    """Of two states of a question of 20 tokens, the second is read from the question's end."""
    kept = KeptPrefixes(100)
    question, first = (1,) * 20, torch.rand((1, 2, 1, 23, 4))
    kept.add((*question, 2, 3, 4), lambda: (first,))
    known = kept.longest((*question, 5, 6), most=21)
    assert len(known) == 1 and torch.equal(known[0], first[..., :20, :]) and kept.size == 23
    second = torch.rand((1, 2, 1, 2, 4))
    kept.add((*question, 5, 6), lambda: (*known, second))
    assert kept.size == 25, "the question is no copy"
    assert kept.longest((*question, 5, 6, 7), most=22) == (known[0], second)
    assert kept.longest((*question, 2), most=21) == known, "nearly as long as 21 tokens"
    assert kept.longest((1,) * (SPLIT - 1), most=SPLIT - 1) == (), "too short"
    kept.add((7,) * 98, lambda: (torch.zeros((1, 2, 1, 98, 4)),))
    assert kept.size == 98 and kept.longest((*question, 5, 6), most=22) == ()


def test_of_a_part_the_whole_that_it_keeps_in_memory_is_counted() -> None:
    """The state that a question of 20 tokens is a part of is dropped while another is read."""
    kept = KeptPrefixes(100)
    question = (1,) * 20
    kept.add((*question, *range(2, 12)), lambda: (torch.rand((1, 2, 1, 30, 4)),))
    known = kept.longest((*question, 50), most=20)
    kept.add((7,) * 98, lambda: (torch.zeros((1, 2, 1, 98, 4)),))
    assert kept.size == 98
    kept.capacity = 200
    kept.add((*question, 50), lambda: (*known, torch.rand((1, 2, 1, 1, 4))))
    assert kept.size == 98 + 30 + 1


def _joined(known: Pieces, rest: Tensor) -> Pieces:
    return (*known, rest)


def test_kept_prefixes_are_those_that_were_read() -> None:
    """Random prompts over few words, as many as do not fit: what is kept of them is theirs."""
    rng, kept = random.Random(3), KeptPrefixes(60)
    for _ in range(500):
        prompt = tuple(rng.choices((1, 2), (9, 1), k=rng.randint(2, 40)))
        known = kept.longest(prompt, most=len(prompt) - 1)
        found = torch.cat(known, -2).flatten().tolist() if known else []
        assert found == list(prompt[: len(found)])
        rest = torch.tensor(prompt[len(found) :], dtype=torch.float32).view(1, 1, 1, -1, 1)
        kept.add(prompt, partial(_joined, known, rest))
        assert kept.size <= kept.capacity
    for token in range(300):
        kept.add((3, token), partial(_joined, (), torch.ones((1, 1, 1, 2, 1))))
    assert kept.size == 60, "all that others held has been given back"
    assert kept.longest((3, 299), most=2) and not kept.longest((1,) * 40, most=40)


def test_prompts_are_read_from_what_was_used_last_to_what_is_not_kept() -> None:
    kept = KeptPrefixes(10)
    for token in (1, 2, 3):
        kept.add((token,) * 2, lambda: (torch.zeros((1, 2, 1, 2, 4)),))
    kept.longest((1, 1), most=2)
    prompts = [(4, 4, 4), (3, 3, 3), (2, 2, 2), (1, 1, 1), (5, 5, 5), (1, 1)]
    assert kept.latest_first(prompts) == [3, 1, 2, 0, 4, 5]


def test_a_turn_of_reading_has_prompts_of_half_the_capacity(pretrained: HubModel) -> None:
    prefixes = SharedPrefixes(pretrained, capacity=24, depth=1.0)
    prompts = [(token,) * 6 for token in (1, 2, 3, 4)]
    prefixes.read([prompts[2]])
    assert prefixes.reading_turns(prompts) == [0, 1, 0, 1]
    prefixes.read([prompts[3]])
    assert prefixes.reading_turns(prompts) == [1, 1, 0, 0]
    assert prefixes.reading_turns([]) == []


def test_attention_that_is_not_by_keys_and_values_alone_is_refused(
    pretrained: HubModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = shared_attention.attention

    def capped(*given: object, **named: object) -> Tensor:
        out: Tensor = usual(*given, **named)  # type: ignore[arg-type]
        return out.tanh() * 3 + 1

    monkeypatch.setattr(shared_attention, "attention", capped)
    with pytest.raises(ParamsError, match="where prefixes are shared, expected"):
        SharedPrefixes(pretrained, capacity=10, depth=1.0)


OTHERS = {
    "softcap": (Gemma2Config, Gemma2ForCausalLM, {"head_dim": 4}),
    "s_aux": (GptOssConfig, GptOssForCausalLM, {"head_dim": 4, "num_experts_per_tok": 1}),
    "ValueError: too many": (FalconConfig, FalconForCausalLM, {"alibi": True}),
}


@pytest.mark.parametrize("given", OTHERS)
def test_models_whose_attention_goes_by_more_are_refused(given: str) -> None:
    """Bounded scores, sinks, and distances that are added to scores."""
    config, kind, more = OTHERS[given]
    tokenizer = tokenizer_of_bytes()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    small = {"vocab_size": len(tokenizer), "intermediate_size": 8, "num_key_value_heads": 1}
    model = kind(config(**sizes, **small, **more)).eval()
    pretrained = HubModel(model, tokenizer, "", torch.float32, 64)
    with pytest.raises(ParamsError, match=f"given {given}.* where prefixes are shared, expected"):
        SharedPrefixes(pretrained, capacity=10, depth=1.0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("words", [3, 256, 1000])
def test_words_are_drawn_as_by_a_sum_over_all(temperature: float, words: int) -> None:
    torch.manual_seed(words)
    logits = torch.randn(200, words) * 3
    logits[:, 0] = -1e30  # of no weight: a number of 0 does not draw it
    uniform = torch.rand(200, dtype=torch.float64)
    uniform[0], uniform[1] = 0.0, 1.0 - 2.0**-24
    logits[2, -1], uniform[2] = -1e30, 1.0  # as rounding can leave it
    free = torch.full((200,), NONE)
    picked, said, behind = draw(logits.clone(), uniform, temperature=temperature, forced=free)
    shares = (logits.double() / temperature).softmax(-1).cumsum(-1)
    expected = (shares <= uniform[:, None]).sum(-1).clamp(max=words - 1)
    assert (picked == expected).float().mean() > 0.99  # but for rounding
    assert picked[0] > 0
    assert picked[2] < words - 1
    logprobs = logits.log_softmax(-1)
    near(said, logprobs.gather(1, picked[:, None])[:, 0])
    near(behind, said - logprobs.amax(-1))
    forced, _, _ = draw(
        logits, uniform, temperature=0.0, forced=free.index_fill(0, free[:1] + 5, 2)
    )
    assert forced[4] == 2
    assert torch.equal(forced[5:], logits.argmax(-1)[5:])


EVERY = Words(torch.arange(WORDS), torch.arange(WORDS))


class Rules:
    """Ends with the word 9 and has 7 followed by 8, 8."""

    watched = torch.isin(torch.arange(WORDS), torch.tensor([7, 9]))

    def ended(self, _: int, tokens: list[int]) -> bool:
        return tokens[-1] == 9

    def closed(self, tokens: list[int]) -> bool:
        return tokens[-1] == 9

    def forced(self, _: int, tokens: list[int]) -> list[int]:
        return [8, 8] if tokens[-1] == 7 else []


@pytest.mark.parametrize("keep", [False, True])
def test_forced_words_follow_and_count_for_nothing(
    pretrained: HubModel, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    def favoured(logits: Tensor, *given: object, **named: object) -> tuple[Tensor, ...]:
        liked = torch.zeros(WORDS).index_fill(0, torch.tensor([7, 9]), 6.0)
        found: tuple[Tensor, ...] = draw(logits + liked, *given, **named)  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(decoding, "draw", favoured)
    prefixes = SharedPrefixes(pretrained, capacity=100, depth=1.0)
    past = prefixes.read([(*EXAMPLES, 5), (*EXAMPLES, 6, 7)])
    most = np.array([[12] * 8, [5] * 6 + [0] * 2])
    seeds = np.arange(16, dtype=np.uint64).reshape(2, 8) + np.uint64(3)
    drawn = Decoding(
        prefixes, past, Rules(), EVERY, seeds=seeds, most=most, temperature=1.0, keep=keep
    ).run()
    forced_rows = 0
    for row, size in enumerate(drawn.lengths):
        tokens = drawn.tokens[row, :size].tolist()
        assert size <= most.ravel()[row]
        assert 9 not in tokens[:-1]
        assert not size or size == most.ravel()[row] or tokens[-1] == 9
        free, queue = [], 0
        for place, token in enumerate(tokens):
            assert token == 8 or not queue
            free.append(not queue)
            queue = queue - 1 if queue else 2 * (token == 7)
            forced_rows += not free[place]
        total = drawn.said[row, :size][torch.tensor(free, dtype=torch.bool)].sum()
        assert drawn.logprobs[row] == pytest.approx(float(total), abs=1e-4)
    assert forced_rows > 5
    assert (drawn.moves is not None) == keep


@pytest.mark.parametrize("seed", range(5))
def test_columns_are_read_once_and_with_little_padding(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randrange(1, 300) for _ in range(rng.randrange(1, 200))]
    longest, reached, used = max(lengths), 0, 0
    for start, stop in shared_prefix._parts(lengths):
        assert (start, stop > start) == (reached, True)
        rows = [size for size in lengths if size > longest - stop]
        area = len(rows) * (stop - start)
        new = sum(min(size, longest - start) - (longest - stop) for size in rows)
        assert len(lengths) * (stop - start) <= shared_prefix.READ_AT_ONCE
        assert area <= shared_prefix.READ_AT_LEAST or new >= shared_prefix.FULL * area
        reached, used = stop, used + new
    assert (reached, used) == (longest, sum(lengths))
