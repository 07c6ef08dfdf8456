"""Additive attention against its formula in NumPy."""

import numpy as np
import torch

from rareword.trainer.attention import AdditiveAttention, mask_bias


def test_weights_and_context_follow_the_formula() -> None:
    torch.manual_seed(1)
    attention = AdditiveAttention(6, 4).double()
    annotations_BSZ, hidden_BH = torch.randn(3, 5, 6).double(), torch.randn(3, 4).double()
    lengths = [5, 2, 1]
    mask_BS = torch.arange(5) < torch.tensor(lengths)[:, None]
    context_BZ, weights_BS = attention.look(
        attention.query(hidden_BH),
        attention.keys(annotations_BSZ),
        annotations_BSZ,
        mask_bias(mask_BS, torch.float64),
    )
    A, B, v = (p.detach().numpy() for p in attention.parameters())
    for b, length in enumerate(lengths):
        c = annotations_BSZ[b, :length].numpy()
        e = np.array([v[0] @ np.tanh(A @ c[j] + B @ hidden_BH[b].numpy()) for j in range(length)])
        alpha = np.exp(e) / np.exp(e).sum()
        np.testing.assert_allclose(weights_BS[b, :length].detach().numpy(), alpha, rtol=1e-12)
        np.testing.assert_allclose(context_BZ[b].detach().numpy(), alpha @ c, rtol=1e-12)
        assert (weights_BS[b, length:] == 0).all()
