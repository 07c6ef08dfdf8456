"""The Triton kernels against the same in plain torch: on a GPU, or else in Triton's interpreter."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from rareword.schemas.vocabulary import PAD
from rareword.trainer import kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernels; what `trainer.kernels` gives is plain torch."""
    monkeypatch.setattr(kernels, "why_not_triton", lambda: "they are compared with it here")
    name = "rareword.trainer.triton_kernels"
    module: ModuleType = pytest.importorskip(name, reason="torch has no triton on this platform")
    return module


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def full(shape: tuple[int, ...], value: float = 7.0) -> Tensor:
    return torch.full(shape, value, device=DEVICE)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [24, 1000, 1100])
def test_energies(triton: ModuleType, size: int) -> None:
    """Sizes below, just below and above what one program takes; the query lies in wider rows."""
    torch.manual_seed(1)
    keys_BSH, energy_H = randn(3, 5, size), randn(size)
    query_BH = randn(3, 4 * size)[:, :size]
    wanted = kernels.energies(keys_BSH, query_BH, energy_H)
    torch.testing.assert_close(
        triton.energies(keys_BSH, query_BH, energy_H), wanted, rtol=1e-4, atol=1e-4
    )


def test_energies_of_several_hypotheses_of_a_sentence(
    triton: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    keys_BSH, query_RH, energy_H = randn(3, 5, 24), randn(7, 24), randn(24)
    sentence_R = torch.tensor([0, 0, 0, 1, 2, 2, 2], device=DEVICE)
    wanted = kernels.energies(keys_BSH[sentence_R], query_RH, energy_H)
    monkeypatch.setattr(kernels, "CACHED", 2 * 5 * 24)  # two at a time
    lasting = kernels.lasting_keys(keys_BSH)
    found = kernels.energies_of_rows(lasting, query_RH, energy_H, sentence_R)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    found = triton.energies(keys_BSH, query_RH, energy_H, sentence_R)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tanh_by_exponentials_is_tanh(dtype: torch.dtype) -> None:
    """Of all signs, of sizes up to 40 and of sums that little is left of; beyond, it is 1 or -1."""
    torch.manual_seed(1)
    scale = torch.tensor([1e-4, 0.1, 1, 3, 6, 10])
    keys = torch.cat([randn(100, 6) * scale, torch.full((1, 6), 1e4), torch.full((1, 6), -1e4)])
    query = torch.cat([-keys[:50], keys[50:100].flip(1), randn(2, 6)])
    keys, query = keys.to(dtype), (query + 1e-3).to(dtype)
    exact = torch.tanh(keys.double() + query.double())
    one = torch.eye(6, dtype=dtype)  # one number at a time
    for column in range(6):
        lasting = kernels.lasting_keys(keys[:, None])
        found = kernels.energies_of_rows(lasting, query, one[column])[:, 0]
        torch.testing.assert_close(found.double(), exact[:, column], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [24, 130])
def test_gradients_of_energies(triton: ModuleType, size: int) -> None:
    """Two sums are added to, one is written, beside other numbers in its rows."""
    torch.manual_seed(2)
    keys_BSH, energy_H = randn(3, 5, size), randn(size)
    query_BH, d_energies_BS = randn(3, 4 * size)[:, :size], randn(3, 5)
    results = []
    for module in (triton, kernels):
        d_products = full((3, 4 * size))
        sums = full((3, 5, size)), full((3, size))
        module.energies_backward(
            d_energies_BS, keys_BSH, query_BH, energy_H, d_products[:, :size], *sums
        )
        results.append((d_products, *sums))
    for found, wanted in zip(*results, strict=True):
        close(found, wanted)


@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=["one direction", "two directions"])
@pytest.mark.parametrize("size", [20, 1030])
def test_the_cudnn_form(triton: ModuleType, shape: tuple[int, ...], size: int) -> None:
    torch.manual_seed(3)
    inputs, hidden = randn(*shape, 3 * size), randn(*shape, size)
    inputs[..., 0, size : 2 * size] = torch.inf  # padding: the keep gate is 1
    products = randn(*shape, 4 * size)[..., size:]
    bias, d_hidden = randn(*shape[:-1], 1, size), randn(*shape, size)
    results = []
    for module in (triton, kernels):
        gates, d_inputs = full((*shape, 3 * size)), full((*shape, 3 * size))
        d_wide = full((*shape, 4 * size))
        new = module.cudnn_forward(inputs, products, bias, hidden, gates)
        direct = module.cudnn_backward(
            d_hidden, gates, products, bias, hidden, d_inputs, d_wide[..., size:]
        )
        results.append((new, gates, direct, d_inputs, d_wide))
    for found, wanted in zip(*results, strict=True):
        close(found, wanted)


@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=["one direction", "two directions"])
@pytest.mark.parametrize("size", [20, 1030])
def test_groundhogs_form(triton: ModuleType, shape: tuple[int, ...], size: int) -> None:
    torch.manual_seed(4)
    inputs, hidden = randn(*shape, 3 * size), randn(*shape, size)
    products = randn(*shape, 3 * size)[..., size:]
    inner, d_reset, d_hidden = (randn(*shape, size) for _ in range(3))
    results = []
    for module in (triton, kernels):
        gates, d_inputs = full((*shape, 3 * size)), full((*shape, 3 * size))
        d_wide = full((*shape, 3 * size))
        reset = module.groundhog_gates(inputs, products, hidden, gates)
        new = module.groundhog_new(inputs, inner, hidden, gates)
        direct = module.groundhog_back_new(d_hidden, gates, hidden, d_inputs)
        d_old = module.groundhog_back_gates(
            d_reset, direct, gates, hidden, d_inputs, d_wide[..., size:]
        )
        results.append((reset, new, gates, direct, d_old, d_inputs, d_wide))
    for found, wanted in zip(*results, strict=True):
        close(found, wanted)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("columns", "size"), [(37, 40), (5001, 5008)])
def test_cross_entropy(triton: ModuleType, smoothing: float, columns: int, size: int) -> None:
    """Vocabularies below and above what a program reads at once, padded; one target is padding."""
    torch.manual_seed(5)
    logits_NV, bias_V = 3 * randn(6, size), randn(size)
    bias_V[columns:] = -torch.inf
    targets_N = torch.randint(PAD + 1, columns, (6,), device=DEVICE)
    targets_N[2] = PAD
    found, wanted = (
        module.cross_entropy_rows(logits_NV.clone(), bias_V, targets_N, columns, smoothing)
        for module in (triton, kernels)
    )
    for one, other in zip(found, wanted, strict=True):
        close(one, other)
    assert (found[2][2] == 0).all()
    assert (found[2][:, columns:] == 0).all()


def test_bf16_is_read_and_written(triton: ModuleType) -> None:
    """In its own type, computed in float32: nearer to the exact result than bf16 steps are."""
    torch.manual_seed(6)
    size = 16
    exact = [randn(3, 3 * size) for _ in range(2)] + [randn(1, size)]
    hidden = randn(3, size)
    narrow = [value.bfloat16() for value in (*exact, hidden)]
    gates = full((3, 3 * size)).bfloat16()
    found = triton.cudnn_forward(*narrow, gates)
    assert found.dtype == torch.bfloat16
    wide = [value.float() for value in narrow]
    wanted = kernels.cudnn_forward(*wide, full((3, 3 * size)))
    torch.testing.assert_close(found.float(), wanted, rtol=2**-8, atol=2**-8)
