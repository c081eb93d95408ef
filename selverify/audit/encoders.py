"""Texts of recorded lists as numbers: what a ranker learns from where no backbone wrote the moves.

Knows: encoders by name, which text represents what, a few features that cost nothing. Does not
know: verdicts, training, folds. An embedding never depends on a verdict or on a candidate's place.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel

from selverify.audit.log import RecordedList
from selverify.audit.records import shown
from selverify.domains.answers import stated_answer
from selverify.domains.claims import find_claims
from selverify.domains.math_steps import END_OF_STEP
from selverify.errors import ParamsError, Refusal, SchemaError
from selverify.models.assembly import open_embeddings
from selverify.models.heuristic.embedding import Embeddings
from selverify.models.prompting import disarmed
from selverify.models.verifiers.loading import load_model, load_tokenizer, local_folder
from selverify.params import PATIENCE, Server, validation_sentence

TEXTS_AT_ONCE = 32
LISTS_AT_ONCE = 4_096
"""Whose texts are held together while they are encoded."""
MOST_TOKENS = 2_048
"""Of a text, for a model that states no number of positions (Bloom, Mamba, T5)."""
LENGTH = 60.0
"""Characters of a usual step; the feature of its length counts from there."""
DIMENSION = 64
"""Of the encoder ``wordllama``: of 256 numbers the first 64, as it was trained for."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_PLUS_FREE = "+free"
_POOLINGS = ("mean", "last")
SERVER = "server"
ENCODER_KEY = "SELVERIFY_ENCODER_KEY"
"""The environment variable with the key of an embeddings endpoint."""
ENCODER_URL = "SELVERIFY_ENCODER_URL"
"""The environment variable with the address that gets the key also if a file names it."""


class TextEncoder(Protocol):
    """Turns texts into numbers."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """One row a text, in their order: [rows, D], float32, on the CPU."""
        ...


class WordLlama:
    """The static model that the package ``wordllama`` carries: the mean of its words' vectors."""

    def __init__(self) -> None:
        package = _wordllama()
        self._model = package.WordLlama.load(
            # Where it carries its tokenizer; by itself it looks elsewhere, on the network.
            cache_dir=Path(package.__file__).parent,
            disable_download=True,
            trunc_dim=DIMENSION,
        )

    def encode(self, texts: Sequence[str]) -> Tensor:
        """[rows, ``DIMENSION``]; an empty text is all zeros."""
        # One by one: a batch is padded to its longest text.
        return torch.from_numpy(self._model.embed(list(texts), batch_size=1))


class HubEncoder:
    """Any model of the hub or a folder; a text is the mean of its last layer, or its last token.

    ``mean`` is for sentence encoders, ``last`` for causal models. Of a text beyond the model's
    positions the end is read. Of a model that encodes and decodes the encoder is taken.
    """

    def __init__(self, source: str, *, revision: str | None, pooling: str) -> None:
        """Arguments and errors as in ``verifiers.loading.local_folder``."""
        folder, _ = local_folder(source, revision=revision)
        self._tokenizer = load_tokenizer(folder)
        self._tokenizer.truncation_side = "left"
        # Masked, so that any token will do where the tokenizer has none for it.
        self._padding = self._tokenizer.pad_token_id or 0
        self._model = load_model(AutoModel, folder, dtype=torch.float32, device="cpu")
        if self._model.config.is_encoder_decoder:
            self._model = self._model.get_encoder()
        self._longest = min(_positions(self._model), self._tokenizer.model_max_length)
        self._pooling = pooling

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> Tensor:
        """[rows, width]; errors are the model's own."""
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        rows = torch.zeros(len(texts), int(self._model.config.get_text_config().hidden_size))
        for start in range(0, len(order), TEXTS_AT_ONCE):
            chosen = order[start : start + TEXTS_AT_ONCE]
            rows[chosen] = self._read([disarmed(texts[place]) for place in chosen])
        return rows

    def _read(self, texts: list[str]) -> Tensor:
        # A tokenizer may make nothing of an empty text, or of white space.
        tokens = self._tokenizer(
            [text or " " for text in texts], truncation=True, max_length=self._longest
        )
        rows = [torch.tensor(row or [self._padding]) for row in tokens["input_ids"]]
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        padded = pad_sequence(rows, batch_first=True, padding_value=self._padding)
        read = self._model(input_ids=padded, attention_mask=mask)
        hidden: Tensor = read.last_hidden_state.float()
        if self._pooling == "last":
            return hidden[torch.arange(len(texts)), mask.sum(1) - 1]
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


