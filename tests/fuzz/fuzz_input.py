"""Bytes of a fuzzer as text: plain, of one target's words, or a short piece many times over.

Knows: how bytes become text, and that text falls into pieces. Does not know: targets.
"""

from __future__ import annotations

from collections.abc import Sequence

CUT = "\x1e"
"""Between two pieces, which a target is fed one after the other."""
MOST_PIECES = 6
LONGEST = 10_000
"""Characters of an input; the caps of moves lie below it."""


def pieces_of(data: bytes, words: Sequence[str], between: str) -> list[str]:
    """The pieces that ``data`` stands for."""
    return text_of(data, words, between).split(CUT)[:MOST_PIECES]


def text_of(data: bytes, words: Sequence[str], between: str) -> str:
    """The first byte chooses the way; ``between`` stands between two of the ``words``."""
    if not data:
        return ""
    way, rest = data[0], data[1:]
    if way < 32:
        return rest.decode("utf-8", "surrogateescape")
    if way < 48:
        return rest[: len(rest) // 2 * 2].decode("utf-16-le", "surrogatepass")
    known = (*words, CUT)
    if way < 248:
        return between.join(known[byte % len(known)] for byte in rest)
    return _many_times(rest, known, between)


def _many_times(data: bytes, words: Sequence[str], between: str) -> str:
    """A head once, a body up to 2 ** 13 times, a tail once; their lengths are the first bytes."""
    if len(data) < 4:
        return ""
    head, body, power = data[0] % 8, data[1] % 16 + 1, data[2] % 14
    said = [words[byte % len(words)] for byte in data[3:]]
    parts = (said[:head], said[head : head + body], said[head + body :])
    first, many, last = (between.join(part) for part in parts)
    times = min(1 << power, LONGEST // max(1, len(many) + len(between)))
    return between.join([first, *[many] * times, last])[:LONGEST]
