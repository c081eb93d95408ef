"""Models that were trained here against plain transformers calls."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from selverify.domains import domain_by_name
from selverify.errors import ArtifactError, ProtocolError, SchemaError
from selverify.models.generators.checkpoints import (
    REWARD_HEAD,
    RewardModel,
    load_backbone,
    load_ranker_checkpoint,
    load_reward_model,
)
from selverify.models.generators.local import LocalGenerator, LocalVerifier
from selverify.models.heuristic.embedding import Embeddings
from selverify.models.heuristic.hybrid import scorers
from selverify.models.heuristic.ranker import TrainedRanker
from selverify.models.verifiers.head import read_of
from selverify.models.verifiers.reward import SCALE, SEEN, WINDOW, ValueHead, token_logprobs
from selverify.params import Sampling
from selverify.search.backend import NOTHING
from selverify.search.requests import CompleteItem, ProposeItem, RankItem, VerifyItem
from selverify.storage import write_digests
from selverify.types import Move, State

DOMAIN = domain_by_name("word_problems")
SAMPLING = Sampling(
    temperature=1.0, max_move_tokens=6, max_solution_tokens=20, max_moves=4, batch_rows=16
)
KEPT = 1000
NEAR = {"atol": 1e-4, "rtol": 1e-3}


def states(count: int) -> list[State]:
    """States of different lengths on right derivations."""
    rng = random.Random(9)
    found = []
    for index in range(count):
        problem, truth = DOMAIN.generate(rng, problem_id=f"p{index}", minimum=4, maximum=8)
        state = DOMAIN.initial_state(problem, budget=5)
        for move in DOMAIN.solution(problem, truth, rng)[: index % 3]:
            state = DOMAIN.apply(state, move)
        found.append(state)
    return found


def moves(state: State, count: int) -> tuple[Move, ...]:
    """Well-formed moves of different lengths at a state."""
    names = state.problem.text.split()
    name = next(word for word in names if word in {"apples", *state.context.symbols})
    texts = [f"{name} {value} ;" for value in range(count - 1)]
    return tuple(map(DOMAIN.parse, [*texts, f"{name} = 3 * {name} 4 = {name} 12 ;"]))


@pytest.fixture(scope="module")
def backbone(tiny_models: Path):
    return load_backbone(tiny_models.parent / "word_problems-small", DOMAIN.vocabulary)


@pytest.fixture(scope="module")
def generator(backbone) -> LocalGenerator:
    return LocalGenerator(DOMAIN, backbone, SAMPLING, seed=3, kept_moves=0)


@pytest.fixture
def keeping(backbone) -> LocalGenerator:
    """The same generator, which keeps the embeddings of what it sampled."""
    return LocalGenerator(DOMAIN, backbone, SAMPLING, seed=3, kept_moves=KEPT)


@pytest.fixture(scope="module")
def reward(tiny_models: Path) -> RewardModel:
    return load_reward_model(tiny_models / "verifier", DOMAIN.vocabulary)


@pytest.fixture(scope="module")
def plain(tiny_models: Path) -> LlamaForCausalLM:
    """The generator's backbone as transformers loads it."""
    return LlamaForCausalLM.from_pretrained(tiny_models.parent / "word_problems-small").eval()


def prefix_of(backbone, text: str) -> list[int]:
    return [backbone.words.bos, *backbone.words.encode(text)]


def test_samples_follow_from_state_and_index_alone(generator):
    """Asking in parts, alone or in another order gives the same samples as asking together."""
    asked = states(5)
    together = generator.propose([ProposeItem(state, 0, 6) for state in asked])
    for state, whole in zip(reversed(asked), reversed(together), strict=True):
        first, second = generator.propose([ProposeItem(state, 0, 2), ProposeItem(state, 2, 4)])
        assert [s.text for s in (*first, *second)] == [s.text for s in whole]
    assert len({sample.text for samples in together for sample in samples}) > 10


def test_items_of_any_count_are_sampled_together(generator, keeping, monkeypatch):
    """Each gets what it gets alone, and what is kept of its moves is what is read of them."""
    counts, asked, rows = (3, 1, 9, 16, 2, 25, 1, 0, 5), states(8), []
    sample = keeping._decoder.sample

    def counted(prefix, seeds, groups, **rules):
        rows.append(np.bincount(groups).tolist())
        return sample(prefix, seeds, groups, **rules)

    monkeypatch.setattr(keeping._decoder, "sample", counted)
    items = [ProposeItem(asked[at % 8], 2 * at, count) for at, count in enumerate(counts)]
    together = keeping.propose(items)
    assert sorted(count for own in rows for count in own if count) == sorted(counts)[1:]
    assert any(len(set(own)) > 1 for own in rows)
    assert all(sum(own) <= SAMPLING.batch_rows or len(own) == 1 for own in rows)
    args, ranked = moves(asked[0], 1)[0].args, []
    for item, reply in zip(items, together, strict=True):
        (alone,) = generator.propose([item])
        assert [one.text for one in reply] == [one.text for one in alone]
        if texts := [text for text in dict.fromkeys(one.text for one in reply) if text]:
            own = tuple(Move("", args, text) for text in texts)
            ranked.append(RankItem(item.state, own, ""))
    assert_near(keeping.embed(ranked), generator.embed(ranked), atol=1e-5)


