"""The decoder's first layer over a whole target sentence in training: attention and its GRU.

Like `trainer.gru`, with a backward pass of its own, and with the attention inside the loop. The
tanh of the attention is made again in the backward pass instead of kept (T x B x S x H numbers).
`Network.step` is the same in single steps, and the oracle in the tests.

Letters: B batch, S source, T target, H hidden, Z annotation, G the gates r, z, n (3 H), P the rows
of the products with the state: the attention's query (H), then those of `GruWeights.first`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from rareword.trainer import kernels
from rareword.trainer.gru import GruWeights, cell_backward, cell_forward, weight_gradients


def scan(
    inputs_TBG: Tensor,
    hidden_BH: Tensor,
    keys_BSH: Tensor,
    annotations_BSZ: Tensor,
    bias_BS: Tensor,
    weights: GruWeights,
    query_HxH: Tensor,
    context_GZ: Tensor,
    energy_H: Tensor,
) -> tuple[Tensor, Tensor]:
    """hiddens_TBH and contexts_TBZ: at each step the state before it and what attention finds.

    inputs_TBG: the gates' products with the true pieces. hidden_BH: the state at the beginning.
    bias_BS: 0 on source tokens, -inf on padding, in the precision of the softmax. All else has
    the precision of `inputs_TBG`.
    """
    first_PxH = torch.cat([query_HxH, weights.first])
    hiddens_TBH, contexts_TBZ = _Scan.apply(
        bias_BS,
        inputs_TBG,
        hidden_BH,
        keys_BSH,
        annotations_BSZ,
        first_PxH,
        weights.bias,
        weights.second,
        context_GZ,
        energy_H,
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
        first_PxH: Tensor,
        bias_1H: Tensor | None,
        second_HxH: Tensor | None,
        context_GZ: Tensor,
        energy_H: Tensor,
    ) -> tuple[Tensor, Tensor]:
        steps, batch, size = len(inputs_TBG), *hidden_BH.shape
        weights = GruWeights(first_PxH[size:], bias_1H, second_HxH)
        new = inputs_TBG.new_empty
        hiddens_TBH = new(steps, batch, size)
        contexts_TBZ = new(steps, batch, annotations_BSZ.shape[2])
        attended_TBS = new(steps, *bias_BS.shape)
        products_TBP = new(steps, batch, len(first_PxH))
        gates_TBG = new(steps, batch, 3 * size)  # r, z and n after their nonlinearities
        resets_TBH = new(steps if second_HxH is not None else 0, batch, size)
        for t in range(steps):
            hiddens_TBH[t] = hidden_BH
            hidden_BH = hiddens_TBH[t]
            torch.matmul(hidden_BH, first_PxH.t(), out=products_TBP[t])
            query_BH, products = products_TBP[t].split((size, len(first_PxH) - size), 1)
            energies_BS = kernels.energies(keys_BSH, query_BH, energy_H)
            attended_TBS[t] = functional.softmax(energies_BS + bias_BS, -1)
            torch.bmm(attended_TBS[t][:, None], annotations_BSZ, out=contexts_TBZ[t][:, None])
            outer_BG = torch.addmm(inputs_TBG[t], contexts_TBZ[t], context_GZ.t())
            hidden_BH, reset_BH = cell_forward(outer_BG, products, hidden_BH, weights, gates_TBG[t])
            if second_HxH is not None:
                resets_TBH[t] = reset_BH
        context.save_for_backward(
            keys_BSH,
            annotations_BSZ,
            first_PxH,
            bias_1H,
            second_HxH,
            context_GZ,
            energy_H,
            hiddens_TBH,
            contexts_TBZ,
            attended_TBS,
            products_TBP,
            gates_TBG,
            resets_TBH,
        )
        return hiddens_TBH, contexts_TBZ

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_hiddens_TBH, d_contexts_TBZ = gradients
        (
            keys_BSH,
            annotations_BSZ,
            first_PxH,
            bias_1H,
            second_HxH,
            context_GZ,
            energy_H,
            hiddens_TBH,
            contexts_TBZ,
            attended_TBS,
            products_TBP,
            gates_TBG,
            resets_TBH,
        ) = context.saved_tensors
        steps, batch, size = hiddens_TBH.shape
        weights = GruWeights(first_PxH[size:], bias_1H, second_HxH)
        exact = kernels.accumulator(keys_BSH)
        d_products_TBP = torch.empty_like(products_TBP)
        d_gates_TBG = torch.empty_like(gates_TBG)
        d_contexts_TBZ = d_contexts_TBZ.clone()
        # Without the factor energy_H, which is the same in all steps.
        d_keys_BSH = torch.zeros_like(keys_BSH, dtype=exact)
        d_energy_BH = torch.zeros(batch, size, dtype=exact, device=keys_BSH.device)
        d_hidden_BH = torch.zeros_like(hiddens_TBH[0])
        for t in range(steps - 1, -1, -1):
            query_BH, products = products_TBP[t].split((size, len(first_PxH) - size), 1)
            d_query_BH, d_products = d_products_TBP[t].split((size, len(first_PxH) - size), 1)
            direct_BH = cell_backward(
                d_hidden_BH,
                gates_TBG[t],
                products,
                hiddens_TBH[t],
                weights,
                d_gates_TBG[t],
                d_products,
            )
            d_contexts_TBZ[t].addmm_(d_gates_TBG[t], context_GZ)
            d_attended_BS = torch.bmm(annotations_BSZ, d_contexts_TBZ[t][:, :, None])[:, :, 0]
            attended_BS = attended_TBS[t].to(exact)
            d_energies_BS = attended_BS * d_attended_BS
            d_energies_BS -= attended_BS * d_energies_BS.sum(-1, keepdim=True)
            kernels.energies_backward(
                d_energies_BS, keys_BSH, query_BH, energy_H, d_query_BH, d_keys_BSH, d_energy_BH
            )
            d_hidden_BH = torch.addmm(direct_BH + d_hiddens_TBH[t], d_products_TBP[t], first_PxH)
        d_annotations_BSZ = torch.bmm(attended_TBS.permute(1, 2, 0), d_contexts_TBZ.transpose(0, 1))
        d_first_PxH, d_bias_1H, d_second_HxH = weight_gradients(
            d_gates_TBG, d_products_TBP, hiddens_TBH, resets_TBH, weights
        )
        return (
            None,
            d_gates_TBG,
            d_hidden_BH,
            (d_keys_BSH * energy_H).to(keys_BSH.dtype),
            d_annotations_BSZ,
            d_first_PxH,
            d_bias_1H,
            d_second_HxH,
            d_gates_TBG.flatten(0, 1).t() @ contexts_TBZ.flatten(0, 1),
            d_energy_BH.sum(0).to(energy_H.dtype),
        )
