"""The decoder over a whole target sentence in training, with a backward pass of its own.

Autograd through a loop makes the gradient of each weight step by step: many small products, each
added into a matrix of the weight's size. Here the backward loop carries only the gradient of the
state and keeps what each step's products received; each weight then takes one product over all
steps. The tanh of the attention is made again instead of kept (T x B x S x H numbers).
`EncoderDecoder.step` is the same in single steps, and the oracle in the tests.

Letters: B batch, S source, T target, H hidden, Z annotation, G the three gates r, z, n (3 H).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


class ScanWeights(NamedTuple):
    """What the loop multiplies with."""

    hidden_4HxH: Tensor
    """The products of the state: the attention's query (H rows), then the gates (G rows)."""
    hidden_4H: Tensor
    context_GZ: Tensor
    energy_H: Tensor


def scan(
    inputs_TBG: Tensor,
    hidden_BH: Tensor,
    keys_BSH: Tensor,
    annotations_BSZ: Tensor,
    bias_BS: Tensor,
    weights: ScanWeights,
) -> tuple[Tensor, Tensor]:
    """hiddens_TBH and contexts_TBZ: at each step the state before it and what attention finds.

    inputs_TBG: the gates' products with the true pieces. hidden_BH: the state at the beginning.
    bias_BS: 0 on source tokens, -inf on padding, in the precision of the softmax. All else is
    taken in the precision of `inputs_TBG`.
    """
    tensors = (hidden_BH, keys_BSH, annotations_BSZ, *weights)
    hiddens_TBH, contexts_TBZ = _Scan.apply(
        bias_BS, inputs_TBG, *(tensor.to(inputs_TBG.dtype) for tensor in tensors)
    )
    return hiddens_TBH, contexts_TBZ


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        bias_BS: Tensor,
        inputs_TBG: Tensor,
        hidden_BH: Tensor,
        keys_BSH: Tensor,
        annotations_BSZ: Tensor,
        hidden_4HxH: Tensor,
        hidden_4H: Tensor,
        context_GZ: Tensor,
        energy_H: Tensor,
    ) -> tuple[Tensor, Tensor]:
        steps, batch, size = len(inputs_TBG), *hidden_BH.shape
        new = inputs_TBG.new_empty
        hiddens_TBH = new(steps, batch, size)
        contexts_TBZ = new(steps, batch, annotations_BSZ.shape[2])
        weights_TBS = new(steps, *bias_BS.shape)
        products_TB4H = new(steps, batch, 4 * size)
        gates_TBG = new(steps, batch, 3 * size)  # r, z and n after their nonlinearities
        with torch.autocast(inputs_TBG.device.type, enabled=False):
            for t in range(steps):
                hiddens_TBH[t] = hidden_BH
                torch.addmm(hidden_4H, hidden_BH, hidden_4HxH.t(), out=products_TB4H[t])
                query_BH, recurrent_BG = products_TB4H[t].split((size, 3 * size), 1)
                energies_BS = torch.tanh(keys_BSH + query_BH[:, None]) @ energy_H
                weights_TBS[t] = functional.softmax(energies_BS.to(bias_BS.dtype) + bias_BS, -1)
                torch.bmm(weights_TBS[t][:, None], annotations_BSZ, out=contexts_TBZ[t][:, None])
                outer_BG = torch.addmm(inputs_TBG[t], contexts_TBZ[t], context_GZ.t())
                rz, n = gates_TBG[t].split((2 * size, size), 1)
                torch.add(outer_BG[:, : 2 * size], recurrent_BG[:, : 2 * size], out=rz)
                rz.sigmoid_()
                torch.addcmul(
                    outer_BG[:, 2 * size :], rz[:, :size], recurrent_BG[:, 2 * size :], out=n
                )
                n.tanh_()
                hidden_BH = torch.lerp(n, hidden_BH, rz[:, size:])
        context.save_for_backward(
            keys_BSH,
            annotations_BSZ,
            hidden_4HxH,
            context_GZ,
            energy_H,
            hiddens_TBH,
            contexts_TBZ,
            weights_TBS,
            products_TB4H,
            gates_TBG,
        )
        return hiddens_TBH, contexts_TBZ

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_hiddens_TBH, d_contexts_TBZ = gradients
        (
            keys_BSH,
            annotations_BSZ,
            hidden_4HxH,
            context_GZ,
            energy_H,
            hiddens_TBH,
            contexts_TBZ,
            weights_TBS,
            products_TB4H,
            gates_TBG,
        ) = context.saved_tensors
        steps, batch, size = hiddens_TBH.shape
        exact = torch.promote_types(keys_BSH.dtype, torch.float32)
        d_products_TB4H = torch.empty_like(products_TB4H)
        d_gates_TBG = torch.empty_like(gates_TBG)
        d_contexts_TBZ = d_contexts_TBZ.clone()
        # Without the factor energy_H, which is the same in all steps.
        d_keys_BSH = torch.zeros_like(keys_BSH, dtype=exact)
        d_energy_BH = torch.zeros(batch, size, dtype=exact, device=keys_BSH.device)
        d_hidden_BH = torch.zeros_like(hiddens_TBH[0])
        for t in range(steps - 1, -1, -1):
            # The GRU: h' = n + z (h - n), n = tanh(.. + r u).
            r, z, n = gates_TBG[t].chunk(3, 1)
            hidden_BH, u = hiddens_TBH[t], products_TB4H[t][:, 3 * size :]
            d_n = (d_hidden_BH - d_hidden_BH * z) * (1 - n * n)
            d_z = d_hidden_BH * (hidden_BH - n) * (z - z * z)
            d_r = d_n * u * (r - r * r)
            torch.cat([d_r, d_z, d_n], 1, out=d_gates_TBG[t])
            # Attention: c = sum of weights x annotations, energy = v . tanh(key + query).
            d_contexts_TBZ[t].addmm_(d_gates_TBG[t], context_GZ)
            d_weights_BS = torch.bmm(annotations_BSZ, d_contexts_TBZ[t][:, :, None])[:, :, 0]
            weights_BS = weights_TBS[t].to(exact)
            d_energies_BS = weights_BS * d_weights_BS
            d_energies_BS -= weights_BS * d_energies_BS.sum(-1, keepdim=True)
            narrow_BS = d_energies_BS.to(keys_BSH.dtype)
            tanh_BSH = torch.tanh(keys_BSH + products_TB4H[t][:, None, :size])
            d_energy_BH += torch.bmm(narrow_BS[:, None], tanh_BSH)[:, 0]
            slope_BSH = tanh_BSH.mul_(tanh_BSH).neg_().add_(1)
            d_query_BH = torch.bmm(narrow_BS[:, None], slope_BSH)[:, 0] * energy_H
            d_keys_BSH.addcmul_(slope_BSH, narrow_BS[:, :, None])
            torch.cat([d_query_BH, d_r, d_z, d_n * r], 1, out=d_products_TB4H[t])
            d_hidden_BH = torch.addmm(
                d_hidden_BH * z + d_hiddens_TBH[t], d_products_TB4H[t], hidden_4HxH
            )
        d_annotations_BSZ = torch.bmm(weights_TBS.permute(1, 2, 0), d_contexts_TBZ.transpose(0, 1))
        return (
            None,
            d_gates_TBG,
            d_hidden_BH,
            (d_keys_BSH * energy_H).to(keys_BSH.dtype),
            d_annotations_BSZ,
            d_products_TB4H.flatten(0, 1).t() @ hiddens_TBH.flatten(0, 1),
            d_products_TB4H.sum((0, 1)),
            d_gates_TBG.flatten(0, 1).t() @ contexts_TBZ.flatten(0, 1),
            d_energy_BH.sum(0).to(energy_H.dtype),
        )
