"""The residual and the distance learn what their losses say."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from selverify.audit.learned_orders import RANKER_SETTINGS, named_scorers
from selverify.audit.orders import LEARNED
from selverify.errors import SchemaError
from selverify.models.heuristic.embedding import Embeddings, concatenate
from selverify.models.heuristic.familiarity import Familiarity
from selverify.models.heuristic.hybrid import Heuristic
from selverify.training.fit import Epoch
from selverify.training.policy import PLAIN, LabelledList, split_lists, train_policy

SETTINGS = RANKER_SETTINGS.model_copy(
    update={"weight_decay": 0.0, "pairs_per_state": 6, "validation_fraction": 0.25, "seed": 3}
)


def quiet(_: Epoch) -> None:
    """No log."""


def trained(data: list[LabelledList], **changes: object) -> Heuristic:
    """The heuristic, under other settings."""
    return train_policy(data, SETTINGS.model_copy(update=changes), report=quiet)[0]


def lists(count: int, *, noise: bool = False) -> list[LabelledList]:
    """Candidates whose label is the sign of one coordinate of the move's embedding."""
    generator = torch.Generator().manual_seed(7)
    found = []
    for index in range(count):
        move = torch.randn(6, 4, generator=generator)
        labels = torch.randn(6, generator=generator) > 0 if noise else move[:, 0] > 0
        accepted = [row for row in range(6) if labels[row]]
        state = torch.randn(1, 4, generator=generator).expand(6, 4)
        rows = Embeddings(state, move, move + state, torch.ones(6, 4), move[:, :2], torch.zeros(6))
        remaining = 1 + index % 4 if accepted else None
        first = accepted[0] if accepted else None
        found.append(LabelledList(f"p{index}", rows, tuple(labels.tolist()), first, remaining))
    return found


@pytest.mark.parametrize("rank_on", ["hybrid", "residual"])
def test_accepted_moves_come_to_rank_first(rank_on):
    """On held-out lists nearly all pairs are in order, lower scores first."""
    settings = SETTINGS.model_copy(update={"rank_on": rank_on})
    seen: dict[str, list[float]] = defaultdict(list)
    data = lists(120)
    heuristic, dispersion = train_policy(
        data, settings, report=lambda epoch: seen[epoch.part].append(epoch.validation_loss)
    )
    assert min(seen["residual"]) < 0.1
    for part in ("plain residual", "wordless residual", "printed residual"):
        assert min(seen[part]) < 0.1, part
    assert min(seen["acceptance"]) < 0.35
    assert min(seen["expected score"]) < 0.35
    _, held = split_lists(data, settings)
    rows = held[0].rows
    scores = heuristic(rows) if rank_on == "hybrid" else heuristic.residual(rows)
    labels = torch.tensor(held[0].labels)
    assert scores[labels].mean() < scores[~labels].mean()
    for residual in (heuristic.plain, heuristic.wordless, heuristic.printed):
        found = residual(rows)
        assert found[labels].mean() < found[~labels].mean()
    rejected = heuristic.reject_probabilities(rows)
    assert rejected[labels].mean() < 0.3
    assert rejected[~labels].mean() > 0.7
    assert dispersion["hybrid"] > 0


def test_at_a_state_unlike_those_of_the_training_the_verifier_is_asked():
    """Few held-out states are unfamiliar, a shifted one is; its moves count as rejected."""
    data = lists(400)
    heuristic = trained(data)
    _, held = split_lists(data, SETTINGS)
    rows = concatenate([item.rows for item in held])
    assert 0.0 < heuristic.familiarity.is_unlike(rows.state).float().mean() < 0.03
    elsewhere = rows._replace(state=rows.state + 9.0)
    familiar = ~heuristic.familiarity.is_unlike(rows.state)
    for scorer in (heuristic.reject_probabilities, heuristic.expected_losses):
        guarded = heuristic.guarded(scorer)
        assert (guarded(elsewhere) == 1.0).all()
        assert torch.equal(guarded(rows)[familiar], scorer(rows)[familiar])


def test_the_expected_score_is_the_one_that_the_verifier_gives():
    """Labels say accepted or not; scores of 0.3 and 0.9 are learned as such."""
    data = [
        replace(item, scores=tuple(0.9 if label else 0.3 for label in item.labels))
        for item in lists(120)
    ]
    heuristic = trained(data)
    _, held = split_lists(data, SETTINGS)
    rows = concatenate([item.rows for item in held])
    labels = torch.tensor([label for item in held for label in item.labels])
    expected = 1.0 - heuristic.expected_losses(rows).detach()
    assert 0.75 < expected[labels].mean() < 0.9
    assert 0.3 < expected[~labels].mean() < 0.45
    assert (1.0 - heuristic.reject_probabilities(rows))[~labels].mean() < 0.25


