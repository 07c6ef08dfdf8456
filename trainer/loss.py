"""Cross-entropy over the vocabulary with label smoothing, without keeping the logits.

Letters: N target tokens, E embedding, V vocabulary.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from rareword.schemas.vocabulary import PAD
from rareword.trainer.data import Batch
from rareword.trainer.model import EncoderDecoder

ROWS = 1024
"""Tokens whose logits exist at one time: 1024 x 90,000 pieces in float32 take 370 MB."""


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made in the forward pass, chunk by chunk, while the logits are there."""

    @staticmethod
    def forward(
        context: Any,
        features_NE: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        smoothing: float,
        want_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(features_NE.dtype, torch.float32)
        matrix_VE = weight_VE.to(features_NE.dtype)
        smoothed = features_NE.new_zeros((), dtype=exact)
        plain = torch.zeros_like(smoothed)
        if want_gradient:
            d_features_NE = torch.empty_like(features_NE)
            d_weight_VE = torch.zeros_like(weight_VE, dtype=exact)
            d_bias_V = torch.zeros_like(bias_V, dtype=exact)
        for start in range(0, len(targets_N), ROWS):
            rows = slice(start, start + ROWS)
            chunk_NE, column_N1 = features_NE[rows], targets_N[rows, None]
            logits_NV = (chunk_NE @ matrix_VE.t()).to(exact).add_(bias_V)
            log_probs_NV = torch.log_softmax(logits_NV, -1)
            negative = -log_probs_NV.gather(1, column_N1).sum()
            plain += negative
            smoothed += (1 - smoothing) * negative
            if smoothing:
                smoothed -= smoothing / log_probs_NV.shape[1] * log_probs_NV.sum()
            if want_gradient:
                d_logits_NV = log_probs_NV.exp_().sub_(smoothing / log_probs_NV.shape[1])
                d_logits_NV.scatter_add_(
                    1, column_N1, d_logits_NV.new_full(column_N1.shape, smoothing - 1)
                )
                d_bias_V += d_logits_NV.sum(0)
                d_logits_NV = d_logits_NV.to(features_NE.dtype)
                d_features_NE[rows] = d_logits_NV @ matrix_VE
                d_weight_VE += d_logits_NV.t() @ chunk_NE
        if want_gradient:
            context.save_for_backward(d_features_NE, d_weight_VE, d_bias_V)
        context.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_features_NE, d_weight_VE, d_bias_V = context.saved_tensors
        scale = gradients[0]
        return d_features_NE * scale, d_weight_VE * scale, d_bias_V * scale, None, None, None


def cross_entropy(
    features_NE: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The summed loss of N tokens in nats, with and (no gradient) without label smoothing.

    Logits are `features_NE @ weight_VE.T + bias_V`. Smoothing gives each piece smoothing / V of
    the target's probability, as torch's cross_entropy does.
    """
    smoothed, plain = _LinearCrossEntropy.apply(
        features_NE, weight_VE, bias_V, targets_N, smoothing, torch.is_grad_enabled()
    )
    return smoothed, plain


def batch_loss(
    model: EncoderDecoder,
    batch: Batch,
    precision: Literal["float32", "bf16"],
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The summed loss of a batch's target tokens, with and (no gradient) without smoothing."""
    with torch.autocast(
        batch.source_BS.device.type, dtype=torch.bfloat16, enabled=precision == "bf16"
    ):
        memory = model.encode(batch.source_BS, batch.mask_BS)
        features_NE = model.forced(memory, batch.target_BT)
        targets_N = batch.target_BT[batch.target_BT != PAD]
        return cross_entropy(
            features_NE, model.output.weight, model.output.bias, targets_N, smoothing
        )
