"""A new model starts from an older one: piece by piece, by plain loops as the oracle."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rareword.schemas import vocabulary
from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import SPECIALS, Vocabularies, Vocabulary
from rareword.trainer import checkpoints
from rareword.trainer.checkpoints import ROWS, Identity
from rareword.trainer.config import ModelConfig, TrainConfig
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.state import RunState

Piece = tuple[str, bool, bool]
OLD = [("a", True, False), ("b", True, False), ("b", False, False), ("\xc3", False, True)]
NEW = [
    ("x", True, False),
    ("b", False, False),
    ("a", False, False),
    ("a", True, False),
    ("\xc3", False, True),
    ("\xc3", False, False),
]
"""Of these three are in OLD; the others have another flag or another text."""


def of(pieces: list[Piece]) -> Vocabulary:
    texts, final, is_bytes = zip(
        *((symbol.text, symbol.final, False) for symbol in SPECIALS), *pieces, strict=True
    )
    return Vocabulary(texts, final, [0] * len(texts), [0] * len(texts), is_bytes)


def sizes(both: Vocabularies, **values: Any) -> ModelConfig:
    return ModelConfig(
        **{
            "source_vocabulary": len(both.source),
            "target_vocabulary": len(both.target),
            "embedding": 4,
            "hidden": 6,
            "encoder_hidden": 3,
            **values,
        }
    )


def model(config: ModelConfig, seed: int) -> EncoderDecoder:
    torch.manual_seed(seed)
    made = EncoderDecoder(config)
    for parameter in made.parameters():
        parameter.data.copy_(torch.randn(parameter.shape))
    return made


def write(directory: Path, both: Vocabularies, config: ModelConfig) -> EncoderDecoder:
    made = model(config, 1)
    vocabulary.write_both(both, str(directory))
    checkpoints.save(
        str(directory),
        made,
        Optimiser(made, TrainConfig()),
        RunState(1.0, step=7),
        Identity("a run", both.hash, config),
        best=True,
        keep=1,
    )
    return made


def every(made: EncoderDecoder) -> dict[str, Tensor]:
    return {
        name: parameter.detach().clone()
        for name, parameter in made.named_parameters(remove_duplicate=False)
    }


def keys(side: Vocabulary) -> list[tuple[Any, ...]]:
    is_bytes = side.is_bytes or [False] * len(side)
    return list(zip(side.pieces, side.final, is_bytes, strict=True))


JOINT_OLD, JOINT_NEW = Vocabularies(of(OLD), of(OLD)), Vocabularies(of(NEW), of(NEW))
APART_OLD, APART_NEW = Vocabularies(of(OLD), of(NEW)), Vocabularies(of(NEW), of(OLD[:2]))


@pytest.mark.parametrize(
    ("before", "now", "was_tied", "is_tied"),
    [
        (JOINT_OLD, JOINT_NEW, "all", "all"),
        (JOINT_OLD, JOINT_NEW, "all", "none"),
        (JOINT_OLD, APART_NEW, "all", "target"),
        (APART_OLD, APART_NEW, "target", "target"),
        (APART_OLD, APART_NEW, "none", "none"),
        (APART_OLD, JOINT_NEW, "target", "none"),
    ],
)
def test_pieces_in_common_keep_their_rows_and_others_stay_fresh(
    tmp_path: Path, before: Vocabularies, now: Vocabularies, was_tied: str, is_tied: str
) -> None:
    old = every(write(tmp_path, before, sizes(before, tied=was_tied)))
    made = model(sizes(now, tied=is_tied), 2)
    fresh = every(made)
    counts = checkpoints.take_parameters(made, now, str(tmp_path), "best")
    for name, found in every(made).items():
        if name not in ROWS:
            assert torch.equal(found, old[name]), name
            continue
        theirs, ours = (keys(getattr(both, ROWS[name])) for both in (before, now))
        for i, key in enumerate(ours):
            wanted = old[name][theirs.index(key)] if key in theirs else fresh[name][i]
            assert torch.equal(found[i], wanted), (name, key)
    for side, found in counts.items():
        theirs, ours = (set(keys(getattr(both, side))[3:]) for both in (before, now))
        assert found == (len(theirs & ours), len(ours - theirs))


def test_checkpoints_are_chosen_by_name(tmp_path: Path) -> None:
    write(tmp_path, JOINT_OLD, sizes(JOINT_OLD))
    made = model(sizes(JOINT_NEW), 2)
    for which in ("best", "latest", "step-00000007"):
        checkpoints.take_parameters(made, JOINT_NEW, str(tmp_path), which)
    with pytest.raises(RarewordError, match=r"no checkpoint 'step-1'.*there are: step-00000007"):
        checkpoints.take_parameters(made, JOINT_NEW, str(tmp_path), "step-1")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden": 8}, r"tensor '.+' has shape \(.+\) in .+, but \(.+\) here; .*--hidden 6$"),
        ({"embedding": 5}, r"shape \(.+\) in .+, but \(.+\) here.*--embedding 4$"),
        ({"encoder_hidden": 5}, "--encoder-hidden 3$"),
    ],
)
def test_another_form_is_a_sentence_with_tensor_shapes_and_option(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    write(tmp_path, JOINT_OLD, sizes(JOINT_OLD))
    made = model(sizes(JOINT_NEW, **change), 2)
    before = every(made)
    with pytest.raises(RarewordError, match=sentence):
        checkpoints.take_parameters(made, JOINT_NEW, str(tmp_path), "best")
    for name, value in every(made).items():
        assert torch.equal(value, before[name])


def test_the_same_shapes_with_another_meaning_are_refused(tmp_path: Path) -> None:
    """The two forms of a GRU may have the same tensors."""
    write(tmp_path, JOINT_OLD, sizes(JOINT_OLD))
    made = model(sizes(JOINT_NEW), 2)
    made.config = dataclasses.replace(made.config, gru="groundhog")
    with pytest.raises(RarewordError, match=r"a model of another form.*--gru cudnn$"):
        checkpoints.take_parameters(made, JOINT_NEW, str(tmp_path), "best")


def test_two_matrices_do_not_become_one(tmp_path: Path) -> None:
    write(tmp_path, JOINT_OLD, sizes(JOINT_OLD, tied="target"))
    made = model(sizes(JOINT_NEW, tied="all"), 2)
    with pytest.raises(RarewordError, match=r"are two matrices in .* --tied target$"):
        checkpoints.take_parameters(made, JOINT_NEW, str(tmp_path), "best")


@pytest.mark.parametrize(
    ("pieces", "sentence"),
    [
        ([("y", True, False)], "no source piece in common with the training data"),
        ([(" a", False, False)], "pieces of that model are of words, here they are of raw text"),
    ],
)
def test_vocabularies_of_another_kind_are_refused(
    tmp_path: Path, pieces: list[Piece], sentence: str
) -> None:
    write(tmp_path, JOINT_OLD, sizes(JOINT_OLD))
    now = Vocabularies(of(pieces), of(pieces))
    with pytest.raises(RarewordError, match=sentence):
        checkpoints.take_parameters(model(sizes(now), 2), now, str(tmp_path), "best")
