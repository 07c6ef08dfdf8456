"""Several models that translate together, as one model for `trainer.search`.

The log-probability of a piece is the mean of the members' own (Sennrich et al. 2016): a geometric
mean, not normalised again, so an ensemble's probabilities may sum to less than 1. With
`mean="probability"` it is the logarithm of their mean probability. Each member has its own sizes
and form; all have one vocabulary. Letters in names: R alive hypotheses, V vocabulary, S source.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from rareword.schemas.errors import RarewordError
from rareword.trainer.checkpoints import LoadedModel
from rareword.trainer.model import Rows
from rareword.trainer.precision import FLOAT32, Precision
from rareword.trainer.search import Steps

Mean = Literal["log", "probability"]


class Ensemble:
    """Networks of one vocabulary, on one device, step by step; what they look at and their states
    are tuples of the members' own. `together` checks the vocabulary."""

    def __init__(self, networks: Sequence[Steps], mean: Mean = "log") -> None:
        self._networks, self._mean = tuple(networks), mean

    def narrowed(self, pieces_C: Tensor) -> "Ensemble":
        return Ensemble([network.narrowed(pieces_C) for network in self._networks], self._mean)

    def read(
        self, source_BS: Tensor, mask_BS: Tensor, own_BX: Tensor | None = None
    ) -> tuple[Any, Any]:
        read = [network.read(source_BS, mask_BS, own_BX) for network in self._networks]
        return tuple(attended for attended, _ in read), tuple(state for _, state in read)

    def step(
        self, state: Any, previous_R: Tensor | None, attended: Any, rows: Rows | None = None
    ) -> tuple[Any, Any, Tensor]:
        """One piece: the members' features and next states, mean attention weights_RS."""
        made = [
            network.step(own_state, previous_R, own_attended, rows)
            for network, own_state, own_attended in zip(
                self._networks, state, attended, strict=True
            )
        ]
        features, states, weights = zip(*made, strict=True)
        return features, states, sum(weights[1:], weights[0]) / len(made)

    def log_probs(self, features: Any) -> Tensor:
        """Mean log_probs_RV (float32)."""
        first, *others = (
            network.log_probs(own) for network, own in zip(self._networks, features, strict=True)
        )
        count = len(self._networks)
        if self._mean == "log":
            return sum(others, first) / count
        return functools.reduce(torch.logaddexp, others, first) - math.log(count)


@torch.inference_mode()
def together(
    loaded: Sequence[LoadedModel], mean: Mean = "log", precision: Precision = FLOAT32
) -> Steps:
    """The models' networks as one; a single one is itself.

    Raises RarewordError if two of them have different vocabularies.
    """
    first = loaded[0]
    for other in loaded[1:]:
        if other.vocabulary_hash != first.vocabulary_hash:
            raise RarewordError(
                f"the model in {first.directory} has vocabulary {first.vocabulary_hash[:12]}, but "
                f"that in {other.directory} has {other.vocabulary_hash[:12]}; models translate "
                "together only if they were trained with one vocabulary"
            )
    networks = [one.model.network(precision.dtype, precision.align) for one in loaded]
    return networks[0] if len(networks) == 1 else Ensemble(networks, mean)