def test_a_text_ends_where_the_positions_do(generator, backbone, monkeypatch):
    """A sample has the words that are left behind its prefix; others of the request stay whole."""
    asked = states(5)
    items = [CompleteItem(state, 0, 4) for state in asked]
    whole = generator.complete(items)
    sizes = [len(prefix_of(backbone, DOMAIN.serialise(state))) for state in asked]
    room = max(sizes) + 3
    monkeypatch.setattr(backbone.decoder, "positions", room)
    for size, samples, cut in zip(sizes, whole, generator.complete(items), strict=True):
        for sample, short in zip(samples, cut, strict=True):
            assert short.tokens == min(sample.tokens, room - size)
            assert sample.text.startswith(short.text)
    monkeypatch.setattr(backbone.decoder, "positions", max(sizes))
    longest = generator.propose([ProposeItem(asked[sizes.index(max(sizes))], 0, 2)])
    assert longest == ((NOTHING, NOTHING),)


def test_an_item_has_a_temperature_of_its_own(generator):
    """None is that of sampling; items of several in one request are as when each is alone."""
    (state,) = states(1)
    items = [
        ProposeItem(state, 0, 16, temperature)
        for temperature in (None, SAMPLING.temperature, 0.0, 0.3)
    ]
    together = generator.propose(items)
    alone = [generator.propose([item])[0] for item in items]
    texts = [[sample.text for sample in reply] for reply in together]
    assert texts == [[sample.text for sample in reply] for reply in alone]
    assert texts[0] == texts[1]
    assert len(set(texts[2])) == 1
    assert texts[3] != texts[0]


def test_a_greedy_solution_is_what_transformers_generates(generator, backbone, plain):
    (state,) = states(1)
    ((sample,),) = generator.complete([CompleteItem(state, 0, 1, temperature=0.0)])
    words = backbone.words
    ids = torch.tensor([prefix_of(backbone, DOMAIN.serialise(state))])
    written = plain.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=SAMPLING.max_solution_tokens,
        pad_token_id=words.pad,
        eos_token_id=words.eos,
    )[0, ids.shape[1] :]
    assert sample.text == words.decode(written.tolist())


def test_embeddings_are_the_hidden_states_they_name(generator, backbone, plain):
    """z_w and z_w' are last hidden states, z_m is the mean over the move, z_w* reads the goal."""
    items = [RankItem(state, moves(state, 2 + i % 3), "") for i, state in enumerate(states(5))]
    for item, rows in zip(items, generator.embed(items), strict=True):
        prefix = prefix_of(backbone, DOMAIN.serialise(item.state))
        goal = prefix_of(backbone, item.state.problem.goal)
        for place, move in enumerate(item.moves):
            own = backbone.words.encode(move.text)
            with torch.inference_mode():
                out = plain(input_ids=torch.tensor([prefix + own]), output_hidden_states=True)
                target = plain.model(input_ids=torch.tensor([goal])).last_hidden_state[0, -1]
            hidden, size = out.hidden_states[-1][0], len(prefix)
            logprobs = out.logits[0].log_softmax(-1)[size - 1 : -1]
            said = logprobs[torch.arange(len(own)), torch.tensor(own)]
            for found, expected in (
                (rows.state, hidden[size - 1]),
                (rows.after, hidden[-1]),
                (rows.move, hidden[size:].mean(0)),
                (rows.goal, target),
                (rows.logprob, said.sum()),
                (rows.token_logprobs[:, :WINDOW].sum(-1) / SCALE, said.sum()),
            ):
                torch.testing.assert_close(found[place], expected, **NEAR)
        assert rows.token_logprobs.shape[1] == SEEN


