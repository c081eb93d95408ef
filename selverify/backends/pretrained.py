"""Any causal language model of the Hugging Face layout, from the hub or a folder, and its prompts.

Knows: loading, what identifies the weights, how a prompt becomes tokens. Does not know: requests,
sampling, domains.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from selverify.errors import ArtifactError, ParamsError
from selverify.prompting import Prompt, plain_text
from selverify.storage import digest


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model that is not trained further, its tokenizer, and what identifies both.

    ``positions`` is the number of tokens that a text may have.
    """

    model: nn.Module
    tokenizer: Any
    digest: str
    positions: int

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Tokens of a prompt, ``begun`` as the beginning of the assistant's own answer.

        A model without a chat template is given the plain layout. What the answer begins with is
        appended to the rendered text, because templates strip the white space at its end, and with
        it the end of the last step.
        """
        if prompt.messages and self.tokenizer.chat_template:
            messages = [{"role": role, "content": text} for role, text in prompt.messages]
            rendered = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
            return tuple(self.tokenizer.encode(rendered + prompt.begun, add_special_tokens=False))
        said = tuple(self.tokenizer.encode(plain_text(prompt), add_special_tokens=False))
        bos = self.tokenizer.bos_token_id
        return said if bos is None else (bos, *said)

    def decode(self, tokens: list[int]) -> str:
        """The text of generated tokens, without special ones."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def ends(self) -> frozenset[int]:
        """Tokens that end a text: the tokenizer's and those of the generation configuration."""
        configured = self.model.generation_config.eos_token_id  # type: ignore[union-attr]
        listed = configured if isinstance(configured, list) else [configured]
        return frozenset(one for one in (*listed, self.tokenizer.eos_token_id) if one is not None)


def load_pretrained(source: str, *, revision: str | None, dtype: str, device: str) -> Pretrained:
    """The model of a local folder, or of a repository on the hub.

    Args:
        source: a folder, or ``owner/name``.
        revision: a commit or tag of the repository; None for a folder.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu``, ``cuda``, ``cuda:1``, ...

    Raises:
        ArtifactError: there is no such folder, and the hub did not give such a repository.
        ParamsError: a repository without a revision, which would not say which weights ran.
    """
    folder = Path(source)
    local = folder.is_dir()
    if not local and revision is None:
        raise ParamsError(
            f"model {source!r}: given no revision and no folder of that name, expected a commit or "
            "a tag of the repository"
        )
    options = {} if local else {"revision": revision}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=DTYPES[dtype], **options)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ArtifactError(
            f"model {source!r}: expected a folder or a repository that can be reached: {first}"
        ) from error
    known = digest(folder) if local else f"{source}@{revision}"
    return Pretrained(
        model.to(device).eval().requires_grad_(False),
        tokenizer,
        f"{known} {dtype}",
        int(model.config.get_text_config().max_position_embeddings),
    )


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
