"""The model's recurrences as plain loops under autograd: the oracle of those with own gradients."""

import torch
from torch import Tensor

from rareword.trainer.gru import GruWeights


def plain_cell(inputs: Tensor, h: Tensor, weights: GruWeights) -> Tensor:
    """The equations of `trainer.gru`, one gate at a time."""
    xr, xz, xn = inputs.chunk(3, -1)
    gates = weights.first.chunk(3 if weights.second is None else 2, -2)
    r, z = (torch.sigmoid(x + h @ U.mT) for x, U in zip((xr, xz), gates, strict=False))
    if weights.second is None:
        assert weights.bias is not None
        n = torch.tanh(xn + r * (h @ gates[2].mT + weights.bias))
    else:
        n = torch.tanh(xn + (r * h) @ weights.second.mT)
    return n * (1 - z) + torch.where(z == 1, h, h * z)


def plain_gru_scan(inputs: Tensor, hidden: Tensor, weights: GruWeights) -> Tensor:
    states = []
    for step in inputs:
        hidden = plain_cell(step, hidden, weights)
        states.append(hidden)
    return torch.stack(states) if states else hidden.new_zeros(0, *hidden.shape)


def plain_scan(
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
    hiddens, contexts = [], []
    for inputs_BG in inputs_TBG:
        hiddens.append(hidden_BH)
        energies_BS = torch.tanh(keys_BSH + (hidden_BH @ query_HxH.t())[:, None]) @ energy_H
        attended_BS = torch.softmax(energies_BS + bias_BS, -1)
        context_BZ = (attended_BS[:, :, None] * annotations_BSZ).sum(1)
        contexts.append(context_BZ)
        hidden_BH = plain_cell(inputs_BG + context_BZ @ context_GZ.t(), hidden_BH, weights)
    return torch.stack(hiddens), torch.stack(contexts)
