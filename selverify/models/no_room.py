"""Texts for which a model has no room: what servers say then, and the score of such a step.

Knows: the words of servers. Does not know: requests, prompts, searches.
"""

from __future__ import annotations

import re

from selverify.errors import Refusal

NO_ROOM_SCORE = 0.0
"""A step that the verifier cannot hold is its candidate's failure, and is not accepted."""
_SAID = re.compile(
    r"(?:maximum|available|model'?s) (?:context|model) (?:length|size)"
    r"|maximum (?:allowed length|number of tokens allowed)"
    r"|exceeds? (?:the )?context (?:length|window|limit)"
    r"|context_length_exceeded|exceed_context_size|prompt is too long: \d|^input is too l"
    r"|context length of only|greater than (?:the context length|max_seq_len)"
    r"|context size has been exceeded"
    r"|(?:must have less than|max_new_tokens` must be <=) \d",
    re.IGNORECASE,
)
"""What servers say where a prompt and the tokens to follow it do not fit into their context."""


def is_no_room(refusal: Refusal) -> bool:
    """Whether the server refuses a body for its length."""
    return _SAID.search(str(refusal)) is not None
