"""Adapters: trained, resumed, kept, added to the model that they are for, and exact values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_reward_models import mistral_tokenizer
from tiny_text_models import build, tokenizer_of_bytes
from transformers import PreTrainedTokenizerFast

from selverify.data.gold_moves import GoldSolution
from selverify.domains.grade_school import GradeSchool
from selverify.domains.math_steps import MathSteps
from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.models.generators import adapter as module
from selverify.models.generators import causal
from selverify.models.generators.causal import CausalModel
from selverify.models.generators.decoding import Words
from selverify.models.generators.pretrained import HubModel, load_hub_model
from selverify.models.generators.shared_attention import NONE
from selverify.models.prompting import plain
from selverify.models.sources import WEIGHTS, has_adapter
from selverify.params import Sampling, Tuning
from selverify.search.requests import CompleteItem, ProposeItem
from selverify.storage import write_digests
from selverify.training.adapter import Progress, encode_solution, solution_loss, train_adapter
from selverify.training.language import like_lengths
from selverify.types import Move, State

DOMAIN = GradeSchool()
QUESTION = "Tom has 4 pens. He buys 3. How many?"
# What it learns claims a wrong value, so that it can be told who computed one.
SOLUTION = GoldSolution("q", QUESTION, ("4 + 3 = 9", "9 * 2 = 5", "Answer 5"))
OTHERS = tuple(
    GoldSolution(f"q{pens}", f"Ann has {pens} pens. How many?", (f"{pens} * 2 = 8", "Answer 8"))
    for pens in range(3, 9)
)
TUNING = Tuning(
    rank=8, alpha=32.0, words=False, values=True, epochs=2, tokens_per_batch=150, rate=1e-2,
    warmup_fraction=0.1, bfloat16=False, saved_steps=3, seed=5,
)  # fmt: skip
SAMPLING = Sampling(
    temperature=0.05, max_move_tokens=24, max_solution_tokens=60, max_moves=8, batch_rows=8
)


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    """Threads would only wait for each other: the model is tiny."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def loaded(folder: Path, *adapters: Path) -> HubModel:
    return load_hub_model(
        str(folder), revision=None, dtype="float32", device="cpu", adapters=adapters
    )


def nothing(_: Progress) -> None:
    pass


def train(
    base: Path,
    folder: Path,
    *solutions: GoldSolution,
    settings: Tuning = TUNING,
    report: Callable[[Progress], None] = nothing,
) -> dict[str, float]:
    folder.mkdir(exist_ok=True)
    return train_adapter(
        loaded(base), DOMAIN, solutions, solutions, settings,
        name="tiny", folder=folder, resumed=folder.parent / "state", report=report,
    )  # fmt: skip


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / WEIGHTS)


def test_a_tuned_model_says_what_it_learned_and_exact_values_are_computed(
    llama: Path, tmp_path: Path
) -> None:
    """The same adapter: sampled values are those of the solutions, computed ones are right."""
    settings = TUNING.model_copy(update={"epochs": 150, "rank": 16})
    losses = train(llama, tmp_path / "tuned", SOLUTION, settings=settings)
    assert losses["generator_validation_loss"] < 0.9  # the frozen last layer allows 0.75
    pretrained = loaded(llama, tmp_path / "tuned")
    halved = load_hub_model(
        str(llama), revision=None, dtype="bfloat16", device="cpu", adapters=[tmp_path / "tuned"]
    )
    assert halved.model.dtype == torch.bfloat16
    assert halved.model.model.rotary_emb.inv_freq.dtype == torch.float32
    start = DOMAIN.initial_state(DOMAIN.read(QUESTION, problem_id="q"), budget=0)
    claimed, exact = (generator(pretrained, exact_values=exact) for exact in (False, True))
    assert claimed.identity() != exact.identity()
    assert said(claimed, start) == ["4 + 3 = 9\n9 * 2 = 5\nAnswer 5\n", "4 + 3 = 9"]
    whole, first = said(exact, start)
    assert first == "4 + 3 = 7"
    assert whole.splitlines()[:2] == ["4 + 3 = 7", "9 * 2 = 18"]
    move = DOMAIN.parse(first)
    assert isinstance(move, Move)
    ((sample,),) = exact.propose([ProposeItem(DOMAIN.apply(start, move), 0, 1)])
    assert sample.text == "9 * 2 = 18"
    assert sample.tokens == len(sample.text) + 1, "a token a character, and the end of the line"


