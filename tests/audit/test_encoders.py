"""Recorded texts as numbers: which text stands for what, whatever reads it."""

from __future__ import annotations

import logging
import math
import random
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import stand_in
import torch
from hypothesis import given
from hypothesis import strategies as st
from proxy import Proxy, status
from recorded_lists import recorded_list
from tiny_text_models import build
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    BloomModel,
    MambaConfig,
    MambaModel,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5Model,
)

from selverify.audit import encoders
from selverify.audit.encoders import (
    DIMENSION,
    LENGTH,
    Embedder,
    HubEncoder,
    WordLlama,
    free_features,
    open_embedder,
)
from selverify.audit.log import RecordedCandidate, RecordedList
from selverify.errors import ParamsError, Refusal, SchemaError

TEXTS = ["How many?", "", "48 / 2 = 24, so half of them are left.", "x" * 50, "How many?"]


def recorded(*texts: str, logprobs: Sequence[float | None] = ()) -> RecordedList:
    known = list(logprobs) or [None] * len(texts)
    return recorded_list(
        (RecordedCandidate(text=text, logprob=one) for text, one in zip(texts, known, strict=True)),
        question="What is 2 + 3 of 7?",
        prefix=("First, 2 + 3 = 5.", "Then we go on."),
    )


class Letters:
    """Counts of some letters; remembers its texts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> Tensor:
        self.asked += texts
        return torch.tensor([[float(text.count(letter)) for letter in "aeiou 2"] for text in texts])


def test_each_row_is_of_its_own_text() -> None:
    """z_w of the question and the prefix, z_m of the move, z_w' of all, z_w* of the question."""
    item = recorded("So it is 5.", "Out of 12, one.")
    (rows,) = Embedder(Letters(), free=False).embed([item])
    state = "What is 2 + 3 of 7?\n\nFirst, 2 + 3 = 5.\n\nThen we go on."
    for row, move in enumerate(one.text for one in item.candidates):
        told = (state, move, f"{state}\n\n{move}", item.question)
        expected = Letters().encode(told)
        given_rows = (rows.state[row], rows.move[row], rows.after[row], rows.goal[row])
        assert torch.equal(torch.stack(given_rows), expected)
    assert rows.token_logprobs.shape == (2, 1)
    assert not rows.token_logprobs.any()
    assert not rows.logprob.any()


def test_each_text_is_read_once_for_all_lists() -> None:
    """Two states with the same question and moves in common ask for nothing twice."""
    letters = Letters()
    lists = [recorded("So it is 5.", "No."), recorded("No.", "Yes.")]
    found = Embedder(letters, free=False).embed(lists)
    assert len(letters.asked) == len(set(letters.asked)) == 2 + 3 + 3
    (alone,) = Embedder(Letters(), free=False).embed(lists[1:])
    assert torch.equal(found[1].after, alone.after)
    assert Embedder(Letters(), free=False).embed([]) == []


