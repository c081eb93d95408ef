"""The backend of trained models against plain transformers calls."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from selverify.domains import domain_by_name
from selverify.errors import ArtifactError, ProtocolError, SchemaError
from selverify.models.generators.checkpoints import load_backbone, load_policy, load_reward_model
from selverify.models.generators.local import LocalBackend
from selverify.models.heuristic.hybrid import scorers
from selverify.models.verifiers.reward import SCALE, SEEN, WINDOW, ValueHead, token_logprobs
from selverify.params import Sampling
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Propose,
    ProposeItem,
    Rank,
    RankItem,
    Verify,
    VerifyItem,
)
from selverify.types import State

DOMAIN = domain_by_name("word_problems")
SAMPLING = Sampling(
    temperature=1.0, max_move_tokens=6, max_solution_tokens=20, max_moves=4, batch_rows=16
)


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


def moves(state: State, count: int):
    """Well-formed moves of different lengths at a state."""
    names = state.problem.text.split()
    name = next(word for word in names if word in {"apples", *state.context.symbols})
    texts = [f"{name} {value} ;" for value in range(count - 1)]
    return tuple(map(DOMAIN.parse, [*texts, f"{name} = 3 * {name} 4 = {name} 12 ;"]))


@pytest.fixture(scope="module")
def backend(tiny_models: Path) -> LocalBackend:
    backbone = load_backbone(tiny_models.parent / "word_problems-small", DOMAIN.vocabulary)
    return LocalBackend(
        DOMAIN,
        backbone,
        SAMPLING,
        seed=3,
        reward=load_reward_model(tiny_models / "verifier", DOMAIN.vocabulary),
        policy=load_policy(tiny_models / "policy", backbone.digest),
    )


def test_samples_follow_from_state_and_index_alone(backend):
    """Asking in parts, alone or in another order gives the same samples as asking together."""
    asked = states(5)
    together = backend.answer(Propose(tuple(ProposeItem(state, 0, 6) for state in asked)))
    for state, whole in zip(reversed(asked), reversed(together), strict=True):
        first, second = backend.answer(
            Propose((ProposeItem(state, 0, 2), ProposeItem(state, 2, 4)))
        )
        assert [s.text for s in (*first, *second)] == [s.text for s in whole]
    assert len({sample.text for samples in together for sample in samples}) > 10


def test_a_greedy_solution_is_what_transformers_generates(backend, tiny_models):
    """The greedy completion equals greedy generation by the plain model."""
    state = states(1)[0]
    ((sample,),) = backend.answer(Complete((CompleteItem(state, 0, 1, greedy=True),)))
    model = LlamaForCausalLM.from_pretrained(tiny_models.parent / "word_problems-small").eval()
    words = backend.words
    ids = torch.tensor([[words.bos, *words.encode(DOMAIN.serialise(state))]])
    written = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=SAMPLING.max_solution_tokens,
        pad_token_id=words.pad,
        eos_token_id=words.eos,
    )[0, ids.shape[1] :]
    assert sample.text == words.decode(written.tolist())


def test_likelihood_is_that_of_the_model(backend, tiny_models):
    """The likelihood scorer is minus the log probability of the move's words."""
    model = LlamaForCausalLM.from_pretrained(tiny_models.parent / "word_problems-small").eval()
    words = backend.words
    items = tuple(
        RankItem(state, moves(state, 2 + i % 3), "likelihood") for i, state in enumerate(states(5))
    )
    for item, scores in zip(items, backend.answer(Rank(items)), strict=True):
        prefix = [words.bos, *words.encode(DOMAIN.serialise(item.state))]
        for move, score in zip(item.moves, scores, strict=True):
            said = words.encode(move.text)
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([prefix + said])).logits[0]
            rows = logits.log_softmax(-1)[len(prefix) - 1 : -1]
            expected = -sum(float(row[word]) for row, word in zip(rows, said, strict=True))
            assert score == pytest.approx(expected, abs=1e-3)


