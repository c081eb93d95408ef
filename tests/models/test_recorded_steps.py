"""Steps that an accelerator records and plays again, against the whole text read anew."""

from __future__ import annotations

import gc
import logging
import random
import weakref
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from torch import nn

from selverify.models.generators.pretrained import load_hub_model
from selverify.models.generators.recorded_steps import Recorder
from selverify.models.generators.shared_prefix import SharedPrefixes
from selverify.models.verifiers.loading import fuse_norms

WIDTH, STEPS = 3, 80
PROMPTS = ((*range(10, 40), 5), (*range(10, 40), 6, 7), (*range(10, 40), 8, 9, 1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
@pytest.mark.parametrize(("dtype", "apart"), [("float32", 1e-3), ("bfloat16", 0.15)])
@torch.inference_mode()
def test_recorded_steps_are_those_that_are_run(llama: Path, dtype: str, apart: float) -> None:
    """Until their room has grown and few rows are left. ``apart``: of the largest logit."""
    pretrained = load_hub_model(str(llama), revision=None, dtype=dtype, device="cuda")
    prefixes = SharedPrefixes(pretrained, capacity=1000, depth=1.0)
    past = prefixes.read(PROMPTS)
    prefixes.expect(past, rows=len(PROMPTS) * WIDTH, width=WIDTH)
    grid = torch.arange(len(PROMPTS))[:, None].expand(-1, WIDTH)
    past.take(grid)
    rows = [prompt for prompt in PROMPTS for _ in range(WIDTH)]
    rng = random.Random(1)
    for step in range(STEPS):
        tokens = [rng.randrange(261) for _ in rows]
        prefixes.step(past, torch.tensor(tokens))
        rows = [(*row, token) for row, token in zip(rows, tokens, strict=True)]
        for at in (0, 4, 8) if step <= STEPS // 2 else (0, 1):  # of every group
            expected = pretrained.model(torch.tensor([rows[at]], device="cuda")).logits[0, -1]
            assert (past.logits[at] - expected).abs().max() <= apart * expected.abs().max()
        if step == STEPS // 2:  # in the order of their slots
            past.take(torch.tensor([[0, -1], [7, -1]]))
            rows = [rows[at] for at in (0, 7)]
    assert prefixes.recordings == 3


@torch.inference_mode()
def test_room_that_is_given_up_is_freed_at_once(llama: Path) -> None:
    """Not when the garbage collector comes by: it may be most of an accelerator's memory."""
    pretrained = load_hub_model(str(llama), revision=None, dtype="float32", device="cpu")
    prefixes = SharedPrefixes(pretrained, capacity=1000, depth=1.0, fixed=True)
    past = prefixes.read(PROMPTS)
    prefixes.expect(past, rows=len(PROMPTS), width=1)
    gc.disable()
    try:
        for _ in range(2):
            prefixes.step(past, torch.zeros(len(PROMPTS), dtype=torch.long))
        assert past.steps is not None
        seen = weakref.ref(past.steps._memory)
        del past
        assert seen() is None
    finally:
        gc.enable()


class Norm(nn.Module):
    """By the root mean square; ``centred``: less the mean first."""

    def __init__(self, *shape: int, centred: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full(shape, 0.01))
        self.variance_epsilon = 1e-6
        self._centred = centred

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(-1, keepdim=True) if self._centred else x
        return self.weight * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


class Gated(Norm):
    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x) * gate


@torch.inference_mode()
def test_norms_that_compute_what_pytorchs_does_are_one_kernel(llama: Path) -> None:
    """And the model computes what it did; other norms stay."""
    model = load_hub_model(str(llama), revision=None, dtype="float32", device="cpu").model
    tokens = torch.tensor([[5, 6, 7]])
    expected = model(tokens).logits
    fuse_norms(model)
    assert {type(one) for one in model.modules() if "Norm" in type(one).__name__} == {nn.RMSNorm}
    torch.testing.assert_close(model(tokens).logits, expected)
    others = nn.ModuleList([Norm(8, centred=True), Norm(2, 8), Gated(8), nn.LayerNorm(8)])
    kept = list(others)
    fuse_norms(others)
    assert list(others) == kept


class Failing(nullcontext):
    """A recording that cannot be ended."""

    def __exit__(self, *_: object) -> None:
        raise RuntimeError("the recording was invalidated")


def test_a_recording_that_fails_at_its_end_is_run_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, and the work is done as if nothing could be recorded."""
    graph = MagicMock()
    graph.replay.side_effect = RuntimeError("replay without a successful capture")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: Failing())
    for name in ("current_stream", "set_stream", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    recorder, done = Recorder(), []
    with caplog.at_level(logging.WARNING):
        found = recorder.record(lambda: done.append(1) or (torch.ones(1), torch.zeros(1)))
    assert found == (None, (torch.ones(1), torch.zeros(1)))
    assert (len(done), recorder.works, recorder.recordings) == (2, False, 0)
    assert "steps cannot be recorded" in caplog.text
