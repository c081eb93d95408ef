"""Difficulty bins from pass rates (Snell et al. 2024, section 3.2).

Knows: pass rates and ranks. Does not know: how the rates were sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from selverify.errors import ParamsError, SchemaError


@dataclass(frozen=True, slots=True)
class BinAgreement:
    """How far two independent estimates of difficulty agree.

    ``same_bin`` is the share of problems in the same bin; ``spearman`` is the rank correlation of
    the rates, None when one half has the same rate everywhere.
    """

    same_bin: float
    spearman: float | None


def difficulty_bins(pass_rates: npt.ArrayLike, *, bins: int, seed: int) -> npt.NDArray[np.int64]:
    """Bins of equal size by rank of pass@1: 1 holds the easiest problems, ``bins`` the hardest.

    Sizes differ by at most one. Problems with equal rates are put in an order drawn from ``seed``,
    because a threshold can leave the hardest bin empty.

    Args:
        pass_rates: [problem], each in [0, 1].

    Returns:
        [problem], each in 1..bins.

    Raises:
        ParamsError: fewer problems than bins, or no bin.
        SchemaError: a rate outside [0, 1].
    """
    rates = np.asarray(pass_rates, dtype=np.float64)
    if not 1 <= bins <= rates.size:
        raise ParamsError(f"difficulty.bins: given {bins} for {rates.size} problems")
    if not np.all((rates >= 0.0) & (rates <= 1.0)):
        raise SchemaError("pass_at_1: given a rate outside [0, 1]")
    ties = np.random.default_rng(seed).permutation(rates.size)
    ranks = np.empty(rates.size, dtype=np.int64)
    ranks[np.lexsort((ties, -rates))] = np.arange(rates.size)
    return ranks * bins // rates.size + 1


def bin_agreement(
    first_half: npt.ArrayLike, second_half: npt.ArrayLike, *, bins: int, seed: int
) -> BinAgreement:
    """Agreement of the bins that two disjoint halves of the samples give.

    Each half breaks its ties by its own seed; one seed for both would make ties agree.

    Args:
        first_half, second_half: [problem] pass rates of the same problems in the same order.
    """
    first, second = np.asarray(first_half, np.float64), np.asarray(second_half, np.float64)
    if first.shape != second.shape:
        raise SchemaError(f"given {first.size} and {second.size} rates, expected as many of each")
    seeds = [int(part.generate_state(1)[0]) for part in np.random.SeedSequence(seed).spawn(2)]
    one = difficulty_bins(first, bins=bins, seed=seeds[0])
    two = difficulty_bins(second, bins=bins, seed=seeds[1])
    constant = np.ptp(first) == 0.0 or np.ptp(second) == 0.0
    correlation = None if constant else float(stats.spearmanr(first, second).statistic)
    return BinAgreement(float(np.mean(one == two)), correlation)
