"""A ranker of one's own: trained on a log, saved, loaded, asked, and what it does not do."""

from __future__ import annotations

import json
import math
import os
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import stand_in
from proxy import Proxy
from recorded_lists import recorded_list, stopped
from typer.testing import CliRunner, Result

import selverify
from selverify import CandidateList, Ranker, cli, storage
from selverify import ranker as module
from selverify.audit.counterfactual import Outcomes
from selverify.audit.log import (
    LONGEST_TEXT,
    Log,
    RecordedCandidate,
    RecordedList,
    RecordedSample,
    write_log,
)
from selverify.audit.ranking_rule import _safe, problems_to_skip
from selverify.audit.training_log import MOST_STEPS, TrainingLists, read_lists
from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.ranker import CARD, DESCRIBED, WEIGHTS
from selverify.storage import write_digests

PROBLEMS, STATES, MOVES = 40, 3, 5
END = "\n\n"
WORDS = ("So", "Then", "Thus", "Now", "Next")
PROSE = CandidateList(
    "Tell me, at some length and without a single figure, who wrote the old ballads of the north, "
    "and why nobody remembers a name.",
    ["They were sung long before anyone wrote them down."],
    ["Nobody wrote them.", "Minstrels did, and then forgot.", "It hardly matters any more."],
)


def sums(seed: int) -> list[RecordedList]:
    """Additions step by step; a move is right if its sum is, and one state in eight has none."""
    rng, found = random.Random(seed), []
    for problem in range(PROBLEMS):
        digits = [rng.randint(2, 9) for _ in range(STATES + 1)]
        prefix: list[str] = []
        total = digits[0]
        for state, digit in enumerate(digits[1:]):
            right = set() if rng.random() < 0.125 else set(rng.sample(range(MOVES), 2))
            moves = []
            for place in range(MOVES):
                result = total + digit + (0 if place in right else rng.randint(1, 5))
                text = f"{WORDS[place]} {total} + {digit} = {result}."
                moves.append(RecordedCandidate(text=text, label=place in right))
            found.append(
                recorded_list(
                    moves,
                    problem=f"p{problem}",
                    state=f"p{problem}-{state}",
                    question=f"What is {' + '.join(map(str, digits))}?",
                    prefix=prefix,
                )
            )
            prefix.append(f"{total} + {digit} = {total + digit}")
            total += digit
    return found


def asked(one: RecordedList) -> CandidateList:
    return CandidateList(one.question, one.prefix, [each.text for each in one.candidates])


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return Ranker.train(sums(1), encoder="free", source="sums")


@pytest.fixture
def folder(ranker: Ranker, tmp_path: Path) -> Path:
    ranker.save(tmp_path / "ranker")
    return tmp_path / "ranker"


def test_all_files_of_a_ranker_can_be_read_by_those_who_read_one(folder: Path) -> None:
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_it_says_what_to_verify_on_problems_it_has_not_seen(ranker: Ranker) -> None:
    """Nearly always a right step is among those, for fewer calls than all of them."""
    lists = sums(2)
    plans = ranker.plan_many([asked(one) for one in lists])
    found, calls, reachable = 0, 0, 0
    for one, plan in zip(lists, plans, strict=True):
        right = {place for place, each in enumerate(one.candidates) if each.label}
        reachable += bool(right)
        found += bool(right & set(plan.order[: max(plan.verify, 1)]))
        calls += plan.verify
        assert sorted(plan.order) == list(range(MOVES))
        assert plan.skip is (plan.verify == 0)
        assert all(0.0 <= chance <= 1.0 for chance in plan.reject_probability)
    assert found >= 0.98 * reachable
    assert calls < 0.5 * MOVES * len(lists)


def test_it_is_the_same_after_it_was_saved(ranker: Ranker, folder: Path) -> None:
    """Plans, rule and card; a ranker that is there is replaced, and nothing else is."""
    states = [asked(one) for one in sums(3)]
    loaded = Ranker.load(folder)
    assert loaded.plan_many(states) == ranker.plan_many(states)
    assert loaded.described == ranker.described and loaded.card == ranker.card
    assert loaded.digest() == ranker.digest()
    ranker.save(folder)
    other = folder.parent / "other"
    other.mkdir()
    for place in (folder, other):
        (place / "thesis.txt").write_text("years of work")
        with pytest.raises(ArtifactError, match=r"else than a ranker \('thesis.txt'\)"):
            ranker.save(place)
    (folder / "thesis.txt").unlink()
    assert (other / "thesis.txt").is_file()
    assert {one.name for one in folder.iterdir()} == {DESCRIBED, WEIGHTS, CARD, "digests.json"}


