"""A reward model that is a head and an adapter of its own on the generator's model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_text_models import build

from selverify.data.gold_moves import GoldSolution
from selverify.domains.grade_school import GradeSchool
from selverify.errors import SchemaError
from selverify.models.assembly import load_generator_model, open_models, prompting_of
from selverify.models.generators.pretrained import load_hub_model
from selverify.models.prompting import plain
from selverify.models.sources import write_source
from selverify.models.verifiers.head import StepHead, load_head
from selverify.params import PretrainedParams, Sampling, Tuning, VerifierParams, load_params
from selverify.search.requests import Verify, VerifyItem
from selverify.training import adapter_head
from selverify.training.adapter import train_adapter
from selverify.training.adapter_head import _by_problem, _examples, _loss, train_adapted_head
from selverify.training.fit import Epoch
from selverify.training.head import whole_solution
from selverify.training.rollouts import ValuedSolution

DOMAIN = GradeSchool()
SETTINGS: VerifierParams = load_params(Path(__file__).parents[2] / "params.yaml").verifier
TUNING = Tuning(
    rank=2, alpha=8.0, words=False, values=True, epochs=2, tokens_per_batch=400, rate=1e-2,
    warmup_fraction=0.1, bfloat16=False, saved_steps=99, seed=5,
)  # fmt: skip
SAMPLING = Sampling(
    temperature=1.0, max_move_tokens=24, max_solution_tokens=60, max_moves=8, batch_rows=8
)


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def valued() -> list[ValuedSolution]:
    """A sum is worth 0.9, a difference 0.1, and an answer what its line is."""
    found = []
    for number in range(3, 15):
        text = f"Tom has {number} pens and buys 2. How many?"
        for sign, total, value in (("+", number + 2, 0.9), ("-", number - 2, 0.1)):
            moves = f"{number} {sign} 2 = {total}", f"Answer {total}"
            found.append(
                ValuedSolution(f"p{number}", text, moves, (value, value), count=1, start=0.5)
            )
    return found


def generator(folder: Path, model: Path) -> PretrainedParams:
    """A tuned one: its adapter lies below the verifier's."""
    source = PretrainedParams(
        kind="transformers", model=str(model), revision=None, dtype="float32", prompt=None,
        kept_tokens=2000, exact_values=True, alphabet=None, tuning=TUNING,
    )  # fmt: skip
    folder.mkdir()
    solutions = [GoldSolution(one.problem_id, one.text, one.moves) for one in valued()]
    train_adapter(
        load_hub_model(str(model), revision=None, dtype="float32", device="cpu"), DOMAIN,
        solutions, (), TUNING, name="tiny", folder=folder,
        resumed=folder / "state", report=lambda progress: None,
    )  # fmt: skip
    write_source(folder, source)
    return source


def test_it_learns_values_and_scores_steps_as_reading_them_alone_does(
    llama: Path, tmp_path: Path
) -> None:
    source = generator(tmp_path / "generator", llama)
    folder = tmp_path / "verifier"
    folder.mkdir()
    losses: list[float] = []

    def report(epoch: Epoch) -> None:
        assert epoch.validation_loss is not None
        losses.append(epoch.validation_loss)

    changes = {"tune_epochs": 40, "tune_rows": 8, "tune_rate": 1e-2, "rank": 4, "hidden": 8}
    found = train_adapted_head(
        valued(), SETTINGS.model_copy(update=changes), DOMAIN,
        load_generator_model(source, tmp_path / "generator", dtype="float32", device="cpu"),
        prompting=plain(DOMAIN), backbone=shown(source, tmp_path / "generator"), share=1.0,
        name="tiny", folder=folder, report=report,
    )  # fmt: skip
    assert found["verifier_validation_loss"] == min(losses) < 0.5 < losses[0]
    models = open_models(
        "grade_school", SAMPLING, seed=1, device="cpu",
        generator=tmp_path / "generator", verifier=folder,
    )  # fmt: skip
    items = tuple(whole_solution(one, DOMAIN) for one in valued())
    verdicts = models.backend.answer(Verify(items))
    scores = [verdict.step_scores for verdict in verdicts]
    for (first, _), one in zip(scores, valued(), strict=True):
        assert (first > 0.5) == (one.values[0] > 0.5)
    assert scores[0] == pytest.approx(slowly(source, tmp_path, items[0]), abs=1e-4)
    read = load_generator_model(source, tmp_path / "generator", dtype="float32", device="cpu").model
    assert models.backend.sizes().verifier > read.num_parameters(), "a pass of its own is counted"
    with pytest.raises(SchemaError, match="a head for the backbone"):
        prompted = Path(shutil.copytree(tmp_path / "generator", tmp_path / "prompted"))
        write_source(prompted, source.model_copy(update={"prompt": "math_steps"}))
        open_models(
            "grade_school", SAMPLING, seed=1, device="cpu", generator=prompted, verifier=folder
        )
    with pytest.raises(SchemaError, match="an adapter for the model"):
        other = tmp_path / "other"
        generator(other, build(tmp_path / "mistral", "mistral"))
        open_models(
            "grade_school", SAMPLING, seed=1, device="cpu", generator=other, verifier=folder
        )


