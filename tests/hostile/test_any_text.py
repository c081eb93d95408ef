"""Any text is a move, malformed, or an error of the tree, in every parser, codec and gate."""

from __future__ import annotations

from pathlib import Path

import fuzz_domains
import pytest
from fuzz_input import CUT, pieces_of, text_of
from fuzz_targets import CORPUS, TARGETS, best_of_three, slowest_piece
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.domains import DOMAINS, GENERATED
from selverify.models.prompting import CONTROL, disarmed

FOUND = sorted(path for path in CORPUS.rglob("*") if path.is_file())
LIMIT = 0.05
ANY = st.text(st.characters(), max_size=120)
"""Lone surrogates, control characters and invisible marks are among them."""


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(min_size=1, max_size=80))
@settings(max_examples=150, deadline=None)
def test_any_words_are_settled(name: str, data: bytes) -> None:
    """Words of the parser's own language in any order, one piece after the other."""
    slowest_piece(TARGETS[name], data)


@pytest.mark.parametrize("name", TARGETS)
@given(texts=st.lists(ANY, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_text_is_settled(name: str, texts: list[str]) -> None:
    """Text of any characters."""
    target = TARGETS[name]
    state = target.start()
    for text in texts:
        state = target.feed(state, text)


@pytest.mark.parametrize("name", GENERATED)
@given(seed=st.integers(0, 30), data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_move_may_follow_any_state(name: str, seed: int, data: st.DataObject) -> None:
    """Moves right for one problem, gated and applied in any order at another."""
    domain, size = GENERATED[name], {"countdown": 4}.get(name, 5)
    state = fuzz_domains.begin(name, seed=seed, size=size)
    said = data.draw(st.lists(st.sampled_from(fuzz_domains.moves(name)), max_size=10))
    for text in said:
        state = fuzz_domains.feed(name, state, text)
    assert domain.serialise(state).startswith(state.problem.text)


@pytest.mark.parametrize("name", DOMAINS)
@given(
    pattern=ANY
    | st.lists(
        st.sampled_from(
            ["add", "asked", "next", "answer", "=", ";", "0", "1", "24", "-1", "99", "|", "x"]
        )
    ).map(" ".join)
)
@settings(max_examples=100, deadline=None)
def test_any_pattern_gives_moves_or_none(name: str, pattern: str) -> None:
    """Patterns come from a file of a checkpoint, which may be anybody's."""
    domain = DOMAINS[name]
    for move in domain.instantiate(fuzz_domains.begin(name), pattern):
        assert domain.parse(move.text) == move


@given(ANY)
def test_no_control_token_is_left(text: str) -> None:
    """And nothing else changes; what was disarmed stays as it is."""
    shown = disarmed(text)
    assert CONTROL.search(shown) is None
    assert disarmed(shown) == shown
    assert shown.replace(" ", "") == text.replace(" ", "")


def test_every_target_says_what_it_says() -> None:
    """The same bytes are the same text, and the pieces are those between the marks."""
    for name in TARGETS:
        target = TARGETS[name]
        assert len(target.words) < 256, "each word can be meant by one byte"
        assert text_of(b"\x80\x00", target.words, target.between) == target.words[0]
    assert pieces_of(b"\x00ab" + CUT.encode() + b"c", (), "") == ["ab", "c"]


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_the_fuzzer_found_stays_mended(path: Path) -> None:
    """No fault, and no piece above 50 ms."""
    assert best_of_three(TARGETS[path.parent.name], path.read_bytes()) < LIMIT
