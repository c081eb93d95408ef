"""Questions that share a phrase with a held-out one, so that a training pool can do without them.

Knows: runs of words, without case and punctuation. Does not know: meaning, or what a split is for.
Equal texts are found by ``text_benchmarks.without``; this finds a story told again with other
numbers at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from selverify.data.text_benchmarks import Questions, without

PHRASE = 8
"""Words in a row that two stories hardly share by chance."""
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")


def shared_phrases(pool: Questions, held_out: Questions, *, words: int = PHRASE) -> frozenset[str]:
    """The ids of ``pool`` that share ``words`` words in a row with a question of ``held_out``."""
    phrases = {phrase for question in held_out.items for phrase in _phrases(question.text, words)}
    return frozenset(
        question.question_id
        for question in pool.items
        if any(phrase in phrases for phrase in _phrases(question.text, words))
    )


def apart_from(pool: Questions, held_out: Questions, *, words: int = PHRASE) -> Questions:
    """``pool`` less the questions of ``held_out``, and less those that share a phrase with one."""
    kept = without(pool, held_out)
    shared = shared_phrases(kept, held_out, words=words)
    items = tuple(question for question in kept.items if question.question_id not in shared)
    return replace(kept, items=items)


def _phrases(text: str, words: int) -> Iterator[tuple[str, ...]]:
    said = [word.replace("\u2019", "'") for word in _WORD.findall(text.casefold())]
    return zip(*(said[start:] for start in range(words)), strict=False)
