"""The lean decoder against the slow obvious one: the transformers forward pass."""

import random
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from selverify.models.generators import decoder as decoding
from selverify.models.generators.decoder import Decoder
from selverify.models.generators.sampling import uniforms

SEQUENCES = [(1, 5, 9, 4), (1, 7, 3, 3, 8, 2), (1, 5, 9, 4, 6, 6, 7)]
NEAR = {"atol": 1e-5, "rtol": 1e-4}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "biased"])
def model(request) -> LlamaForCausalLM:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=23,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        attention_bias=request.param,
    )
    made = LlamaForCausalLM(config).eval()
    for name, weight in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.5)
    return made


def decoder_of(model: LlamaForCausalLM, *, capacity: int) -> Decoder:
    return Decoder(model.config.to_dict(), model.state_dict(), capacity=capacity)


@pytest.fixture
def decoder(model) -> Decoder:
    return decoder_of(model, capacity=60)


@cache
def reference(model: LlamaForCausalLM, sequence: tuple[int, ...]) -> torch.Tensor:
    with torch.inference_mode():
        return model.model(input_ids=torch.tensor([sequence])).last_hidden_state[0]


def test_prefixes_of_all_lengths_equal_transformers(model, decoder):
    """From nothing, from the cache, and grown from shorter ones: ragged old and new parts."""
    grown = [(*SEQUENCES[1], 4), SEQUENCES[2], (*SEQUENCES[1], 9, 9, 3, 5), (1, 2, 8), (1, 2, 7, 7)]
    for sequences in ([*SEQUENCES[:2], (1, 2)], SEQUENCES[:2], grown):
        prefix = decoder.prefixes(sequences)
        for row, sequence in enumerate(sequences):
            torch.testing.assert_close(prefix.last[row], reference(model, sequence)[-1], **NEAR)
            alone = decoder_of(model, capacity=1).prefixes([sequence])
            kept = prefix.take(torch.tensor([row])).keys_values[..., -len(sequence) :, :]
            torch.testing.assert_close(kept, alone.keys_values, **NEAR)


def test_what_continues_a_kept_prefix_is_read_from_there_on(model, monkeypatch):
    """In whatever order prefixes come; what was used last is kept, with all that it begins with."""
    decoder, read = decoder_of(model, capacity=20), []
    extend = decoder._extend

    def counted(prefix, tokens, *, keep):
        read.append(int(tokens.shape[0] * tokens.shape[2]))
        return extend(prefix, tokens, keep=keep)

    monkeypatch.setattr(decoder, "_extend", counted)
    whole = tuple(range(1, 13))
    sibling = (*whole[:8], 20, 21, 22, 22)
    decoder.prefixes([whole, sibling, whole[:4], whole[:8]])
    assert sum(read) == 16
    for other in ((21, 4), (22, 5), (21, 4, 6)):  # the last one is too many
        decoder.prefixes([whole])
        decoder.prefixes([other])
    assert sum(read) == 16 + 5
    decoder.prefixes([(*whole, 9), sibling[:-1]])
    assert sum(read) == 21 + 2 * 3  # two rows of three: one word and its padding, and the sibling


@pytest.mark.parametrize("capacity", [0, 1, 5, 20, 60])
def test_what_is_kept_is_counted_whole_and_right(model, capacity):
    """Whatever is asked for: a kept prefix has what it continues beside it, and shares it."""
    rng, decoder = random.Random(capacity), decoder_of(model, capacity=capacity)
    for _ in range(40):
        asked = [tuple(rng.choices((1, 2), k=rng.randint(1, 9))) for _ in range(rng.randint(1, 6))]
        prefix = decoder.prefixes(asked)
        for row, words in enumerate(asked):
            torch.testing.assert_close(prefix.last[row], reference(model, words)[-1], **NEAR)
        kept = decoder._entries
        assert decoder._size == sum(entry.size for entry in kept.values()) <= capacity
        for entry in kept.values():
            before = kept[entry.before].pieces if entry.before else ()
            assert entry.pieces[:-1] == before


