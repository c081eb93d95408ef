"""The models and the grader that stages work with, from their parameters and inputs.

Knows: which parameters say how models run. Does not know: artifacts, what a stage does.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from selverify.data.grading import Grader
from selverify.errors import SchemaError
from selverify.models.reply_cache import REQUEST_KINDS, CachedBackend
from selverify.models.sources import has_source, read_generator_source
from selverify.params import Generator, Params
from selverify.search.requests import Verify

if TYPE_CHECKING:
    from selverify.models.assembly import OpenModels

log = logging.getLogger(__name__)

COLLECTED_AFTER = 1_000_000
"""New objects between two collections. A thousand searches hold so many that looking through them
takes a fifth of the time after every 700, and after every 50,000 still so much that the time grows
faster than the searches (``make bench``, growth). They leave hardly any cycles behind."""


def open_models(
    params: Params,
    inputs: Mapping[str, Path],
    *,
    seed: int,
    cached: bool = False,
    embeds: bool = False,
) -> OpenModels:
    """The domain and what answers its requests, from the models that are among ``inputs``.

    Args:
        cached: whether replies come from the reply cache where they are there. Where a model was
            not trained here they always do, and what it says or is read for, which costs money or
            hours, is kept at once. What models say that were trained here is kept by ``write``.
        embeds: as for ``assembly.open_models``.

    Raises:
        SchemaError: the generator's folder names another model than the parameters.
    """
    # A stage that gives its shards to other processes opens none, and these take seconds to import.
    import torch

    from selverify.models import assembly

    torch.set_num_threads(params.tracking.threads)
    gc.set_threshold(COLLECTED_AFTER, *gc.get_threshold()[1:])
    _check_source(params, inputs["generator"])
    models = assembly.open_models(
        params.domain,
        params.sampling[params.domain],
        seed=seed,
        device=params.tracking.device,
        generator=inputs["generator"],
        verifier=inputs.get("verifier"),
        policy=inputs.get("residual"),
        embeds=embeds,
    )
    at_once = _at_once(inputs)
    log.info("%s: models are open", inputs["generator"])
    if not cached and not at_once:
        return models
    backend = CachedBackend(models.backend, make_cache(params), at_once=at_once)
    return replace(models, backend=backend)


def _at_once(inputs: Mapping[str, Path]) -> frozenset[str]:
    if has_source(inputs["generator"]):
        return REQUEST_KINDS  # a ranker and a head read its states
    named = "verifier" in inputs and has_source(inputs["verifier"])
    return frozenset({Verify.kind} if named else ())


def make_cache(params: Params) -> Path:
    """The reply cache of this machine, which is made where there is none.

    Raises:
        SchemaError: the file is corrupt, or is something else than a reply cache.
    """
    cache = Path(params.tracking.reply_cache)
    cache.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(cache.parent, os.O_RDONLY)
    try:
        # Of processes that make a database at the same time, SQLite turns some away.
        fcntl.flock(folder, fcntl.LOCK_EX)
        CachedBackend.create(cache)
    finally:
        os.close(folder)
    return cache


def _check_source(params: Params, folder: Path) -> None:
    """The frozen stage may have been run before the parameters were changed."""
    wanted = params.generator[params.domain][params.backbones[0]]
    found = read_generator_source(folder) if has_source(folder) else None
    if found != (None if isinstance(wanted, Generator) else wanted):
        raise SchemaError(
            f"{folder}: holds {'a trained model' if found is None else found.model}, expected "
            f"what generator.{params.domain}.{params.backbones[0]} says; run "
            f"python -m flows generator@{params.backbones[0]}"
        )


def open_grader(params: Params) -> Grader:
    """What compares answers with golds; to be closed."""
    return Grader(seconds=params.evaluation.grading_seconds, workers=1)
