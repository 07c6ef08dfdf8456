"""Additive attention: where in the source sentence to look.

Letters: B batch, S source, H hidden, Z annotation (both directions of the encoder).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class AdditiveAttention(nn.Module):
    """energy = v . tanh(A annotation + B query), without bias (Bahdanau et al. 2015, appendix A).

    The product A annotation, the keys, is made once per sentence; the decoder makes B query
    together with its other products of the state, see `EncoderDecoder`.
    """

    def __init__(self, annotation_size: int, hidden: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, hidden, bias=False)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)

    def keys(self, annotations_BSZ: Tensor) -> Tensor:
        """keys_BSH, to be kept while the sentences are being translated."""
        keys_BSH: Tensor = self.key(annotations_BSZ)
        return keys_BSH

    def look(
        self, query_BH: Tensor, keys_BSH: Tensor, annotations_BSZ: Tensor, bias_BS: Tensor
    ) -> tuple[Tensor, Tensor]:
        """context_BZ and weights_BS (float32, 0 on padding). `query_BH` is projected already.

        bias_BS: 0 on tokens, -inf on padding, see `mask_bias`.
        """
        energies_BS = self.energy(torch.tanh(keys_BSH + query_BH[:, None])).squeeze(-1)
        weights_BS = functional.softmax(energies_BS.to(bias_BS.dtype) + bias_BS, -1)
        weights_B1S = weights_BS[:, None].to(annotations_BSZ.dtype)
        return torch.bmm(weights_B1S, annotations_BSZ)[:, 0], weights_BS


def mask_bias(mask_BS: Tensor, dtype: torch.dtype) -> Tensor:
    """bias_BS to add to energies: 0 where the mask is True, -inf elsewhere."""
    bias_BS = torch.zeros(mask_BS.shape, dtype=dtype, device=mask_BS.device)
    return bias_BS.masked_fill_(~mask_BS, float("-inf"))