def test_a_far_prefix_is_not_read_beside_near_ones(model, monkeypatch):
    """Filled up to its length, the others would take its time, and run over the last position.

    Beside it, the others are still read together."""
    decoder, reads = decoder_of(model, capacity=1000), []
    long, short = tuple(range(1, 23)) * 2 + tuple(range(1, 12)), (20, 4, 3, 9, 1)
    decoder.prefixes([long, short])
    extend = decoder._extend

    def counted(prefix, tokens, *, keep):
        reads.append(len(tokens))
        return extend(prefix, tokens, keep=keep)

    monkeypatch.setattr(decoder, "_extend", counted)
    asked = [(*long, 3), *[short + (word,) * 30 for word in (4, 5, 6)]]
    prefix = decoder.prefixes(asked)
    assert sorted(reads) == [1, 3]
    for row, words in enumerate(asked):
        torch.testing.assert_close(prefix.last[row], reference(model, words)[-1], **NEAR)


def test_extension_equals_transformers(model, decoder):
    """Hidden states of several continuations of ragged prefixes equal the plain forward pass."""
    tokens = torch.randint(3, 23, (len(SEQUENCES), 5, 4))
    hidden = decoder.extend(decoder.prefixes(SEQUENCES), tokens)
    for group, sequence in enumerate(SEQUENCES):
        for row in range(5):
            whole = (*sequence, *tokens[group, row].tolist())
            torch.testing.assert_close(hidden[group, row], reference(model, whole)[-4:], **NEAR)


def test_greedy_sampling_equals_generate(model, decoder):
    """Temperature 0 writes what transformers' greedy search writes, up to the stop word."""
    groups = np.arange(len(SEQUENCES))
    seeds, rules = np.zeros(len(groups), dtype=np.uint64), {"stops": [2], "limit": 12}
    sampled = decoder.sample(
        decoder.prefixes(SEQUENCES), seeds, groups, temperature=0.0, keep=False, **rules
    )
    for row, sequence in enumerate(SEQUENCES):
        ids = torch.tensor([sequence])
        expected = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=2,
            pad_token_id=0,
        )[0, len(sequence) :]
        assert sampled.words[row, : sampled.lengths[row]].tolist() == expected.tolist()


@pytest.mark.parametrize("products", [0, 1_000_000])
@pytest.mark.parametrize("keep", [False, True])
def test_samples_do_not_depend_on_their_batch(model, decoder, keep, products, monkeypatch):
    """Words follow from prefix and seed; the score is the sum of the words' log probabilities."""
    monkeypatch.setattr(decoding, "_SMALL_PRODUCT", products)
    seeds = np.arange(21, dtype=np.uint64) * np.uint64(977)
    groups = np.arange(3).repeat([8, 1, 12])  # each prefix has as many rows as it likes
    rules = {"stops": [2, 5, 6], "limit": 10, "temperature": 1.0, "keep": keep}
    together = decoder.sample(decoder.prefixes(SEQUENCES), seeds, groups, **rules)
    for row, group in enumerate(groups.tolist()):
        sequence = SEQUENCES[group]
        alone = decoder.sample(
            decoder.prefixes([sequence]), seeds[row : row + 1], np.array([0]), **rules
        )
        assert alone.words[0].tolist() == together.words[row].tolist()
        score = together.logprobs[row]
        assert alone.logprobs[0] == pytest.approx(score, abs=1e-4)
        said = together.words[row, : together.lengths[row]].tolist()
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([(*sequence, *said)])).logits[0]
        rows = logits.log_softmax(-1)[len(sequence) - 1 : -1]
        expected = sum(float(row[word]) for row, word in zip(rows, said, strict=True))
        assert score == pytest.approx(expected, abs=1e-4)


@pytest.fixture
def unwritten_memory_is_nan() -> Iterator[None]:
    """What is read before it was written shows itself."""
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=False)


