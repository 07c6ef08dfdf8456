"""The optimiser: gradients in one flat buffer, summed over processes, clipped, applied."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from rareword.schemas.errors import RarewordError
from rareword.trainer.config import FREEZABLE, TrainConfig
from rareword.trainer.distributed import Group
from rareword.trainer.graphs import Recorded


class Optimiser:
    """Adam or Adadelta over a model's parameters, with clipping by the global norm.

    All gradients are views into one buffer, so that a step needs one collective for all of them
    and for the figures that travel with them. Clipping comes after the sum: the result does not
    depend on how a batch was dealt to the processes. record: record the update in a CUDA graph.

    Frozen parameters are those whose update is multiplied by 0, as GroundHog does it: their
    gradients count in the norm, and their moments go on.
    """

    FIGURES = 2
    """Numbers that a step sums over processes beside the gradients."""

    def __init__(self, model: nn.Module, config: TrainConfig, record: bool = False) -> None:
        self._parameters = dict(model.named_parameters())
        values = list(self._parameters.values())
        size, device = sum(parameter.numel() for parameter in values), values[0].device
        self._buffer = torch.zeros(size + self.FIGURES, device=device, dtype=values[0].dtype)
        self._gradient = self._buffer[:size]
        self.figures = self._buffer[size:]
        """To be set by the caller before `step`, which leaves the sums over all processes."""
        start = 0
        for parameter in values:
            view = self._gradient[start : start + parameter.numel()]
            parameter.grad = view.view_as(parameter)
            start += parameter.numel()
        self._clip = config.clip
        self.frozen = frozen_names(model, config.freeze)
        """The names of the parameters that stay as they are; all names of a tied matrix."""
        held = set(self.frozen)
        self._order = sorted(self._parameters, key=held.__contains__)
        """The parameters' names as torch numbers them: the frozen ones come last."""
        # On the GPU the update may be recorded: what changes from step to step lies in tensors.
        cuda = device.type == "cuda"
        self._rate = torch.tensor(config.initial_rate, device=device)
        self._no_rate = torch.zeros_like(self._rate)
        self._factor = torch.ones((), device=device, dtype=values[0].dtype)
        groups = [
            {"params": [self._parameters[name] for name in names], "frozen": frozen}
            for frozen in (False, True)
            if (names := [name for name in self._order if (name in held) is frozen])
        ]
        rate = self._rate if cuda else config.initial_rate
        self._torch: torch.optim.Optimizer
        if config.optimiser == "adam":
            self._torch = torch.optim.Adam(groups, lr=rate, fused=True, capturable=cuda)
        else:
            self._torch = torch.optim.Adadelta(
                groups, lr=rate, rho=0.95, eps=1e-6, foreach=True, capturable=cuda
            )
        self._place_rates()
        self._update = Recorded(self._apply) if record else self._apply

    def zero(self) -> None:
        """Clears gradients and figures. (Never `zero_grad`, which would drop the views.)"""
        self._buffer.zero_()

    def step(self, learning_rate: float, group: Group) -> tuple[float, list[float]]:
        """Sums, clips and applies the gradients; returns their norm before clipping, and figures.

        Parameters are left alone if the norm is not finite: the caller must stop.
        """
        group.add_up(self._buffer)
        norm = torch.linalg.vector_norm(self._gradient)
        values: list[float] = torch.cat([norm[None], self.figures]).tolist()
        length, figures = values[0], values[1:]
        if not all(map(math.isfinite, values)):
            return length, figures
        self._factor.fill_(self._clip / length if self._clip and length > self._clip else 1.0)
        self._rate.fill_(learning_rate)
        for parameter_group in self._torch.param_groups:
            if not isinstance(parameter_group["lr"], Tensor):
                parameter_group["lr"] = 0.0 if parameter_group["frozen"] else learning_rate
        self._update()
        return length, figures

    def _apply(self) -> None:
        """Clips and updates, by `_factor` and `_rate`."""
        self._gradient.mul_(self._factor)
        self._torch.step()

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's state by parameter and kind: `readout.bias/exp_avg`."""
        return {
            f"{name}/{kind}": value
            for name, parameter in self._parameters.items()
            for kind, value in self._torch.state[parameter].items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes up a state that `tensors` gave."""
        state: dict[int, dict[str, Tensor]] = {}
        for index, name in enumerate(self._order):
            prefix = f"{name}/"
            found = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if found:
                state[index] = found
        groups = self._torch.state_dict()["param_groups"]
        self._torch.load_state_dict({"state": state, "param_groups": groups})
        self._place_rates()

    def _place_rates(self) -> None:
        """Where rates are tensors, a group's is that of this object, or 0 if it is frozen."""
        for parameter_group in self._torch.param_groups:
            if isinstance(parameter_group["lr"], Tensor):
                frozen = parameter_group["frozen"]
                parameter_group["lr"] = self._no_rate if frozen else self._rate


def frozen_names(model: nn.Module, groups: Sequence[str]) -> list[str]:
    """The names of the parameters in groups of FREEZABLE, sorted.

    Where one of a tied matrix's names is meant the matrix is, so all its names are there.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    chosen = set()
    for group in groups:
        found = {
            parameter
            for name, parameter in parameters.items()
            if any(name == entry or name.startswith(f"{entry}.") for entry in FREEZABLE[group])
        }
        if not found:
            raise RarewordError(f"--freeze: the model has no parameter of {group}")
        chosen |= found
    return sorted(name for name, parameter in parameters.items() if parameter in chosen)