class EndpointEncoder:
    """A model behind an OpenAI-compatible embeddings endpoint."""

    def __init__(self, model: str, url: str, *, from_file: bool) -> None:
        """Take the key of ``ENCODER_KEY``, if it is set and the user named the address.

        Args:
            url: up to and with the version.
            from_file: whether a file names it. It then gets the key only if it is the address in
                ``ENCODER_URL``: a file must not decide who is sent a key.

        Raises:
            ParamsError: the address is none, or the package that asks servers is not installed.
        """
        keyed = ENCODER_KEY in os.environ
        self._withheld = keyed and from_file and os.environ.get(ENCODER_URL) != url
        try:
            key = {"key_variable": ENCODER_KEY} if keyed and not self._withheld else {}
            server = Server(**{**PATIENCE, **key, "url": url, "model": model})
        except ValidationError as error:
            raise ParamsError(f"encoder: {validation_sentence(error)}") from None
        self._embeddings = open_embeddings(server, batch=TEXTS_AT_ONCE)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """[rows, width].

        Raises:
            ProtocolError: the server refuses, does not answer, or gives rows of several widths.
        """
        try:
            return torch.tensor(self._embeddings.embed_texts([text or " " for text in texts]))
        except Refusal as refusal:
            if not self._withheld or refusal.status not in (401, 403):
                raise
            raise Refusal(
                f"{refusal}; no key was sent, because a file names the address: set {ENCODER_URL} "
                "to it if you trust it",
                status=refusal.status,
            ) from refusal


@dataclass(frozen=True, slots=True)
class Embedder:
    """Embeddings of recorded moves: by an encoder, by free features, or both.

    Without an ``encoder`` states and moves are one zero each, so that only log probabilities and
    free features say something.
    """

    encoder: TextEncoder | None
    free: bool

    def embed(self, lists: Sequence[RecordedList]) -> list[Embeddings]:
        """One row a candidate of each list; of ``LISTS_AT_ONCE`` each distinct text is read once.

        ``state`` is the question with the prefix, ``move`` the candidate, ``after`` all three,
        ``goal`` the question. ``token_logprobs`` is ``free_features``, or a zero; ``logprob`` the
        recorded one where all candidates of a list have it, else zeros.

        Raises:
            SchemaError: the encoder gives a number that is not finite as 32 bits.
        """
        if self.encoder is None:
            return [
                self._rows(item, torch.zeros(2 + 2 * len(item.candidates), 1)) for item in lists
            ]
        parts = (lists[at : at + LISTS_AT_ONCE] for at in range(0, len(lists), LISTS_AT_ONCE))
        return [rows for part in parts for rows in self._encoded(part, self.encoder)]

    def _encoded(self, lists: Sequence[RecordedList], encoder: TextEncoder) -> list[Embeddings]:
        wanted = dict.fromkeys(text for item in lists for text in _texts(item))
        vectors = encoder.encode(list(wanted))
        finite = vectors.isfinite()
        if not finite.all():
            text = list(wanted)[int(finite.logical_not().any(1).nonzero()[0])]
            raise SchemaError(
                f"encoder: given numbers that are not finite for {shown(text)}, "
                "expected finite ones of 32 bits"
            )
        place = {text: row for row, text in enumerate(wanted)}
        return [self._rows(item, vectors[[place[one] for one in _texts(item)]]) for item in lists]

    def _rows(self, item: RecordedList, vectors: Tensor) -> Embeddings:
        """``vectors``: of the list's ``_texts``."""
        count = len(item.candidates)
        known = [one.logprob for one in item.candidates if one.logprob is not None]
        return Embeddings(
            state=vectors[:1].expand(count, -1),
            move=vectors[2 : 2 + count],
            after=vectors[2 + count :],
            goal=vectors[1:2].expand(count, -1),
            token_logprobs=free_features(item) if self.free else torch.zeros(count, 1),
            logprob=torch.tensor(known) if len(known) == count else torch.zeros(count),
        )


