"""Where should a limited number of verifier calls be spent?

>>> policy = selverify.load_policy("models/small-strong")
>>> policy.solve("we count apples 7 . pears equal 3 times apples . find pears ?", budget=16).answer

>>> ranker = selverify.Ranker.load("ranker/")  # of your own log: selverify train LOG -o ranker/
>>> plan = ranker.plan(question, steps_so_far, candidates)

>>> selverify.solve(question, generator=generate, verifier=score, ranker=ranker, calls=16).answer
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selverify.errors import SelverifyError
    from selverify.models.called import batched
    from selverify.policy import Solved, TrainedPolicy, load_policy
    from selverify.ranker import CandidateList, Plan, Ranker
    from selverify.solving import Solver, SolveSettings, solve, solve_many
    from selverify.types import Problem

__all__ = [
    "CandidateList",
    "Plan",
    "Problem",
    "Ranker",
    "SelverifyError",
    "SolveSettings",
    "Solved",
    "Solver",
    "TrainedPolicy",
    "batched",
    "load_policy",
    "solve",
    "solve_many",
]

# Named, not imported: every module of the library imports this one, and torch takes seconds.
_HOMES = {
    "batched": "selverify.models.called",
    "CandidateList": "selverify.ranker",
    "Plan": "selverify.ranker",
    "Ranker": "selverify.ranker",
    "Problem": "selverify.types",
    "SelverifyError": "selverify.errors",
    "SolveSettings": "selverify.solving",
    "Solver": "selverify.solving",
    "solve": "selverify.solving",
    "solve_many": "selverify.solving",
    "Solved": "selverify.policy",
    "TrainedPolicy": "selverify.policy",
    "load_policy": "selverify.policy",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
