"""Tau for a verifier: the score at which a move counts as accepted (docs/decisions/0004).

Knows: scores and values of training problems' steps, where the number is kept, and
which parameters take it where they give none. Does not know: models, the truth.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from selverify.errors import ParamsError, SchemaError
from selverify.params import Params
from selverify.storage import check_digests, read_json, write_digests, write_json

_FILE = "threshold.json"
_SCHEMA, _VERSION = "verifier.threshold", 2


@dataclass(frozen=True, slots=True)
class Threshold:
    """Tau, and what it was chosen on.

    ``right`` and ``wrong`` are numbers of moves; ``right_accepted`` and ``wrong_accepted`` are the
    shares of them that score tau or more; ``auc`` is the area under the curve of the two. Without
    moves of both kinds (``median_threshold``) the three are None.
    """

    tau: float
    right: int
    wrong: int
    right_accepted: float | None
    wrong_accepted: float | None
    auc: float | None


def choose_threshold(
    scores: npt.ArrayLike, before: npt.ArrayLike, after: npt.ArrayLike, *, solvable: float
) -> Threshold:
    """Youden's (1950) tau: the most right moves accepted less wrong ones, in shares.

    Only moves at states of value ``solvable`` or more count (of 0, at those above it): below,
    nothing reached says little. One is wrong when no continuation after it reaches
    the right answer, and right when any does. Some wrong moves count as right by this, and some
    right ones as wrong; where that does not depend on the score, it moves the shares and not the
    tau. Tau lies half-way between two scores, so that it does not hang on the last digit of one;
    of several that are as good it is the lowest.

    Args:
        scores: [move], the verifier's.
        before: [move], the share of continuations that reach the right answer before the move.
        after: [move], the same after it.

    Raises:
        SchemaError: no move there is right, or none is wrong.
    """
    seen, reached = _counted(scores, before, after, solvable=solvable)
    right = int(reached.sum())
    if not 0 < right < len(reached):
        raise SchemaError(
            f"rollouts.values: at states of value {solvable:g} or more {right} moves are right and "
            f"{len(reached) - right} wrong, expected some of each; give the number as "
            "exploration.tau, search.tau and evaluation.grid.tau, set verifier.threshold to "
            "median, or value more problems"
        )
    from sklearn.metrics import auc, roc_curve

    wrong_accepted, right_accepted, levels = roc_curve(reached, seen, drop_intermediate=False)
    # Levels fall from infinity, at which nothing is accepted. Whole numbers: ties stay ties.
    wrong = len(reached) - right
    gain = np.rint(right_accepted * right)[1:] * wrong - np.rint(wrong_accepted * wrong)[1:] * right
    best = len(gain) - int(np.argmax(gain[::-1]))
    below = levels[best + 1] if best + 1 < len(levels) else levels[best]
    return Threshold(
        tau=float((levels[best] + below) / 2),
        right=right,
        wrong=wrong,
        right_accepted=float(right_accepted[best]),
        wrong_accepted=float(wrong_accepted[best]),
        auc=float(auc(wrong_accepted, right_accepted)),
    )


def median_threshold(
    scores: npt.ArrayLike, before: npt.ArrayLike, after: npt.ArrayLike, *, solvable: float
) -> Threshold:
    """The middle of the scores, whatever is right: for a generator that gets next to nothing right.

    Half-way between the two scores that part the moves most evenly, so that some are accepted and
    some rejected: there is then an order to learn, though it may say nothing. Arguments as for
    ``choose_threshold``.

    Raises:
        SchemaError: no two moves have different scores.
    """
    every = np.asarray(scores, np.float64)
    levels, counts = np.unique(every, return_counts=True)
    if len(levels) < 2:
        raise SchemaError(
            f"rollouts.values: {len(every)} moves of problems that the verifier's training left "
            f"out have {len(levels)} different scores, expected two or more, between which tau "
            "lies; value more problems, or more solutions of each"
        )
    below = int(np.abs(np.cumsum(counts[:-1]) - len(every) / 2).argmin())
    tau = float((levels[below] + levels[below + 1]) / 2)
    from sklearn.metrics import roc_auc_score

    seen, reached = _counted(scores, before, after, solvable=solvable)
    right, wrong = seen[reached], seen[~reached]
    both = len(right) > 0 and len(wrong) > 0
    return Threshold(
        tau=tau,
        right=len(right),
        wrong=len(wrong),
        right_accepted=float((right >= tau).mean()) if both else None,
        wrong_accepted=float((wrong >= tau).mean()) if both else None,
        auc=float(roc_auc_score(reached, seen)) if both else None,
    )


def _counted(
    scores: npt.ArrayLike, before: npt.ArrayLike, after: npt.ArrayLike, *, solvable: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Scores of the moves that count, and which of them are right."""
    values = np.asarray(before, np.float64)
    counted = (values >= solvable) & (values > 0)
    seen = np.asarray(scores, np.float64)[counted]
    return seen, np.asarray(after, np.float64)[counted] > 0


RULES = {"youden": choose_threshold, "median": median_threshold}
"""What ``verifier.threshold`` names."""


def save_threshold(folder: Path, threshold: Threshold) -> None:
    """Write ``threshold.json`` beside the verifier's weights, and the digests of all."""
    write_json(folder / _FILE, asdict(threshold), schema=_SCHEMA, version=_VERSION)
    write_digests(folder)


def load_threshold(folder: Path) -> Threshold:
    """Read what ``save_threshold`` wrote.

    Raises:
        ArtifactError: the file is not there.
        SchemaError: it was written under another schema, has other fields, or a file beside it is
            damaged.
    """
    path = folder / _FILE
    if path.is_file():
        check_digests(folder)
    read = read_json(path, schema=_SCHEMA, version=_VERSION)
    names = {one.name for one in fields(Threshold)}
    if not isinstance(read, dict) or read.keys() != names:
        given = sorted(read) if isinstance(read, dict) else type(read).__name__
        raise SchemaError(f"{path}: given {given}, expected the fields {sorted(names)}")
    return Threshold(**read)


def leaves_tau(params: Params) -> bool:
    """Whether tau is to be chosen for the verifier anywhere."""
    return None in (params.exploration.tau, params.search.tau, *params.evaluation.grid.tau)


def resolve_tau(params: Params, verifier: Path) -> Params:
    """The same with the tau in the verifier's folder where none is given."""
    return with_tau(params, load_threshold(verifier).tau) if leaves_tau(params) else params


def with_tau(params: Params, tau: float) -> Params:
    """The same with ``tau`` where none is given; equal points of the grid are one."""
    grid = params.evaluation.grid
    taus = dict.fromkeys(tau if one is None else one for one in grid.tau)
    changed = {"grid": grid.model_copy(update={"tau": tuple(taus)})}
    update: dict[str, object] = {"evaluation": params.evaluation.model_copy(update=changed)}
    for name in ("exploration", "search"):
        section = getattr(params, name)
        if section.tau is None:
            update[name] = section.model_copy(update={"tau": tau})
    return params.model_copy(update=update)


def known_tau(tau: float | None, where: str) -> float:
    """``tau`` after it was given or chosen.

    Raises:
        ParamsError: it is still left to be chosen; ``where`` is named.
    """
    if tau is None:
        raise ParamsError(f"{where}: given null, expected the number that was chosen")
    return tau
