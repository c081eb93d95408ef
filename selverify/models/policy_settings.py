"""``solver.json``: what solving problems with trained models needs beside their weights.

Knows: the file. Does not know: models, searches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from selverify.errors import SchemaError
from selverify.params import (
    KeyName,
    NonNegative,
    Params,
    ParamsSection,
    Sampling,
    SearchParams,
    validation_sentence,
)
from selverify.storage import read_json, write_json

_FILE = "solver.json"
_SCHEMA, _VERSION = "evaluation.solver", 4
# The file may come from elsewhere, and what it names is read.
_FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]


class PolicySettings(ParamsSection):
    """The domain, the folder of its backbone, and the settings under which the policy is used.

    ``seed`` is the evaluation's, so that solving a test problem again samples what the evaluation
    sampled. The backbone's folder is beside the one with this file.
    """

    domain: KeyName
    backbone: _FolderName
    sampling: Sampling
    search: SearchParams
    seed: NonNegative


def save_policy_settings(path: Path, params: Params, *, backbone: str) -> None:
    """Write ``path`` from ``domain``, ``sampling``, ``search`` and the first sampling seed.

    Args:
        backbone: name of the backbone's folder, beside the folder of ``path``.
    """
    solver = PolicySettings(
        domain=params.domain,
        backbone=backbone,
        sampling=params.sampling[params.domain],
        search=params.search,
        seed=params.evaluation.sampling_seeds[0],
    )
    write_json(path, solver.model_dump(mode="json"), schema=_SCHEMA, version=_VERSION)


def load_policy_settings(folder: Path) -> PolicySettings:
    """Read what ``save_policy_settings`` wrote.

    Raises:
        ArtifactError: the file is not there.
        SchemaError: it was written under another schema, or a field is unknown, missing or out of
            range.
    """
    path = folder / _FILE
    data = read_json(path, schema=_SCHEMA, version=_VERSION)
    try:
        return PolicySettings.model_validate(data)
    except ValidationError as error:
        raise SchemaError(
            f"{path}: {validation_sentence(error)}; run stage 'evaluation' again "
            "(python -m flows evaluation)"
        ) from error