@pytest.mark.parametrize("kind", ["steps", "values"])
def test_verdicts_are_those_of_the_reward_model(kind, reward, tiny_models):
    """Each is the step's own, from the plain model, or the value of the state after it."""
    model = LlamaForCausalLM.from_pretrained(tiny_models / "verifier").eval()
    words, end = reward.words, reward.words.ids[";"]
    if kind == "values":
        head = ValueHead(model.config.hidden_size)
        torch.nn.init.normal_(head.value.weight)
        reward = replace(reward, head=head)
    verifier = LocalVerifier(reward, end_of_move=DOMAIN.end_of_move)
    problem, truth = DOMAIN.generate(random.Random(1), problem_id="v", minimum=5, maximum=6)
    state = DOMAIN.initial_state(problem, budget=9)
    steps = DOMAIN.solution(problem, truth, random.Random(2))
    (whole,) = verifier.verify([VerifyItem(state, steps)])
    ids = [words.bos, *words.encode(problem.text)]
    for move, found in zip(steps, whole.step_scores, strict=True):
        said = torch.tensor(words.encode(move.text))
        ids += said.tolist()
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
            if kind == "values":
                score = float(torch.sigmoid(reward.head.logit(out.hidden_states[-1][0, -1])))
            else:
                logprobs = out.logits[0].log_softmax(-1)[-len(said) - 1 : -1]
                seen = token_logprobs(logprobs, said, said == end)
                score = float(reward.head.log_right(seen[-1]).exp())
        assert found == pytest.approx(score, abs=1e-4)
        (one,) = verifier.verify([VerifyItem(state, (move,))])
        assert one.step_scores == pytest.approx((found,), abs=1e-5)
        state = DOMAIN.apply(state, move)
    assert whole.score == whole.step_scores[-1]


def test_a_move_is_read_once_for_every_scorer(generator, backbone, tiny_models):
    """All scorers' numbers are those of the embeddings; only moves that are new are embedded."""
    checkpoint = load_ranker_checkpoint(tiny_models / "policy", backbone.digest)
    read: list[int] = []

    def embed(items):
        read.extend(len(one.moves) for one in items)
        return generator.embed(items)

    ranker = TrainedRanker(embed, checkpoint, backbone=backbone.digest)
    first, second = states(2)
    given = moves(first, 3)
    whole = [RankItem(first, given, name) for name in scorers(checkpoint.heuristic)]
    part = RankItem(first, given[1:], "reject_probability")
    other = RankItem(second, moves(second, 2), "hybrid")
    *replies, rejected, rest = ranker.rank([*whole, part, other])
    assert read == [3, 2]
    (rows,) = generator.embed([RankItem(first, given, "")])
    with torch.inference_mode():
        for item, reply in zip(whole, replies, strict=True):
            expected = scorers(checkpoint.heuristic)[item.scorer](rows).tolist()
            assert reply == pytest.approx(expected, abs=1e-5)
        accepted = torch.sigmoid(checkpoint.heuristic.acceptance(read_of(rows))).tolist()
    assert rejected == pytest.approx([1 - one for one in accepted[1:]], abs=1e-5)
    assert len(rest) == 2
    ranker.rank([replace(other, scorer="residual")])
    assert read == [3, 2]
    bare = TrainedRanker(embed, None, backbone=backbone.digest)
    with pytest.raises(ProtocolError, match="or a trained policy"):
        bare.rank([other])


def test_parameters_are_those_of_the_checkpoints(generator, reward, plain, tiny_models, backbone):
    """Of backbone, reward model with its head, and the ranker's heads, as their files hold them."""

    def numbers(path: Path) -> int:
        return sum(one.numel() for one in load_file(path).values())

    assert generator.parameters() == plain.num_parameters()
    verifier = tiny_models / "verifier"
    files = [verifier / "model.safetensors", verifier / REWARD_HEAD]
    end = DOMAIN.end_of_move
    assert LocalVerifier(reward, end_of_move=end).parameters() == sum(map(numbers, files))
    checkpoint = load_ranker_checkpoint(tiny_models / "policy", backbone.digest)
    ranker = TrainedRanker(generator.embed, checkpoint, backbone=backbone.digest)
    buffers = sum(one.numel() for one in checkpoint.heuristic.buffers())
    heads = numbers(tiny_models / "policy" / "heuristic.safetensors") - buffers
    assert ranker.parameters() == heads
    assert TrainedRanker(generator.embed, None, backbone="").parameters() == 0


def proposed(generator: LocalGenerator, asked: list[State]) -> list[RankItem]:
    """Everything in words of the vocabulary that was sampled at the states, as moves."""
    replies = generator.propose([ProposeItem(state, 0, 24) for state in asked])
    args = moves(asked[0], 1)[0].args
    return [
        RankItem(state, tuple(Move("", args, text) for text in texts), "")
        for state, reply in zip(asked, replies, strict=True)
        if (texts := [t for t in dict.fromkeys(sample.text for sample in reply) if t])
    ]