@pytest.mark.parametrize("step", [(storage, "read_json"), (module, "open_embedder")])
def test_one_that_is_replaced_while_it_is_loaded_is_no_mixture(
    ranker: Ranker, folder: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[object, str]
) -> None:
    """It is the old one or the new one, whether or not its digests were read before."""
    described = ranker.described.model_copy(update={"savings": "none"})
    new = replace(ranker, described=described, card="new")
    real: Callable[..., object] = getattr(*step)

    def replacing(*given: object, **named: object) -> object:
        monkeypatch.setattr(*step, real)
        found = real(*given, **named)
        new.save(folder)
        return found

    monkeypatch.setattr(*step, replacing)
    loaded = Ranker.load(folder)
    assert (loaded.card, loaded.described) in ((one.card, one.described) for one in (ranker, new))
    assert Ranker.load(folder).card == "new"


def test_one_that_cannot_be_read_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ArtifactError, match=r"ranker\.json: not read \(Permission denied\), expec"):
        Ranker.load(folder)


def test_the_card_says_what_it_learned_from_and_what_it_saves(ranker: Ranker) -> None:
    """In the numbers of its log."""
    for text in (f"sums: {PROBLEMS * STATES} candidate lists of {PROBLEMS} problems", "free"):
        assert text in ranker.card
    assert ranker.described.savings in ranker.card
    assert f"instead of {MOVES:.2f}" in ranker.described.savings


def test_a_log_in_another_order_teaches_the_same(ranker: Ranker) -> None:
    lists = sums(1)
    random.Random(0).shuffle(lists)
    again = Ranker.train(lists, encoder="free", source="sums")
    assert (again.described, again.card) == (ranker.described, ranker.card)
    assert again.digest() == ranker.digest()


def test_a_log_that_stopped_at_the_first_accepted_is_told(ranker: Ranker) -> None:
    """What is left of it are other states than those of the log."""
    lists = [*sums(1)[: 20 * STATES], *map(stopped, sums(1)[20 * STATES :])]
    whole = [item for item in lists if all(one.label is not None for one in item.candidates)]
    held = sum(any(one.label for one in item.candidates) for item in whole)
    every = sum(any(one.label for one in item.candidates) for item in lists)
    doubted = Ranker.train(lists, encoder="free", source="sums")
    for shown in (doubted.card, doubted.described.savings):
        assert f"Distrust these figures: {len(lists) - len(whole)} of {len(lists)} lists" in shown
        assert f"{held / len(whole):.1%} of these hold an accepted step, and " in shown
        assert f"{every / len(lists):.1%} of all" in shown
    assert "Distrust" not in ranker.card


def test_few_problems_with_an_accepted_step_are_told(ranker: Ranker) -> None:
    """However many problems there are."""
    rejected = _relabelled(sums(1)[: -12 * STATES], False)
    few = Ranker.train(rejected + sums(1)[-12 * STATES :], encoder="free")
    assert "12 problems with an accepted candidate: too few for the intervals" in few.card
    assert f"{PROBLEMS} problems are too few to say where one can be done without" in few.card
    assert "too few for the intervals" not in ranker.card


def test_a_call_is_not_skipped_on_the_evidence_of_two_problems() -> None:
    """However many states they have: states of one problem are not independent."""
    outcomes = Outcomes(np.zeros(240), np.ones(240), np.ones(240))
    known = np.ones(240, dtype=bool)
    alike, apart = np.arange(240) % 2, np.arange(240)
    assert not _safe([outcomes], known, problems=alike, wanted=0.98).any()
    assert _safe([outcomes], known, problems=apart, wanted=0.98).all()
    assert not _safe([outcomes], known & (apart < 20), problems=apart, wanted=0.98).any()
    wrong = outcomes._replace(found=np.where(apart < 8, 0.0, 1.0))
    assert not _safe([wrong], known, problems=apart, wanted=0.98).any()
    needed = problems_to_skip(0.98) // 2
    for problems in (needed, needed - 1):
        allowed = _safe([outcomes], known, problems=np.arange(240) % problems, wanted=0.98)
        assert allowed.tolist() == [problems == needed]
    asked_about = outcomes._replace(calls=np.ones(240))
    assert _safe([asked_about], known, problems=alike, wanted=0.98).all()
    elsewhere = outcomes._replace(calls=(apart < 120).astype(float))
    assert not _safe([elsewhere], known & (apart < 120), problems=apart, wanted=0.98).any()


