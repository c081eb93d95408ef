"""Words to numbers: a word-level tokenizer in the Hugging Face format, one word a token."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from selverify.errors import ArtifactError, SchemaError

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
SPECIAL = (PAD, BOS, EOS)


class Words:
    """The vocabulary of a backbone: the special tokens, then the domain's words in order."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self.words = (*SPECIAL, *vocabulary)
        self.ids = {word: index for index, word in enumerate(self.words)}
        self.pad, self.bos, self.eos = (self.ids[word] for word in SPECIAL)

    def encode(self, text: str) -> list[int]:
        """Ids of space-separated words; a KeyError names a word outside the vocabulary."""
        ids = self.ids
        return [ids[word] for word in text.split()]

    def decode(self, ids: Iterable[int]) -> str:
        """Words joined by one space, without special tokens."""
        return " ".join(self.words[index] for index in ids if index > self.eos)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and its configuration, as transformers reads them."""
        from transformers import PreTrainedTokenizerFast

        core = Tokenizer(models.WordLevel(vocab=self.ids, unk_token=PAD))
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=core, pad_token=PAD, bos_token=BOS, eos_token=EOS
        )
        tokenizer.save_pretrained(folder)


def load_words(folder: Path, expected: Iterable[str]) -> Words:
    """The tokenizer of a checkpoint, checked against the domain's vocabulary.

    Raises:
        ArtifactError: there is no tokenizer in ``folder``.
        SchemaError: its words are not those of the domain, or it is damaged.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected the tokenizer of a backbone")
    try:
        stored = Tokenizer.from_file(str(path)).get_vocab()
    except Exception as error:  # the package raises nothing narrower
        raise SchemaError(f"{path}: no tokenizer, or damaged: {error}") from error
    words = Words(expected)
    if stored != words.ids:
        raise SchemaError(
            f"{path}: holds {len(stored)} words of another vocabulary; "
            f"expected the {len(words.ids)} words of this domain; train the backbone again"
        )
    return words
