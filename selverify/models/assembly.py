"""Checkpoints and sources on disk, put together into what answers requests.

Knows: which file of a folder says what it holds. Does not know: stages, searches.

A generator's folder holds a backbone that we trained, or ``source.json``, which names a model of
the hub or behind a server. A verifier's folder holds a reward model that we trained, a head on the
generator's hidden states, or ``source.json``, which names a published one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selverify.domains import domain_by_name, generated_by_name
from selverify.domains.base import Domain, GeneratedDomain
from selverify.errors import ParamsError
from selverify.models.generators.causal import CausalModel
from selverify.models.generators.checkpoints import (
    Policy,
    load_backbone,
    load_policy,
    load_reward_model,
)
from selverify.models.generators.hidden_states import HiddenStates, TrainedRanker
from selverify.models.generators.local import LocalBackend
from selverify.models.generators.prefixes import Prefixes
from selverify.models.generators.pretrained import load_pretrained
from selverify.models.generators.served_states import ServedStates
from selverify.models.heuristic.embedding import Embed
from selverify.models.prompting import Prompt, Prompting, load_prompt, move_schema, plain
from selverify.models.sources import has_source, read_generator_source, read_verifier_source
from selverify.models.verifiers.head import HeadVerifier, load_head
from selverify.models.verifiers.loading import CPU, check_device
from selverify.models.verifiers.named import named_verifier
from selverify.params import PretrainedParams, PretrainedVerifier, Sampling, Served, Server
from selverify.search.backend import Backend, ComposedBackend, Proposer, Verifier, WithVerifier
from selverify.types import State

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Models:
    """A domain, what answers its requests, and what the ranker is made of.

    ``embed`` reads moves with the generator, which ``backbone`` identifies; None where its hidden
    states cannot be had. ``longest`` is the most words that a problem may have where that is known.
    """

    domain: Domain
    backend: Backend
    embed: Embed | None
    backbone: str
    policy: Policy | None
    longest: int | None

    def embedding(self) -> Embed:
        """``embed``.

        Raises:
            ParamsError: there is none.
        """
        if self.embed is None:
            raise ParamsError(
                f"generator.{self.domain.name}: given a server without embeddings, expected the "
                "name of a model that it embeds with: a ranker and a head read embeddings"
            )
        return self.embed


@dataclass(frozen=True, slots=True)
class _Parts:
    proposer: Proposer
    embed: Embed | None
    backbone: str
    alone: bool
    """Whether what is asked beside a text leaves its embedding alone, as behind a server."""


def open_models(
    domain: str,
    sampling: Sampling,
    *,
    seed: int,
    device: str,
    generator: Path,
    verifier: Path | None = None,
    policy: Path | None = None,
) -> Models:
    """The models of these folders, ready to answer.

    Args:
        device: where models of the hub run. Where there are none of them it is not used, and a
            warning says so: models that were trained here are small and stay on the CPU.

    Raises:
        ArtifactError: a file or a model is missing.
        SchemaError: a file was written under another schema, or models do not belong together.
        ParamsError: a source that names what is not there, or no such device.
    """
    check_device(device)
    if device != CPU and not _of_the_hub(generator, verifier):
        log.warning(
            "device %s is not used: models that were trained here stay on the CPU, and no other "
            "model runs in this process",
            device,
        )
    if has_source(generator):
        parts = _generator(
            domain_by_name(domain),
            read_generator_source(generator),
            sampling,
            seed=seed,
            device=device,
        )
        known = domain_by_name(domain)
        return _composed(known, parts, verifier=verifier, policy=policy, device=device)
    return _local(
        generated_by_name(domain),
        sampling,
        seed=seed,
        device=device,
        generator=generator,
        verifier=verifier,
        policy=policy,
    )


def _of_the_hub(generator: Path, verifier: Path | None) -> bool:
    """Whether a model of the hub is among them."""
    if has_source(generator) and isinstance(read_generator_source(generator), PretrainedParams):
        return True
    if verifier is None or not has_source(verifier):
        return False
    return isinstance(read_verifier_source(verifier), PretrainedVerifier)


def _local(
    domain: GeneratedDomain,
    sampling: Sampling,
    *,
    seed: int,
    device: str,
    generator: Path,
    verifier: Path | None,
    policy: Path | None,
) -> Models:
    """Models that were trained here, but for a verifier that may have been named."""
    backbone = load_backbone(generator, domain.vocabulary)
    named = verifier is not None and has_source(verifier)
    reward = None
    if verifier is not None and not named:
        reward = load_reward_model(verifier, domain.vocabulary)
    trained = load_policy(policy, backbone.digest) if policy is not None else None
    local = LocalBackend(domain, backbone, sampling, seed=seed, reward=reward, policy=trained)
    positions = [len(one.decoder.cos) for one in (backbone, reward) if one is not None]
    derivation = sampling.max_moves * sampling.max_move_tokens
    longest = min(positions) - derivation - 1  # one position is the word that opens every text
    backend: Backend = local
    if verifier is not None and named:
        backend = WithVerifier(local, named_verifier(domain, verifier, device=device, ask=_asks))
    return Models(domain, backend, local.embed, backbone.digest, trained, longest)


def _composed(
    domain: Domain, parts: _Parts, *, verifier: Path | None, policy: Path | None, device: str
) -> Models:
    trained = load_policy(policy, parts.backbone) if policy is not None else None
    ranker = None
    if parts.embed is not None:
        ranker = TrainedRanker(parts.embed, trained, backbone=parts.backbone, alone=parts.alone)
    chosen: Verifier | None = None
    if verifier is not None and has_source(verifier):
        chosen = named_verifier(domain, verifier, device=device, ask=_asks)
    elif verifier is not None:
        chosen = _head(verifier, parts)
    backend = ComposedBackend(parts.proposer, ranker=ranker, verifier=chosen)
    return Models(domain, backend, parts.embed, parts.backbone, trained, None)


def _generator(
    domain: Domain, source: PretrainedParams | Served, sampling: Sampling, *, seed: int, device: str
) -> _Parts:
    prompting, shown = _prompting(domain, source.prompt)
    if isinstance(source, Served):
        return _served(domain, source, prompting, shown, sampling=sampling, seed=seed)
    pretrained = load_pretrained(
        source.model, revision=source.revision, dtype=source.dtype, device=device
    )
    prefixes = Prefixes(
        pretrained.model, capacity=source.kept_tokens, positions=pretrained.positions
    )
    proposer = CausalModel(
        pretrained,
        prefixes,
        end_of_move=domain.end_of_move,
        prompting=prompting,
        prompting_id=shown,
        sampling=sampling,
        seed=seed,
    )
    states = HiddenStates(pretrained, prefixes, prompting=prompting, end_of_move=domain.end_of_move)
    return _Parts(proposer, states.embed, f"{pretrained.digest} {shown}", alone=False)


def _served(
    domain: Domain,
    source: Served,
    prompting: Callable[[State], Prompt],
    shown: str,
    *,
    sampling: Sampling,
    seed: int,
) -> _Parts:
    client, served = _server_modules()
    proposer = served.ServedModel(
        client.Client(source),
        end_of_move=domain.end_of_move,
        prompting=prompting,
        prompting_id=shown,
        sampling=sampling,
        seed=seed,
        api=source.api,
        schema=move_schema(domain) if source.structured else None,
    )
    if source.embeddings is None:
        return _Parts(proposer, None, proposer.identity(), alone=True)
    embedder = served.ServedEmbeddings(
        client.Client(source.embeddings),
        batch=source.embeddings.batch,
        dimension=source.embeddings.dimension,
    )
    embed = ServedStates(embedder, domain).embed
    return _Parts(proposer, embed, embedder.identity(), alone=True)


def _asks(server: Server) -> Any:
    client, _ = _server_modules()
    return client.Client(server)


def _server_modules() -> tuple[Any, Any]:
    """The modules that ask servers: they need a package that is an extra.

    Raises:
        ParamsError: it is not installed.
    """
    try:
        from selverify.models.generators import client, served  # noqa: PLC0415
    except ImportError as error:
        raise ParamsError(
            "generator: given a server, expected the extra that asks it to be installed: "
            f"pip install 'selverify[servers]' ({error})"
        ) from error
    return client, served


def _prompting(domain: Domain, name: str | None) -> tuple[Callable[[State], Prompt], str]:
    """What the model is shown of a state, and what identifies it."""
    if name is None:
        return plain(domain), f"plain {domain.name} {domain.end_of_move!r}"
    prompting = Prompting(load_prompt(name), end_of_move=domain.end_of_move)
    return prompting, prompting.identity()


def _head(folder: Path, parts: _Parts) -> Verifier:
    if parts.embed is None:
        raise ParamsError(f"{folder}: given a head, expected a generator whose states it can read")
    head, known = load_head(folder, backbone=parts.backbone)
    return HeadVerifier(parts.embed, head, identity=known, alone=parts.alone)