def test_a_state_is_planned_alone_as_among_others(ranker: Ranker) -> None:
    states = [asked(one) for one in sums(4)[:20]]
    together = ranker.plan_many([*states, PROSE])
    for one, plan in zip(states, together[:-1], strict=True):
        alone = ranker.plan(one.question, one.steps, one.candidates)
        assert (alone.order, alone.verify, alone.skip) == (plan.order, plan.verify, plan.skip)
        assert alone.reject_probability == pytest.approx(plan.reject_probability, abs=1e-5)


def test_a_state_of_another_kind_gets_every_call(ranker: Ranker) -> None:
    """And its candidates stay in the order in which they came."""
    plan = ranker.plan_many([PROSE])[0]
    assert not plan.familiar and not plan.skip
    assert plan.order == (0, 1, 2) and plan.verify == 3
    familiar = [one.familiar for one in ranker.plan_many([asked(one) for one in sums(5)])]
    assert sum(familiar) > 0.9 * len(familiar)


def test_what_is_familiar_does_not_depend_on_the_candidates(ranker: Ranker) -> None:
    """A search asks of the first of them again."""
    for one in map(asked, sums(5)):
        whole = ranker.plan(one.question, one.steps, one.candidates)
        alone = ranker.plan(one.question, one.steps, one.candidates[:1])
        assert whole.familiar == alone.familiar


def test_equal_candidates_are_verified_once(ranker: Ranker) -> None:
    one = asked(sums(6)[0])
    texts = [one.candidates[0], *one.candidates, one.candidates[1]]
    plan = ranker.plan(one.question, one.steps, texts)
    assert sorted(plan.order) == [0, 2, 3, 4, 5]
    assert plan.reject_probability[0] == plan.reject_probability[1]
    assert plan.reject_probability[2] == plan.reject_probability[6]


def test_partial_solutions_are_picked_as_their_states_are_planned(ranker: Ranker) -> None:
    """The states mixed, with or without a separator at the end; equal ones share a score."""
    states = [asked(one) for one in sums(6)[:6]]
    pairs = [
        (one.question, END.join((*one.steps, text)) + END * (place % 2))
        for place, texts in enumerate(zip(*(one.candidates for one in states), strict=True))
        for one, text in zip(states, texts, strict=True)
    ]
    pairs.append((pairs[0][0], pairs[0][1] + END))
    picked = ranker.pick(*zip(*pairs, strict=True), separator=END)
    assert picked.unverified == tuple(picked.unverified[first] for first in picked.same)
    plans = ranker.plan_many(states)
    assert len(picked.places) == sum(plan.verify for plan in plans)
    scores = picked.fill([2.0] * len(picked.places), float)
    by_text: dict[tuple[str, str], set[float]] = {}
    for (question, text), score in zip(pairs, scores, strict=True):
        by_text.setdefault((question, text.removesuffix(END)), set()).add(score)
    for one, plan in zip(states, plans, strict=True):
        chances = plan.reject_probability
        for rank, place in enumerate(plan.order):
            expected = -chances[place] if rank >= plan.verify else 2.0
            expected += plan.skip and rank == 0
            text = END.join((*one.steps, one.candidates[place]))
            assert list(by_text[one.question, text]) == [pytest.approx(expected)]
    assert ranker.pick([], [], separator=END).fill([], float) == []
    with pytest.raises(ParamsError, match="separator: given an empty text"):
        ranker.pick(["q"], ["a"], separator="")


def test_texts_that_begin_with_a_separator_are_states_of_their_own(ranker: Ranker) -> None:
    """Nothing is known of such states: every text is verified."""
    question = PROSE.question
    picked = ranker.pick([question] * 3, ["A", f"{END}A", f"{END}{END}A"], separator=END)
    assert sorted(picked.places) == [0, 1, 2]


