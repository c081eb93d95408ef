"""Any causal language model of the Hugging Face layout, from the hub or a folder, and its prompts.

Knows: loading, what identifies the weights, how a prompt becomes tokens. Does not know: requests,
sampling, domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoModelForCausalLM

from selverify.errors import ParamsError
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

_DATE = "26 Jul 2024"
"""The date for templates that show one (Llama 3): today's would change every prompt."""


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
        """Tokens of a prompt, ``begun`` as the beginning of the assistant's own answer.

        A model without a chat template is given the plain layout. What the answer begins with is
        appended to the rendered text, because templates strip the white space at its end, and with
        it the end of the last step.
        """
        if prompt.messages and self.tokenizer.chat_template:
            rendered = self._rendered(prompt.messages)
            return tuple(self.tokenizer.encode(rendered + prompt.begun, add_special_tokens=False))
        said = tuple(self.tokenizer.encode(plain_text(prompt), add_special_tokens=False))
        bos = self.tokenizer.bos_token_id
        return said if bos is None else (bos, *said)

    def _rendered(self, said: Sequence[tuple[str, str]]) -> str:
        """The chat by the model's template, up to the assistant's answer."""
        try:
            return self._by_template(said)
        except TemplateError:  # some know no system's turn
            system = [text for role, text in said if role == "system"]
            others = [(role, text) for role, text in said if role != "system"]
            role, first = others[0]
            return self._by_template([(role, "\n\n".join((*system, first))), *others[1:]])

    def _by_template(self, said: Sequence[tuple[str, str]]) -> str:
        messages = [{"role": role, "content": text} for role, text in said]
        rendered: str = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, date_string=_DATE
        )
        return rendered

    def decode(self, tokens: list[int]) -> str:
        """The text of generated tokens, without special ones."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def ends(self) -> frozenset[int]:
        """Tokens that end a text: the tokenizer's and those of the generation configuration."""
        configured = self.model.generation_config.eos_token_id
        listed = configured if isinstance(configured, list) else [configured]
        return frozenset(one for one in (*listed, self.tokenizer.eos_token_id) if one is not None)


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
        ParamsError: ``int8`` on another device than a processor.
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
    return HubModel(model, tokenizer, known, kind, _positions(model.config))


def _positions(config: Any) -> int:
    """Tokens of a text; where attention slides, those of its window, so that it never does."""
    text = config.get_text_config()
    positions = int(text.max_position_embeddings)
    window = getattr(text, "sliding_window", None)
    if window is None or not getattr(text, "use_sliding_window", True):
        return positions
    return min(positions, int(window))
