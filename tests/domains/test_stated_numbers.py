"""The numbers that a text states."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest

from selverify.domains.stated_numbers import MAX_NUMBERS, stated_numbers


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("", ""),
        ("no numbers here", ""),
        ("$1,200.50 or 1\u00a0200 or .5", "1200.5 1200 0.5"),
        ("1,2345", "1 2345"),
        ("35% and 35 percent", "35 0.35"),
        ("7 per cent, 75 cents, 9\u00a2", "7 0.07 75 0.75 9 0.09"),
        ("1/2 of it", "1 2 1/2"),
        ("3 1/2 cups", "3 1 2 1/2 7/2"),
        ("3\u00bd cups", "3 1 2 1/2 7/2"),
        ("3 and 1/2 cups", "3 1 2 1/2 7/2"),
        ("1/0", "1 0"),
        ("twenty-five", "20 5 25"),
        ("One hundred and twenty, and 4", "1 100 20 120 4"),
        ("two thousand five hundred", "2 1000 5 100 2500"),
        ("2.5 million", "2500000 1000000"),
        ("five and six", "5 6"),
        ("two-thirds", "2 3 1/3 2/3"),
        ("half", "2 1/2"),
        ("two and a half", "2 1/2 5/2"),
        ("three dozen", "3 12 36"),
        ("a dozen, twice, a couple, thrice", "12 2 3"),
        ("9" * 13, ""),
        ("25k, $10K or 1.5M", "25 25000 10 10000 1.5 1500000 1000 1000000"),
        ("$2.5m, but 3 m and 4km", "2.5 2500000 1000000 3 4"),
        ("a week of 7kg", "7"),
        ("3\u215c", "3 8 3/8 27/8"),
        ("\u2156", "2 5 2/5"),
        ("\u2159", "1 6 1/6"),
        ("8:30 to 9:15", "8 30 9 15"),
        ("-4", "4"),
        ("\uff11 \u0661 \u00b2", ""),
    ],
)
def test_what_is_stated(text: str, stated: str) -> None:
    """Signs do not count, and parts are stated with the whole."""
    assert stated_numbers(text) == frozenset(map(Fraction, stated.split()))


@pytest.mark.parametrize(
    "piece",
    [
        *("1 ", "1/", "1,000", "one ", "and ", "hundred ", "one hundred and ", "3 1/2 ", "%"),
        *("half ", "1", "1k ", "$1", "$"),
    ],
)
def test_a_long_text_takes_linear_time(piece: str) -> None:
    began = time.process_time()
    stated_numbers(piece * (50_000 // len(piece)))
    assert time.process_time() - began < 1.0


def test_so_many_numbers_are_kept() -> None:
    text = " ".join(map(str, range(2 * MAX_NUMBERS)))
    assert len(stated_numbers(text)) == MAX_NUMBERS
