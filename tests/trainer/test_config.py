"""Contradictions between options are refused with the options' names."""

from dataclasses import replace

import pytest

from rareword.schemas import options
from rareword.schemas.errors import RarewordError
from rareword.trainer.config import TrainConfig, model_config


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"hidden": 513}, "--hidden: 513 is odd"),
        ({"batch": 100, "max_length": 100}, "--batch: 100 tokens cannot hold"),
        ({"monitor": "bleu", "bleu_pairs": 0}, "--monitor bleu needs"),
        ({"schedule": "inverse-sqrt"}, "--schedule inverse-sqrt needs --warmup"),
        ({"schedule": "linear", "halve_after": 3}, "--halve-after 3 belongs to --schedule plateau"),
        ({"freeze": ("encoder",)}, "--freeze: 'encoder' is none of the groups source-embedding"),
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


def test_a_preset_is_a_set_of_defaults() -> None:
    """The same from Python, from the command line and from a config file; what is given wins."""
    command = ["--preset", "paper", "--clip", "5", "--dropout", "0.3"]
    given = {"clip": 5.0, "dropout": 0.3}
    parsed, _ = options.parse(TrainConfig, "train", "", command)
    assert parsed == TrainConfig.of("paper", **given)
    assert parsed == options.from_mapping(TrainConfig, {"preset": "paper", **given}, "train")
    assert (parsed.gru, parsed.optimiser, parsed.loss_scale) == ("groundhog", "adadelta", "sum")
    parsed.check()
    assert options.parse(TrainConfig, "train", "", [])[0] == TrainConfig.of("modern")


def test_presets_name_options_that_exist_and_values_that_are_allowed() -> None:
    for preset, values in TrainConfig.PRESETS.items():
        options.from_mapping(TrainConfig, {**values, "preset": preset}, preset).check()


def test_help_shows_what_a_preset_changes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(TrainConfig, "train", "", ["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "(default: cudnn; paper: groundhog)" in said
    assert "(default: off; paper: on)" in said
    assert "(default: 620)" in said
