"""Triton kernels of `trainer.kernels`, where each is described and stands in plain torch.

Everything is computed in float32 and stored in the type of the destination. Rows may lie apart
(strides), the last dimension is contiguous.

Letters: B batch, R hypotheses of the batch's sentences, S source, H hidden, G the gates r, z, n
(3 H), V vocabulary, N tokens.
"""

# Types of the kernels' arguments are Triton's own: pointers, and numbers known when it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from rareword.schemas.vocabulary import PAD

_BLOCK = 1024


@triton.jit
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _read(pointer, mask):
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _write(pointer, value, mask):
    tl.store(pointer, value.to(pointer.dtype.element_ty), mask=mask)


# ---- additive attention ----


@triton.jit
def _energies(
    keys,
    query,
    energy,
    sentence,
    out,
    key_b,
    key_s,
    query_r,
    S,
    H,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program a source token of a row; SHARED: several rows may be of one sentence."""
    s, r = tl.program_id(0), tl.program_id(1)
    b = tl.load(sentence + r) if SHARED else r
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, H, BLOCK):
        h = start + tl.arange(0, BLOCK)
        inside = h < H
        key = _read(keys + b * key_b + s * key_s + h, inside)
        total += _tanh(key + _read(query + r * query_r + h, inside)) * _read(energy + h, inside)
    tl.store(out + r * S + s, tl.sum(total, 0))


def energies(
    keys_BSH: Tensor, query_RH: Tensor, energy_H: Tensor, sentence_R: Tensor | None = None
) -> Tensor:
    rows, (_, source, size) = len(query_RH), keys_BSH.shape
    out_RS = torch.empty(rows, source, device=keys_BSH.device, dtype=torch.float32)
    _energies[(source, rows)](
        keys_BSH,
        query_RH,
        energy_H,
        keys_BSH if sentence_R is None else sentence_R,
        out_RS,
        keys_BSH.stride(0),
        keys_BSH.stride(1),
        query_RH.stride(0),
        source,
        size,
        SHARED=sentence_R is not None,
        BLOCK=_BLOCK,
    )
    return out_RS


@triton.jit
def _energies_backward(
    d_energies,
    keys,
    query,
    energy,
    d_query,
    d_keys,
    d_energy,
    key_b,
    key_s,
    query_b,
    d_query_b,
    S,
    H,
    BLOCK: tl.constexpr,
):
    """One program a sentence and a block of the hidden size; it walks over the source."""
    h = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b, inside = tl.program_id(1), h < H
    query_h = _read(query + b * query_b + h, inside)
    d_query_h = tl.zeros([BLOCK], tl.float32)
    d_energy_h = tl.zeros([BLOCK], tl.float32)
    for s in range(S):
        gradient = tl.load(d_energies + b * S + s)
        tanh = _tanh(_read(keys + b * key_b + s * key_s + h, inside) + query_h)
        slope = gradient * (1.0 - tanh * tanh)
        d_query_h += slope
        d_energy_h += gradient * tanh
        place = d_keys + (b * S + s) * H + h
        tl.store(place, tl.load(place, mask=inside, other=0.0) + slope, mask=inside)
    _write(d_query + b * d_query_b + h, d_query_h * _read(energy + h, inside), inside)
    place = d_energy + b * H + h
    tl.store(place, tl.load(place, mask=inside, other=0.0) + d_energy_h, mask=inside)


def energies_backward(
    d_energies_BS: Tensor,
    keys_BSH: Tensor,
    query_BH: Tensor,
    energy_H: Tensor,
    d_query_BH: Tensor,
    d_keys_BSH: Tensor,
    d_energy_BH: Tensor,
) -> None:
    batch, source, size = keys_BSH.shape
    block = 128
    _energies_backward[(triton.cdiv(size, block), batch)](
        d_energies_BS.contiguous(),
        keys_BSH,
        query_BH,
        energy_H,
        d_query_BH,
        d_keys_BSH,
        d_energy_BH,
        keys_BSH.stride(0),
        keys_BSH.stride(1),
        query_BH.stride(0),
        d_query_BH.stride(0),
        source,
        size,
        BLOCK=block,
    )


# ---- gated recurrent units ----
# One program a row and a block of the hidden size; a row is a sentence (in a direction).


@triton.jit
def _place(H, BLOCK: tl.constexpr):
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return tl.program_id(0).to(tl.int64), h, h < H


@triton.jit
def _cudnn_forward(
    inputs, products, bias, hidden, gates, new, product_row, bias_rows, H, BLOCK: tl.constexpr
):
    row, h, inside = _place(H, BLOCK)
    x, u, g = inputs + row * 3 * H + h, products + row * product_row + h, gates + row * 3 * H + h
    old = _read(hidden + row * H + h, inside)
    r = tl.sigmoid(_read(x, inside) + _read(u, inside))
    z = tl.sigmoid(_read(x + H, inside) + _read(u + H, inside))
    inner = _read(u + 2 * H, inside) + _read(bias + row // bias_rows * H + h, inside)
    n = _tanh(_read(x + 2 * H, inside) + r * inner)
    _write(g, r, inside)
    _write(g + H, z, inside)
    _write(g + 2 * H, n, inside)
    _write(new + row * H + h, n + z * (old - n), inside)


def cudnn_forward(
    inputs: Tensor, products: Tensor, bias: Tensor, hidden: Tensor, gates: Tensor
) -> Tensor:
    new = torch.empty_like(hidden, memory_format=torch.contiguous_format)
    rows, size, grid, block = _rows(hidden)
    _cudnn_forward[grid](
        inputs,
        products,
        bias,
        hidden,
        gates,
        new,
        products.stride(-2),
        rows // bias.shape[:-1].numel(),
        size,
        BLOCK=block,
    )
    return new


@triton.jit
def _cudnn_backward(
    d_hidden,
    gates,
    products,
    bias,
    hidden,
    d_inputs,
    d_products,
    direct,
    product_row,
    d_product_row,
    bias_rows,
    H,
    BLOCK: tl.constexpr,
):
    row, h, inside = _place(H, BLOCK)
    g, dx, du = (
        gates + row * 3 * H + h,
        d_inputs + row * 3 * H + h,
        d_products + row * d_product_row + h,
    )
    r, z, n = _read(g, inside), _read(g + H, inside), _read(g + 2 * H, inside)
    d_new, old = _read(d_hidden + row * H + h, inside), _read(hidden + row * H + h, inside)
    inner = _read(products + row * product_row + 2 * H + h, inside)
    inner += _read(bias + row // bias_rows * H + h, inside)
    d_n = d_new * (1.0 - z) * (1.0 - n * n)
    d_z = d_new * (old - n) * (z - z * z)
    d_r = d_n * inner * (r - r * r)
    _write(dx, d_r, inside)
    _write(dx + H, d_z, inside)
    _write(dx + 2 * H, d_n, inside)
    _write(du, d_r, inside)
    _write(du + H, d_z, inside)
    _write(du + 2 * H, d_n * r, inside)
    _write(direct + row * H + h, d_new * z, inside)


def cudnn_backward(
    d_hidden: Tensor,
    gates: Tensor,
    products: Tensor,
    bias: Tensor,
    hidden: Tensor,
    d_inputs: Tensor,
    d_products: Tensor,
) -> Tensor:
    direct = torch.empty_like(hidden, memory_format=torch.contiguous_format)
    rows, size, grid, block = _rows(hidden)
    _cudnn_backward[grid](
        d_hidden.contiguous(),
        gates,
        products,
        bias,
        hidden,
        d_inputs,
        d_products,
        direct,
        products.stride(-2),
        d_products.stride(-2),
        rows // bias.shape[:-1].numel(),
        size,
        BLOCK=block,
    )
    return direct


@triton.jit
def _groundhog_gates(inputs, products, hidden, gates, reset, product_row, H, BLOCK: tl.constexpr):
    row, h, inside = _place(H, BLOCK)
    x, u, g = inputs + row * 3 * H + h, products + row * product_row + h, gates + row * 3 * H + h
    r = tl.sigmoid(_read(x, inside) + _read(u, inside))
    z = tl.sigmoid(_read(x + H, inside) + _read(u + H, inside))
    _write(g, r, inside)
    _write(g + H, z, inside)
    _write(reset + row * H + h, r * _read(hidden + row * H + h, inside), inside)


def groundhog_gates(inputs: Tensor, products: Tensor, hidden: Tensor, gates: Tensor) -> Tensor:
    reset = torch.empty_like(hidden, memory_format=torch.contiguous_format)
    _, size, grid, block = _rows(hidden)
    _groundhog_gates[grid](
        inputs, products, hidden, gates, reset, products.stride(-2), size, BLOCK=block
    )
    return reset


@triton.jit
def _groundhog_new(inputs, inner, hidden, gates, new, H, BLOCK: tl.constexpr):
    row, h, inside = _place(H, BLOCK)
    g, old = gates + row * 3 * H + h, _read(hidden + row * H + h, inside)
    n = _tanh(_read(inputs + row * 3 * H + 2 * H + h, inside) + _read(inner + row * H + h, inside))
    _write(g + 2 * H, n, inside)
    _write(new + row * H + h, n + _read(g + H, inside) * (old - n), inside)


def groundhog_new(inputs: Tensor, inner: Tensor, hidden: Tensor, gates: Tensor) -> Tensor:
    new = torch.empty_like(hidden, memory_format=torch.contiguous_format)
    _, size, grid, block = _rows(hidden)
    _groundhog_new[grid](inputs, inner, hidden, gates, new, size, BLOCK=block)
    return new


@triton.jit
def _groundhog_back_new(d_hidden, gates, hidden, d_inputs, direct, H, BLOCK: tl.constexpr):
    row, h, inside = _place(H, BLOCK)
    g, dx = gates + row * 3 * H + h, d_inputs + row * 3 * H + h
    z, n = _read(g + H, inside), _read(g + 2 * H, inside)
    d_new, old = _read(d_hidden + row * H + h, inside), _read(hidden + row * H + h, inside)
    _write(dx + H, d_new * (old - n) * (z - z * z), inside)
    _write(dx + 2 * H, d_new * (1.0 - z) * (1.0 - n * n), inside)
    _write(direct + row * H + h, d_new * z, inside)


def groundhog_back_new(d_hidden: Tensor, gates: Tensor, hidden: Tensor, d_inputs: Tensor) -> Tensor:
    direct = torch.empty_like(hidden, memory_format=torch.contiguous_format)
    _, size, grid, block = _rows(hidden)
    _groundhog_back_new[grid](
        d_hidden.contiguous(), gates, hidden, d_inputs, direct, size, BLOCK=block
    )
    return direct


@triton.jit
def _groundhog_back_gates(
    d_reset, direct, gates, hidden, d_inputs, d_products, out, d_product_row, H, BLOCK: tl.constexpr
):
    row, h, inside = _place(H, BLOCK)
    dx, du = d_inputs + row * 3 * H + h, d_products + row * d_product_row + h
    r, d_rh = _read(gates + row * 3 * H + h, inside), _read(d_reset + row * H + h, inside)
    d_r = d_rh * _read(hidden + row * H + h, inside) * (r - r * r)
    _write(dx, d_r, inside)
    _write(du, d_r, inside)
    _write(du + H, _read(dx + H, inside), inside)
    _write(out + row * H + h, _read(direct + row * H + h, inside) + d_rh * r, inside)


def groundhog_back_gates(
    d_reset: Tensor,
    direct: Tensor,
    gates: Tensor,
    hidden: Tensor,
    d_inputs: Tensor,
    d_products: Tensor,
) -> Tensor:
    out = torch.empty_like(direct)
    _, size, grid, block = _rows(hidden)
    _groundhog_back_gates[grid](
        d_reset.contiguous(),
        direct,
        gates,
        hidden,
        d_inputs,
        d_products,
        out,
        d_products.stride(-2),
        size,
        BLOCK=block,
    )
    return out


def _rows(hidden: Tensor) -> tuple[int, int, tuple[int, int], int]:
    """Rows, their size, the grid of programs, and the block of a program."""
    assert hidden.is_contiguous()
    size = hidden.shape[-1]
    rows, block = hidden.shape[:-1].numel(), min(_BLOCK, triton.next_power_of_2(size))
    return rows, size, (rows, triton.cdiv(size, block)), block


# ---- softmax cross-entropy ----


@triton.jit
def _cross_entropy(
    logits,
    bias,
    targets,
    losses,
    row_stride,
    V,
    columns,
    smoothing,
    PADDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program a token: its loss, and its gradient in the place of its logits."""
    row = tl.program_id(0).to(tl.int64)
    line, target = logits + row * row_stride, tl.load(targets + row)
    if target == PADDING:
        tl.store(losses + 2 * row, 0.0)
        tl.store(losses + 2 * row + 1, 0.0)
        for start in range(0, V, BLOCK):
            v = start + tl.arange(0, BLOCK)
            _write(line + v, tl.zeros([BLOCK], tl.float32), v < V)
        return
    greatest = tl.full([BLOCK], float("-inf"), tl.float32)
    summed = tl.zeros([BLOCK], tl.float32)
    plain_sum = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        inside = v < columns
        value = tl.where(inside, _read(line + v, inside) + _read(bias + v, inside), float("-inf"))
        new = tl.maximum(greatest, value)
        # A lane that has seen nothing yet has -inf in both, and -inf - -inf is no number.
        safe = tl.where(new == float("-inf"), 0.0, new)
        summed = summed * tl.exp(greatest - safe) + tl.exp(value - safe)
        plain_sum += tl.where(inside, value, 0.0)
        greatest = new
    top = tl.max(greatest, 0)
    log_sum = top + tl.log(tl.sum(summed * tl.exp(greatest - top), 0))
    own = tl.load(line + target).to(tl.float32) + tl.load(bias + target).to(tl.float32)
    loss = log_sum - own
    spread = log_sum - tl.sum(plain_sum, 0) / columns
    tl.store(losses + 2 * row, (1.0 - smoothing) * loss + smoothing * spread)
    tl.store(losses + 2 * row + 1, loss)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        inside = v < columns
        value = _read(line + v, inside) + _read(bias + v, inside)
        gradient = tl.exp(value - log_sum) - smoothing / columns
        gradient -= tl.where(v == target, 1.0 - smoothing, 0.0)
        _write(line + v, tl.where(inside, gradient, 0.0), v < V)


def cross_entropy_rows(
    logits_NV: Tensor, bias_V: Tensor, targets_N: Tensor, columns: int, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    tokens, size = logits_NV.shape
    losses_N2 = torch.empty(tokens, 2, device=logits_NV.device, dtype=torch.float32)
    _cross_entropy[(tokens,)](
        logits_NV,
        bias_V,
        targets_N,
        losses_N2,
        logits_NV.stride(0),
        size,
        columns,
        float(smoothing),
        PADDING=PAD,
        BLOCK=min(4096, triton.next_power_of_2(size)),
    )
    smoothed, plain = losses_N2.sum(0)
    return smoothed, plain, logits_NV
