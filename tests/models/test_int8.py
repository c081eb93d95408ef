"""Products of 8-bit integers, against float32 ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from selverify.errors import ParamsError
from selverify.models.generators.int8 import Int8Linear, Sibling, round_linears, rounded
from selverify.models.generators.pretrained import load_hub_model
from selverify.models.generators.shared_prefix import SharedPrefixes
from selverify.models.parameter_count import parameters_of


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_within_the_rounding_of_both_sides(bias: bool) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(48, 20, bias=bias)
    x = torch.randn(3, 5, 48) * torch.logspace(-6, 6, 15).view(3, 5, 1)
    with torch.inference_mode():
        found, expected = Int8Linear(linear)(x), linear(x)
    # Each factor is off by at most half a step, of which there are 127 to the largest.
    largest = x.abs().amax(-1, keepdim=True), linear.weight.abs().amax(1)
    total = x.abs().sum(-1, keepdim=True) * largest[1] + largest[0] * linear.weight.abs().sum(1)
    assert found.shape == (3, 5, 20)
    assert bool(((found - expected).abs() <= total / 254 * 1.02 + 1e-6).all())


def test_a_row_of_zeros_and_a_weight_of_zeros_give_the_bias() -> None:
    linear = nn.Linear(8, 3)
    nn.init.zeros_(linear.weight)
    with torch.inference_mode():
        rows = Int8Linear(linear)(torch.stack([torch.zeros(8), torch.ones(8)]))
    torch.testing.assert_close(rows, linear.bias.detach().expand(2, 3))


def test_a_row_does_not_depend_on_those_beside_it() -> None:
    torch.manual_seed(2)
    layer, x = Int8Linear(nn.Linear(64, 32)), torch.randn(70, 64)
    alone = torch.cat([layer(row[None]) for row in x])
    assert torch.equal(layer(x), alone)


EXACT = """
import torch
from torch import nn
from selverify.models.generators import int8

torch.manual_seed(4)
ROUNDED = {torch.int8: 0.0, torch.float32: 1e-7}
linear, most = nn.Linear(1536, 70), int8.MOST
layer = int8.Int8Linear(linear)
int8.sums_are_exact = lambda: False
plain = int8.Int8Linear(linear)
for rows in (1, 17, 300):
    for codes in (
        torch.randint(-most, most + 1, (rows, 1536), dtype=torch.int8),
        torch.full((rows, 1536), most, dtype=torch.int8),
        torch.full((rows, 1536), -most, dtype=torch.int8),
        (most * plain.weight[:, 0].sign()).to(torch.int8).expand(rows, -1).contiguous(),
    ):
        exact = codes.double() @ plain.weight.double()
        found = layer.product(codes).double()
        torch.testing.assert_close(found, exact, rtol=ROUNDED[layer.weight.dtype], atol=0.0)
        torch.testing.assert_close(plain.product(codes).double(), exact, rtol=1e-7, atol=0.0)
print(layer.weight.dtype)
"""


@pytest.mark.parametrize("instructions", ["AVX2", "ALL"])
def test_products_are_exact_whatever_the_processor_adds(instructions: str) -> None:
    """Of sums as long as those of a model of 135 M weights, numbers at their largest among them."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": instructions, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", EXACT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["torch.float32"] or instructions == "ALL"


def test_codes_of_a_row_reach_127_and_no_further() -> None:
    codes, step = rounded(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]]))
    assert codes.tolist() == [[64, -127, 32], [0, 0, 0]]
    assert step[0].item() == pytest.approx(2 / 127)


def test_a_model_in_int8_is_near_the_one_in_float32_and_shares_prefixes(llama: Path) -> None:
    rough, exact = (
        load_hub_model(str(llama), revision=None, dtype=dtype, device="cpu")
        for dtype in ("int8", "float32")
    )
    assert rough.digest != exact.digest
    weights = [one for one in rough.model.modules() if isinstance(one, Int8Linear)]
    assert weights
    assert parameters_of(rough.model) == parameters_of(exact.model)
    tokens = torch.arange(40)[None]
    with torch.inference_mode():
        found, expected = (one.model(tokens).logits for one in (rough, exact))
    assert 0 < float((found - expected).abs().max()) < 0.05 * float(expected.abs().max())
    prompts = [tuple(range(size)) for size in (30, 33, 40)]
    past = SharedPrefixes(rough, capacity=100, depth=1.0).read(prompts)
    apart = float((past.logits[2] - found[0, -1]).abs().max())
    assert apart < 0.05 * float(expected.abs().max())


@pytest.mark.parametrize("bias", [True, False])
def test_layers_that_are_given_the_same_x_give_what_each_gives_alone(bias: bool) -> None:
    torch.manual_seed(3)
    attention = nn.Module()
    for name, outputs in (("q_proj", 24), ("k_proj", 8), ("v_proj", 8), ("o_proj", 16)):
        attention.add_module(name, nn.Linear(16, outputs, bias=bias))
    alone = {name: Int8Linear(one) for name, one in attention.named_children()}  # type: ignore[arg-type]
    round_linears(attention)
    x, other = torch.randn(2, 5, 3, 16)
    asked = [
        *(("q_proj", x), ("k_proj", x), ("v_proj", x), ("o_proj", x)),
        *(("k_proj", other), ("q_proj", x), ("q_proj", x), ("v_proj", x), ("k_proj", x)),
    ]
    for name, given in asked:
        assert torch.equal(attention.get_submodule(name)(given), alone[name](given))
    together = attention.get_submodule("q_proj")._siblings  # type: ignore[union-attr]
    assert together._held is None
    siblings = [one for one in attention.modules() if isinstance(one, Sibling)]
    assert [name for name, one in attention.named_children() if one in siblings] == list(alone)[:3]
    assert parameters_of(attention) == sum(parameters_of(one) for one in alone.values())


def test_siblings_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    mlp, x = nn.Module(), torch.randn(3, 8)
    for name in ("up_proj", "gate_proj"):
        mlp.add_module(name, nn.Linear(8, 4))
    round_linears(mlp)
    sizes, multiply = [], Int8Linear.product

    def product(layer: Int8Linear, codes: torch.Tensor) -> torch.Tensor:
        sizes.append(tuple(layer.weight.shape))
        return multiply(layer, codes)

    monkeypatch.setattr(Int8Linear, "product", product)
    for name in ("up_proj", "gate_proj"):
        mlp.get_submodule(name)(x)
    assert sizes == [(8, 8)]


def test_layers_of_other_sizes_or_without_a_bias_stay_apart() -> None:
    attention = nn.Module()
    for name, inputs, bias in (("q_proj", 8, True), ("k_proj", 8, False), ("v_proj", 8, False)):
        attention.add_module(name, nn.Linear(inputs, 4, bias=bias))
    attention.add_module("gate_proj", nn.Linear(8, 4))
    round_linears(attention)
    assert all(isinstance(one, Int8Linear) for one in attention.children())


def test_int8_is_for_processors_and_for_linear_layers(llama: Path) -> None:
    with pytest.raises(ParamsError, match=r"given int8 on device 'cuda', expected auto"):
        load_hub_model(str(llama), revision=None, dtype="int8", device="cuda")
    with pytest.raises(ParamsError, match=r"int8 for Embedding, which has no linear layers"):
        round_linears(nn.Embedding(3, 3))
