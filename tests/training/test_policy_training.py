"""The residual and the distance learn what their losses say."""

import resource
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from threading import Event

import pytest
import torch

from selverify.audit.learned_orders import RANKER_SETTINGS, named_scorers
from selverify.audit.orders import LEARNED
from selverify.errors import ArtifactError, ProtocolError, SchemaError
from selverify.models.heuristic.embedding import Embeddings, concatenate
from selverify.models.heuristic.familiarity import Familiarity
from selverify.models.heuristic.hybrid import Heuristic, scorers
from selverify.training import policy
from selverify.training.fit import Epoch
from selverify.training.policy import (
    PLAIN,
    LabelledList,
    MappedLists,
    reference_dispersion,
    split_lists,
    train_policy,
)

SETTINGS = RANKER_SETTINGS.model_copy(
    update={"weight_decay": 0.0, "pairs_per_state": 6, "validation_fraction": 0.25, "seed": 3}
)


def quiet(_: Epoch) -> None:
    """No log."""


def trained(data: list[LabelledList], **changes: object) -> Heuristic:
    """The heuristic, under other settings."""
    return train_policy(MappedLists(data), SETTINGS.model_copy(update=changes), report=quiet)[0]


def held_out(data: list[LabelledList]) -> list[LabelledList]:
    """The lists that the training does not learn from."""
    return [data[place] for place in split_lists(data, SETTINGS)[1]]


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
        MappedLists(data),
        settings,
        report=lambda epoch: seen[epoch.part].append(epoch.validation_loss),
    )
    assert min(seen["residual"]) < 0.1
    for part in ("plain residual", "wordless residual", "printed residual"):
        assert min(seen[part]) < 0.1, part
    assert min(seen["acceptance"]) < 0.35
    assert min(seen["expected score"]) < 0.35
    held = held_out(data)[0]
    rows = held.rows
    scores = heuristic(rows) if rank_on == "hybrid" else heuristic.residual(rows)
    labels = torch.tensor(held.labels)
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
    heuristic = trained(data, epochs=1)
    rows = concatenate([item.rows for item in held_out(data)])
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
    held = held_out(data)
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
        MappedLists(lists(120, noise=True)),
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
    """No distance without right trajectories; the last epoch without a held-out contrast."""
    data = lists(20)
    one = data[split_lists(data, SETTINGS)[0][0]].problem_id
    lost = [
        replace(item, remaining=None, labels=item.labels if item.problem_id == one else (True,) * 6)
        for item in data
    ]
    short, long = (trained(lost, epochs=epochs) for epochs in (1, 4))
    assert not short.distance.head[1].weight.requires_grad
    first, last = (one.residual.head[1].weight for one in (short, long))
    assert not torch.equal(first, last)


def contrasting(*places: int) -> list[LabelledList]:
    """Twenty lists, of which those at ``places`` alone have an accepted and a rejected move."""
    return [
        item if at in places else replace(item, labels=(True,) * 6)
        for at, item in enumerate(lists(20))
    ]


@pytest.mark.parametrize("places", [(3,), (3, 4)])
@pytest.mark.parametrize("rank_on", ["hybrid", "residual"])
def test_what_is_not_a_number_ends_the_training(
    monkeypatch, places: tuple[int, ...], rank_on: str
) -> None:
    """At the first held-out pairs that h orders, and at the latest before it is used."""

    def broken(heuristic: Heuristic, *_: object) -> None:
        heuristic.distance.head[1].weight.data.fill_(float("nan"))

    monkeypatch.setattr(policy, "_fit_distance", broken)
    early = rank_on == "hybrid" and len(places) == 2
    with pytest.raises(ProtocolError, match="held-out loss" if early else "weights of the ranker"):
        trained(contrasting(*places), rank_on=rank_on, epochs=2)


def test_both_parts_get_an_order_to_learn_where_few_lists_have_one():
    """Whichever two of the problems these are."""
    for place in range(19):
        few = contrasting(place, place + 1)
        for part in split_lists(few, SETTINGS):
            assert any(not all(few[at].labels) for at in part)


def test_the_only_list_with_an_order_is_learned_from() -> None:
    for place in range(20):
        assert place in split_lists(contrasting(place), SETTINGS)[0]