def assert_near(found: list[Embeddings], expected: list[Embeddings], *, atol: float) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=atol, rtol=0.0)


def test_moves_that_were_sampled_are_not_read(generator, keeping, monkeypatch):
    """What decoding left of them equals, but for rounding, what is read; only a move that was not
    sampled here is read; rows come in the order of the moves."""
    items = proposed(keeping, states(7))
    assert max(len(item.moves) for item in items) > 8
    assert_near(keeping.embed(items), generator.embed(items), atol=1e-5)
    first, second = (
        replace(item, moves=tuple(move for move in item.moves if move.text.endswith(" ;")))
        for item in items[:2]
    )
    mixed = replace(first, moves=(*first.moves[:1], *moves(first.state, 2), *first.moves[1:]))
    expected = generator.embed([mixed, second])
    read: list[int] = []
    extend = keeping._decoder.extend

    def counted(prefix, tokens):
        read.append(tokens.shape[1])
        return extend(prefix, tokens)

    monkeypatch.setattr(keeping._decoder, "extend", counted)
    assert_near(keeping.embed([second, mixed]), expected[::-1], atol=1e-5)
    assert read == [len({move.text for move in mixed.moves} - {m.text for m in first.moves})]


def test_what_was_dropped_is_read_again(generator, backbone):
    """The newest moves are kept, no more than were allowed, and every reply is the same."""
    small = LocalGenerator(DOMAIN, backbone, SAMPLING, seed=3, kept_moves=5)
    items = proposed(small, states(3))
    assert len(small._kept._places) == 5 < sum(len(item.moves) for item in items)
    assert_near(small.embed(items), generator.embed(items), atol=1e-5)


def test_rankings_do_not_show_what_was_kept(generator, keeping, backbone, tiny_models):
    """Every scorer orders moves alike; the same requests give the same scores to the last bit."""
    checkpoint = load_ranker_checkpoint(tiny_models / "policy", backbone.digest)
    again = LocalGenerator(DOMAIN, backbone, SAMPLING, seed=3, kept_moves=KEPT)
    bare, *both = [
        TrainedRanker(one.embed, checkpoint, backbone="").rank(
            [
                replace(item, scorer=name)
                for item in proposed(one, states(6))
                for name in scorers(checkpoint.heuristic)
            ]
        )
        for one in (generator, keeping, again)
    ]
    assert both[0] == both[1]
    for read, kept in zip(bare, both[0], strict=True):
        assert kept == pytest.approx(read, abs=1e-5)
        in_order = np.take(read, np.argsort(kept))
        assert (np.diff(in_order) > -1e-6).all()  # but for what rounding makes of a tie


def test_the_identity_changes_with_what_samples_depend_on(generator, backbone):
    others = [
        LocalGenerator(DOMAIN, backbone, SAMPLING, seed=4, kept_moves=0),
        LocalGenerator(DOMAIN, replace(backbone, digest="other"), SAMPLING, seed=3, kept_moves=0),
        LocalGenerator(
            DOMAIN, backbone, SAMPLING.model_copy(update={"temperature": 2}), seed=3, kept_moves=0
        ),
    ]
    assert len({generator.identity(), *(one.identity() for one in others)}) == 4
    deeper = SAMPLING.model_copy(update={"max_moves": 9})
    same = LocalGenerator(DOMAIN, backbone, deeper, seed=3, kept_moves=0)
    assert same.identity() == generator.identity()


def test_checkpoints_of_another_kind_are_refused(tiny_models, tmp_path):
    """A missing folder, another architecture and another vocabulary each get their sentence."""
    with pytest.raises(ArtifactError, match="no such file"):
        load_backbone(tmp_path, DOMAIN.vocabulary)
    with pytest.raises(ArtifactError, match="expected a reward model's head"):
        load_reward_model(tiny_models.parent / "word_problems-small", DOMAIN.vocabulary)
    with pytest.raises(SchemaError, match="another vocabulary"):
        load_backbone(tiny_models.parent / "word_problems-small", DOMAIN.vocabulary[:-1])


@pytest.mark.parametrize(
    ("name", "given"),
    [("num_key_value_heads", 1), ("tie_word_embeddings", False), ("hidden_act", "gelu")],
)
def test_what_the_decoder_does_not_compute_is_refused(tiny_models, tmp_path, name, given):
    """A Llama of another shape would give other numbers, or a shape error far from the file."""
    folder = tmp_path / "backbone"
    shutil.copytree(tiny_models.parent / "word_problems-small", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, name: given}))
    write_digests(folder)
    with pytest.raises(SchemaError, match=f"{name} {given}, expected {config[name]}"):
        load_backbone(folder, DOMAIN.vocabulary)
