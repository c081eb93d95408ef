"""Orders learned from a log itself, with the settings that an audit uses.

Knows: an encoder's name, which learned scorers are worth a row. Does not know: how they are
trained, how an audit goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selverify.audit.lists.audit import Learned
from selverify.audit.lists.counterfactual import Ranking
from selverify.audit.lists.encoders import open_embedder
from selverify.audit.lists.judging import JudgedList
from selverify.audit.lists.learned import learned_rankings
from selverify.errors import ParamsError
from selverify.params import Residual
from selverify.training.fit import Epoch

FOLDS = 5
DIMENSION = 64
"""Of the encoder ``wordllama``."""
SETTINGS = Residual(
    hidden=16,
    epochs=25,
    rate=1e-2,
    weight_decay=0.1,
    pairs_per_state=16,
    trajectory_weight=0.05,
    trajectory_scale=0.2,
    rank_on="hybrid",
    validation_fraction=0.2,
    familiar=0.99,
    retrieval_patterns=0,
    seed=0,
)
WITH_TRAJECTORIES = ("distance", "hybrid")
"""They are of use where texts are embedded, since else all distances are 0, and where the log says
which move each run went on with."""
ALWAYS = ("residual", "reject_probability")


def learned_orders(encoder: str, *, seed: int) -> Learned:
    """Orders by the embeddings of ``encoder`` (``encoders.open_embedder``), by cross-validation.

    Raises:
        ParamsError: no such encoder, or its package is not installed; later, a candidate without
            a verdict.
        SchemaError: later, too few problems to learn from.
    """
    embedder = open_embedder(
        encoder, dimension=DIMENSION, dtype="float32", device="cpu", server=None
    )

    def orders(states: Sequence[JudgedList]) -> Mapping[str, Ranking]:
        if not all(state.known.all() for state in states):
            raise ParamsError(
                "encoder: given, but some candidates have no verdict to learn from; expected "
                "--complete, which leaves their states out"
            )
        found = learned_rankings(
            states,
            embedder,
            SETTINGS.model_copy(update={"seed": seed}),
            folds=FOLDS,
            seed=seed,
            report=_silent,
        )
        told = embedder.encoder is not None and any(
            state.recorded.committed is not None for state in states
        )
        return {name: found[name] for name in ALWAYS + WITH_TRAJECTORIES * told}

    return orders


def _silent(_: int, __: Epoch) -> None:
    """Twenty epochs of three trainings a fold are of no interest to who reads the tables."""
