"""Search methods: plain generators that yield typed requests and return an outcome."""

from selverify.search.adaptive_consistency import adaptive_consistency
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.cot import chain_of_thought
from selverify.search.dvts import dvts
from selverify.search.early_stopping import early_stopping
from selverify.search.exploration import CandidateList, Exploration, explore
from selverify.search.gated import Rules, gated_competition
from selverify.search.majority import majority_vote
from selverify.search.oracle import oracle
from selverify.search.rules import GatedSettings
from selverify.search.selective_vote import selective_vote

__all__ = [
    "CandidateList",
    "Exploration",
    "GatedSettings",
    "Rules",
    "adaptive_consistency",
    "beam_search",
    "best_of_n",
    "chain_of_thought",
    "dvts",
    "early_stopping",
    "explore",
    "gated_competition",
    "majority_vote",
    "oracle",
    "selective_vote",
]
