"""Contradictions between options are refused with the options' names."""

from dataclasses import replace

import pytest

from rareword.schemas.errors import RarewordError
from rareword.trainer.config import TrainConfig, model_config


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"hidden": 513}, "--hidden: 513 is odd"),
        ({"batch": 100, "max_length": 100}, "--batch: 100 tokens cannot hold"),
        ({"monitor": "bleu", "bleu_pairs": 0}, "--monitor bleu needs"),
    ],
)
def test_contradictions_are_refused(values: dict, sentence: str) -> None:
    with pytest.raises(RarewordError, match=sentence):
        TrainConfig(**values).check()


def test_defaults_are_accepted() -> None:
    TrainConfig().check()
    TrainConfig(batch=80, batch_unit="sentences").check()


def test_tying_follows_the_vocabularies() -> None:
    config = TrainConfig()
    assert model_config(config, 7, 7, joint=True).tied == "all"
    assert model_config(config, 7, 9, joint=False).tied == "target"
    assert model_config(replace(config, tied="none"), 7, 7, joint=True).tied == "none"
    with pytest.raises(RarewordError, match="--tied all needs a joint vocabulary"):
        model_config(replace(config, tied="all"), 7, 9, joint=False)


def test_each_optimiser_has_its_usual_rate() -> None:
    assert TrainConfig().initial_rate == 1e-3
    assert TrainConfig(optimiser="adadelta").initial_rate == 1.0
    assert TrainConfig(optimiser="adadelta", learning_rate=0.5).initial_rate == 0.5
