"""How far a training run is, and what it decides from validations: rate, best, end."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from rareword.trainer.config import TrainConfig
from rareword.trainer.feed import Position

LEAST_GAIN = {"loss": 1e-3, "bleu": 0.0}
"""What counts as an improvement: more than this, in nats a token or in BLEU."""


@dataclass
class RunState:
    """All that a checkpoint keeps beside tensors. Random numbers need no state: they are drawn
    from seeds made of the run's seed and the step."""

    learning_rate: float
    """Of the last update, or of the next one if a validation has just halved it."""
    step: int = 0
    """Updates made."""
    position: Position = field(default_factory=Position)
    """Where the data feed is."""
    epoch_pairs: int = 0
    """Pairs of this epoch that are consumed."""
    interval_loss: float = 0.0
    """Summed loss in nats since the last validation, without smoothing."""
    interval_tokens: int = 0
    best: float | None = None
    """Best value of the monitored figure."""
    best_step: int = 0
    stalled: int = 0
    """Validations since the best one."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One entry a validation: step, epoch, learning_rate, train_loss, loss, bleu."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{**value, "position": Position(**value["position"])})

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self.position.epoch

    def schedule(self, config: TrainConfig, pairs: int) -> None:
        """Sets the learning rate of the next update; pairs: of an epoch."""
        rises = self.step < config.warmup
        if config.schedule == "plateau" and not rises:
            return  # validations alone change it
        height = _height(config, self.step, self._progress(config, pairs))
        if rises:
            height *= (self.step + 1) / config.warmup
        self.learning_rate = config.initial_rate * height

    def _progress(self, config: TrainConfig, pairs: int) -> float:
        """How much of the run is over, from 0 to 1, by the limit that will end it."""
        by_epochs = (self.epoch + self.epoch_pairs / pairs) / config.max_epochs
        by_steps = self.step / config.max_steps if config.max_steps is not None else 0.0
        return min(1.0, max(by_epochs, by_steps))

    def consume(self, after: Position, loss: float, tokens: int, pairs: int) -> None:
        """Books one step of so many pairs; `after`: where the feed is now."""
        self.step += 1
        self.epoch_pairs = self.epoch_pairs + pairs if after.epoch == self.epoch else 0
        self.position = after
        self.interval_loss += loss
        self.interval_tokens += tokens

    def wants_validation(self, config: TrainConfig) -> bool:
        """True if a validation is due after this step, and has not been made."""
        if self.step == 0 or self.validated:
            return False
        if self.why_end(config) is not None:
            return True
        if config.validate_every is None:
            return self.position == Position(self.epoch)  # an epoch has just ended
        return self.step % config.validate_every == 0

    @property
    def validated(self) -> bool:
        """True if the parameters of this step have been validated."""
        return bool(self.history) and self.history[-1]["step"] == self.step

    def validate(self, loss: float, bleu: float | None, config: TrainConfig) -> bool:
        """Books a validation (loss in nats a token); True if it is the best so far.

        Halves the learning rate after `halve_after` validations without improvement, if the
        schedule is plateau and the warm-up is over.
        """
        self.history.append(
            {
                "step": self.step,
                "epoch": self.epoch,
                "learning_rate": self.learning_rate,
                "train_loss": self.interval_loss / max(1, self.interval_tokens),
                "loss": loss,
                "bleu": bleu,
            }
        )
        self.interval_loss, self.interval_tokens = 0.0, 0
        value = loss if config.monitor == "loss" else bleu
        assert value is not None, "TrainConfig.check asks for BLEU if it is monitored"
        sign = -1 if config.monitor == "loss" else 1
        if self.best is None or sign * (value - self.best) > LEAST_GAIN[config.monitor]:
            self.best, self.best_step, self.stalled = value, self.step, 0
            return True
        self.stalled += 1
        halves = config.schedule == "plateau" and config.halve_after and self.step >= config.warmup
        if halves and self.stalled % config.halve_after == 0:
            self.learning_rate /= 2
        return False

    def why_end(self, config: TrainConfig) -> str | None:
        """Why training ends here, as a clause for the log; None if it goes on."""
        if config.finish:
            return "--finish was given"
        if config.max_steps is not None and self.step >= config.max_steps:
            return f"--max-steps {config.max_steps} reached"
        if self.epoch >= config.max_epochs:
            return f"--max-epochs {config.max_epochs} reached"
        if config.patience and self.stalled >= config.patience:
            return (
                f"development {config.monitor} has not improved for {self.stalled} validations "
                f"(--patience), best at step {self.best_step}"
            )
        return None


def _height(config: TrainConfig, step: int, progress: float) -> float:
    """The share of the full learning rate after `step` updates, warm-up apart."""
    match config.schedule:
        case "linear":
            return 1 - progress
        case "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        case "inverse-sqrt":
            return math.sqrt(config.warmup / max(step + 1, config.warmup))
    return 1.0
