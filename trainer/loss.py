"""Cross-entropy over the vocabulary with label smoothing, without keeping the logits.

Letters: N target tokens, E embedding, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rareword.schemas.vocabulary import PAD
from rareword.trainer import kernels
from rareword.trainer.data import Batch
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.precision import Precision

LOGITS = {"cpu": 2**22, "cuda": 2**28}
"""Logits that exist at one time: as many as the caches of a CPU and the memory of a GPU like."""

LEAST_ROWS = 256
"""Tokens taken together at least: the gradient of the matrix is added to once for each such lot."""

ROWS = 128
"""Tokens are filled up to a multiple of it where that saves memory; see `batch_loss`."""


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made in the forward pass, chunk by chunk, while the logits are there."""

    @staticmethod
    def forward(
        context: Any,
        features_NE: Tensor,
        matrix_VE: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        columns: int,
        smoothing: float,
        want_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        exact = kernels.accumulator(features_NE)
        losses_2 = torch.zeros(2, dtype=exact, device=features_NE.device)
        if want_gradient:
            d_features_NE = torch.empty_like(features_NE)
            d_matrix_VE = torch.zeros_like(matrix_VE, dtype=exact)
            d_bias_V = torch.zeros_like(bias_V, dtype=exact)
        size = max(LEAST_ROWS, LOGITS[features_NE.device.type] // len(matrix_VE))
        for start in range(0, len(targets_N), size):
            rows = slice(start, start + size)
            logits_NV = features_NE[rows] @ matrix_VE.t()
            smoothed, plain, d_logits_NV = kernels.cross_entropy_rows(
                logits_NV, bias_V, targets_N[rows], columns, smoothing
            )
            losses_2 += torch.stack([smoothed, plain])
            if want_gradient:
                d_bias_V += d_logits_NV.sum(0, dtype=exact)
                torch.matmul(d_logits_NV, matrix_VE, out=d_features_NE[rows])
                _add_product(d_matrix_VE, d_logits_NV, features_NE[rows])
        if want_gradient:
            context.save_for_backward(d_features_NE, d_matrix_VE, d_bias_V)
            context.matrix_type = matrix_VE.dtype
        smoothed, plain = losses_2.clone().unbind()
        context.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_features_NE, d_matrix_VE, d_bias_V = context.saved_tensors
        scale = gradients[0]
        # In place: nobody else has these, and a copy of the matrix is large.
        return (
            d_features_NE.mul_(scale),
            d_matrix_VE.mul_(scale).to(context.matrix_type),
            d_bias_V.mul_(scale),
            None,
            None,
            None,
            None,
        )


def _add_product(sum_VE: Tensor, left_NV: Tensor, right_NE: Tensor) -> None:
    """sum_VE += left_NV.t() @ right_NE, in the precision of the sum."""
    if left_NV.dtype == sum_VE.dtype:
        sum_VE.addmm_(left_NV.t(), right_NE)
    else:
        sum_VE += left_NV.t() @ right_NE


def cross_entropy(
    features_NE: Tensor,
    matrix_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    columns: int,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The summed loss of N tokens in nats, with and (no gradient) without label smoothing.

    Logits are `features_NE @ matrix_VE.T + bias_V`; only the first `columns` are pieces. Padding
    among the targets counts nothing. Smoothing gives each piece smoothing / columns of the target's
    probability, as torch's cross_entropy does.
    """
    smoothed, plain = _LinearCrossEntropy.apply(
        features_NE, matrix_VE, bias_V, targets_N, columns, smoothing, torch.is_grad_enabled()
    )
    return smoothed, plain


def batch_loss(
    model: EncoderDecoder, batch: Batch, precision: Precision, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The summed loss of a batch's target tokens, with and (no gradient) without smoothing."""
    network = model.network(precision.dtype, precision.align)
    memory = network.encode(batch.source_BS, batch.mask_BS)
    targets_N, rows_N = batch.target_BT.t().flatten(), None
    if not targets_N.is_cuda:  # there the number of rows would have to be waited for
        rows_N = (targets_N != PAD).nonzero()[:, 0]
        targets_N = targets_N[rows_N]
        if precision.dtype is not None:
            # oneDNN compiles and keeps code for each number of rows: let there be few of them.
            extra = -len(rows_N) % ROWS
            rows_N = functional.pad(rows_N, (0, extra))
            targets_N = functional.pad(targets_N, (0, extra), value=PAD)
    return cross_entropy(
        network.forced(memory, batch.target_BT, rows_N),
        network.output_VE,
        network.output_bias_V,
        targets_N,
        network.columns,
        smoothing,
    )
