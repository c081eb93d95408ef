"""The targets by name, and one input before one of them.

Knows: what a target is. Does not know: libFuzzer, where inputs come from.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from fuzz_input import pieces_of

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
"""What was found, a folder a target; ``tests/hostile`` feeds it to the targets again."""
PREFIX = "target_"
NAMES = tuple(sorted(path.stem.removeprefix(PREFIX) for path in FOLDER.glob(f"{PREFIX}*.py")))


class Target(Protocol):
    """A module ``target_NAME``.

    Attributes:
        WORDS: what texts are put together from; BETWEEN stands between two.
    """

    WORDS: Sequence[str]
    BETWEEN: str

    def start(self) -> Any:
        """The state before the first piece."""
        ...

    def feed(self, state: Any, text: str) -> Any:
        """The state after a piece; whatever is raised is a find."""
        ...


def target_by_name(name: str) -> Target:
    """The target called ``name``."""
    return cast(Target, importlib.import_module(PREFIX + name))


def slowest_piece(target: Target, data: bytes) -> float:
    """Feed the pieces of an input; seconds of this thread's processor that the slowest took."""
    state, longest = target.start(), 0.0
    for piece in pieces_of(data, target.WORDS, target.BETWEEN):
        began = time.thread_time()
        state = target.feed(state, piece)
        longest = max(longest, time.thread_time() - began)
    return longest


def best_of_three(target: Target, data: bytes) -> float:
    """As ``slowest_piece``, on a machine that may be busy with something else."""
    return min(slowest_piece(target, data) for _ in range(3))