@pytest.mark.parametrize("text", ["9" * (LONGEST_TEXT + 1), "\ud800 + 1 = 2", ""])
def test_what_cannot_be_read_well_gets_every_call_or_a_plan(ranker: Ranker, text: str) -> None:
    one = asked(sums(6)[0])
    plan = ranker.plan(one.question, one.steps, [text, one.candidates[0]])
    assert sorted(plan.order) == [0, 1]
    assert plan.familiar or plan.verify == 2
    assert plan.familiar is False or len(text) < 100


def test_one_candidate_is_a_plan(ranker: Ranker) -> None:
    one = asked(sums(6)[0])
    plan = ranker.plan(one.question, one.steps, one.candidates[:1])
    assert plan.order == (0,) and plan.verify in (0, 1)


def test_what_is_no_text_cannot_be_picked_from(ranker: Ranker) -> None:
    for questions, texts in ((["q"], ["a", "b"]), (["q"], [5]), ([None], ["a"])):
        with pytest.raises(SchemaError, match="expected"):
            ranker.pick(questions, texts, separator="\n")
    with pytest.raises(SchemaError, match="state 0: given a tuple, expected a CandidateList"):
        ranker.plan_many([("q", [], ["a"])])


def test_bad_states_are_one_sentence(ranker: Ranker) -> None:
    one = asked(sums(6)[0])
    with pytest.raises(SchemaError, match="state 0: given no candidates, expected at least one"):
        ranker.plan(one.question, one.steps, [])
    for steps, candidates in (("abc", ["a"]), ([], "abc"), ([None], ["a"]), ([], [3])):
        with pytest.raises(SchemaError, match="to be a list of texts"):
            ranker.plan(one.question, steps, candidates)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="the question to be a text"):
        ranker.plan(None, [], ["a"])  # type: ignore[arg-type]


