"""The pointwise and reducing pieces of the recurrences: Triton kernels on the GPU, else torch.

Each function here says in plain torch what the kernel of the same name in
`trainer.triton_kernels` does; that is the oracle in the tests, and what runs on the CPU, in
float64 and where Triton does not work.

Letters: B batch, R hypotheses of its sentences, S source, H hidden, G the gates r, z, n (3 H), P
the rows of the first product with the state, V vocabulary, N tokens. `...` is B or D, B with two
directions.
"""

import functools
import os
from types import ModuleType

import torch
from torch import Tensor

from rareword.schemas.vocabulary import PAD

CACHED = 1 << 18
"""Numbers that a CPU's caches hold; of more, several passes are as slow as memory."""
WITHOUT_TRITON = "RAREWORD_WITHOUT_TRITON"
"""Environment variable: if it is set, the pieces run as plain torch on the GPU too."""


@functools.cache
def why_not_triton() -> str | None:
    """Why the kernels do not run on this machine's GPU, as a clause; None if they do."""
    if os.environ.get(WITHOUT_TRITON):
        return f"{WITHOUT_TRITON} is set"
    if not torch.cuda.is_available():
        return "there is no GPU"
    try:
        from rareword.trainer import triton_kernels

        ones = torch.ones(1, 1, 16, device="cuda")
        triton_kernels.energies(ones, ones[0], ones[0, 0])  # compiles: needs a C compiler
        torch.cuda.synchronize()
    except Exception as error:  # whatever a missing compiler, driver or library raises
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def _triton(tensor: Tensor) -> ModuleType | None:
    """The kernels, if they are for this tensor."""
    if not tensor.is_cuda or tensor.dtype == torch.float64 or why_not_triton() is not None:
        return None
    from rareword.trainer import triton_kernels

    return triton_kernels


# ---- additive attention ----


def energies(keys_BSH: Tensor, query_BH: Tensor, energy_H: Tensor) -> Tensor:
    """energies_BS = energy_H . tanh(keys_BSH + query_BH), float32 or better."""
    if kernel := _triton(keys_BSH):
        found: Tensor = kernel.energies(keys_BSH, query_BH, energy_H)
        return found
    energies_BS = torch.tanh(keys_BSH + query_BH[:, None]) @ energy_H
    return energies_BS.to(accumulator(keys_BSH))


def lasting_keys(keys_BSH: Tensor) -> Tensor:
    """Keys that many queries will come to, in the form that `energies_of_rows` takes.

    Without the kernels that is exp(2 keys), float32 or better: with exp(2 query) it makes
    tanh(key + query) = 1 - 2 / (exp(2 key) exp(2 query) + 1), and a division takes a CPU a fraction
    of the time of a tanh.
    """
    return keys_BSH if _triton(keys_BSH) else _exponential(keys_BSH)