def test_embeddings_are_the_hidden_states_they_name(backend, tiny_models):
    """z_w and z_w' are last hidden states, z_m is the mean over the move, z_w* reads the goal."""
    model = (
        LlamaForCausalLM.from_pretrained(tiny_models.parent / "word_problems-small").eval().model
    )
    words = backend.words
    items = [RankItem(state, moves(state, 3), "") for state in states(3)]
    for item, rows in zip(items, backend.embed(items), strict=True):
        prefix = [words.bos, *words.encode(DOMAIN.serialise(item.state))]
        said = words.encode(item.moves[-1].text)
        goal = [words.bos, *words.encode(item.state.problem.goal)]
        with torch.inference_mode():
            hidden = model(input_ids=torch.tensor([prefix + said])).last_hidden_state[0]
            target = model(input_ids=torch.tensor([goal])).last_hidden_state[0, -1]
        for found, expected in (
            (rows.state[-1], hidden[len(prefix) - 1]),
            (rows.after[-1], hidden[-1]),
            (rows.move[-1], hidden[len(prefix) :].mean(0)),
            (rows.goal[-1], target),
        ):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_evidence_holds_the_log_probability_of_each_word(backend, tiny_models):
    """Newest first; unscaled, the words' log probabilities sum to the move's."""
    (rows,) = backend.embed([RankItem(state, moves(state, 3), "") for state in states(1)])
    said = rows.token_logprobs[:, :WINDOW].sum(-1) / SCALE
    torch.testing.assert_close(said, rows.logprob, atol=1e-4, rtol=1e-3)
    assert rows.token_logprobs.shape[1] == SEEN


def test_doubts_are_what_the_acceptance_leaves_to_one(backend):
    """The scorer ``reject_probability`` is a probability, and its own head's, not h's."""
    (state,) = states(1)
    given = moves(state, 3)
    rejected, h = backend.answer(
        Rank((RankItem(state, given, "reject_probability"), RankItem(state, given, "hybrid")))
    )
    (rows,) = backend.embed([RankItem(state, given, "")])
    with torch.inference_mode():
        accepted = torch.sigmoid(backend.policy.heuristic.acceptance(rows))
    torch.testing.assert_close(torch.tensor(rejected), 1 - accepted, atol=1e-5, rtol=1e-4)
    assert rejected != h


def test_verdicts_are_those_of_the_reward_model(backend, tiny_models):
    """Scores of a whole solution follow from the plain model; one step at a time scores alike."""
    model = LlamaForCausalLM.from_pretrained(tiny_models / "verifier").eval()
    words, end = backend.words, backend.words.ids[";"]
    problem, truth = DOMAIN.generate(random.Random(1), problem_id="v", minimum=5, maximum=6)
    state = DOMAIN.initial_state(problem, budget=9)
    steps = DOMAIN.solution(problem, truth, random.Random(2))
    (whole,) = backend.answer(Verify((VerifyItem(state, steps),)))
    told = [words.bos, *words.encode(problem.text)]
    ids = told + [word for move in steps for word in words.encode(move.text)]
    with torch.inference_mode():
        logprobs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        score = 1.0
        for count, move in enumerate(steps, start=1):
            said = words.encode(move.text)
            first = len(told) + sum(len(words.encode(m.text)) for m in steps[: count - 1])
            before = torch.tensor(said)
            seen = token_logprobs(logprobs[first - 1 :][: len(said)], before, before == end)
            score *= float(backend.reward.head.log_right(seen[-1]).exp())
            assert whole.step_scores[count - 1] == pytest.approx(score, abs=1e-4)
            (one,) = backend.answer(Verify((VerifyItem(state, (move,)),)))
            assert one.step_scores == pytest.approx((whole.step_scores[count - 1],), abs=1e-5)
            state = DOMAIN.apply(state, move)
    assert whole.score == whole.step_scores[-1]


