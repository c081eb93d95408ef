"""Fuzz target: replies of a judge."""

from selverify.models.verifiers.judge import read_opinion

BETWEEN = ""
WORDS = (
    *('{"reason": "', '", "verdict": "', '", "confidence": ', "}", "{", '"', ",", ":", "[", "]"),
    *("right", "wrong", "unsure", "0", "100", "100.5", "-1", "1e999", "NaN", "Infinity", "true"),
    *("```", "```json", "\n", " ", "\\", "\\u0031", "\\ud800", "\x00", "a", "null", "\ud800"),
)


def start() -> None:
    """There is no state."""


def feed(state: None, text: str) -> None:
    """A verdict with a score in [0, 1], or nothing."""
    opinion = read_opinion(text)
    assert opinion is None or 0.0 <= opinion.score <= 1.0