def test_lists_are_encoded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same numbers, and each of them once for the lists of a part."""
    lists = [recorded("So it is 5.", text) for text in ("No.", "Yes.", "No.")]
    whole = Embedder(Letters(), free=True).embed(lists)
    monkeypatch.setattr(encoders, "LISTS_AT_ONCE", 2)
    letters = Letters()
    for one, other in zip(whole, Embedder(letters, free=True).embed(lists), strict=True):
        assert all(map(torch.equal, one, other))
    assert len(letters.asked) == (2 + 3 + 3) + (2 + 2 + 2)


def test_without_an_encoder_no_text_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(encoders, "_texts")
    (rows,) = Embedder(None, free=True).embed([recorded("a", "b")])
    for name in ("state", "move", "after", "goal"):
        assert torch.equal(getattr(rows, name), torch.zeros(2, 1))


def test_numbers_beyond_32_bits_are_an_error() -> None:
    class Vast:
        def encode(self, texts: Sequence[str]) -> Tensor:
            return torch.tensor([[1e300 if text == "one" else 1.0] for text in texts])

    with pytest.raises(SchemaError, match="not finite for 'one', expected finite"):
        Embedder(Vast(), free=False).embed([recorded("two", "one")])


def test_log_probabilities_are_those_recorded_or_none() -> None:
    """Where one candidate has none, none counts."""
    whole = Embedder(None, free=True).embed([recorded("a", "b", logprobs=(-1.5, -2.0))])[0]
    assert whole.logprob.tolist() == [-1.5, -2.0]
    partial = Embedder(None, free=True).embed([recorded("a", "b", logprobs=(-1.5, None))])[0]
    assert partial.logprob.tolist() == [0.0, 0.0]


def test_free_features_by_hand() -> None:
    """Length, numbers, new ones, equality signs, a question, an answer, claims true and false."""
    texts = ("Is it 8 or 7?", r"2 * 3 = 6. So 2 + 3 = 6. \boxed{6}", "")
    found = free_features(recorded(*texts))
    log = math.log
    expected = [
        [log(14 / LENGTH), log(3), log(2), 0, 1, 0, 0, 0],
        [log(35 / LENGTH), log(8), log(2), log(3), 0, 1, log(2), log(2)],
        [log(1 / LENGTH), 0, 0, 0, 0, 0, 0, 0],
    ]
    torch.testing.assert_close(found, torch.tensor(expected))


STEP = st.text(st.sampled_from("ab 12=+?.{}\\"), max_size=30)


@given(st.lists(STEP, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_neither_the_place_nor_the_verdict_of_a_candidate_shows(
    texts: list[str], chance: random.Random
) -> None:
    """Rows move with their candidates, and labels and scores change nothing."""
    item = recorded(*texts)
    order = list(range(len(texts)))
    chance.shuffle(order)
    told = tuple(
        item.candidates[place].model_copy(
            update={"label": chance.random() < 0.5, "score": chance.random()}
        )
        for place in order
    )
    embedder = Embedder(Letters(), free=True)
    straight, mixed = embedder.embed([item, item.model_copy(update={"candidates": told})])
    for name in ("state", "move", "after", "goal", "token_logprobs", "logprob"):
        assert torch.equal(getattr(straight, name)[order], getattr(mixed, name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("llama"), "llama", positions=24)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_model_reads_a_batch_as_it_reads_one_text_alone(folder: Path, pooling: str) -> None:
    """Padding changes nothing, and of a text beyond the model's positions the end is read."""
    encoder = open_embedder(f"{pooling}:{folder}").encoder
    assert isinstance(encoder, HubEncoder)
    texts = ["Two and two.", "Is it 4?", "left out " * 9 + "the end is read"]
    found = encoder.encode(texts)
    model = AutoModelForCausalLM.from_pretrained(folder).eval().requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row, text in zip(found, texts, strict=True):
        tokens = torch.tensor([tokenizer.encode(text)[-24:]])
        hidden = model(tokens, output_hidden_states=True).hidden_states[-1][0]
        expected = hidden.mean(0) if pooling == "mean" else hidden[-1]
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-5)
    assert torch.isfinite(encoder.encode([""])).all()


OTHERS: list[tuple[type[PreTrainedModel], PretrainedConfig]] = [
    (BloomModel, BloomConfig(vocab_size=5, hidden_size=8, n_layer=1, n_head=2)),
    (MambaModel, MambaConfig(vocab_size=5, hidden_size=8, num_hidden_layers=1, state_size=2)),
    (
        RobertaModel,
        RobertaConfig(
            vocab_size=5, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=34, pad_token_id=1,
        ),
    ),
    (T5Model, T5Config(vocab_size=5, d_model=8, d_ff=8, num_layers=1, num_heads=2, d_kv=4)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "config"), OTHERS, ids=[one.__name__ for one, _ in OTHERS])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_models_without_positions_or_padding_are_read(
    kind: type[PreTrainedModel], config: PretrainedConfig, pooling: str, tmp_path: Path
) -> None:
    """Or that count positions from behind the padding, or decode, too."""
    words = {word: place for place, word in enumerate(("?", "pad", "add", "take", "2"))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(tmp_path)
    kind(config).save_pretrained(tmp_path)
    encoder = open_embedder(f"{pooling}:{tmp_path}").encoder
    assert encoder is not None
    texts = ["add 2", "", "take 2 add 2 " * 20, "take add"]
    rows = encoder.encode(texts)
    assert rows.shape == (4, 8)
    for text, row in zip(texts, rows, strict=True):
        torch.testing.assert_close(encoder.encode([text])[0], row, rtol=1e-4, atol=1e-5)
    alone = encoder.encode(["add 2", "2"])
    assert (alone[0] - alone[1]).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("wordlama", "given 'wordlama', "),
        ("server", "given 'server',"),
        ("mean:", "given 'mean:'"),
        ("free+free", "given 'free+free'"),
        ("median:owner/name@main", "given 'median"),
    ],
)
def test_other_names_are_refused(name: str, wrong: str) -> None:
    """With all names that there are."""
    with pytest.raises(ParamsError, match=r"expected free, wordllama") as error:
        open_embedder(name)
    assert wrong in str(error.value)


