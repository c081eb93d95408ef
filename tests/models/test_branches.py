"""Columns of distinct texts against the texts themselves."""

from __future__ import annotations

import numpy as np
import pytest

from selverify.models.generators.branches import fork_of


def test_a_step_by_hand():
    """Three rows of one text say two words, and the fourth, of another text, has ended."""
    going = np.array([[True, True, True, False]])
    fork = fork_of(going, np.array([[0, 0, 0, 1]]), np.array([[7, 5, 7, 9]]), width=2)
    assert fork is not None
    assert not fork.packed
    assert fork.words.tolist() == [[5, 7]]  # in the order of words; the second takes the gap
    assert fork.parents.tolist() == [[0, 0]]
    assert fork.columns.tolist() == [[1, 0, 1, 0]]
    assert fork.first.tolist() == [[True, True, False, False]]


def test_where_no_row_goes_on_there_is_no_step():
    nothing = np.zeros((2, 3), dtype=np.int64)
    assert fork_of(nothing.astype(bool), nothing, nothing, width=1) is None


@pytest.mark.parametrize("ends", [0.05, 0.5])
def test_a_column_holds_the_text_of_its_rows(ends):
    """Through many steps each column is one text of one group, and each text has one column."""
    rng, packed = np.random.default_rng(4), 0
    for _ in range(40):
        groups = np.arange(4)
        said: list[list[str]] = [[""] * 6 for _ in groups]
        going = np.ones((4, 6), dtype=bool)
        columns, width, texts = np.zeros((4, 6), dtype=np.int64), 1, [[""] for _ in groups]
        while True:
            going &= rng.random(going.shape) >= ends
            picked = rng.integers(0, 3, going.shape)
            fork = fork_of(going, columns, picked, width=width)
            if fork is None or len(max(map(max, said), key=len)) > 12:
                break
            for line, row in np.argwhere(going):
                said[line][row] += str(picked[line, row])
            own = [said[group] for group in fork.groups]
            texts = [
                [
                    texts[group][old] + str(word) if old < len(texts[group]) else "unwritten"
                    for old, word in zip(*pair, strict=True)
                ]
                for group, *pair in zip(fork.groups, fork.parents, fork.words, strict=True)
            ]
            goes_on, packed = going[fork.groups], packed + fork.packed
            assert goes_on.sum() == going.sum()
            for line, row in np.argwhere(goes_on):
                column = fork.columns[line, row]
                assert texts[line][column] == own[line][row]
                together = (fork.columns[line] == column) & goes_on[line]
                same = np.array([text == own[line][row] for text in own[line]]) & goes_on[line]
                assert together.tolist() == same.tolist()
                assert fork.first[fork.groups[line], row] == (together.argmax() == row)
            said, going, columns, width = own, goes_on, fork.columns, fork.words.shape[1]
    assert packed > 20
