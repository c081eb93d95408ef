"""Texts of recorded lists as numbers: what a ranker learns from where no backbone wrote the moves.

Knows: encoders by name, which text stands for what, a few features that cost nothing. Does not
know: verdicts, training, folds. An embedding never depends on a verdict or on a candidate's place.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor
from transformers import AutoModel

from selverify.audit.schema import RecordedList
from selverify.domains.answers import stated_answer
from selverify.domains.claims import find_claims
from selverify.domains.math_steps import END_OF_STEP
from selverify.errors import ParamsError
from selverify.models.generators.served_states import EmbedsTexts
from selverify.models.heuristic.embedding import Embeddings
from selverify.models.prompting import disarmed
from selverify.models.verifiers.loading import load_model, load_tokenizer, local_folder

TEXTS_AT_ONCE = 32
LENGTH = 60.0
"""Characters of a usual step; the feature of its length counts from there."""
NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
FREE = (
    "length",
    "numbers",
    "new numbers",
    "equations",
    "asks",
    "answers",
    "true claims",
    "false claims",
)
"""What ``free_features`` says of a move, in this order."""
WORDLLAMA, FREE_ONLY, PLUS_FREE = "wordllama", "free", "+free"
Pooling = Literal["mean", "last"]


class TextEncoder(Protocol):
    """What turns texts into numbers."""

    def identity(self) -> str:
        """Content id of all that the numbers depend on."""
        ...

    def encode(self, texts: Sequence[str]) -> Tensor:
        """One row a text, in their order: [rows, D], float32, on the CPU."""
        ...


class WordLlama:
    """The static model that the package ``wordllama`` carries: the mean of its words' vectors.

    Raises:
        ParamsError: the package is not installed.
    """

    def __init__(self, dimension: int) -> None:
        """``dimension``: of the 256 numbers the first 64, 128 or all, as it was trained for."""
        package = _wordllama()
        self._model = package.WordLlama.load(
            # Where it carries its tokenizer; by itself it looks elsewhere, and asks the network.
            cache_dir=Path(package.__file__).parent,
            disable_download=True,
            trunc_dim=dimension,
        )
        self._identity = f"wordllama {package.__version__} {dimension}"

    def identity(self) -> str:
        """Of the package's version, which carries the weights."""
        return self._identity

    def encode(self, texts: Sequence[str]) -> Tensor:
        """[rows, dimension]; an empty text is all zeros."""
        # One by one: a batch is padded to its longest text.
        return torch.from_numpy(self._model.embed(list(texts), batch_size=1))