def test_a_wide_state_needs_no_more_states_than_there_are():
    """With more dimensions than states the limit still lets the held-out ones through."""
    states = torch.randn(60, 200, generator=torch.Generator().manual_seed(5))
    familiarity = Familiarity(200)
    familiarity.fit(states[:40], states[40:], familiar=0.9)
    assert familiarity.is_unlike(states[40:]).sum() == 2
    assert familiarity.is_unlike(10 * states).all()


def test_states_that_are_all_the_same_make_every_other_one_unfamiliar():
    """A constant direction has no spread to divide by."""
    familiarity = Familiarity(3)
    familiarity.fit(torch.zeros(20, 3), torch.zeros(5, 3), familiar=0.99)
    assert not familiarity.is_unlike(torch.zeros(4, 3)).any()
    assert familiarity.is_unlike(torch.ones(4, 3)).all()


def test_without_its_weight_the_trajectory_term_is_the_only_difference():
    """At weight 0 both residuals are the same, bit for bit; at a large one they are not."""
    for weight in (0.0, 5.0):
        heuristic = trained(lists(60), trajectory_weight=weight, epochs=3)
        full, plain = heuristic.residual.state_dict(), heuristic.plain.state_dict()
        same = all(torch.equal(full[name], plain[name]) for name in full)
        assert same == (weight == 0.0)


def test_the_printed_residual_is_ranked_alone_and_the_wordless_one_on_h():
    """Neither reads token log probabilities; they differ in what L_rank orders, unless it is r."""
    for rank_on in ("hybrid", "residual"):
        heuristic = trained(lists(60), rank_on=rank_on, epochs=3)
        printed, wordless = heuristic.printed.state_dict(), heuristic.wordless.state_dict()
        assert not any("logprob" in name for name in printed)
        same = all(torch.equal(printed[name], wordless[name]) for name in printed)
        assert same == (rank_on == "residual")


def test_labels_without_a_pattern_are_not_learned():
    """On coin-flip labels the held-out order stays near one half."""
    seen: list[float] = []
    train_policy(
        lists(120, noise=True),
        SETTINGS,
        report=lambda one: seen.append(one.validation_loss) if one.part == "residual" else None,
    )
    assert 0.3 < sum(seen) / len(seen) < 0.7


def test_lists_without_a_contrast_are_refused():
    """Lists in which every move was accepted cannot teach an order, and the error says so."""
    same = [LabelledList(item.problem_id, item.rows, (True,) * 6, 0, 1) for item in lists(20)]
    with pytest.raises(SchemaError, match="none of 15 training lists"):
        trained(same)


def test_what_the_lists_do_not_show_is_not_learned():
    """No distance without right trajectories; the first epoch without a held-out contrast."""
    data = lists(20)
    one = split_lists(data, SETTINGS)[0][0].problem_id
    lost = [
        replace(item, remaining=None, labels=item.labels if item.problem_id == one else (True,) * 6)
        for item in data
    ]
    short, long = (trained(lost, epochs=epochs) for epochs in (1, 4))
    assert not short.distance.head[1].weight.requires_grad
    for name, weight in short.residual.state_dict().items():
        assert torch.equal(weight, long.residual.state_dict()[name])


def test_both_parts_get_an_order_to_learn_where_few_lists_have_one():
    """Whichever two of the problems these are."""
    data = lists(20)
    for place in range(19):
        few = [
            item if at in (place, place + 1) else replace(item, labels=(True,) * 6)
            for at, item in enumerate(data)
        ]
        for part in split_lists(few, SETTINGS):
            assert any(not all(item.labels) for item in part)


def test_problems_are_not_split():
    """All lists of a problem fall on the same side."""
    data = [*lists(20), *lists(20)]
    training, held = split_lists(data, SETTINGS)
    assert not {item.problem_id for item in training} & {item.problem_id for item in held}
    assert len(training) + len(held) == 40


def test_what_is_left_out_changes_nothing_else() -> None:
    """An audit's ranker has the orders and the rejections of one that was trained whole."""
    whole = trained(lists(40))
    part, _ = train_policy(lists(40), SETTINGS, report=quiet, also=(PLAIN,))
    rows = lists(3)[2].rows
    for name in LEARNED:
        assert torch.equal(named_scorers(whole)[name](rows), named_scorers(part)[name](rows)), name
    assert torch.equal(whole(rows), part(rows))
    assert torch.equal(whole.reject_probabilities(rows), part.reject_probabilities(rows))
    assert not torch.equal(whole.expected_losses(rows), part.expected_losses(rows))