def test_of_no_rows_there_is_no_batch() -> None:
    """All others are in one, none of which has too many tokens unless it is of one row."""
    assert like_lengths([], 9, random.Random(1)) == []
    batches = like_lengths([([1], [1] * more) for more in (8, 3, 1, 3, 12)], 9, random.Random(1))
    assert sorted([len(said) for _, said in batch] for batch in batches) == [[1, 3], [3], [8], [12]]


@pytest.mark.parametrize("tokenizer", [mistral_tokenizer(), tokenizer_of_bytes()])
@pytest.mark.parametrize("values", [False, True])
def test_moves_are_learned_as_they_are_read_behind_a_question(
    tokenizer: PreTrainedTokenizerFast, values: bool
) -> None:
    """Mistral's tokenizer puts a blank before a text that stands alone."""
    model = HubModel(None, tokenizer, "", torch.float32, 512)
    settings = TUNING.model_copy(update={"values": values})
    row = encode_solution(model, DOMAIN, SOLUTION, settings)
    state = DOMAIN.initial_state(DOMAIN.read(QUESTION, problem_id="q"), budget=0)
    for text in SOLUTION.moves:
        move = DOMAIN.parse(text)
        assert isinstance(move, Move)
        state = DOMAIN.apply(state, move)
    assert (*row.shown, *row.said[:-1]) == model.encode(plain(DOMAIN)(state))


def test_a_value_is_forced_behind_white_space_too(llama: Path) -> None:
    """What is blank before a move is none of it, and a blank line after = is its end."""
    pretrained = loaded(llama)
    start = DOMAIN.initial_state(DOMAIN.read(QUESTION, problem_id="q"), budget=0)
    watched = torch.ones(len(pretrained.tokenizer), dtype=torch.bool)
    every = torch.arange(len(pretrained.tokenizer))
    words = Words(every, every)

    def of(text: str, *, one_move: bool, mark: str = "=") -> tuple[bool, str]:
        rules = causal._Ends(
            pretrained,
            DOMAIN,
            watched,
            words,
            states=[start],
            one_move=one_move,
            mark=mark,
            few_shot=False,
        )
        tokens = pretrained.tokenizer.encode(text, add_special_tokens=False)
        return rules.ended(0, tokens), pretrained.decode(rules.forced(0, tokens))

    for one_move in (True, False):
        assert of("4 + 3 =", one_move=one_move) == (False, " 7\n")
        assert of("\n4 + 3 =", one_move=one_move) == (False, " 7\n")
        assert of("4 + 3 =", one_move=one_move, mark="") == (False, "")
        assert of("4 + 3", one_move=one_move) == (False, "")
    assert of("4 + 3 = 7\n", one_move=True)[0]
    assert not of("\n", one_move=True)[0]
    assert of("4 + 3 = 7\n7 * 2 =", one_move=False) == (False, " 14\n")
    assert of("what?\n7 * 2 =", one_move=False) == (False, ""), "a line that is no move"
    (seven,) = pretrained.tokenizer.encode("7", add_special_tokens=False)
    words = Words(every, every.clone().index_fill(0, torch.tensor([seven]), NONE))
    assert of("4 + 3 =", one_move=True) == (False, ""), "a value that is not of the alphabet"


def test_a_domain_that_computes_nothing_takes_no_exact_values(llama: Path) -> None:
    with pytest.raises(ParamsError, match="given exact_values true, expected false"):
        CausalModel(
            loaded(llama), kept_tokens=1000, depth=1.0, domain=MathSteps(), exact_values=True,
            prompting=plain(MathSteps()), prompting_id="", sampling=SAMPLING, seed=1, kept_moves=0,
        )  # fmt: skip


def generator(pretrained: HubModel, *, exact_values: bool) -> CausalModel:
    return CausalModel(
        pretrained, kept_tokens=1000, depth=1.0, domain=DOMAIN, exact_values=exact_values,
        prompting=plain(DOMAIN), prompting_id="plain", sampling=SAMPLING, seed=1, kept_moves=0,
    )  # fmt: skip


def said(model: CausalModel, state: State) -> list[str]:
    ((solution,),) = model.complete([CompleteItem(state, 0, 1)])
    ((move,),) = model.propose([ProposeItem(state, 0, 1)])
    return [solution.text, move.text]


