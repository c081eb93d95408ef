import numpy as np
import pytest

from selverify.data.difficulty import bin_agreement, difficulty_bins
from selverify.errors import ParamsError, SchemaError


def test_easy_problems_get_bin_one() -> None:
    """The highest pass rates fall into bin 1 and the lowest into the last bin."""
    rates = [0.9, 0.1, 0.5, 0.7, 0.3]
    assert difficulty_bins(rates, bins=5, seed=0).tolist() == [1, 5, 3, 2, 4]


@pytest.mark.parametrize("problems", [5, 7, 12, 150])
def test_bins_have_equal_size(problems: int) -> None:
    """Sizes differ by at most one, even when most problems are never solved."""
    rates = np.zeros(problems)
    rates[0] = 1.0
    found = difficulty_bins(rates, bins=5, seed=1)
    sizes = np.bincount(found, minlength=6)[1:]
    assert sizes.sum() == problems
    assert sizes.max() - sizes.min() <= 1
    assert found[0] == 1


def test_ties_follow_the_seed() -> None:
    """Equal rates are ordered by the seed: the same one repeats, another one differs."""
    rates = np.full(40, 0.5)
    first = difficulty_bins(rates, bins=5, seed=3)
    assert np.array_equal(first, difficulty_bins(rates, bins=5, seed=3))
    assert not np.array_equal(first, difficulty_bins(rates, bins=5, seed=4))


def test_bad_arguments_are_refused() -> None:
    """More bins than problems, and a rate above 1, are errors that say so."""
    with pytest.raises(ParamsError, match="given 5 for 2 problems"):
        difficulty_bins([0.1, 0.2], bins=5, seed=0)
    with pytest.raises(SchemaError, match="outside"):
        difficulty_bins([0.1, 1.2], bins=2, seed=0)


def test_agreement_of_equal_and_of_reversed_halves() -> None:
    """Equal distinct rates agree everywhere; reversed ones only in the middle bin."""
    rates = np.linspace(0.0, 1.0, 25)
    same = bin_agreement(rates, rates, bins=5, seed=0)
    assert (same.same_bin, same.spearman) == (1.0, pytest.approx(1.0))
    turned = bin_agreement(rates, rates[::-1], bins=5, seed=0)
    assert (turned.same_bin, turned.spearman) == (pytest.approx(0.2), pytest.approx(-1.0))


def test_ties_do_not_agree_by_construction() -> None:
    """Two halves that know nothing agree by chance only, and have no rank correlation."""
    nothing = np.zeros(1000)
    found = bin_agreement(nothing, nothing, bins=5, seed=0)
    assert 0.1 < found.same_bin < 0.3
    assert found.spearman is None


def test_halves_of_different_problems_are_refused() -> None:
    """Halves must hold the same problems."""
    with pytest.raises(SchemaError, match="3 and 2 rates"):
        bin_agreement([0.1, 0.2, 0.3], [0.1, 0.2], bins=2, seed=0)
