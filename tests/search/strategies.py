"""Random searches over the toy domain and the deterministic fake backend."""

from __future__ import annotations

from fake_backend import FakeBackend, pool_proposer
from hypothesis import strategies as st
from toy import ToyDomain, toy_problem, toy_truth

from selverify.search.adaptive_consistency import STOPPING_RULES, adaptive_consistency
from selverify.search.backend import Backend
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.cot import chain_of_thought
from selverify.search.driver import Result, Search, run_searches
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


def alone(search: Asking[Outcome], backend: Backend) -> Result[Outcome]:
    """The result of one search."""
    return run_searches({0: Search(search, None)}, backend, end_of_move=";")[0]


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


def _baseline(name: str, target: int, problem_id: str, n: int, gates: bool) -> Search[object]:
    problem = toy_problem(target, problem_id)
    if name == "cot":
        search = chain_of_thought(DOMAIN, problem)
    elif name == "majority":
        search = majority_vote(DOMAIN, problem, n=n, gates=gates, temperature=None)
    elif name == "best_of_n":
        search = best_of_n(DOMAIN, problem, n=n, gates=gates, aggregation="prod", temperature=None)
    elif name == "early_stopping":
        search = early_stopping(
            DOMAIN,
            problem,
            n=n,
            threshold=0.3,
            gates=gates,
            aggregation="prod",
            temperature=None,
        )
    elif name in ("selective_vote", "ranked_vote"):
        search = selective_vote(
            DOMAIN,
            problem,
            n=n,
            gates=gates,
            ranked=name == "ranked_vote",
            aggregation="prod",
            rule="beta",
            confidence=0.9,
            temperature=None,
        )
    elif name in STOPPING_RULES:
        search = adaptive_consistency(
            DOMAIN, problem, n=n, rule=name, confidence=0.8, gates=gates, temperature=None
        )
    elif name == "oracle":
        search = oracle(
            DOMAIN,
            problem,
            truth=toy_truth(target, problem_id),
            proposals=n,
            max_moves=5,
            generation_cap=30,
        )
    elif name == "explore":
        search = explore(DOMAIN, problem, proposals=n, tau=0.5, max_retries=1, max_moves=3)
    elif name == "dvts":
        search = dvts(
            DOMAIN,
            problem,
            n=n,
            expansion=2,
            gates=gates,
            max_moves=4,
            aggregation="prod",
            temperature=None,
        )
    else:
        search = beam_search(
            DOMAIN,
            problem,
            n=n,
            width=2,
            every=2 if name == "granularity" else 1,
            gates=gates,
            max_moves=4,
            aggregation="prod",
            temperature=None,
        )
    return Search(search, None)


NAMES = [
    *("cot", "majority", *STOPPING_RULES, "best_of_n", "early_stopping", "selective_vote"),
    *("ranked_vote", "beam", "dvts", "granularity", "oracle", "explore"),
]
baseline_runs = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
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