class HubEncoder:
    """Any model of the hub or a folder; a text is the mean of its last layer, or its last token.

    ``mean`` is for sentence encoders, ``last`` for causal models. Of a text beyond the model's
    positions the end is read.
    """

    def __init__(
        self, source: str, *, revision: str | None, pooling: Pooling, dtype: str, device: str
    ) -> None:
        """Arguments and errors as in ``models.generators.pretrained.load_hub_model``."""
        folder, known = local_folder(source, revision=revision)
        self._tokenizer = load_tokenizer(folder)
        self._tokenizer.truncation_side = "left"
        self._tokenizer.padding_side = "right"
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._model = load_model(AutoModel, folder, dtype=dtype, device=device)
        positions = int(self._model.config.get_text_config().max_position_embeddings)
        self._longest = min(positions, self._tokenizer.model_max_length)
        self._pooling = pooling
        self._identity = f"{known} {dtype} {pooling}"

    def identity(self) -> str:
        """Of the weights, their precision and what is taken of a text."""
        return self._identity

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
        # A tokenizer may make nothing of an empty text.
        tokens: Any = self._tokenizer(
            [text or " " for text in texts],
            padding=True,
            truncation=True,
            max_length=self._longest,
            return_tensors="pt",
        ).to(self._model.device)
        hidden: Tensor = self._model(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"]
        if self._pooling == "last":
            found = hidden[torch.arange(len(texts)), mask.sum(1) - 1]
        else:
            found = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return found.cpu()


class ServedEncoder:
    """An embeddings server (``backends.served.ServedEmbeddings``)."""

    def __init__(self, embeddings: EmbedsTexts) -> None:
        self._embeddings = embeddings

    def identity(self) -> str:
        """The server's own."""
        return self._embeddings.identity()

    def encode(self, texts: Sequence[str]) -> Tensor:
        """[rows, dimension]; errors are the server's."""
        return torch.tensor(self._embeddings.embed_texts(texts), dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class Embedder:
    """Embeddings of recorded moves: by an encoder, by free features, or both.

    Without an ``encoder`` states and moves are one zero each, so that only log probabilities speak.
    """

    encoder: TextEncoder | None
    free: bool

    def identity(self) -> str:
        """Content id of all that the embeddings depend on beside the texts."""
        name = self.encoder.identity() if self.encoder else "no encoder"
        return f"{name}, {', '.join(FREE)}" if self.free else name

    def embed(self, lists: Sequence[RecordedList]) -> list[Embeddings]:
        """One row a candidate of each list; each distinct text is read once.

        ``state`` is the question with the prefix, ``move`` the candidate, ``after`` all three,
        ``goal`` the question. ``token_logprobs`` is ``free_features``, or a zero; ``logprob`` the
        recorded one where all candidates of a list have it, else zeros.
        """
        wanted = dict.fromkeys(text for item in lists for text in _texts(item))
        vectors = self.encoder.encode(list(wanted)) if self.encoder else torch.zeros(len(wanted), 1)
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
    """[candidate, FREE]: what can be counted in a candidate without any model.

    The logarithm of its length over ``LENGTH``; log(1 + n) of the numbers in it, of those that
    stand neither in the question nor in the prefix, and of its equality signs; 1 where it ends with
    a question mark; 1 where it states an answer; log(1 + n) of its arithmetic claims that hold,
    and of those that do not.
    """
    known = {number for text in (item.question, *item.prefix) for number in NUMBER.findall(text)}
    return torch.tensor([_features(one.text, known) for one in item.candidates])


def open_embedder(
    name: str, *, dimension: int, dtype: str, device: str, server: EmbedsTexts | None
) -> Embedder:
    """The embedder called ``name``.

    Args:
        name: ``free``; or ``wordllama``, ``server``, ``mean:MODEL``, ``last:MODEL``, each alone or
            with ``+free`` behind it. MODEL is a folder, or ``owner/name@revision`` on the hub.
        dimension: of ``wordllama``.
        dtype, device: of a model.
        server: what ``server`` asks.

    Raises:
        ParamsError: another name, ``server`` without one, or a package that is not installed.
        ArtifactError, SchemaError: as ``HubEncoder``.
    """
    if name == FREE_ONLY:
        return Embedder(None, free=True)
    plain = name.removesuffix(PLUS_FREE)
    kind, _, model = plain.partition(":")
    if plain == WORDLLAMA:
        return Embedder(WordLlama(dimension), free=plain != name)
    if plain == "server" and server is not None:
        return Embedder(ServedEncoder(server), free=plain != name)
    pooling = next((one for one in get_args(Pooling) if one == kind), None)
    if pooling is not None and model:
        source, _, revision = (model, "", "") if Path(model).is_dir() else model.partition("@")
        encoder = HubEncoder(
            source, revision=revision or None, pooling=pooling, dtype=dtype, device=device
        )
        return Embedder(encoder, free=plain != name)
    without = " without a server" if plain == "server" else ""
    raise ParamsError(
        f"encoder: given {name!r}{without}, expected free, wordllama, server, mean:MODEL or "
        "last:MODEL, all but the first with or without +free behind it"
    )


def _wordllama() -> Any:
    """The package; importing it sets up the log of the whole process, which is undone.

    Raises:
        ParamsError: it is not installed.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return import_module("wordllama")
    except ImportError as error:
        raise ParamsError(
            "encoder: given 'wordllama', expected its package to be installed: "
            f"pip install 'selverify[text]' ({error})"
        ) from error
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _texts(item: RecordedList) -> list[str]:
    """The state, the goal, each move, and each state after a move."""
    state = END_OF_STEP.join((item.question, *item.prefix))
    moves = [one.text for one in item.candidates]
    return [state, item.question, *moves, *(state + END_OF_STEP + move for move in moves)]


def _features(text: str, known: set[str]) -> list[float]:
    numbers = NUMBER.findall(text)
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
