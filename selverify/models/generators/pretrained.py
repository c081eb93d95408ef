"""Any causal language model of the Hugging Face layout, from the hub or a folder, and its prompts.

Knows: loading, what identifies the weights, how a prompt becomes tokens. Does not know: requests,
sampling, domains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoModelForCausalLM

from selverify.errors import ParamsError
from selverify.models.chat_template import render_chat
from selverify.models.generators.adapter import merge_adapter
from selverify.models.generators.int8 import round_linears
from selverify.models.prompting import Prompt, plain_text
from selverify.models.verifiers.loading import (
    CPU,
    load_model,
    load_tokenizer,
    local_folder,
    number_type,
)

_CHANGING = "longrope"
_BEFORE = "\n"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model, its tokenizer, and the content id of its files.

    ``positions`` is the number of tokens that a text may have.
    """

    model: Any
    tokenizer: Any
    files: str
    dtype: torch.dtype
    positions: int

    @property
    def digest(self) -> str:
        """What identifies the weights as they compute."""
        return f"{self.files} {self.dtype}"

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Tokens of a prompt; see ``encode_each``."""
        (tokens,) = self.encode_each([prompt])
        return tokens

    def encode_each(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        """Tokens of each prompt, ``begun`` as the beginning of the assistant's own answer.

        A model without a chat template is given the plain layout. What the answer begins with is
        appended to the rendered text, because templates strip the white space at its end, and with
        it the end of the last step.

        Raises:
            ParamsError: the template refuses the messages.
        """
        if not prompts:
            return []
        chats = [bool(one.messages and self.tokenizer.chat_template) for one in prompts]
        texts = [
            self._rendered(one.messages) + self._broken(one.begun)
            if chat
            else self._broken(plain_text(one))
            for one, chat in zip(prompts, chats, strict=True)
        ]
        found = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        bos = self.tokenizer.bos_token_id
        return [
            tuple(said) if chat or bos is None else (bos, *said)
            for said, chat in zip(found, chats, strict=True)
        ]

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Tokens of a text by itself, none of them special."""
        return tuple(self.tokenizer.encode(self._broken(text), add_special_tokens=False))

    def encode_behind(self, text: str) -> list[int]:
        """Tokens of a text behind another one: some tokenizers put a blank before what begins."""
        before, both, alone = (
            self.tokenizer.encode(one, add_special_tokens=False)
            for one in (_BEFORE, _BEFORE + text, text)
        )
        size = len(before)
        tokens: list[int] = both[size:] if both[:size] == before else alone
        return tokens

    def _broken(self, text: str) -> str:
        """The text with a blank inside whatever the tokenizer takes for a special token."""
        special = _special_tokens(self.tokenizer)
        return special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _rendered(self, said: Sequence[tuple[str, str]]) -> str:
        """The chat by the model's template, up to the assistant's answer."""
        for turns in (said, _without_system(said)):
            try:
                return self._by_template(turns)
            except TemplateError as error:
                refusal = error
        raise ParamsError(
            f"generator: given a chat template that refuses a prompt ({refusal}), expected one "
            "that takes turns of user and assistant"
        ) from refusal

    def _by_template(self, said: Sequence[tuple[str, str]]) -> str:
        turns = [(role, self._broken(text)) for role, text in said]
        return render_chat(self.tokenizer, turns, answer=True)

    def decode(self, tokens: list[int]) -> str:
        """The text of generated tokens, without special ones."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def ends(self) -> frozenset[int]:
        """Tokens that end a text: the tokenizer's and those of the generation configuration."""
        configured = self.model.generation_config.eos_token_id
        listed = configured if isinstance(configured, list) else [configured]
        return frozenset(one for one in (*listed, self.tokenizer.eos_token_id) if one is not None)


@lru_cache(maxsize=8)
def _special_tokens(tokenizer: Any) -> re.Pattern[str]:
    """A pattern of the texts of the tokenizer's special tokens."""
    added = [one.content for one in tokenizer.added_tokens_decoder.values() if one.special]
    longest = sorted((text for text in added if len(text.strip()) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) or r"(?!)")


def _without_system(said: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """The system's turn as the beginning of the next one: some templates know none."""
    system = [text for role, text in said if role == "system"]
    others = [turn for turn in said if turn[0] != "system"]
    if not others:
        return said
    role, first = others[0]
    return [(role, "\n\n".join((*system, first))), *others[1:]]


def load_hub_model(
    source: str,
    *,
    revision: str | None,
    dtype: str,
    device: str,
    adapters: Sequence[Path] = (),
) -> HubModel:
    """The model of a local folder, of a repository on the hub, or of a package.

    Args:
        source: as for ``local_folder``.
        revision: a commit or tag of the repository, the package's version; None for a folder.
        dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``, as for ``number_type``; ``int8``
            rounds weights and what is multiplied by them, on a processor, all else is in float32.
        device: ``cpu``, ``cuda``, ``cuda:1``, ...
        adapters: folders of adapters that are added to the weights, each made for what is before.

    Raises:
        ParamsError: ``int8`` on another device than a processor; a model without positions.
        ParamsError, ArtifactError, SchemaError: as ``local_folder``, ``load_model`` and
            ``merge_adapter``.
    """
    if dtype == "int8" and device != CPU:
        raise ParamsError(
            f"dtype: given int8 on device {device!r}, expected auto, bfloat16, float16 or float32 "
            "there: 8-bit products are for processors"
        )
    folder, known = local_folder(source, revision=revision)
    tokenizer = load_tokenizer(folder)
    # Sums of weights are made in float32, so that they are rounded once.
    kind = number_type(dtype, device)
    loaded = torch.float32 if adapters or kind == torch.int8 else kind
    model = load_model(AutoModelForCausalLM, folder, dtype=loaded, device=device)
    for adapter in adapters:
        model, own = merge_adapter(model, adapter, base=known)
        known = f"{known} {own}"
    if kind == torch.int8:
        round_linears(model.base_model)
    elif adapters:
        # Not the buffers: frequencies of positions stay as exact as ``load_model`` leaves them.
        for weight in model.parameters():
            weight.data = weight.data.to(kind)
    model = model.eval().requires_grad_(False)
    return HubModel(model, tokenizer, known, kind, _positions(model.config, source))


def _positions(config: Any, source: str) -> int:
    """Tokens of a text; where attention slides, those of its window, so that it never does; where
    the angles of positions change with a text's length (LongRoPE), those up to the change."""
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    if positions is None:
        raise ParamsError(
            f"generator: given {source}, a model without max_position_embeddings, expected one "
            "whose attention goes by keys and values of positions"
        )
    limits = [int(positions)]
    if getattr(text, "use_sliding_window", True):
        limits.append(getattr(text, "sliding_window", None) or limits[0])
    angles = getattr(text, "rope_parameters", None) or {}
    for one in (angles, *angles.values()):  # of all layers, or of each kind of them
        if isinstance(one, dict) and one.get("rope_type") == _CHANGING:
            limits.append(one.get("original_max_position_embeddings", limits[0]))
    return min(limits)
