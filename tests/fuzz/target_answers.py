"""Fuzz target: stated answers, and all of grading that needs no process."""

from fuzz_words import MATH

from selverify.data import grading
from selverify.domains.answers import extract_boxed, stated_answer

BETWEEN = ""
WORDS = MATH


def start() -> None:
    """There is no state."""


STATUSES = frozenset({"correct", "wrong", "unparsed"})


def feed(state: None, text: str) -> None:
    """What is stated is a part of the text; what is compared has a status or is left open."""
    stated = stated_answer(text)
    assert stated is None or stated in text
    if len(text) <= grading.MAX_ANSWER:
        box = extract_boxed(text)
        assert box is None or box in text
    gold, _, answer = text.partition("=")
    for one, other in ((gold, answer), ("24", answer), (gold, text)):
        settled = grading.compare_quickly(one, other)
        assert settled is None or settled.status in STATUSES
        assert grading.grade(one, other).status in STATUSES
    if len(text) <= grading.MAX_ANSWER:
        grading._delimited(text)
        grading._said(text)
