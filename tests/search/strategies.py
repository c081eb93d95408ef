"""Random searches over the toy domain and the deterministic fake backend."""

from __future__ import annotations

from collections.abc import Callable

from fake_backend import FakeBackend, pool_proposer
from hypothesis import strategies as st
from toy import ToyDomain, taken, toy_problem, toy_search, toy_truth

from selverify.search.adaptive_consistency import STOPPING_RULES, adaptive_consistency
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.cot import chain_of_thought
from selverify.search.driver import Search
from selverify.search.dvts import dvts
from selverify.search.early_stopping import early_stopping
from selverify.search.exploration import explore
from selverify.search.gated import gated_competition
from selverify.search.gates import GATES, STRUCTURAL
from selverify.search.majority import majority_vote
from selverify.search.oracle import oracle
from selverify.search.protocol import Asking
from selverify.search.rules import GatedSettings
from selverify.search.selective_vote import selective_vote
from selverify.types import Outcome

DOMAIN = ToyDomain()
POOL = (
    *("add 1 ;", "add 2 ;", "add 3 ;", "add 9 ;"),
    *("say 2 ;", "say 3 ;", "say 4 ;", "noise"),
)


def fake(domain: ToyDomain) -> FakeBackend:
    """The deterministic backend whose generator draws from ``POOL``."""
    return FakeBackend(domain, pool_proposer(POOL), name="pool", seed=7, max_moves=5)


BACKEND = fake(DOMAIN)
domains = st.builds(ToyDomain, checks=st.booleans())
problems = st.builds(toy_problem, st.integers(1, 4), st.sampled_from(["p0", "p1", "p2"]))
gated_settings = st.builds(
    lambda k_min, spread, **rules: GatedSettings(k_min=k_min, k_max=k_min + spread, **rules),
    k_min=st.integers(1, 2),
    spread=st.integers(0, 3),
    proposals=st.integers(1, 5),
    k_base=st.floats(0.5, 4),
    beta=st.floats(-2, 2),
    tau=st.floats(0, 1),
    max_retries=st.integers(0, 2),
    max_moves=st.integers(1, 5),
    scorer=st.sampled_from(["none", "frequency", "hybrid"]),
    skip_below=st.sampled_from([0.0, 0.5, 1.0]),
    allocation=st.sampled_from(["all", "fixed", "adaptive", "margin", "stopping"]),
    reference_dispersion=st.floats(0, 1),
    gates=st.sampled_from([GATES, (STRUCTURAL,), ()]),
    patterns=st.sampled_from([(), ("add 1 ;", "add 9 ;")]),
    commit=st.sampled_from(["verifier", "heuristic", "joint"]),
    rank_weight=st.sampled_from([0.0, 0.5]),
    fallback=st.booleans(),
)
gated_runs = st.lists(
    st.fixed_dictionaries(
        {
            "problem": problems,
            "settings": gated_settings,
            "budget": st.integers(1, 12),
            "generation_cap": st.integers(1, 40),
        }
    ),
    min_size=1,
    max_size=5,
)


def gated(run: dict[str, object]) -> Asking[Outcome]:
    """The gated competition of a drawn run."""
    rules = run["settings"].rules(DOMAIN)
    rest = {name: value for name, value in run.items() if name != "settings"}
    return gated_competition(DOMAIN, rules=rules, **rest)


def _gated(run: dict[str, object]) -> Search[object]:
    return Search(gated(run), run["budget"])


BASELINES: dict[str, tuple[Callable[..., Asking[object]], dict[str, object]]] = {
    "cot": (chain_of_thought, {}),
    "majority": (majority_vote, {}),
    **{name: (adaptive_consistency, {"rule": name, "confidence": 0.8}) for name in STOPPING_RULES},
    "best_of_n": (best_of_n, {}),
    "early_stopping": (early_stopping, {"threshold": 0.3}),
    "selective_vote": (selective_vote, {"rule": "beta", "confidence": 0.9}),
    "ranked_vote": (selective_vote, {"ranked": True, "rule": "beta", "confidence": 0.9}),
    "beam": (beam_search, {"width": 2, "max_moves": 4}),
    "dvts": (dvts, {"expansion": 2, "max_moves": 4}),
    "granularity": (beam_search, {"width": 2, "every": 2, "max_moves": 4}),
    "oracle": (oracle, {"generation_cap": 30}),
    "explore": (explore, {"tau": 0.5, "max_retries": 1, "max_moves": 3}),
}
"""By name, with settings of their own."""


def _baseline(name: str, target: int, problem_id: str, n: int, gates: bool) -> Search[object]:
    method, own = BASELINES[name]
    truth = toy_truth(target, problem_id)
    drawn = {"n": n, "proposals": n, "gates": gates, "aggregation": "prod", "truth": truth}
    problem = toy_problem(target, problem_id)
    return Search(toy_search(method, DOMAIN, problem, **taken(method, drawn), **own), None)


baseline_runs = st.lists(
    st.tuples(
        st.sampled_from(list(BASELINES)),
        st.integers(1, 4),
        st.sampled_from(["p0", "p1", "p2"]),
        st.integers(1, 6),
        st.booleans(),
    ),
    max_size=5,
)
Runs = tuple[list[dict[str, object]], list[tuple[str, int, str, int, bool]]]
mixed_runs = st.tuples(gated_runs, baseline_runs)


def searches(runs: Runs) -> dict[str, Search[object]]:
    """Fresh generators for the drawn runs, each under a key of its own."""
    gated, baselines = runs
    made = {f"gated {index}": _gated(run) for index, run in enumerate(gated)}
    return made | {f"{run[0]} {index}": _baseline(*run) for index, run in enumerate(baselines)}