@pytest.mark.parametrize("values", [True, False])
def test_the_loss_is_that_of_each_row_by_itself(llama: Path, values: bool) -> None:
    """Padding, and projecting only what is learned, change nothing; values may be left out."""
    pretrained = loaded(llama)
    settings = TUNING.model_copy(update={"values": values})
    rows = [encode_solution(pretrained, DOMAIN, one, settings) for one in (SOLUTION, *OTHERS)]
    total = count = 0.0
    for shown, answer, learned in rows:
        logits = pretrained.model(torch.tensor([[*shown, *answer]])).logits[0]
        logprobs = logits.log_softmax(-1)
        for place, token in enumerate(learned, start=len(shown)):
            if token >= 0:
                total -= float(logprobs[place - 1, token])
                count += 1
    loss = solution_loss(pretrained.model, rows, bfloat16=False)
    assert float(loss) == pytest.approx(total / count, rel=1e-5)
    assert rows[0][1][-1] == pretrained.tokenizer.eos_token_id
    assert pretrained.decode(rows[0].shown + rows[0].said) == "\n".join(
        (QUESTION, *SOLUTION.moves, "")
    )
    said = pretrained.decode([token for token in rows[0].learned if token >= 0])
    assert said == ("4 + 3 = 9\n9 * 2 = 5\nAnswer 5\n" if values else "4 + 3 =9 * 2 =Answer 5\n")


def test_an_interrupted_training_goes_on_to_the_same_weights(llama: Path, tmp_path: Path) -> None:
    class Interrupt(Exception):
        pass

    def interrupt(_: Progress) -> None:
        raise Interrupt

    settings = TUNING.model_copy(update={"epochs": 5})
    train(llama, tmp_path / "whole", SOLUTION, *OTHERS, settings=settings)
    with pytest.raises(Interrupt):
        train(llama, tmp_path / "cut", SOLUTION, *OTHERS, settings=settings, report=interrupt)
    assert (tmp_path / "state").is_file()
    assert not has_adapter(tmp_path / "cut")
    steps: list[int] = []
    train(
        llama, tmp_path / "cut", SOLUTION, *OTHERS,
        settings=settings, report=lambda progress: steps.append(progress.step),
    )  # fmt: skip
    assert not (tmp_path / "state").exists()
    assert steps[-1] > 10
    found, expected = weights(tmp_path / "cut"), weights(tmp_path / "whole")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("kind", ["another training", "damaged"])
def test_a_state_of_another_training_is_not_gone_on_from(
    llama: Path, tmp_path: Path, kind: str
) -> None:
    train(llama, tmp_path / "whole", *OTHERS)
    expected = weights(tmp_path / "whole")

    def cut(progress: Progress) -> None:
        raise KeyboardInterrupt

    if kind == "damaged":
        (tmp_path / "state").write_bytes(b"no safetensors")
    else:
        with pytest.raises(KeyboardInterrupt):
            settings = TUNING.model_copy(update={"epochs": 6})
            train(llama, tmp_path / "other", *OTHERS, settings=settings, report=cut)
        assert (tmp_path / "state").is_file()
    train(llama, tmp_path / "again", *OTHERS)
    found = weights(tmp_path / "again")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_an_adapter_that_does_not_belong_is_a_sentence(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = tmp_path / "tuned"
    with pytest.raises(ArtifactError, match="no such file, expected an adapter"):
        loaded(llama, tmp_path)
    train(llama, tuned, SOLUTION)
    assert all(one.dtype == torch.float16 for one in weights(tuned).values())
    other = build(tmp_path / "other", "mistral")
    with pytest.raises(SchemaError, match=r"an adapter for the model .*, expected one for"):
        loaded(other, tuned)
    settings = tuned / "adapter_config.json"
    written = settings.read_text(encoding="utf-8")
    assert str(tmp_path) not in written, "no path of the machine that trained it"
    whole = weights(tuned)
    (tuned / WEIGHTS).write_bytes((tuned / WEIGHTS).read_bytes()[:-2])
    with pytest.raises(SchemaError, match="damaged"):
        loaded(llama, tuned)
    write_digests(tuned)
    with pytest.raises(SchemaError, match="an adapter that does not fit"):
        loaded(llama, tuned)
    parts = {name: one.clone() for name, one in list(whole.items())[:2]}
    save_file(parts, tuned / WEIGHTS)
    write_digests(tuned)
    with pytest.raises(SchemaError, match="an adapter of 2 matrices, expected the "):
        loaded(llama, tuned)
    monkeypatch.setattr(module, "import_module", missing)
    with pytest.raises(ParamsError, match=r"pip install '\.\[smollm2\]' in the clone"):
        loaded(llama, tuned)


def missing(name: str) -> object:
    raise ImportError(f"no module {name}")