def free_features(item: RecordedList) -> Tensor:
    """[candidate, 8]: what can be counted in a candidate without any model.

    The logarithm of its length over ``LENGTH``; log(1 + n) of the numbers in it, of those that
    stand neither in the question nor in the prefix, and of its equality signs; 1 where it ends with
    a question mark; 1 where it states an answer; log(1 + n) of its arithmetic claims that hold,
    and of those that do not.
    """
    known = {number for text in (item.question, *item.prefix) for number in _NUMBER.findall(text)}
    return torch.tensor([_features(one.text, known) for one in item.candidates])


def open_embedder(name: str, *, from_file: bool = False) -> Embedder:
    """The embedder called ``name``.

    Args:
        name: ``free``; or ``wordllama``, ``mean:MODEL``, ``last:MODEL``, ``server:MODEL@URL``,
            each alone or with ``+free`` behind it. MODEL is a folder, or ``owner/name@revision``
            on the hub; of a server what it is called there.
        from_file: whether a file holds the name; see ``EndpointEncoder``.

    Raises:
        ParamsError: another name.
        ArtifactError, SchemaError: as ``HubEncoder``.
    """
    if name == "free":
        return Embedder(None, free=True)
    plain = name.removesuffix(_PLUS_FREE)
    pooling, _, model = plain.partition(":")
    if plain == "wordllama":
        return Embedder(WordLlama(), free=plain != name)
    if pooling in _POOLINGS and model:
        source, _, revision = (model, "", "") if Path(model).is_dir() else model.partition("@")
        encoder = HubEncoder(source, revision=revision or None, pooling=pooling)
        return Embedder(encoder, free=plain != name)
    served, _, url = model.rpartition("@")
    if pooling == SERVER and served:
        return Embedder(EndpointEncoder(served, url, from_file=from_file), free=plain != name)
    raise ParamsError(
        f"encoder: given {name!r}, expected free, wordllama, mean:MODEL, last:MODEL or "
        "server:MODEL@URL, all but the first with or without +free behind it"
    )


def _positions(model: Any) -> int:
    """How many tokens a model reads. RoBERTa and its kin number them from behind the padding."""
    stated = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 0
    positions = int(stated) if stated > 0 else MOST_TOKENS  # XLNet says -1
    tables = (one for name, one in model.named_modules() if name.endswith("position_embeddings"))
    padding = (getattr(one, "padding_idx", None) for one in tables)
    return positions - max((one + 1 for one in padding if one is not None), default=0)


def _wordllama() -> Any:
    """The package; importing it sets up the log of the whole process, which is undone."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return import_module("wordllama")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _texts(item: RecordedList) -> list[str]:
    """The state, the goal, each move, and each state after a move."""
    state = END_OF_STEP.join((item.question, *item.prefix))
    moves = [one.text for one in item.candidates]
    return [state, item.question, *moves, *(state + END_OF_STEP + move for move in moves)]


def _features(text: str, known: set[str]) -> list[float]:
    numbers = _NUMBER.findall(text)
    claims = find_claims(text)
    held = sum(claim.holds for claim in claims)
    return [
        math.log((1 + len(text)) / LENGTH),
        math.log1p(len(numbers)),
        math.log1p(len(set(numbers) - known)),
        math.log1p(text.count("=")),
        float(text.rstrip().endswith("?")),
        float(stated_answer(text) is not None),
        math.log1p(held),
        math.log1p(len(claims) - held),
    ]