def test_one_problem_is_left_to_learn_from() -> None:
    """However many are held out."""
    settings = SETTINGS.model_copy(update={"validation_fraction": 1.0})
    assert [len(part) for part in split_lists(lists(20), settings)] == [1, 19]


def test_problems_are_not_split():
    """All lists of a problem fall on the same side."""
    data = [*lists(20), *lists(20)]
    training, held = split_lists(data, SETTINGS)
    assert not {data[at].problem_id for at in training} & {data[at].problem_id for at in held}
    assert sorted(training + held) == list(range(40))


def test_what_is_left_out_changes_nothing_else() -> None:
    """An audit's ranker has the orders and the rejections of one that was trained whole."""
    settings = SETTINGS.model_copy(update={"epochs": 5})
    whole, part = (
        train_policy(MappedLists(lists(40)), settings, report=quiet, **given)[0]
        for given in ({}, {"also": (PLAIN,)})
    )
    rows = lists(3)[2].rows
    for name in LEARNED:
        assert torch.equal(named_scorers(whole)[name](rows), named_scorers(part)[name](rows)), name
    assert torch.equal(whole(rows), part(rows))
    assert torch.equal(whole.reject_probabilities(rows), part.reject_probabilities(rows))
    assert not torch.equal(whole.expected_losses(rows), part.expected_losses(rows))


def test_heads_trained_at_once_are_those_of_one_after_the_other(monkeypatch) -> None:
    """To the last bit: each draws its batches from a generator of its own."""
    at_once = trained(lists(60), epochs=5).state_dict()
    monkeypatch.setattr(
        policy,
        "side_by_side",
        lambda train, chains, workers: [train(one, Event()) for one in chains],
    )
    for name, weights in trained(lists(60), epochs=5).state_dict().items():
        assert torch.equal(weights, at_once[name]), name


def test_an_interrupt_ends_both_heads_that_are_trained_at_once(monkeypatch) -> None:
    """At their next batch, long before their last epoch."""
    seen: list[str] = []
    told: list[str] = []  # of one head alone, so that the other is ended by it

    def interrupted(epoch: Epoch) -> None:
        seen.append(epoch.part)
        if not told and {"residual", PLAIN} <= {*seen}:
            told.append(epoch.part)
            raise KeyboardInterrupt

    monkeypatch.setattr(policy, "_fit_distance", lambda *_: None)
    settings = SETTINGS.model_copy(update={"epochs": 3000})
    with pytest.raises(KeyboardInterrupt):
        train_policy(MappedLists(lists(20)), settings, report=interrupted)
    assert {"residual", PLAIN} <= {*seen}
    assert len(seen) < 3000


class InMemory(MappedLists):
    """The obvious version: all rows one below the other in memory, and scored together."""

    def __init__(self, data: list[LabelledList]) -> None:
        self.items = data
        self.starts = [0, *accumulate(len(item.labels) for item in data)]
        self.whole = concatenate([item.rows for item in data])

    def take(self, rows: torch.Tensor) -> Embeddings:
        """Of rows that repeat z_w and z_w* for each move."""
        return self.whole.take(rows)

    def rows(self, place: int) -> Embeddings:
        """As they were given."""
        return self.items[place].rows

    def states(self, places: list[int]) -> torch.Tensor:
        """All of them."""
        return torch.stack([self.items[place].rows.state[0] for place in places])


def test_from_files_the_same_weights_are_learned_to_the_last_bit(monkeypatch) -> None:
    """Of lists of several sizes, some with scores, some of one problem; held-out rows in parts."""
    data = [
        replace(
            item,
            problem_id=f"p{index // 3}",
            rows=item.rows.take(torch.arange(1 + index % 6)),
            labels=item.labels[: 1 + index % 6],
            committed=0 if item.labels[0] else None,
            scores=(0.7,) * (1 + index % 6) if index % 4 == 0 else (),
        )
        for index, item in enumerate(lists(1_400))
    ]
    settings = SETTINGS.model_copy(update={"validation_fraction": 0.9, "epochs": 2})
    found = []
    for part, given in ((2**20, InMemory(data)), (2_048, MappedLists(data))):
        monkeypatch.setattr(policy, "_ROWS_AT_ONCE", part)
        lines: list[str] = []
        heuristic, dispersion = train_policy(
            given, settings, report=lambda epoch, lines=lines: lines.append(str(epoch))
        )
        found.append((heuristic.state_dict(), dispersion, sorted(lines)))  # two at a time
    (whole, obvious, log), (mapped, told, other) = found
    assert other == log
    # A spread is of scores from products of other numbers of rows, which may sum in another order.
    assert told == pytest.approx(obvious, rel=1e-8)
    assert whole.keys() == mapped.keys()
    for name, weights in whole.items():
        assert torch.equal(weights, mapped[name]), name


