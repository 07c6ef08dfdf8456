"""What a run decides from its validations."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from rareword.trainer.config import TrainConfig
from rareword.trainer.feed import Position
from rareword.trainer.state import RunState


def validated(losses: list[float], config: TrainConfig) -> RunState:
    state = RunState(learning_rate=1.0)
    for epoch, loss in enumerate(losses, 1):
        state.consume(Position(epoch), 1.0, 1, 1)
        state.validate(loss, None, config)
    return state


@pytest.mark.parametrize(
    ("halve_after", "rates"),
    [(0, [1, 1, 1, 1, 1]), (1, [1, 1 / 2, 1 / 4, 1 / 4, 1 / 8]), (2, [1, 1, 1 / 2, 1 / 2, 1 / 2])],
)
def test_rate_is_halved_when_the_loss_stalls(halve_after: int, rates: list[float]) -> None:
    losses = [
        3.0,
        3.0,
        2.9995,
        2.0,
        2.5,
    ]  # the second and third are no improvement, the last is worse
    config = TrainConfig(halve_after=halve_after)
    found = [validated(losses[: n + 1], config).learning_rate for n in range(len(losses))]
    assert found == rates


UPDATES, EPOCHS, BATCH, PAIRS = 12, 3, 10, 35  # an epoch is 3 batches of 10 pairs and one of 5


def rates(config: TrainConfig, losses: Sequence[float] = ()) -> list[float]:
    """The learning rate of every update, the epochs ending with these losses (1.0 if none)."""
    state, found = RunState(config.initial_rate), []
    for update in range(1, UPDATES + 1):
        state.schedule(config, PAIRS)
        found.append(state.learning_rate)
        epoch, batch = divmod(update, 4)
        state.consume(Position(epoch, 0, batch), 1.0, 1, BATCH if batch else PAIRS - 3 * BATCH)
        if losses and not batch:
            state.validate(losses[epoch - 1], None, config)
    return found


def torch_rates(make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]) -> list[float]:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    scheduler, found = make(optimiser), []
    for _ in range(UPDATES):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return found


def test_schedules_are_those_of_torch() -> None:
    def ours(**values: Any) -> Any:
        return pytest.approx(rates(TrainConfig(learning_rate=2.0, **values)))

    assert ours(schedule="linear", max_steps=UPDATES) == torch_rates(
        lambda optimiser: lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=UPDATES)
    )
    assert ours(schedule="cosine", max_steps=UPDATES) == torch_rates(
        lambda optimiser: lr_scheduler.CosineAnnealingLR(optimiser, T_max=UPDATES)
    )
    assert ours(warmup=5) == torch_rates(
        lambda optimiser: lr_scheduler.LinearLR(optimiser, 1 / 5, total_iters=4)
    )
    assert ours(schedule="inverse-sqrt", warmup=4) == torch_rates(
        lambda optimiser: lr_scheduler.LambdaLR(
            optimiser, lambda step: min((step + 1) / 4, (4 / (step + 1)) ** 0.5)
        )
    )


def test_a_schedule_ends_with_the_limit_that_comes_first() -> None:
    """Epochs count by pairs, so that their last, smaller batch moves the rate less."""
    by_epochs = TrainConfig(learning_rate=1.0, schedule="linear", max_epochs=EPOCHS)
    done = [(epoch * PAIRS + batch * BATCH) for epoch in range(EPOCHS) for batch in range(4)]
    expected = [1 - pairs / (EPOCHS * PAIRS) for pairs in done]
    assert rates(by_epochs) == pytest.approx(expected)
    assert rates(replace(by_epochs, max_steps=10**6)) == pytest.approx(expected)
    steps = replace(by_epochs, max_epochs=10**6, max_steps=UPDATES)
    assert rates(steps) == pytest.approx([1 - step / UPDATES for step in range(UPDATES)])


def test_only_a_plateau_after_the_warmup_halves() -> None:
    worse = [1.0, 2.0, 3.0]
    plateau = TrainConfig(learning_rate=1.0)
    assert rates(plateau, worse) == [1.0] * 8 + [0.5] * 4
    assert rates(replace(plateau, warmup=9), worse)[8:] == [1.0] * 4
    falling = replace(plateau, schedule="cosine", max_epochs=EPOCHS)
    assert rates(falling, worse) == rates(falling)


def test_best_is_by_the_monitored_figure() -> None:
    config = TrainConfig(monitor="bleu")
    state = RunState(1.0)
    best = []
    for loss, bleu in ((2.0, 10.0), (1.0, 9.0), (3.0, 11.0)):
        state.consume(Position(0, 0, state.step + 1), 1.0, 1, 1)
        best.append(state.validate(loss, bleu, config))
    assert best == [True, False, True]
    assert (state.best, state.best_step) == (11.0, 3)


def test_ends_by_patience_steps_or_epochs() -> None:
    config = TrainConfig(patience=2, max_epochs=9)
    assert validated([1.0, 2.0], config).why_end(config) is None
    assert "best at step 1" in str(validated([1.0, 2.0, 2.0], config).why_end(config))
    never = TrainConfig(patience=0, max_epochs=9)
    assert validated([1.0] * 8, never).why_end(never) is None
    assert "--max-epochs 9" in str(validated([1.0] * 9, never).why_end(never))
    steps = TrainConfig(max_steps=2)
    assert "--max-steps 2" in str(validated([3.0, 2.0], steps).why_end(steps))


def test_validations_come_at_epochs_or_intervals_and_at_the_end() -> None:
    def due(config: TrainConfig) -> list[int]:
        state, steps = RunState(1.0), []
        for number in range(1, 10):  # an epoch is two blocks of two batches
            epoch, rest = divmod(number, 4)
            state.consume(Position(epoch, *divmod(rest, 2)), 1.0, 1, 1)
            if state.wants_validation(config):
                steps.append(state.step)
                state.validate(1.0 / state.step, None, config)
                assert not state.wants_validation(config)
        return steps

    assert due(TrainConfig(max_steps=9)) == [4, 8, 9]
    assert due(TrainConfig(max_steps=9, validate_every=3)) == [3, 6, 9]


def test_training_loss_is_the_mean_since_the_last_validation() -> None:
    config = TrainConfig()
    state = RunState(1.0)
    for loss, tokens in ((6.0, 3), (4.0, 2)):
        state.consume(Position(0, 0, state.step + 1), loss, tokens, 1)
    state.validate(1.0, None, config)
    state.consume(Position(0, 1), 7.0, 2, 1)
    state.validate(1.0, None, config)
    assert [entry["train_loss"] for entry in state.history] == [2.0, 3.5]


def test_state_survives_json() -> None:
    state = validated([2.0, 1.0], TrainConfig())
    state.consume(Position(2, 3, 4), 1.0, 1, 1)
    again = RunState.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state
    assert again.position == Position(2, 3, 4)
