"""Checkpoints and sources on disk, put together into what answers requests.

Knows: which file of a folder says what it holds. Does not know: stages, searches.

A generator's folder holds a backbone that we trained, or ``source.json``, which names a model of
the hub or behind a server. A verifier's folder holds a reward model that we trained, a head on the
generator's hidden states, or ``source.json``, which names a published one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selverify.domains import domain_by_name, generated_by_name
from selverify.domains.base import Domain, GeneratedDomain
from selverify.errors import ParamsError
from selverify.models.generators.checkpoints import (
    RankerCheckpoint,
    load_backbone,
    load_ranker_checkpoint,
    load_reward_model,
)
from selverify.models.generators.local import LocalGenerator, LocalVerifier
from selverify.models.generators.served_states import ServedStates
from selverify.models.heuristic.embedding import Embed
from selverify.models.heuristic.ranker import TrainedRanker
from selverify.models.prompting import Prompt, Prompting, load_prompt, move_schema, plain
from selverify.models.sources import (
    has_adapter,
    has_source,
    read_generator_source,
    read_verifier_source,
)
from selverify.models.verifiers.head import HeadVerifier, load_head
from selverify.models.verifiers.loading import CPU, check_device
from selverify.models.verifiers.opening import Surroundings, open_verifier
from selverify.params import PretrainedParams, PretrainedVerifier, Sampling, Served, Server
from selverify.search.backend import Backend, ComposedBackend, Proposer, Verifier
from selverify.search.requests import Complete, Propose, Rank, Verify
from selverify.types import State

if TYPE_CHECKING:
    from selverify.models.generators.causal import CausalModel
    from selverify.models.generators.pretrained import HubModel

EMBEDDED_AT = 2 / 3
"""Share of a hub model's layers after which its states embed moves: later ones are about the next
word. On grade_school a head on them has an AUC of 0.81 on held-out moves, 0.79 after the last."""
KEPT_MOVES = 60_000
"""Sampled moves whose embeddings wait for ranker and verifier, of 16 bytes times the width each."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenModels:
    """A domain, what answers its requests, and what the ranker is made of.

    ``embed`` reads moves with the generator, which ``backbone`` identifies; None where its hidden
    states cannot be had. ``longest`` is the most words that a problem may have where that is known.
    """

    domain: Domain
    backend: Backend
    embed: Embed | None
    backbone: str
    policy: RankerCheckpoint | None
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
    """Whether what is requested beside a text leaves its embedding alone, as behind a server."""
    shown: str = ""
    """The content of a model of the hub that runs in this process, and its prompt."""
    adapted: Callable[[Path], tuple[CausalModel, str]] | None = None
    """The same model with the adapter in a folder, and what identifies it; None: there is none."""


def open_models(
    domain: str,
    sampling: Sampling,
    *,
    seed: int,
    device: str,
    generator: Path,
    verifier: Path | None = None,
    policy: Path | None = None,
    embeds: bool = False,
) -> OpenModels:
    """The models of these folders, ready to answer.

    Args:
        embeds: whether sampled moves will be embedded even without a policy and a verifier.
        device: where models of the hub run. Where there are none of them it is not used, and a
            warning says so: models that were trained here are small and stay on the CPU.

    Raises:
        ArtifactError: a file or a model is missing.
        SchemaError: a file was written under another schema, or models do not belong together.
        ParamsError: a source that names what is not there, or no such device.
    """
    check_device(device)
    source = read_generator_source(generator) if has_source(generator) else None
    in_process = isinstance(source, PretrainedParams)
    named, judges = None, None
    if verifier is not None and has_source(verifier):
        judges = read_verifier_source(verifier)
        in_process |= isinstance(judges, PretrainedVerifier)
        named = open_verifier(verifier, Surroundings(domain_by_name(domain), device, client_of))
    if device != CPU and not in_process:
        _log.warning(
            "device %s is not used: models that were trained here stay on the CPU, and no other "
            "model runs in this process",
            device,
        )
    trained_here = verifier if named is None else None
    longest: int | None = None
    if source is None:
        known = generated_by_name(domain)
        parts, own, longest = _local(
            known,
            sampling,
            seed=seed,
            folder=generator,
            reward=trained_here,
            kept_moves=KEPT_MOVES if policy is not None or embeds else 0,
        )
    else:
        reads = trained_here is not None and not has_adapter(trained_here)
        parts = open_generator(
            domain_by_name(domain),
            source,
            sampling,
            folder=generator,
            seed=seed,
            device=device,
            kept_moves=KEPT_MOVES if policy is not None or reads or embeds else 0,
        )
        own = None if trained_here is None else _head(trained_here, parts)
    trained = load_ranker_checkpoint(policy, parts.backbone) if policy is not None else None
    ranker = None
    if parts.embed is not None:
        ranker = TrainedRanker(parts.embed, trained, backbone=parts.backbone, alone=parts.alone)
    backend = ComposedBackend(
        parts.proposer,
        ranker=ranker,
        verifier=named or own,
        concurrency=_concurrency(source, judges, own),
    )
    return OpenModels(
        domain_by_name(domain), backend, parts.embed, parts.backbone, trained, longest
    )


def _concurrency(generator: object, judges: object, own: Verifier | None) -> dict[str, int]:
    """How many requests of each kind the servers are to have at once."""
    embeds = generator.embeddings if isinstance(generator, Served) else None
    asked = {
        Propose.kind: generator,
        Complete.kind: generator,
        Rank.kind: embeds,
        Verify.kind: judges if own is None else embeds,
    }
    return {kind: one.concurrency for kind, one in asked.items() if isinstance(one, Server)}


