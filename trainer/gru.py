"""Gated recurrent units over a whole sequence, with a backward pass of their own.

Two forms (`ModelConfig.gru`), which differ in where the reset gate stands. With x the products of
the input, U those of the state, r the reset and z the keep gate:

    cudnn       n = tanh(x_n + r * (U_n h + b))     h' = (1 - z) * n + z * h
    groundhog   n = tanh(x_n + U_n (r * h))         h' = (1 - z) * n + z * h

The second is the paper's. Its code writes u = 1 - z for the update gate; negating the gate's
weights turns one into the other, and since these are drawn symmetrically, training is the same.

Autograd through a loop makes the gradient of each weight step by step: many small products, each
added into a matrix of the weight's size. Here the backward loop carries only the gradient of the
state; each weight then takes one product over all steps.

Letters: T time, D directions, B batch, H hidden, G the gates r, z, n (3 H), P the rows of the first
product with the state (3 H in the cuDNN form, 2 H in GroundHog's). `...` is D, B or just B.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rareword.trainer import kernels


class GruWeights(NamedTuple):
    """The state's side of a GRU, in the precision of its inputs."""

    first: Tensor
    """[..., P, H]: the product with the state for r and z, and in the cuDNN form for n."""
    bias: Tensor | None = None
    """[..., 1, H]: b of the cuDNN form."""
    second: Tensor | None = None
    """[..., H, H]: U_n of GroundHog's form."""


def cell_forward(
    inputs: Tensor, products: Tensor, hidden: Tensor, weights: GruWeights, gates: Tensor
) -> tuple[Tensor, Tensor]:
    """One step: the new state [..., H], and r * h [..., H] (GroundHog's form, else empty).

    inputs: [..., G]. products: [..., P], of the state. gates: [..., G], to be filled with r, z, n.
    """
    if weights.second is None:
        assert weights.bias is not None
        return kernels.cudnn_forward(inputs, products, weights.bias, hidden, gates), products[:0]
    reset = kernels.groundhog_gates(inputs, products, hidden, gates)
    inner = torch.matmul(reset, weights.second.mT)
    return kernels.groundhog_new(inputs, inner, hidden, gates), reset


def cell_backward(
    d_hidden: Tensor,
    gates: Tensor,
    products: Tensor,
    hidden: Tensor,
    weights: GruWeights,
    d_inputs: Tensor,
    d_products: Tensor,
) -> Tensor:
    """The gradient of the old state, but for what comes through the first product.

    Fills d_inputs [..., G] and d_products [..., P].
    """
    if weights.second is None:
        assert weights.bias is not None
        return kernels.cudnn_backward(
            d_hidden, gates, products, weights.bias, hidden, d_inputs, d_products
        )
    direct = kernels.groundhog_back_new(d_hidden, gates, hidden, d_inputs)
    size = hidden.shape[-1]
    d_reset = torch.matmul(d_inputs[..., 2 * size :], weights.second)
    return kernels.groundhog_back_gates(d_reset, direct, gates, hidden, d_inputs, d_products)


def gru_scan(inputs: Tensor, hidden: Tensor, weights: GruWeights) -> Tensor:
    """All states after each step, [T, ..., H].

    inputs: [T, ..., G], the gates' products with the inputs. hidden: [..., H], the first state.
    Where the input of the keep gate is +inf the state stays as it is: so padding is passed over.
    """
    states: Tensor = _Gru.apply(inputs, hidden, *weights)
    return states


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        inputs: Tensor,
        hidden: Tensor,
        first: Tensor,
        bias: Tensor | None,
        second: Tensor | None,
    ) -> Tensor:
        weights, steps = GruWeights(first, bias, second), len(inputs)
        states = inputs.new_empty(steps + 1, *hidden.shape)
        products = inputs.new_empty(steps, *hidden.shape[:-1], first.shape[-2])
        gates = torch.empty_like(inputs)
        resets = inputs.new_empty(steps if second is not None else 0, *hidden.shape)
        states[0] = hidden
        for t in range(steps):
            torch.matmul(states[t], first.mT, out=products[t])
            states[t + 1], reset = cell_forward(
                inputs[t], products[t], states[t], weights, gates[t]
            )
            if second is not None:
                resets[t] = reset
        context.save_for_backward(states, products, gates, resets, first, bias, second)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, products, gates, resets, first, bias, second = context.saved_tensors
        weights, (d_states,) = GruWeights(first, bias, second), gradients
        d_inputs, d_products = torch.empty_like(gates), torch.empty_like(products)
        d_hidden = torch.zeros_like(states[0])
        for t in range(len(gates) - 1, -1, -1):
            direct = cell_backward(
                d_hidden + d_states[t],
                gates[t],
                products[t],
                states[t],
                weights,
                d_inputs[t],
                d_products[t],
            )
            d_hidden = direct + torch.matmul(d_products[t], first)
        d_first, d_bias, d_second = weight_gradients(
            d_inputs, d_products, states[:-1], resets, weights
        )
        return d_inputs, d_hidden, d_first, d_bias, d_second


def weight_gradients(
    d_inputs: Tensor, d_products: Tensor, states: Tensor, resets: Tensor, weights: GruWeights
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients of `GruWeights`, each as one product over all steps."""
    size = states.shape[-1]
    d_first = _outer(d_products, states)
    if weights.second is None:
        return d_first, _rows(d_products)[..., -size:].sum(-2, keepdim=True), None
    return d_first, None, _outer(d_inputs[..., 2 * size :], resets)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Sum over time and batch of left x right: [T, ..., P] and [T, ..., H] give [..., P, H]."""
    return torch.matmul(_rows(left).mT, _rows(right))


def _rows(values: Tensor) -> Tensor:
    """[T, D, B, X] as [D, T B, X], [T, B, X] as [T B, X]."""
    if values.dim() == 3:
        return values.flatten(0, 1)
    return values.transpose(0, 1).flatten(1, 2)