@pytest.mark.parametrize(("most", "trees"), [(1000, 2), (1, 5)])
def test_a_tree_of_solutions_gives_the_loss_of_each_read_alone(
    llama: Path, monkeypatch: pytest.MonkeyPatch, most: int, trees: int
) -> None:
    """Solutions that begin alike, one of them a beginning and a candidate, of two problems."""
    pretrained = load_hub_model(str(llama), revision=None, dtype="float32", device="cpu")
    pretrained.model.set_attn_implementation("eager")
    monkeypatch.setattr(adapter_head, "number_type", lambda *_: torch.float32)
    head = StepHead(pretrained.model.config.hidden_size, 0, 8)
    more = [
        ValuedSolution("p3", valued()[0].text, moves, values, count=0, start=0.5, fresh=1)
        for moves, values in (
            (("3 + 2 = 5", "5 + 2 = 7"), (0.9, 0.2)),
            (("3 + 2 = 5", "5 - 2 = 3"), (0.9, 0.3)),
        )
    ]
    solutions = [*valued()[:2], *more, valued()[4]]
    monkeypatch.setattr(adapter_head, "MOST_TOKENS", most)
    examples = [
        one
        for own in _by_problem(solutions)
        for one in _examples(own, DOMAIN, pretrained, prompting=plain(DOMAIN))
    ]
    assert len(examples) == trees
    loss = _loss(pretrained.model, head, examples)
    alone = []
    for one in solutions:
        said = ""
        for move, value in zip(one.moves, one.values, strict=True):
            said += f"{move}\n"
            tokens = pretrained.tokenizer.encode(f"{one.text}\n{said}")
            tokens = [pretrained.tokenizer.bos_token_id, *tokens]
            hidden = pretrained.model.model(torch.tensor([tokens])).last_hidden_state[:, -1]
            step = (head.of_state(hidden), torch.tensor([value]))
            alone.append(torch.nn.functional.binary_cross_entropy_with_logits(*step))
        if one.explored:
            del alone[-2]
    torch.testing.assert_close(loss, torch.stack(alone).mean(), rtol=1e-4, atol=1e-5)


def shown(source: PretrainedParams, folder: Path) -> str:
    """What the head belongs to: the files of the model, and its prompt."""
    files = load_generator_model(source, folder, dtype="float32", device="cpu").files
    return f"{files} {prompting_of(DOMAIN, source.prompt)[1]}"


def slowly(source: PretrainedParams, root: Path, item: VerifyItem) -> list[float]:
    """Each step's whole text through the model, the head on its last state."""
    model = load_generator_model(
        source, root / "generator", dtype="float32", device="cpu", adapters=[root / "verifier"]
    )
    head, _ = load_head(root / "verifier", backbone=shown(source, root / "generator"))
    scores = []
    for count in range(1, len(item.steps) + 1):
        said = "".join(f"{step.text}\n" for step in item.steps[:count])
        text = f"{item.state.problem.text}\n{said}"
        tokens = [model.tokenizer.bos_token_id, *model.tokenizer.encode(text)]
        with torch.inference_mode():
            hidden = model.model.model(torch.tensor([tokens])).last_hidden_state[:, -1]
            scores.append(float(torch.sigmoid(head.of_state(hidden))))
    return scores
