"""Fuzz target: arithmetic claims, and numbers brought to one form."""

from fuzz_words import MATH

from selverify.domains.claims import MAX_CLAIM_TEXT, canonical_answer, find_claims

BETWEEN = ""
WORDS = MATH


def start() -> None:
    """There is no state."""


def feed(state: None, text: str) -> None:
    """Claims have two sides and a truth value; the form of an answer has a cap."""
    for claim in find_claims(text):
        assert claim.left and claim.right and claim.holds in (True, False)
    assert len(canonical_answer.__wrapped__(text)) <= 4 * MAX_CLAIM_TEXT