def test_sigma_bar_is_the_mean_of_the_spreads_of_each_list(monkeypatch) -> None:
    """Scored in parts of whole lists, one longer than a part, as one list after another."""
    sizes = [1, 6, 2, 40, 5, 3, 6, 1, 4, 6, 6, 2]
    data = [
        replace(item, rows=item.rows.take(torch.arange(size) % 6), labels=(True,) * size)
        for item, size in zip(lists(len(sizes)), sizes, strict=True)
    ]
    mapped = MappedLists(data)
    heuristic = Heuristic(4, 2, 8).eval()
    for part in (1, 8, 16, 2**20):
        monkeypatch.setattr(policy, "_ROWS_AT_ONCE", part)
        taken = [(rows.state.shape[0], sum(counts)) for rows, counts in mapped.parts()]
        assert all(rows == counted for rows, counted in taken)
        assert sum(rows for rows, _ in taken) == sum(sizes)
        found = reference_dispersion(heuristic, mapped)
        for name, scorer in scorers(heuristic).items():
            spreads = [float(scorer(item.rows).std(correction=0)) for item in data]
            assert found[name] == pytest.approx(sum(spreads) / len(sizes), rel=1e-5, abs=1e-8)


def test_lists_come_one_by_one_and_leave_nothing_behind(monkeypatch, tmp_path) -> None:
    """While one is written at most the one before is held; the files have no name."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alive: list[weakref.ref[torch.Tensor]] = []

    def one_by_one() -> Iterator[LabelledList]:
        for item in lists(20):
            move = item.rows.move.clone()
            alive.append(weakref.ref(move))
            own = replace(item, rows=item.rows._replace(move=move))
            del move
            yield own
            del own
            assert sum(one() is not None for one in alive) <= 2

    def mapped_files() -> list[str]:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        return [one for one in maps if f"{tmp_path}/" in one]

    mapped = MappedLists(one_by_one())
    assert not any(one() is not None for one in alive)
    assert not list(tmp_path.iterdir())
    assert mapped_files()
    assert all(one.endswith("(deleted)") for one in mapped_files())
    for place, item in enumerate(lists(20)):
        for wanted, column in zip(item.rows, mapped.rows(place), strict=True):
            assert torch.equal(wanted, column)
    del mapped, column
    assert not mapped_files()


def test_moves_of_one_state_share_their_state() -> None:
    """Else all would be learned with the first one's."""
    item = lists(1)[0]
    almost = item.rows.state * (1 + 0.01 * torch.rand(6, 4))
    MappedLists([replace(item, rows=item.rows._replace(state=almost))])
    for name in ("state", "goal"):
        other = getattr(item.rows, name).clone()
        other[3] = 0.0
        with pytest.raises(
            SchemaError, match=f"p0: .* different rows of '{name}', expected the same"
        ):
            MappedLists([replace(item, rows=item.rows._replace(**{name: other}))])


def test_a_full_disk_is_a_sentence() -> None:
    """Where embeddings are kept there may be less space than they take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        with pytest.raises(ArtifactError, match=r"TMPDIR: .* File too large; expected space"):
            MappedLists(lists(20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_of_many_states_evenly_spaced_ones_say_what_is_familiar(monkeypatch) -> None:
    """No more than fit into memory."""
    mapped = MappedLists(lists(20))
    whole = mapped.states(range(20))
    assert torch.equal(whole, torch.stack([item.rows.state[0] for item in lists(20)]))
    monkeypatch.setattr(policy, "_MOST_STATES", 9)
    assert torch.equal(mapped.states(range(20)), whole[::3])
    assert len(mapped.states([])) == 0


def test_no_lists_are_refused_as_lists_without_a_contrast_are() -> None:
    """Nothing can be mapped of an empty file."""
    with pytest.raises(SchemaError, match="none of 0 training lists"):
        trained([])
