"""Tau for a verifier: the score at which a move counts as accepted (PROTOCOL, settled choice 4).

Knows: scores and Monte-Carlo values of training problems' steps. Does not know: models, the truth.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_curve

from selverify.errors import SchemaError
from selverify.storage import check_digests, read_json, write_digests, write_json

FILE = "threshold.json"
SCHEMA, VERSION = "verifier.threshold", 1
SOLVABLE = 0.5
"""A state that at least this share of continuations solves; below, nothing reached says little."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Tau, and what it was chosen on.

    ``right`` and ``wrong`` moves were looked at; ``right_accepted`` and ``wrong_accepted`` are the
    shares of them that score tau or more.
    """

    tau: float
    right: int
    wrong: int
    right_accepted: float
    wrong_accepted: float


def choose_threshold(
    scores: npt.ArrayLike, before: npt.ArrayLike, after: npt.ArrayLike
) -> Threshold:
    """The tau of Youden (1950): the most right moves accepted less the wrong ones, in shares.

    Only moves at solvable states are looked at. One is wrong when no continuation after it reaches
    the right answer, and right when any does. Tau lies half-way between two scores, so that it does
    not hang on the last digit of one; of several that are as good it is the lowest.

    Args:
        scores: [move], the verifier's.
        before: [move], the share of continuations that reach the right answer before the move.
        after: [move], the same after it.

    Raises:
        SchemaError: no move there is right, or none is wrong.
    """
    solvable = np.asarray(before, np.float64) >= SOLVABLE
    seen = np.asarray(scores, np.float64)[solvable]
    reached = np.asarray(after, np.float64)[solvable] > 0
    right = int(reached.sum())
    if not 0 < right < len(reached):
        raise SchemaError(
            f"rollouts.values: at states that are mostly solved {right} moves are right and "
            f"{len(reached) - right} wrong, expected some of each; give the number as "
            "exploration.tau, search.tau and evaluation.grid.tau, or value more problems"
        )
    wrong_accepted, right_accepted, levels = roc_curve(reached, seen, drop_intermediate=False)
    # Levels fall from infinity, at which nothing is accepted.
    gain = (right_accepted - wrong_accepted)[1:]
    best = len(gain) - int(np.argmax(gain[::-1]))
    below = levels[best + 1] if best + 1 < len(levels) else levels[best]
    return Threshold(
        tau=float((levels[best] + below) / 2),
        right=right,
        wrong=len(reached) - right,
        right_accepted=float(right_accepted[best]),
        wrong_accepted=float(wrong_accepted[best]),
    )


def save_threshold(folder: Path, threshold: Threshold) -> None:
    """Write ``threshold.json`` beside the verifier's weights, and the digests of all."""
    write_json(folder / FILE, asdict(threshold), schema=SCHEMA, version=VERSION)
    write_digests(folder)


def load_threshold(folder: Path) -> Threshold:
    """Read what ``save_threshold`` wrote.

    Raises:
        ArtifactError: the file is not there.
        SchemaError: it was written under another schema, or a file beside it is damaged.
    """
    if (folder / FILE).is_file():
        check_digests(folder)
    return Threshold(**read_json(folder / FILE, schema=SCHEMA, version=VERSION))