def _local(
    domain: GeneratedDomain,
    sampling: Sampling,
    *,
    seed: int,
    folder: Path,
    reward: Path | None,
    kept_moves: int,
) -> tuple[_Parts, Verifier | None, int]:
    """A generator and a verifier that were trained here, and the most words of a problem."""
    backbone = load_backbone(folder, domain.vocabulary)
    positions = [backbone.decoder.positions]
    verifier: LocalVerifier | None = None
    if reward is not None:
        model = load_reward_model(reward, domain.vocabulary)
        verifier = LocalVerifier(model, end_of_move=domain.end_of_move)
        positions.append(model.decoder.positions)
    proposer = LocalGenerator(domain, backbone, sampling, seed=seed, kept_moves=kept_moves)
    derivation = sampling.max_moves * sampling.max_move_tokens
    longest = min(positions) - derivation - 1  # one position is the word that opens every text
    return _Parts(proposer, proposer.embed, backbone.digest, alone=False), verifier, longest


def open_generator(
    domain: Domain,
    source: PretrainedParams | Served,
    sampling: Sampling,
    *,
    folder: Path,
    seed: int,
    device: str,
    kept_moves: int,
) -> _Parts:
    """A model of the hub, of a package or of a folder, or one behind a server.

    Raises:
        ParamsError, ArtifactError, SchemaError: as ``load_hub_model``; or what asks servers is not
            installed.
    """
    prompting, shown = prompting_of(domain, source.prompt)
    if isinstance(source, Served):
        return _served(domain, source, prompting, shown, sampling=sampling, seed=seed)
    from selverify.models.generators.causal import CausalModel

    pretrained = load_generator_model(source, folder, dtype=source.dtype, device=device)
    causal = partial(
        CausalModel,
        kept_tokens=source.kept_tokens,
        domain=domain,
        exact_values=source.exact_values,
        alphabet=source.alphabet,
        prompting=prompting,
        prompting_id=shown,
        sampling=sampling,
        seed=seed,
        few_shot=source.prompt is not None and not pretrained.tokenizer.chat_template,
    )

    def adapted(adapter: Path) -> tuple[CausalModel, str]:
        model = load_generator_model(
            source, folder, dtype=source.dtype, device=device, adapters=(adapter,)
        )
        return causal(model, depth=1.0, kept_moves=0), model.digest

    proposer = causal(pretrained, depth=EMBEDDED_AT, kept_moves=kept_moves)
    # Log probabilities, which rankers and heads read, are shares of what may be sampled.
    of = "" if source.alphabet is None else f" of {source.alphabet!r}"
    return _Parts(
        proposer,
        proposer.embed,
        f"{pretrained.digest} {shown}{of} depth {EMBEDDED_AT!r}",
        alone=False,
        shown=f"{pretrained.files} {shown}",
        adapted=adapted,
    )


def load_generator_model(
    source: PretrainedParams,
    folder: Path,
    *,
    dtype: str,
    device: str,
    adapters: Sequence[Path] = (),
) -> HubModel:
    """The model that ``source`` in ``folder`` names, with its own adapter and then ``adapters``.

    Raises:
        ParamsError, ArtifactError, SchemaError: as ``load_hub_model``.
    """
    from selverify.models.generators.pretrained import load_hub_model

    check_device(device)
    own = () if source.tuning is None else (folder,)
    return load_hub_model(
        source.model,
        revision=source.revision,
        dtype=dtype,
        device=device,
        adapters=(*own, *adapters),
    )


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
        few_shot=source.prompt is not None and source.api == "completions",
    )
    if source.embeddings is None:
        return _Parts(proposer, None, proposer.identity(), alone=True)
    settings = source.embeddings
    embedder = open_embeddings(settings, batch=settings.batch, dimension=settings.dimension)
    embed = ServedStates(embedder, domain).embed
    return _Parts(proposer, embed, embedder.identity(), alone=True)


def client_of(server: Server) -> Any:
    """What asks ``server``; errors as in ``Client``."""
    client, _ = _server_modules()
    return client.Client(server)


def open_embeddings(server: Server, *, batch: int, dimension: int | None = None) -> Any:
    """``served.ServedEmbeddings`` of a server; errors as in ``Client``."""
    client, served = _server_modules()
    return served.ServedEmbeddings(client.Client(server), batch=batch, dimension=dimension)


def _server_modules() -> tuple[Any, Any]:
    """The modules that ask servers: they need a package that is an extra.

    Raises:
        ParamsError: it is not installed.
    """
    try:
        from selverify.models.generators import client, served
    except ImportError as error:
        raise ParamsError(
            "generator: given a server, expected the extra that asks it to be installed: "
            f"pip install '.[servers]' in the clone ({error})"
        ) from error
    return client, served


def prompting_of(domain: Domain, name: str | None) -> tuple[Callable[[State], Prompt], str]:
    """What the model is shown of a state, and what identifies it."""
    if name is None:
        return plain(domain), f"plain {domain.name} {domain.end_of_move!r}"
    prompting = Prompting(load_prompt(name), end_of_move=domain.end_of_move)
    return prompting, prompting.identity()


def _head(folder: Path, parts: _Parts) -> Verifier:
    """A head on the generator's states, or on those of its model with an adapter of the head's."""
    if has_adapter(folder):
        if parts.adapted is None:
            raise ParamsError(
                f"{folder}: given an adapter, expected a generator of the hub or of a package"
            )
        reader, digest = parts.adapted(folder)
        head, known = load_head(folder, backbone=parts.shown)
        identity = f"{known} {digest}"
        return HeadVerifier(reader.embed, head, identity=identity, read=reader.parameters())
    if parts.embed is None:
        raise ParamsError(f"{folder}: given a head, expected a generator whose states it can read")
    head, known = load_head(folder, backbone=parts.backbone)
    return HeadVerifier(parts.embed, head, identity=known, alone=parts.alone)