@pytest.mark.usefixtures("unwritten_memory_is_nan")
@pytest.mark.parametrize("rows", [2, 40])
def test_kept_states_equal_transformers(model, decoder, rows):
    """Of each text that a stop word ended one row has its states, however early rows leave."""
    sizes = [rows, 2 * rows, 1]
    seeds = np.arange(sum(sizes), dtype=np.uint64) * np.uint64(977)
    groups = np.arange(3).repeat(sizes)
    rules = {"stops": [2, 5, 6], "limit": 7, "temperature": 1.0}
    kept = decoder.sample(decoder.prefixes(SEQUENCES), seeds, groups, **rules, keep=True)
    bare = decoder.sample(decoder.prefixes(SEQUENCES), seeds, groups, **rules, keep=False)
    assert kept.words.tolist() == bare.words.tolist()
    assert not bare.distinct.any()
    assert kept.hidden.isfinite().all()
    for group, sequence in enumerate(SEQUENCES):
        own = np.flatnonzero(groups == group).tolist()
        texts = {row: tuple(kept.words[row, : kept.lengths[row]].tolist()) for row in own}
        ended = {row: text for row, text in texts.items() if text[-1] in rules["stops"]}
        marked = [row for row in ended if row == min(r for r in ended if ended[r] == ended[row])]
        assert [row for row in own if kept.distinct[row]] == marked
        for row in marked:
            expected = reference(model, (*sequence, *texts[row]))[len(sequence) :]
            found = kept.hidden[row, : len(texts[row])]
            torch.testing.assert_close(found, expected, **NEAR)
    lengths = set(kept.lengths[kept.distinct].tolist())
    assert rows == 2 or lengths == {1, 2, 3, 4, 5, 6, 7}


def test_uniforms_are_uniform():
    """Numbers of many seeds and steps have the mean and the spread of a uniform law."""
    drawn = np.concatenate([uniforms(np.arange(20000, dtype=np.uint64), step) for step in range(3)])
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    assert abs(drawn.mean() - 0.5) < 0.01
    assert abs(drawn.std() - 12**-0.5) < 0.005


def test_no_number_draws_a_word_without_weight(decoder):
    """0 and the largest number below 1, where sums of single precision end below it."""
    rows, ends = 400, (0.0, 1.0 - 2.0**-24, 1.0 - 2.0**-53)
    drawn = torch.randn(rows, 32, generator=torch.Generator().manual_seed(1))
    hidden = 4.0 * drawn / drawn.norm(dim=-1, keepdim=True)
    weights = (decoder.logits(hidden) / 0.2).double().softmax(-1)
    order = weights.cumsum(-1)
    for end in ends:
        picked = decoder._pick(hidden, np.arange(rows), np.full(rows, end), 0.2)[0]
        picked = torch.from_numpy(picked)[:, None]
        before = order.gather(1, picked) - weights.gather(1, picked)
        assert (before <= end).all() and (order.gather(1, picked) >= end - 1e-6).all()
        assert (weights.gather(1, picked) > 0).all()
        if end == 0.0:
            assert (picked == 0).all()


def test_what_is_missing_of_a_model_is_named(model):
    """A tensor, or a number of the configuration."""
    weights = model.state_dict()
    del weights["model.layers.2.mlp.up_proj.weight"]
    with pytest.raises(KeyError, match=r"model\.layers\.2\.mlp\.up_proj\.weight"):
        Decoder(model.config.to_dict(), weights, capacity=60)
    with pytest.raises(KeyError, match="num_attention_heads"):
        Decoder({}, model.state_dict(), capacity=60)


def test_the_angles_are_those_of_transformers(model, decoder):
    """To the last bit: scores that are kept were computed with theirs."""
    angles = torch.outer(torch.arange(64).float(), model.model.rotary_emb.inv_freq)
    assert torch.equal(decoder.cos, torch.cat((angles, angles), -1).cos())
