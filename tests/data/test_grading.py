import multiprocessing
import time

import pytest
from grading_work import DeadOnArrival, hang_or_answer, prepare_little
from hypothesis import given
from hypothesis import strategies as st

from selverify.data import grading
from selverify.data.grading import Grader, compare_quickly
from selverify.domains.answers import extract_boxed
from selverify.errors import ParamsError, ProtocolError


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"so \boxed{ 42 } .", "42"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {3}", "3"),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"{ stray \boxed{5}", "5"),
        (r"} stray \boxed{5}", "5"),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right."),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{}", ""),
        (r"\\boxed{3}", None),
        (r"\boxed 3", "3"),
        (r"\boxed 3 or \boxed{4}", "4"),
        (r"\boxed", None),
        ("no box", None),
        ("", None),
    ],
)
def test_extract_boxed(text: str, boxed: str | None) -> None:
    """The last balanced box counts; escaped braces are no braces."""
    assert extract_boxed(text) == boxed


@given(st.text(alphabet="{}\\boxed 1", max_size=60))
def test_extract_boxed_is_total_and_balanced(text: str) -> None:
    """On any text it gives None or a part of it in which plain braces balance."""
    found = extract_boxed(text)
    if found is not None:
        plain = found.replace("\\\\", "").replace(r"\{", "").replace(r"\}", "")
        assert found in text
        assert plain.count("{") == plain.count("}")


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("24", "24", "correct"),
        ("24", " 24 ", "correct"),
        ("24", "+024", "correct"),
        ("-0", "0", "correct"),
        ("24", "-24", "wrong"),
        ("24", "25", "wrong"),
        ("x", "x", "correct"),
        ("24", None, "unparsed"),
        ("24", "  ", "unparsed"),
        ("24", "9" * 100_000, "unparsed"),
        ("24", "9" * 900, "wrong"),
    ],
)
def test_strings_and_numbers_need_no_process(gold: str, answer: str | None, status: str) -> None:
    """The fast path settles what the embedded domains need."""
    settled = compare_quickly(gold, answer)
    assert settled is not None
    assert settled.status == status


@pytest.mark.parametrize("answer", ["2.40e1 + 0", "0x18", "2_4", "\uff12\uff14", "24 ;", "9**9**9"])
def test_the_fast_path_decides_nothing_else(answer: str) -> None:
    """What is no number is left open."""
    assert compare_quickly("24", answer) is None


def test_a_settled_batch_starts_no_process() -> None:
    """Workers start only when the fast path leaves a pair open."""
    with Grader(5.0, 2) as grader:
        grades = grader.grade_many((("24", "24"), ("24", "7"), ("24", None)))
        assert multiprocessing.active_children() == []
    assert [grade.status for grade in grades] == ["correct", "wrong", "unparsed"]


def test_math_verify_settles_the_rest() -> None:
    """Equal values in other notations are correct, hostile towers end in time, order is kept."""
    pairs = (
        (r"\frac{1}{2}", "0.5"),
        ("24", "24"),
        ("x^2 + 2x", "2x + x^2"),
        (r"50\%", "0.5"),
        (r"\frac{1}{2}", "0.25"),
        (r"\frac{1}{2}", "0.5"),
        ("x", "  "),
    )
    with Grader(20.0, 1) as grader:
        statuses = [item.status for item in grader.grade_many(pairs)]
        assert grader.grade("0.5", "1/2").correct
    assert statuses == ["correct", "correct", "correct", "correct", "wrong", "correct", "unparsed"]
    assert multiprocessing.active_children() == []


@pytest.fixture
def without_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers load no Math-Verify, which what stands for it in these tests does not use."""
    monkeypatch.setattr(grading, "_prepare", prepare_little)


@pytest.mark.usefixtures("without_algebra")
def test_a_hung_worker_is_killed_and_replaced() -> None:
    """A hang gives timeout within the limit; other pairs are graded; no process stays."""
    pairs = tuple(("ab", answer) for answer in ("hang", "ba", "crash", "raise", "xy"))
    with Grader(1.0, 1, compare=hang_or_answer) as grader:
        statuses = [item.status for item in grader.grade_many(pairs)]
        began = time.perf_counter()
        again = [item.status for item in grader.grade_many(pairs)]
        assert time.perf_counter() - began < 0.9  # memoised: nothing hangs twice
        assert len(multiprocessing.active_children()) == 1
    assert statuses == ["timeout", "correct", "unparsed", "unparsed", "wrong"]
    assert again == statuses
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("without_algebra")
def test_a_grader_works_again_after_close() -> None:
    """Closing twice is harmless and a later batch starts fresh workers."""
    grader = Grader(5.0, 1, compare=hang_or_answer)
    grader.close()
    assert grader.grade_many((("ab", "ba"),))[0].correct
    grader.close()
    grader.close()
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("without_algebra")
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_worker_that_died_idle_is_replaced(seconds: float) -> None:
    """Through no fault of the next pair, which is graded."""
    with Grader(5.0, 1, compare=hang_or_answer) as grader:
        assert grader.matches("ab", "ba")
        (worker,) = multiprocessing.active_children()
        worker.kill()
        worker.join()
        time.sleep(seconds)
        assert grader.matches("cd", "dc")


@pytest.mark.usefixtures("without_algebra")
def test_a_worker_that_does_not_start_is_an_error() -> None:
    """A machine's failure is an exception, not a grade; no process stays."""
    grader = Grader(5.0, 1, compare=DeadOnArrival())
    with pytest.raises(ProtocolError, match="did not start"):
        grader.grade_many((("a", "b"),))
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("seconds", "workers"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_limits_are_checked(seconds: float, workers: int) -> None:
    """A limit of no time or no workers is refused by name."""
    with pytest.raises(ParamsError, match=f"seconds {seconds} and workers {workers}"):
        Grader(seconds, workers)
