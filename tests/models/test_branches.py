"""Columns of distinct texts against the texts themselves."""

from __future__ import annotations

import numpy as np
import pytest

from selverify.models.generators.branches import fork_of, next_step


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


def test_texts_take_the_places_of_what_they_continue():
    """Of three texts the first goes on in two ways and the second in none: one is moved up."""
    step = next_step(np.array([0, 0, 2, 0]), np.array([7, 5, 9, 7]))
    assert step.parents.tolist() == [0, 0, 2]
    assert step.words.tolist() == [5, 7, 9]
    assert step.moved.tolist() == [1]
    assert step.texts.tolist() == [1, 0, 2, 1]
    assert step.first.tolist() == [True, True, True, False]
    fewer = next_step(np.array([2, 2]), np.array([4, 4]))
    assert (fewer.parents.tolist(), fewer.moved.tolist()) == ([2], [0])


@pytest.mark.parametrize("ends", [0.05, 0.5])
def test_each_text_has_one_place_and_no_place_is_empty(ends):
    """Through many steps, and what did not move is where it was."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        said, texts, held = [""] * 20, np.arange(20) % 4, ["", "", "", ""]
        rows = np.arange(20)
        for _ in range(8):
            going = rng.random(len(rows)) >= ends
            rows, texts = rows[going], texts[going]
            if not len(rows):
                break
            picked = rng.integers(0, 3, len(rows))
            step = next_step(texts, picked)
            before, groups = [held[at] for at in step.parents], texts
            held = [text + str(word) for text, word in zip(before, step.words, strict=True)]
            stays = np.setdiff1d(np.arange(len(held)), step.moved)
            assert (step.parents[stays] == stays).all()
            for row, word in zip(rows, picked, strict=True):
                said[row] += str(word)
            assert [held[at] for at in step.texts] == [said[row] for row in rows]
            told = list(zip(groups.tolist(), picked.tolist(), strict=True))
            assert len(set(told)) == len(held)
            assert [told.index(one) == at for at, one in enumerate(told)] == step.first.tolist()
            texts = step.texts
