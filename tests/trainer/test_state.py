"""What a run decides from its validations."""

import json

import pytest

from rareword.trainer.config import TrainConfig
from rareword.trainer.feed import Position
from rareword.trainer.state import RunState


def validated(losses: list[float], config: TrainConfig) -> RunState:
    state = RunState(learning_rate=1.0)
    for epoch, loss in enumerate(losses, 1):
        state.consume(Position(epoch), 1.0, 1)
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


def test_best_is_by_the_monitored_figure() -> None:
    config = TrainConfig(monitor="bleu")
    state = RunState(1.0)
    best = []
    for loss, bleu in ((2.0, 10.0), (1.0, 9.0), (3.0, 11.0)):
        state.consume(Position(0, 0, state.step + 1), 1.0, 1)
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
            state.consume(Position(epoch, *divmod(rest, 2)), 1.0, 1)
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
        state.consume(Position(0, 0, state.step + 1), loss, tokens)
    state.validate(1.0, None, config)
    state.consume(Position(0, 1), 7.0, 2)
    state.validate(1.0, None, config)
    assert [entry["train_loss"] for entry in state.history] == [2.0, 3.5]


def test_state_survives_json() -> None:
    state = validated([2.0, 1.0], TrainConfig())
    state.consume(Position(2, 3, 4), 1.0, 1)
    again = RunState.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state
    assert again.position == Position(2, 3, 4)