def test_an_embeddings_endpoint_is_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches; its key comes from the environment. An address that is none is one sentence."""
    monkeypatch.setenv("SELVERIFY_ENCODER_KEY", "secret")
    texts = [f"text {number}" for number in range(40)]
    with Proxy(stand_in.answer) as server:
        embedder = open_embedder(f"server:some/model@{server.url}+free")
        assert embedder.free and embedder.encoder is not None
        rows = embedder.encoder.encode(["", *texts])
        assert rows.shape == (41, stand_in.WIDTH)
        torch.testing.assert_close(rows[1:], embedder.encoder.encode(texts))
    assert [len(one.body["input"]) for one in server.seen] == [32, 9, 32, 8]
    assert {one.headers["authorization"] for one in server.seen} == {"Bearer secret"}
    assert {one.body["model"] for one in server.seen} == {"some/model"}
    for wrong in ("nowhere", "ftp://a/v1", ""):
        with pytest.raises(ParamsError, match="encoder: "):
            open_embedder(f"server:some/model@{wrong}")


def test_a_file_does_not_decide_who_gets_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user does, by an address in the environment that is the whole of it."""
    monkeypatch.setenv("SELVERIFY_ENCODER_KEY", "secret")
    with Proxy(stand_in.answer, [status(401), None, None, status(401)]) as server:
        name = f"server:some/model@{server.url}"
        with pytest.raises(Refusal, match="no key was sent, because a file names the address: set"):
            open_embedder(name, from_file=True).encoder.encode(["a"])  # type: ignore[union-attr]
        for allowed in (server.url[:-1], server.url):
            monkeypatch.setenv("SELVERIFY_ENCODER_URL", allowed)
            open_embedder(name, from_file=True).encoder.encode(["a"])  # type: ignore[union-attr]
        with pytest.raises(Refusal, match=r"expected a reply$"):
            open_embedder(name).encoder.encode(["a"])  # type: ignore[union-attr]
    told = [one.headers.get("authorization") for one in server.seen]
    assert told == [None, None, "Bearer secret", "Bearer secret"]


class TestWordLlama:
    def test_the_carried_model_needs_no_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is loaded, and reads, where no connection can be made."""

        def refused(*_: object) -> None:
            raise AssertionError("a connection was made")

        monkeypatch.setattr(socket.socket, "connect", refused)
        rows = WordLlama().encode(TEXTS)
        assert rows.shape == (5, DIMENSION)
        assert rows.dtype == torch.float32

    def test_a_text_is_read_alike_alone_and_beside_others(self) -> None:
        """An empty one is all zeros, and near texts are nearer than far ones."""
        encoder = WordLlama()
        rows = encoder.encode(TEXTS)
        for text, row in zip(TEXTS, rows, strict=True):
            assert torch.equal(encoder.encode([text])[0], row)
        assert not rows[1].any()
        assert encoder.encode([]).shape == (0, DIMENSION)
        near = encoder.encode(["add the apples", "sum up the apples", "a circle's area"])
        similar = torch.nn.functional.cosine_similarity(near[:1], near[1:])
        assert similar[0] > similar[1] + 0.1

    def test_the_log_of_the_process_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The package would otherwise print every library's messages from then on."""
        root = logging.getLogger()
        level = root.level
        with monkeypatch.context() as fresh:
            fresh.setattr(root, "handlers", [])
            fresh.delitem(sys.modules, "wordllama", raising=False)
            WordLlama()
            assert "wordllama" in sys.modules
            assert (root.handlers, root.level) == ([], level)
