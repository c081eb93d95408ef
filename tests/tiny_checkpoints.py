"""Checkpoints of word_problems small enough for a test, laid out as the ``models`` folder.

Weights are random, but the backbone's embedding and feed-forward layer are set so that it mostly
says ``name value ;``: then some of its moves pass the gates, which random words never do.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from selverify.domains.word_problems import NAMES, NUMBERS, WordProblems
from selverify.models.generators.checkpoints import save_ranker_checkpoint, save_reward_model
from selverify.models.heuristic.hybrid import Heuristic
from selverify.models.policy_settings import save_policy_settings
from selverify.models.threshold import with_tau
from selverify.models.tokenizer import Words
from selverify.models.verifiers.reward import SEEN, TokenLogprobHead
from selverify.params import load_params
from selverify.storage import digest, write_digests

ROOT = Path(__file__).parents[1]
WIDTH, HIDDEN = 16, 8
NAME, VALUE, STOP = range(3)  # what a word is; each has a direction of the embedding to itself


def build(folder: Path) -> None:
    """Write ``verifier/`` and ``policy/`` into ``folder``, ``word_problems-small/`` beside it."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        words = Words(WordProblems.vocabulary)
        backbone = folder.parent / "word_problems-small"
        generator = LlamaForCausalLM(_config(words)).eval()
        _teach(generator, words)
        generator.save_pretrained(backbone)
        words.save(backbone)
        write_digests(backbone)
        head = TokenLogprobHead(WIDTH, HIDDEN)
        # Smaller weights, the default, would make every score 0.5.
        torch.nn.init.normal_(head.right[-1].weight)
        save_reward_model(folder / "verifier", LlamaForCausalLM(_config(words)).eval(), head, words)
        _save_policy(folder / "policy", backbone)


def _config(words: Words) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(words.words),
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=words.bos,
        eos_token_id=words.eos,
        pad_token_id=words.pad,
        attn_implementation="eager",
        initializer_range=0.1,
    )


@torch.no_grad()
def _teach(model: LlamaForCausalLM, words: Words) -> None:
    """Each kind of word calls for the next: a name for a number, that for ``;``, that for a name.

    One hidden unit of the feed-forward layer for each kind sees its direction and writes the
    next kind's; the embedding is also the output layer.
    """
    kinds = dict.fromkeys((*NAMES, "answer"), NAME) | dict.fromkeys(NUMBERS, VALUE)
    sizes = {";": 1.6, ".": 0.7, "?": 0.7}  # all three end something, but a move ends with ";"
    embedding = model.model.embed_tokens.weight
    embedding.normal_(std=0.2)
    embedding[:, : STOP + 1] = 0.0
    for word, place in words.ids.items():
        kind = kinds.get(word, STOP if word in sizes else None)
        if kind is not None:
            embedding[place, kind] = sizes.get(word, 1.0)
    layer = model.model.layers[0].mlp
    for kind in (NAME, VALUE, STOP):
        layer.gate_proj.weight[kind] = 2.0 * torch.eye(WIDTH)[kind]
        layer.up_proj.weight[kind] = torch.eye(WIDTH)[kind]
        layer.down_proj.weight[:, kind] = torch.eye(WIDTH)[(kind + 1) % 3]


def _save_policy(folder: Path, backbone: Path) -> None:
    folder.mkdir()
    heuristic = Heuristic(WIDTH, SEEN, HIDDEN)
    torch.nn.init.normal_(heuristic.residual.head[-1].weight)  # moves are to differ in h
    save_ranker_checkpoint(
        folder,
        heuristic,
        backbone=digest(backbone),
        reference_dispersion={"distance": 0.02, "hybrid": 0.2},
        patterns=("answer",),
    )
    params = with_tau(load_params(ROOT / "params.yaml"), 0.4)
    save_policy_settings(folder.parent / "solver.json", params, backbone=backbone.name)
