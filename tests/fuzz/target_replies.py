"""Fuzz target: replies of a server, as JSON text, become samples or are refused."""

import json

from selverify.domains.base import split_moves
from selverify.models.generators import served

BETWEEN = ""
WORDS = (
    *('{"choices": [', "]}", '{"index": 0, ', '"text": "', '"message": {"content": "', '"}', '"}}'),
    *('"finish_reason": "stop"', '"stop_reason": "', '"matched_stop": ', '], "usage": {'),
    *('"completion_tokens": ', "0", "1", "-1", "9" * 30, "1e999", "NaN", "true", "null", ",", '"'),
    *("{", "}", "[", "]", ":", " ", "\\n", "\\n\\n", ";", " ;", "a", "\\ud800", "\\u0000", "\\"),
    *('"data": [{"index": 0, "embedding": [', "]}]"),
)


def start() -> None:
    """There is no state."""


def feed(state: None, text: str) -> None:
    """A reply is of the form and all its texts can be written, or its fault is one short line."""
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(reply, dict):
        return
    for fault in (served._wrong_choices(reply), served._wrong_vectors(reply, 1)):
        assert fault is None or (fault and "\n" not in fault)
    if served._wrong_choices(reply) is None:
        read = served._Choices.model_validate(reply)
        said = [choice.said for choice in served._distinct(read.choices)]
        assert all(one is not None and one.encode() is not None for one in said)
        assert all(count >= 0 for count in served._tokens(read.usage, [one or "" for one in said]))
        for one in said:
            assert all(move.strip() for move in split_moves(one or "", ";"))
