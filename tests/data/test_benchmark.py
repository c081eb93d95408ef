"""Splits that share no problem."""

import pytest

from selverify.data import benchmark
from selverify.data.benchmark import (
    benchmark_rows,
    build,
    check_held_out,
    check_leaks,
    held_out_marks,
    tasks_from_rows,
)
from selverify.domains import domain_by_name
from selverify.errors import LeakError, ParamsError
from selverify.params import Benchmark, Split


def settings(**sizes: int) -> Benchmark:
    splits = {
        name: Split(problems=sizes.get(name, 20), seed=seed)
        for seed, name in enumerate(("train", "validation", "test"))
    }
    return Benchmark(minimum=4, maximum=6, hard=0.3, **splits)


@pytest.mark.parametrize("name", ["word_problems", "countdown"])
def test_no_problem_stands_twice(name):
    """All fingerprints of all splits differ, even where splits have the same seed."""
    same_seed = settings(train=40).model_copy(
        update={"train": Split(problems=40, seed=5), "test": Split(problems=20, seed=5)}
    )
    same_seed = same_seed.model_copy(update={"minimum": 4, "maximum": 4})
    tasks = build(domain_by_name(name), same_seed)
    assert len({task.fingerprint for task in tasks}) == len(tasks) == 80
    check_leaks(tasks)


def test_test_split_does_not_depend_on_the_others():
    """A larger training split leaves every test problem as it is."""
    domain = domain_by_name("word_problems")
    small, large = (
        [t.problem for t in build(domain, settings(train=n)) if t.split == "test"] for n in (5, 50)
    )
    assert small == large


def test_leak_names_both_problems():
    """A test problem among the training problems is refused by name."""
    tasks = build(domain_by_name("word_problems"), settings())
    test = next(task for task in tasks if task.split == "test")
    train = next(task for task in tasks if task.split == "train")
    leaked = type(train)("train", train.problem, train.truth, test.fingerprint)
    with pytest.raises(LeakError, match=f"'{train.problem.problem_id}'.*'test'.*test-00000"):
        check_leaks([*tasks, leaked])


def test_a_checkpoint_must_have_held_out_the_problems():
    """Problems that were not held out when a checkpoint was trained are refused by name."""
    tasks = build(domain_by_name("word_problems"), settings())
    marks = held_out_marks(tasks)
    check_held_out(tasks, marks, checkpoint="models/x")
    more = build(domain_by_name("word_problems"), settings(test=21))
    with pytest.raises(LeakError, match=r"^models/x.*'word_problems-test-00020'.*'test'"):
        check_held_out(more, marks, checkpoint="models/x")


def test_training_problems_that_were_not_held_out_are_counted():
    """They are no leak, and the number is given back."""
    marks = held_out_marks(build(domain_by_name("word_problems"), settings()))
    more = build(domain_by_name("word_problems"), settings(train=23))
    assert check_held_out(more, marks, checkpoint="models/x") == 3


def test_more_problems_than_there_are_are_refused(monkeypatch):
    """Countdown has 1,346 solvable hands of four cards; two cards have far fewer."""
    monkeypatch.setattr(benchmark, "MOST_DRAWS", 2000)
    two = settings(train=60).model_copy(update={"minimum": 2, "maximum": 2})
    with pytest.raises(ParamsError, match=r"^benchmark.countdown.\w+.problems: given \d+, expect"):
        build(domain_by_name("countdown"), two)


def test_rows_round_trip():
    """Tables give back the tasks of a split, in order."""
    tasks = build(domain_by_name("word_problems"), settings())
    problems, truths = benchmark_rows(tasks)
    for split in ("train", "validation", "test"):
        assert tasks_from_rows(problems, truths, split) == tuple(
            t for t in tasks if t.split == split
        )