def _relabelled(lists: Sequence[RecordedList], label: bool | None) -> list[RecordedList]:
    return [
        one.model_copy(
            update={
                "candidates": tuple(
                    each.model_copy(update={"label": label}) for each in one.candidates
                )
            }
        )
        for one in lists
    ]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (sums(1)[:6], "problems with an accepted move: given 2, expected at least 5"),
        (_relabelled(sums(1), False), "of 600 verdicts 0 count as accepted"),
        (_relabelled(sums(1), True), "of 600 verdicts 600 count as accepted"),
        (
            [one.model_copy(update={"candidates": one.candidates[:1]}) for one in sums(1)],
            "120 of them with a verdict on every candidate and 0 of these with several",
        ),
        (_relabelled(sums(1), None), "no candidate of the log has a"),
    ],
)
def test_a_log_that_teaches_nothing_is_one_sentence(
    lists: list[RecordedList], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        Ranker.train(lists, encoder="free")


IMPOSSIBLE = {
    "scorer": ["nonsense", "printed"],
    "k_base": [math.nan, math.inf, 0.5],
    "beta": [math.nan],
    "k_max": [0, -5, 1 << 60],
    "skip_below": [0.0, 1.0, 2.0, math.nan],
}
"""Of a rule, what no training writes."""


def test_damaged_and_foreign_folders_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such file; expected a ranker"):
        Ranker.load(tmp_path / "nothing")
    described = json.loads((folder / DESCRIBED).read_text())
    for change, message in (
        ({"schema_version": 99}, "a ranker of version 99, expected"),
        ({"probe": [9.0] * len(described["probe"])}, "gives other numbers than when"),
        ({"hidden": "x"}, "hidden"),
        *(({"width": size}, "width: given") for size in (0, -1, (1 << 16) + 1, 1 << 40)),
        ({"seen": -1}, "seen: given"),
        ({"hidden": -1}, "hidden: given"),
        *(({"width": size}, r"do not fit ranker\.json") for size in (3, 1 << 16)),
        *(
            ({"rule": {**described["rule"], name: value}}, rf"rule\.{name}: given")
            for name, values in IMPOSSIBLE.items()
            for value in values
        ),
        ({"encoder": "wordllama+free"}, "gives other numbers than when"),
    ):
        (folder / DESCRIBED).write_text(json.dumps({**described, **change}))
        with pytest.raises(SchemaError, match=r"ranker\.json"):
            Ranker.load(folder)
        write_digests(folder)
        with pytest.raises(SchemaError, match=message):
            Ranker.load(folder)
    (folder / DESCRIBED).write_text("[" * 100_000)
    write_digests(folder)
    with pytest.raises(SchemaError, match=r"ranker\.json: not JSON"):
        Ranker.load(folder)


def test_an_encoder_of_another_width_is_one_sentence(ranker: Ranker, tmp_path: Path) -> None:
    """Also where the numbers that were probed are the same."""
    described = ranker.described.model_copy(update={"seen": 3})
    weights = module._Weights(module.Heuristic(1, 3, described.hidden), module._Known(1))
    replace(ranker, described=described, _weights=weights).save(tmp_path / "ranker")
    with pytest.raises(SchemaError, match="gives other numbers than when"):
        Ranker.load(tmp_path / "ranker")


def test_a_folder_does_not_decide_who_gets_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who trains names the server; who loads names it in the environment."""
    monkeypatch.setenv("SELVERIFY_ENCODER_KEY", "secret")

    def told(server: Proxy) -> set[str | None]:
        found = {one.headers.get("authorization") for one in server.seen}
        server.seen.clear()
        return found

    one = asked(sums(2)[0])
    with Proxy(stand_in.answer) as server:
        trained = Ranker.train(sums(1), encoder=f"server:some/model@{server.url}")
        trained.save(tmp_path / "ranker")
        assert told(server) == {"Bearer secret"}
        for allowed, key in (("http://127.0.0.1:9/v1", None), (server.url, "Bearer secret")):
            monkeypatch.setenv("SELVERIFY_ENCODER_URL", allowed)
            plan = Ranker.load(tmp_path / "ranker").plan(one.question, one.steps, one.candidates)
            assert plan == trained.plan(one.question, one.steps, one.candidates)
            assert told(server) == {key, "Bearer secret"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(one) for one in arguments])


def test_the_command_writes_one_and_says_what_it_saves(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    write_log(sums(1), log)
    ended = run("train", log, "-o", tmp_path / "ranker", "--encoder", "free")
    assert ended.exit_code == 0, ended.output
    assert "On problems that it was not trained on it makes" in ended.output
    loaded = selverify.Ranker.load(tmp_path / "ranker")
    assert "log.jsonl" in loaded.card


def test_samples_that_teach_nothing_are_told(tmp_path: Path) -> None:
    """Those without a question, without scores, or with too few of them."""
    log = tmp_path / "log.jsonl"
    whole = RecordedSample(
        problem_id="p", run="r", model="m", question="q", sample=0, steps=("a", "b"),
        step_scores=(0.9, 0.1),
    )  # fmt: skip
    changes = ({"question": None}, {"step_scores": None}, {"step_scores": (0.5,)}, {})
    write_log(
        [
            whole.model_copy(update={"sample": place, **change})
            for place, change in enumerate(changes)
        ],
        log,
    )
    lists, told = read_lists(log)
    assert len(lists) == len(list(lists)) == 2
    assert "3 of 4 samples left out: without a question, without one score a step" in told[0]
    write_log(sums(1), log)
    lists, told = read_lists(log)
    assert (list(lists), told) == (sums(1), [])
    assert "seed: given" in run("train", log, "-o", tmp_path / "r", "--seed", 1 << 70).stderr


def test_scored_samples_are_lists_of_their_next_steps() -> None:
    """Those that begin alike share a state."""
    scored = [
        RecordedSample(
            problem_id="p", run="r", model="m", question="q", sample=place, steps=steps,
            step_scores=scores,
        )
        for place, (steps, scores) in enumerate(
            [(("a", "b"), (0.9, 0.1)), (("a", "c"), (0.8, 0.7)), (("d",), (0.2,))]
        )
    ]  # fmt: skip
    for order in (scored, scored[::-1]):
        lists = TrainingLists.of(Log.of(order))
        found = {one.prefix: [(c.text, c.score) for c in one.candidates] for one in lists}
        assert found == {
            (): [("a", 0.9), ("d", 0.2)],
            ("a",): [("b", 0.1), ("c", 0.7)],
        }


def scored_sample(place: int, steps: int, model: str = "m") -> RecordedSample:
    return RecordedSample(
        problem_id=f"p{place}", run="r", model=model, question="q", sample=0,
        steps=[f"step {number}" for number in range(steps)], step_scores=(0.5,) * steps,
    )  # fmt: skip


def test_long_samples_take_memory_as_their_steps_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list's prefix is made when the list is asked for; of more steps a sample is left out."""
    monkeypatch.setattr(module, "MOST_LISTS", 2 * MOST_STEPS)
    lists = TrainingLists.of(Log.of(scored_sample(n, MOST_STEPS + n % 2) for n in range(16)))
    assert len(lists) == 8 * MOST_STEPS
    tracemalloc.start()
    kept = list(module._some_lists(lists, 0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(Counter(one.problem_id for one in kept).values()) == {MOST_STEPS // 4}
    assert len(kept) == 2 * MOST_STEPS
    assert peak < 8 * MOST_STEPS * len(kept)  # bytes: of the drawn ones, not of all


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        ([50] * 3, {50: 50}),  # few enough
        ([150] * 3, {150: 66}),  # shared among all
        ([10, 10, 300], {10: 10, 300: 180}),
        ([10] * 30, {10: 10}),  # whole problems
        ([60] * 60, {60: 10}),  # not fewer than of 20 problems
    ],
)
def test_of_a_large_log_large_problems_are_drawn_from(
    sizes: list[int], most: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many lists each of them has; by the seed, in whatever order they come."""
    monkeypatch.setattr(module, "MOST_LISTS", 200)
    monkeypatch.setattr(module, "FEWEST_PROBLEMS", 20)
    lists = [
        recorded_list([RecordedCandidate(text="a")], problem=f"p{name}", state=f"{name}-{number}")
        for name, size in enumerate(sizes)
        for number in range(size)
    ]
    kept = list(module._some_lists(lists, 0))
    counts = Counter(one.problem_id for one in kept)
    assert {(sizes[int(name[1:])], count) for name, count in counts.items()} == set(most.items())
    assert len(kept) >= min(len(lists), 200 - max(most.values()))
    assert [*module._some_lists(lists[::-1], 0)][::-1] == kept
    assert len(kept) == len(lists) or [*module._some_lists(lists, 1)] != kept


def test_of_a_large_problem_whole_runs_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LISTS", 10)
    lists = [
        recorded_list([RecordedCandidate(text="a")], state=f"{run}-{number}").model_copy(
            update={"run": f"run {run}"}
        )
        for run in range(20)
        for number in range(4)
    ]
    runs = Counter(one.run for one in module._some_lists(lists, 0))
    assert sorted(runs.values()) == [2, 4, 4]


def test_a_ranker_is_trained_on_a_log_of_large_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LISTS", 2 * PROBLEMS)
    drawn = Ranker.train(sums(1), encoder="free", source="sums")
    assert f"sums (80 of its {PROBLEMS * STATES} lists, drawn at random)" in drawn.card
    assert f"of {PROBLEMS} problems" in drawn.card


def test_samples_of_two_models_share_no_state() -> None:
    found = TrainingLists.of(Log.of([scored_sample(0, 1, "a"), scored_sample(0, 1, "b")]))
    assert [one.model for one in found] == ["a", "b"]


def test_entries_that_an_import_refuses_teach_nothing(tmp_path: Path) -> None:
    """A state given twice with opposite labels; the record is named."""
    log = tmp_path / "rows.jsonl"
    row = {"state_id": "s", "problem": "q", "prefix": []}
    rows = [{**row, "candidates": [{"text": "a", "label": label}]} for label in (1, 0)]
    log.write_text("\n".join(map(json.dumps, rows)))
    for command in (("train", log, "-o"), ("import", "prm800k", log)):
        said = run(*command, tmp_path / "out").stderr
        assert f"{log}, line 2: given the list 'rows', 's' again, expected each once" in said


def test_a_log_of_ours_with_a_field_of_another_format_is_ours(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    entry = {**scored_sample(0, 1).model_dump(), "cand": 1}
    log.write_text(json.dumps(entry))
    said = run("train", log, "-o", tmp_path / "out").stderr
    assert "line 1: cand: given 1, expected no such field" in said


def test_a_log_without_verdicts_or_a_place_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    write_log([RecordedSample(problem_id="p", run="r", model="m", sample=0, steps=("a",))], log)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for source, place, message in (
        (log, tmp_path / "ranker", "1 samples of which 0 have step scores and 0 a question"),
        (tmp_path / "none.jsonl", tmp_path / "ranker", "no such file; expected a log"),
        (log, log / "ranker", f"{log / 'ranker'}: not written (Not a directory)"),
        (pipe, tmp_path / "ranker", "given a pipe, expected a file, because it is read twice"),
    ):
        ended = run("train", source, "-o", place, "--encoder", "free")
        assert ended.exit_code == 1
        assert message in ended.stderr