def test_verdicts_of_a_value_model_are_values_of_states(backend, tiny_models):
    """Each step's score is the sigmoid of the head on the state after it, whatever came before."""
    model = LlamaForCausalLM.from_pretrained(tiny_models / "verifier").eval()
    head = ValueHead(model.config.hidden_size)
    torch.nn.init.normal_(head.value.weight)
    reward = replace(backend.reward, head=head)
    backend = LocalBackend(DOMAIN, backend.backbone, SAMPLING, seed=3, reward=reward)
    problem, truth = DOMAIN.generate(random.Random(1), problem_id="v", minimum=5, maximum=6)
    state = DOMAIN.initial_state(problem, budget=9)
    steps = DOMAIN.solution(problem, truth, random.Random(2))
    words = backend.words
    ids = [words.bos, *words.encode(problem.text)]
    expected = []
    with torch.inference_mode():
        for move in steps:
            ids += words.encode(move.text)
            after = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
            expected.append(float(torch.sigmoid(head.logit(after))))
    (whole,) = backend.answer(Verify((VerifyItem(state, steps),)))
    assert whole.step_scores == pytest.approx(expected, abs=1e-4)
    later = DOMAIN.apply(state, steps[0])
    (rest,) = backend.answer(Verify((VerifyItem(later, steps[1:]),)))
    assert rest.step_scores == pytest.approx(expected[1:], abs=1e-4)


def test_a_move_is_read_once_for_every_scorer(backend, monkeypatch):
    """All scorers' numbers are those of the embeddings; only moves that are new are embedded."""
    fresh = LocalBackend(DOMAIN, backend.backbone, SAMPLING, seed=0, policy=backend.policy)
    read: list[int] = []
    embed = fresh.embed
    monkeypatch.setattr(
        fresh, "embed", lambda items: read.extend(len(one.moves) for one in items) or embed(items)
    )
    first, second = states(2)
    given = moves(first, 3)
    whole = [RankItem(first, given, name) for name in scorers(backend.policy.heuristic)]
    part = RankItem(first, given[1:], "reject_probability")
    other = RankItem(second, moves(second, 2), "hybrid")
    *replies, rejected, rest = fresh.answer(Rank((*whole, part, other)))
    assert read == [3, 2]
    (rows,) = embed([RankItem(first, given, "")])
    for item, reply in zip(whole, replies, strict=True):
        expected = scorers(backend.policy.heuristic)[item.scorer](rows).tolist()
        assert reply == pytest.approx(expected, abs=1e-5)
    assert rejected == pytest.approx(
        backend.policy.heuristic.reject_probabilities(rows).tolist()[1:], abs=1e-5
    )
    assert len(rest) == 2
    fresh.answer(Rank((replace(other, scorer="residual"),)))
    assert read == [3, 2]


def test_a_missing_model_is_named(backend):
    """Ranking without a policy and verifying without a verifier say what is missing."""
    bare = LocalBackend(DOMAIN, backend.backbone, SAMPLING, seed=0)
    state = states(1)[0]
    with pytest.raises(ProtocolError, match="or a trained policy"):
        bare.answer(Rank((RankItem(state, moves(state, 2), "hybrid"),)))
    with pytest.raises(ProtocolError, match="expected a backend with a verifier"):
        bare.answer(Verify((VerifyItem(state, moves(state, 2)),)))


def test_identities_change_with_what_replies_depend_on(backend):
    """Another seed changes what is sampled but not what is ranked or verified."""
    other = LocalBackend(
        DOMAIN, backend.backbone, SAMPLING, seed=4, reward=backend.reward, policy=backend.policy
    )
    assert other.identity("propose") != backend.identity("propose")
    assert other.identity("rank") == backend.identity("rank")
    assert other.identity("verify") == backend.identity("verify")


def test_checkpoints_of_another_kind_are_refused(tiny_models, tmp_path):
    """A missing folder, another architecture and another vocabulary each get their sentence."""
    with pytest.raises(ArtifactError, match="no such file"):
        load_backbone(tmp_path, DOMAIN.vocabulary)
    with pytest.raises(ArtifactError, match="expected a reward model's head"):
        load_reward_model(tiny_models.parent / "word_problems-small", DOMAIN.vocabulary)
    with pytest.raises(SchemaError, match="another vocabulary"):
        load_backbone(tiny_models.parent / "word_problems-small", DOMAIN.vocabulary[:-1])