def energies_of_rows(
    lasting_BSH: Tensor, query_RH: Tensor, energy_H: Tensor, sentence_R: Tensor | None = None
) -> Tensor:
    """energies_RS = energy_H . tanh(keys_RSH + query_RH), float32 or better.

    lasting_BSH: `lasting_keys`. keys_RSH are those of sentence_R; without it there is one query for
    each sentence.
    """
    if kernel := _triton(lasting_BSH):
        found: Tensor = kernel.energies(lasting_BSH, query_RH, energy_H, sentence_R)
        return found
    rows, (_, source, hidden) = len(query_RH), lasting_BSH.shape
    factor_RH, energy_H = _exponential(query_RH), energy_H.to(lasting_BSH.dtype)
    energies_RS = lasting_BSH.new_empty(rows, source)
    one, block = lasting_BSH.new_ones(()), max(1, CACHED // (source * hidden))
    for first in range(0, rows, block):
        part = slice(first, first + block)
        product_RSH = lasting_BSH[part] if sentence_R is None else lasting_BSH[sentence_R[part]]
        product_RSH = torch.addcmul(one, product_RSH, factor_RH[part, None])
        energies_RS[part] = product_RSH.reciprocal_() @ energy_H
    return energy_H.sum() - 2 * energies_RS


def _exponential(values: Tensor) -> Tensor:
    """exp(2 values), float32 or better. Values beyond 43 count as 43: a float32 holds no more, and
    their tanh is 1 unless the other summand is as large."""
    return values.to(accumulator(values)).clamp(-43, 43).mul_(2).exp_()


def energies_backward(
    d_energies_BS: Tensor,
    keys_BSH: Tensor,
    query_BH: Tensor,
    energy_H: Tensor,
    d_query_BH: Tensor,
    d_keys_BSH: Tensor,
    d_energy_BH: Tensor,
) -> None:
    """Fills d_query_BH; adds to d_keys_BSH (still to be multiplied by energy_H) and d_energy_BH.

    The tanh is made again instead of kept: T x B x S x H numbers.
    """
    if kernel := _triton(keys_BSH):
        kernel.energies_backward(
            d_energies_BS, keys_BSH, query_BH, energy_H, d_query_BH, d_keys_BSH, d_energy_BH
        )
        return
    narrow_BS = d_energies_BS.to(keys_BSH.dtype)
    tanh_BSH = torch.tanh(keys_BSH + query_BH[:, None])
    d_energy_BH += torch.bmm(narrow_BS[:, None], tanh_BSH)[:, 0]
    slope_BSH = tanh_BSH.mul_(tanh_BSH).neg_().add_(1)
    torch.mul(torch.bmm(narrow_BS[:, None], slope_BSH)[:, 0], energy_H, out=d_query_BH)
    d_keys_BSH.addcmul_(slope_BSH, narrow_BS[:, :, None])


# ---- gated recurrent units ----


def cudnn_forward(
    inputs: Tensor, products: Tensor, bias: Tensor, hidden: Tensor, gates: Tensor
) -> Tensor:
    """The new state [..., H] of the cuDNN form; fills gates [..., G] with r, z and n."""
    if kernel := _triton(inputs):
        found: Tensor = kernel.cudnn_forward(inputs, products, bias, hidden, gates)
        return found
    size = hidden.shape[-1]
    rz, n = gates.split((2 * size, size), -1)
    torch.add(inputs[..., : 2 * size], products[..., : 2 * size], out=rz)
    rz.sigmoid_()
    torch.addcmul(inputs[..., 2 * size :], rz[..., :size], products[..., 2 * size :] + bias, out=n)
    n.tanh_()
    return torch.lerp(n, hidden, rz[..., size:])


def cudnn_backward(
    d_hidden: Tensor,
    gates: Tensor,
    products: Tensor,
    bias: Tensor,
    hidden: Tensor,
    d_inputs: Tensor,
    d_products: Tensor,
) -> Tensor:
    """d_hidden * z [..., H]; fills d_inputs [..., G] and d_products [..., P]."""
    if kernel := _triton(gates):
        found: Tensor = kernel.cudnn_backward(
            d_hidden, gates, products, bias, hidden, d_inputs, d_products
        )
        return found
    size = hidden.shape[-1]
    r, z, n = gates.chunk(3, -1)
    direct = d_hidden * z
    d_n = (d_hidden - direct) * (1 - n * n)
    d_z = d_hidden * (hidden - n) * (z - z * z)
    d_r = d_n * (products[..., 2 * size :] + bias) * (r - r * r)
    torch.cat([d_r, d_z, d_n], -1, out=d_inputs)
    d_products[..., : 2 * size] = d_inputs[..., : 2 * size]
    torch.mul(d_n, r, out=d_products[..., 2 * size :])
    return direct


def groundhog_gates(inputs: Tensor, products: Tensor, hidden: Tensor, gates: Tensor) -> Tensor:
    """r * hidden [..., H] of GroundHog's form; fills r and z of gates [..., G]."""
    if kernel := _triton(inputs):
        found: Tensor = kernel.groundhog_gates(inputs, products, hidden, gates)
        return found
    size = hidden.shape[-1]
    rz = gates[..., : 2 * size]
    torch.add(inputs[..., : 2 * size], products, out=rz)
    rz.sigmoid_()
    return rz[..., :size] * hidden


def groundhog_new(inputs: Tensor, inner: Tensor, hidden: Tensor, gates: Tensor) -> Tensor:
    """The new state [..., H] from inner = U_n (r * h); fills n of gates [..., G]."""
    if kernel := _triton(inputs):
        found: Tensor = kernel.groundhog_new(inputs, inner, hidden, gates)
        return found
    size = hidden.shape[-1]
    n = gates[..., 2 * size :]
    torch.add(inputs[..., 2 * size :], inner, out=n)
    n.tanh_()
    return torch.lerp(n, hidden, gates[..., size : 2 * size])


def groundhog_back_new(d_hidden: Tensor, gates: Tensor, hidden: Tensor, d_inputs: Tensor) -> Tensor:
    """d_hidden * z [..., H]; fills z and n of d_inputs [..., G]."""
    if kernel := _triton(gates):
        found: Tensor = kernel.groundhog_back_new(d_hidden, gates, hidden, d_inputs)
        return found
    size = hidden.shape[-1]
    _, z, n = gates.chunk(3, -1)
    direct = d_hidden * z
    d_inputs[..., size : 2 * size] = d_hidden * (hidden - n) * (z - z * z)
    d_inputs[..., 2 * size :] = (d_hidden - direct) * (1 - n * n)
    return direct


def groundhog_back_gates(
    d_reset: Tensor,
    direct: Tensor,
    gates: Tensor,
    hidden: Tensor,
    d_inputs: Tensor,
    d_products: Tensor,
) -> Tensor:
    """direct + d_reset * r [..., H]; fills r of d_inputs [..., G], and d_products [..., P].

    d_reset: the gradient of r * hidden. direct: what `groundhog_back_new` gave.
    """
    if kernel := _triton(gates):
        found: Tensor = kernel.groundhog_back_gates(
            d_reset, direct, gates, hidden, d_inputs, d_products
        )
        return found
    size = hidden.shape[-1]
    r = gates[..., :size]
    d_inputs[..., :size] = d_reset * hidden * (r - r * r)
    d_products.copy_(d_inputs[..., : 2 * size])
    return torch.addcmul(direct, d_reset, r)


# ---- softmax cross-entropy ----


def cross_entropy_rows(
    logits_NV: Tensor, bias_V: Tensor, targets_N: Tensor, columns: int, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss with and without smoothing, and the logits' gradient in their own type.

    Padding among the targets counts nothing. Only the first `columns` of the vocabulary are
    pieces; behind them the bias is -inf. The gradient may take the memory of the logits.
    """
    if kernel := _triton(logits_NV):
        found: tuple[Tensor, Tensor, Tensor] = kernel.cross_entropy_rows(
            logits_NV, bias_V, targets_N, columns, smoothing
        )
        return found
    log_probs_NV = logits_NV.to(accumulator(logits_NV)).add(bias_V).log_softmax(-1)
    column_N1 = targets_N[:, None]
    losses_N = -log_probs_NV.gather(1, column_N1)[:, 0]
    spread_N = -log_probs_NV[:, :columns].sum(1) / columns if smoothing else losses_N
    d_logits_NV = log_probs_NV.exp_()
    if smoothing:
        d_logits_NV[:, :columns] -= smoothing / columns
    d_logits_NV.scatter_add_(1, column_N1, d_logits_NV.new_full(column_N1.shape, smoothing - 1))
    padding_N = targets_N == PAD
    d_logits_NV.masked_fill_(padding_N[:, None], 0)
    plain = losses_N.masked_fill(padding_N, 0).sum()
    spread = spread_N.masked_fill(padding_N, 0).sum()
    smoothed = (1 - smoothing) * plain + smoothing * spread
    return smoothed, plain, d_logits_NV.to(logits_NV.dtype)


def accumulator(tensor: Tensor) -> torch.dtype:
    """The precision of energies, softmax, loss and sums: float32, or float64 if the tensor is."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
