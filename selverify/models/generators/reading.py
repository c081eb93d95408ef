"""Which tokens are read to embed moves at states: each question once, and each derivation once.

Knows: tokens of prompts and of moves, which of them begin with others. Does not know: models,
texts, what is computed of the tokens.

The steps of a derivation are moves at states that the same derivation passes through: its tokens
are one row, of which every step is a part. Moves of one state are rows after its prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from selverify.models.generators.sampling import in_batches

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Move ``move`` of item ``item``: the tokens ``start`` to ``stop`` of row ``row``."""

    item: int
    move: int
    row: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of tokens after one prompt, and the moves in them.

    ``depth``: how many prompts of other groups this one begins with; those are read before it.
    """

    prompt: Tokens
    depth: int
    rows: tuple[Tokens, ...]
    spans: tuple[Span, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(map(len, self.rows))


@dataclass(slots=True)
class _Open:
    prompt: Tokens
    depth: int
    texts: list[tuple[Tokens, int, int, int]] = field(default_factory=list)
    """Tokens after the prompt, where the move begins in them, its item and its place in it."""


def batches_of_groups(
    prompts: Sequence[Tokens],
    moves: Sequence[Sequence[Tokens]],
    *,
    most_tokens: int,
    kept_tokens: int,
) -> Iterator[list[Group]]:
    """Groups with every move of every item once, in batches to be read one after another.

    A batch has about ``most_tokens`` tokens in its rows. Prompts that others begin with come
    earlier, but for at most half of ``kept_tokens``, so that they are kept until then.
    """
    for families in in_batches(
        _families(prompts, moves),
        lambda batch: sum(len(one.prompt) for family in batch for one in family) * 2 <= kept_tokens,
    ):
        parts = [part for family in families for one in family for part in _parts(one, most_tokens)]
        parts.sort(key=lambda one: (one.depth, one.longest, len(one.rows), len(one.prompt)))

        def fits(batch: Sequence[Group]) -> bool:
            counts = [len(one.rows) for one in batch]
            padded = len(counts) * max(counts)
            longest = batch[-1].longest
            same = batch[0].depth == batch[-1].depth
            return same and max(sum(counts), padded // 2) * longest <= most_tokens

        yield from in_batches(parts, fits)


def reading_order(prompts: Sequence[Tokens], *, kept_tokens: int) -> list[tuple[int, int]]:
    """For each prompt its part and its depth, by which prompts are best read.

    ``depth``: how many other prompts it begins with; those should be read before it. Prompts that
    begin with the same one are in the same part, and those of a part that do fill at most half of
    ``kept_tokens``, so that they are still kept when the deepest is read.
    """
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    families: list[list[int]] = []
    above: list[Tokens] = []
    depths = [0] * len(prompts)
    for item in order:
        prompt = prompts[item]
        while above and prompt[: len(above[-1])] != above[-1]:
            above.pop()
        if not above:
            families.append([])
        families[-1].append(item)
        if not above or prompt != above[-1]:
            above.append(prompt)
        depths[item] = len(above) - 1
    parts = [0] * len(prompts)
    part = filled = 0
    for family in sorted(families, key=min):
        size = len(prompts[family[0]])
        new = sum(len(prompts[item]) - size for item in family) + size if len(family) > 1 else 0
        if filled and (filled + new) * 2 > kept_tokens:
            part, filled = part + 1, 0
        filled += new
        for item in family:
            parts[item] = part
    return list(zip(parts, depths, strict=True))


def _families(
    prompts: Sequence[Tokens], moves: Sequence[Sequence[Tokens]]
) -> Iterator[list[_Open]]:
    """Groups of which the first one's prompt begins all prompts of its family.

    A single move is a row after the nearest prompt; several share the prompt of their own state.
    """
    several = Counter[Tokens]()
    for prompt, own in zip(prompts, moves, strict=True):
        several[prompt] += len(own)
    family: list[_Open] = []
    above: list[_Open] = []
    for item in sorted(range(len(prompts)), key=prompts.__getitem__):
        prompt, own = prompts[item], moves[item]
        if not own:
            continue
        while above and prompt[: len(above[-1].prompt)] != above[-1].prompt:
            above.pop()
        if not above and family:
            yield family
            family = []
        if not above or (several[prompt] > 1 and prompt != above[-1].prompt):
            above.append(_Open(prompt, len(above)))
            family.append(above[-1])
        said = prompt[len(above[-1].prompt) :]
        above[-1].texts += [
            ((*said, *tokens), len(said), item, place) for place, tokens in enumerate(own)
        ]
    if family:
        yield family


def _parts(group: _Open, most_tokens: int) -> Iterator[Group]:
    """The group with no text that another one begins with, its shortest rows first, in parts of at
    most so many tokens."""
    rows: list[tuple[Tokens, list[tuple[int, int, int, int]]]] = []
    for tokens, start, item, place in sorted(group.texts, reverse=True):
        if not rows or rows[-1][0][: len(tokens)] != tokens:
            rows.append((tokens, []))
        rows[-1][1].append((item, place, start, len(tokens)))
    rows.sort(key=lambda row: len(row[0]))

    def fits(batch: Sequence[tuple[Tokens, object]]) -> bool:
        return len(batch) * len(batch[-1][0]) <= most_tokens

    for part in in_batches(rows, fits):
        spans = tuple(
            Span(item, place, row, start, stop)
            for row, (_, own) in enumerate(part)
            for item, place, start, stop in own
        )
        yield Group(group.prompt, group.depth, tuple(tokens for tokens, _ in part), spans)
