"""Several models that translate together, as one model for `trainer.search`.

The log-probability of a piece is the mean of the members' own (Sennrich et al. 2016): a geometric
mean, not normalised again, so an ensemble's probabilities may sum to less than 1. With
`mean="probability"` it is the logarithm of their mean probability. All members have one vocabulary.
Each may have its own sizes and form; where all have the same, a `Stack` computes them at once.
Letters in names: M members, R alive hypotheses, B sentences, V vocabulary, S source, and those of
`trainer.model`.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rareword.schemas.errors import RarewordError
from rareword.trainer import kernels
from rareword.trainer.checkpoints import LoadedModel
from rareword.trainer.config import ModelConfig
from rareword.trainer.model import Attended, Features, Network, Rows, State
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
        each = zip(self._networks, features, strict=True)
        return _mean([network.log_probs(own) for network, own in each], self._mean)


def _mean(log_probs: Sequence[Tensor], mean: Mean) -> Tensor:
    first, *others = log_probs
    if mean == "log":
        return sum(others, first) / len(log_probs)
    return functools.reduce(torch.logaddexp, others, first) - math.log(len(log_probs))


class Stack(Network):
    """Networks of one form and size that step together: each weight of `WEIGHTS` is one tensor of
    all members', with them as its first dimension, and each product a batch of theirs.

    What search keeps of a step has the members second: [B, M, ...] and [R, M, ...].
    """

    WEIGHTS = (
        "_decoder",
        "_decoder_inputs",
        "_decoder_bias",
        "_decoder_norms",
        "_query",
        "_energy",
        "_readout",
        "_readout_bias",
        "_readout_norm",
        "_low_rank",
        "output_VE",
        "output_bias_V",
    )
    """What `Network.step` and `Network.log_probs` compute with."""

    def __init__(self, members: Sequence[Network], mean: Mean = "log") -> None:
        """All members must have the same form and sizes, data type and padding."""
        self.__dict__ |= vars(members[0])
        self._members, self._average = tuple(members), mean
        for name in self.WEIGHTS:
            setattr(self, name, _stacked([getattr(member, name) for member in members]))

    def narrowed(self, pieces_C: Tensor) -> "Stack":
        network = super().narrowed(pieces_C)
        assert isinstance(network, Stack)
        network._members = tuple(member.narrowed(pieces_C) for member in self._members)
        return network

    def read(
        self, source_BS: Tensor, mask_BS: Tensor, own_BX: Tensor | None = None
    ) -> tuple[Attended, State]:
        read = [member.read(source_BS, mask_BS, own_BX) for member in self._members]
        attended, states = zip(*read, strict=True)
        return _stacked(attended, 1), _stacked(states, 1)

    def step(
        self,
        state: State,
        previous_R: Tensor | None,
        attended: Attended,
        rows: Rows | None = None,
    ) -> tuple[Features, State, Tensor]:
        if rows is None:
            line_R = torch.arange(len(state.hidden_RLH), device=state.hidden_RLH.device)
            rows = Rows(line_R, line_R, 1)
        state = State(*(field.transpose(0, 1).contiguous() for field in state))
        features, state, weights_MRS = super().step(state, previous_R, attended, rows)
        made_RME, own_RMX = (None if x is None else x.transpose(0, 1) for x in features)
        assert made_RME is not None
        hidden_RMLH, context_RMG = (field.transpose(0, 1) for field in state)
        return Features(made_RME, own_RMX), State(hidden_RMLH, context_RMG), weights_MRS.mean(0)

    def log_probs(self, features: Features) -> Tensor:
        made_RME, own_RMX = features
        own_MRX = None if own_RMX is None else own_RMX.transpose(0, 1)
        log_probs_MRV = super().log_probs(Features(made_RME.transpose(0, 1), own_MRX))
        return _mean(log_probs_MRV.unbind(), self._average)

    @property
    def _table(self) -> None:
        """The members have their own."""

    def _previous(self, previous_R: Tensor) -> tuple[Tensor, Tensor]:
        made = [member._previous(previous_R) for member in self._members]
        inputs, spoken = zip(*made, strict=True)
        return torch.stack(inputs), torch.stack(spoken)

    def _look(
        self, query_RH: Tensor, attended: Attended, rows: Rows | None
    ) -> tuple[Tensor, Tensor]:
        flat, lines = self._lines(attended, rows)
        own_lines = lines.sentence_R.view(len(query_RH), -1)
        energies = [
            kernels.energies_of_rows(flat.keys_BSH, query_RH[m], self._energy[m], own_lines[m])
            for m in range(len(query_RH))
        ]
        looked = self._looked(torch.cat(energies), flat, lines)
        weights_MRS, products_MRX = (part.unflatten(0, (len(query_RH), -1)) for part in looked)
        return weights_MRS, products_MRX

    def _own_logits(self, made_RE: Tensor, attended: Attended, rows: Rows | None) -> Tensor:
        flat, lines = self._lines(attended, rows)
        logits_RX = super()._own_logits(made_RE.flatten(0, 1), flat, lines)
        logits_MRX: Tensor = logits_RX.unflatten(0, (len(made_RE), -1))
        return logits_MRX

    def _lines(self, attended: Attended, rows: Rows | None) -> tuple[Attended, Rows]:
        """Each sentence as M sentences, one a member, and the M R rows that belong to them."""
        assert rows is not None
        members = torch.arange(len(self._members), device=rows.sentence_R.device)
        sentence_MR = rows.sentence_R * len(members) + members[:, None]
        place_MR = sentence_MR * rows.width + rows.place_R % rows.width
        flat = [None if field is None else field.flatten(0, 1) for field in attended]
        lines = Rows(sentence_MR.flatten(), place_MR.flatten(), rows.width)
        return Attended._make(flat), lines


class _Norms(nn.Module):
    """Layer normalisations of values [M, R, X], each with a member's weights."""

    def __init__(self, norms: Sequence[nn.LayerNorm]) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norms)

    def forward(self, values: Tensor) -> Tensor:
        normed = zip(self.norms, values, strict=True)
        return torch.stack([norm(own) for norm, own in normed])


def _stacked(parts: Sequence[Any], dim: int = 0) -> Any:
    """The members' tensors as one; of tuples and lists, what they hold."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.stack(list(parts), dim)
    if isinstance(first, nn.Module):
        return _Norms(parts)
    made = [_stacked(part, dim) for part in zip(*parts, strict=True)]
    return type(first)(*made) if hasattr(first, "_fields") else type(first)(made)


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
    if len(networks) == 1:
        return networks[0]
    forms = {_form(one.model.config) for one in loaded}
    return Stack(networks, mean) if len(forms) == 1 else Ensemble(networks, mean)


def _form(config: ModelConfig) -> ModelConfig:
    """What a network's tensors and steps depend on."""
    return dataclasses.replace(config, tied="none", dropout=0.0, initialisation="glorot")
