"""Verifiers that were not trained here: published models, servers, judges and tools.

Knows: which class answers for which kind of ``source.json``. Does not know: how any of them works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from selverify.domains.base import Domain
from selverify.errors import ParamsError
from selverify.models.sources import SOURCE, read_verifier_source
from selverify.models.verifiers.judge import Judge, load_rubric
from selverify.models.verifiers.loading import load_encoder
from selverify.models.verifiers.pooled import (
    POOLED_FORMATS,
    Asks,
    PoolingVerifier,
    StepTokenChatVerifier,
)
from selverify.models.verifiers.prefix_reader import Effort
from selverify.models.verifiers.step_token import STEP_TOKEN_FORMATS, load_step_token
from selverify.models.verifiers.tool import ToolVerifier
from selverify.models.verifiers.value_head import VALUE_HEAD_FORMATS, load_value_head
from selverify.params import PretrainedVerifier, ServedJudge, Server, Tool
from selverify.search.backend import Verifier

REMEMBERED = 500_000
"""Step scores that a published verifier remembers."""
TOP_LOGPROBS = 20
"""Alternatives that servers tell at most."""
T = TypeVar("T")


def named_verifier(
    domain: Domain, folder: Path, *, device: str, ask: Callable[[Server], Asks]
) -> Verifier:
    """The verifier that ``source.json`` in ``folder`` names, ready to be asked.

    Args:
        device: where a model of the hub runs.
        ask: makes what talks to a server.

    Raises:
        ArtifactError, ParamsError, SchemaError: there is no such model, format or tool.
    """
    source = read_verifier_source(folder)
    if isinstance(source, Tool):
        return ToolVerifier(domain)
    if isinstance(source, PretrainedVerifier):
        return _published(source, device)
    asks = ask(source)
    if isinstance(source, ServedJudge):
        return Judge(
            asks,
            model=source.model,
            rubric=load_rubric(),
            max_tokens=source.max_tokens,
            schema=source.schema_constrained,
        )
    if source.kind == "step_token_chat":
        form = _format(STEP_TOKEN_FORMATS, source.format)
        return StepTokenChatVerifier(
            asks, model=source.model, format=form, top_logprobs=TOP_LOGPROBS
        )
    pooled = _format(POOLED_FORMATS, source.format)
    if source.tokenizer is None:
        raise ParamsError(f"{folder / SOURCE}: given no tokenizer, expected the model's own")
    encoder = load_encoder(source.tokenizer, pooled.script, revision=source.revision)
    return PoolingVerifier(asks, model=source.model, format=pooled, encoder=encoder)


def _published(source: PretrainedVerifier, device: str) -> Verifier:
    effort = Effort(source.batch_tokens, REMEMBERED, source.kept_tokens)
    load: Any = load_step_token if source.kind == "step_token" else load_value_head
    formats: Mapping[str, Any] = STEP_TOKEN_FORMATS
    if source.kind == "value_head":
        formats = VALUE_HEAD_FORMATS
    found: Verifier = load(
        source.model,
        format=_format(formats, source.format),
        revision=source.revision,
        dtype=source.dtype,
        device=device,
        effort=effort,
    )
    return found


def _format(formats: Mapping[str, T], name: str) -> T:
    if name not in formats:
        raise ParamsError(
            f"verifier.source: given the format {name!r}, expected one of {', '.join(formats)}"
        )
    return formats[name]
