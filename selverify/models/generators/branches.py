"""Which texts a batch of sampled rows holds: rows with the same words are one text.

Texts have columns in a grid of groups, or places in one list. Knows: rows, columns, places and
words as numbers. Does not know: models, keys and values, probabilities.

Shapes: G groups (prefixes), S rows a group, N columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Fork:
    """How the columns of a batch go on by one word.

    ``groups`` [G'] are the old groups that are left. ``parents`` [G', N'] say which old column each
    new one continues, ``words`` [G', N'] by which word; where no row is, both mean nothing.
    ``columns`` [G', S] are the rows' new ones (0 where a row has ended), ``first`` [G, S] marks the
    first row of each. ``packed``: the old columns lose their places; otherwise the first that
    continues an old one has its place.
    """

    groups: np.ndarray
    parents: np.ndarray
    words: np.ndarray
    columns: np.ndarray
    first: np.ndarray
    packed: bool


def fork_of(
    going: np.ndarray, columns: np.ndarray, picked: np.ndarray, *, width: int
) -> Fork | None:
    """The distinct texts of the rows ``going`` [G, S] after one more word each.

    Packing may cost a copy of keys and values: it is done once it leaves at most three quarters of
    the columns.

    Args:
        columns: the column of each row [G, S], below ``width``.
        picked: the word of each row [G, S].

    Returns:
        None where no row is going.
    """
    lines, rows = going.nonzero()
    if not len(lines):
        return None
    shape = (len(going), width, int(picked.max()) + 1)
    told = np.ravel_multi_index((lines, columns[lines, rows], picked[lines, rows]), shape)
    told, first, place = np.unique(told, return_index=True, return_inverse=True)
    line, parent, word = np.unravel_index(told, shape)
    groups, group = np.unique(line, return_inverse=True)
    column = _ordinals(line)
    kept = _kept_places(line, parent, np.diff(told // shape[2], prepend=-1) == 0, going.shape)
    wide, packed_wide = int(kept.max()) + 1, int(column.max()) + 1
    packed = len(groups) * packed_wide <= 0.75 * len(going) * wide
    if not packed:
        groups, group, column = np.arange(len(going)), line, kept
    parents = np.tile(np.arange(packed_wide if packed else wide), (len(groups), 1))
    words = np.zeros_like(parents)
    parents[group, column], words[group, column] = parent, word
    of_rows = np.zeros((len(groups), going.shape[1]), dtype=np.int64)
    of_rows[group[place], rows] = column[place]
    firsts = np.zeros_like(going)
    firsts[lines[first], rows[first]] = True
    return Fork(groups, parents, words, of_rows, firsts, packed)


def _kept_places(
    line: np.ndarray, parent: np.ndarray, later: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """Columns where the first continuation of each column stays and ``later`` ones have gaps."""
    taken = np.zeros(shape, dtype=bool)
    taken[line, parent] = True
    gaps = np.argsort(taken, axis=1, kind="stable")
    places = parent.copy()
    places[later] = gaps[line[later], _ordinals(line[later])]
    return places


def _ordinals(ordered: np.ndarray) -> np.ndarray:
    """The place of each of the numbers, which are in order, among those that equal it."""
    places: np.ndarray = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    return places


@dataclass(frozen=True, slots=True)
class Step:
    """How the N texts of R rows go on by one word, to N' texts.

    ``parents`` [N'] say which old text each continues, ``words`` [N'] by which word. The first that
    continues an old text takes its place, if that is below N'; ``moved`` are the places of the
    others. ``texts`` [R]: the text of each row. ``first`` [R] marks the first row of each text.
    """

    parents: np.ndarray
    words: np.ndarray
    moved: np.ndarray
    texts: np.ndarray
    first: np.ndarray


def next_step(texts: np.ndarray, picked: np.ndarray) -> Step:
    """The distinct texts of rows, at places without a gap, after one more word each.

    Args:
        texts: which text each row has [R], at least one row.
        picked: the word of each row [R].
    """
    words = int(picked.max()) + 1
    told, first, of_rows = np.unique(texts * words + picked, return_index=True, return_inverse=True)
    parents, said = np.divmod(told, words)
    stays = (np.diff(parents, prepend=-1) > 0) & (parents < len(told))
    taken = np.zeros(len(told), dtype=bool)
    taken[parents[stays]] = True
    moved = np.flatnonzero(~taken)
    places = parents.copy()
    places[~stays] = moved
    order = np.argsort(places)
    marked = np.zeros(len(texts), dtype=bool)
    marked[first] = True
    return Step(parents[order], said[order], moved, places[of_rows], marked)
