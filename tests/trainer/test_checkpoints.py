"""Checkpoints: whole or absent, same run same bytes, refused where they do not fit."""

import uuid
from pathlib import Path

import pytest
import torch

from rareword.schemas import storage, vocabulary
from rareword.schemas.errors import RarewordError
from rareword.trainer import checkpoints
from rareword.trainer.checkpoints import Identity, load_model
from rareword.trainer.config import ModelConfig, TrainConfig
from rareword.trainer.distributed import Group
from rareword.trainer.feed import Position
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.state import RunState

SIZES = ModelConfig(6, 6, 4, 6, 3, tied="all")


def pieces(last: str = "c") -> vocabulary.Vocabularies:
    names = ["<pad>", "<unk>", "</s>", "a", "b", last]
    one = vocabulary.Vocabulary(names, [True] * 6, [0] * 6, [0] * 6)
    return vocabulary.Vocabularies(one, one)


IDENTITY = Identity("run 1", pieces().hash, SIZES)


class Run:
    """A model that makes steps on noise."""

    def __init__(self, seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.model = EncoderDecoder(SIZES)
        self.optimiser = Optimiser(self.model, TrainConfig())
        self.state = RunState(0.5)

    def step(self) -> None:
        torch.manual_seed(self.state.step)
        self.optimiser.zero()
        sum((p * torch.randn(p.shape)).sum() for p in self.model.parameters()).backward()
        self.optimiser.step(1e-2, Group(torch.device("cpu")))
        self.state.consume(Position(0, 0, self.state.step + 1), 1.0, 1)

    def save(self, directory: str, best: bool = False, keep: int = 2) -> None:
        checkpoints.save(
            directory, self.model, self.optimiser, self.state, IDENTITY, best=best, keep=keep
        )


def steps(directory: str) -> list[str]:
    names = storage.list_files(storage.join(directory, "checkpoints"))
    return sorted({name.split("/")[0] for name in names})


@pytest.fixture(params=["local", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "model")
    return f"memory://{uuid.uuid4().hex}/model"


def test_a_resumed_run_goes_on_exactly(directory: str) -> None:
    first = Run()
    for _ in range(3):
        first.step()
    first.save(directory)
    second = Run(seed=2)
    name = checkpoints.latest(directory)
    assert name is not None
    state = checkpoints.resume(directory, name, second.model, second.optimiser, IDENTITY)
    assert state == first.state
    second.state = state
    for run in (first, second):
        run.step()
    for found, wanted in zip(second.model.parameters(), first.model.parameters(), strict=True):
        assert torch.equal(found, wanted)


def test_a_new_directory_has_nothing_to_resume(directory: str) -> None:
    run = Run()
    assert checkpoints.latest(directory) is None
    with pytest.raises(RarewordError, match="has no best checkpoint"):
        load_model(directory)


def test_the_same_run_writes_the_same_bytes(tmp_path: Path) -> None:
    sums = []
    for name in ("one", "two"):
        run = Run()
        run.step()
        run.save(str(tmp_path / name), best=True)
        files = checkpoints.files(str(tmp_path / name))
        sums.append({file: storage.sha256(str(tmp_path / name / file)) for file in files})
    assert sums[0] == sums[1]
    assert len(sums[0]) == 5


def test_the_last_ones_and_the_best_are_kept(directory: str) -> None:
    run = Run()
    for number in range(1, 6):
        run.step()
        run.save(directory, best=number == 2)
    assert steps(directory) == ["step-00000002", "step-00000004", "step-00000005"]
    run.step()
    run.save(directory, best=True)
    assert steps(directory) == ["step-00000005", "step-00000006"]


def test_remains_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    run = Run()
    torn = tmp_path / "checkpoints" / "step-00000009"
    torn.mkdir(parents=True)
    (torn / "model.safetensors").write_bytes(b"half")
    run.step()
    (tmp_path / "checkpoints" / "step-00000001").mkdir()
    (tmp_path / "checkpoints" / "step-00000001" / "state.json.tmp-1234").write_bytes(b"{")
    run.save(str(tmp_path))
    assert steps(str(tmp_path)) == ["step-00000001"]
    assert not [name for name in storage.list_files(str(tmp_path)) if "tmp" in name]


def test_best_and_latest_are_loaded_for_search(directory: str) -> None:
    vocabulary.write_both(pieces(), directory)
    run = Run()
    run.step()
    run.save(directory, best=True)
    best = [p.detach().clone() for p in run.model.parameters()]
    run.step()
    run.save(directory)
    for which, step, wanted in (("best", 1, best), ("latest", 2, list(run.model.parameters()))):
        loaded = load_model(directory, which)
        assert (loaded.step, loaded.vocabulary_hash) == (step, pieces().hash)
        assert loaded.config == SIZES
        assert not loaded.model.training
        for found, value in zip(loaded.model.parameters(), wanted, strict=True):
            assert torch.equal(found, value)


def test_another_vocabulary_is_refused_naming_both(tmp_path: Path) -> None:
    directory = str(tmp_path)
    vocabulary.write_both(pieces(), directory)
    Run().save(directory, best=True)
    other, ours = pieces("d").hash, pieces().hash
    sentence = f"vocabulary {ours[:12]}, but the test set has vocabulary {other[:12]}"
    with pytest.raises(RarewordError, match=sentence):
        load_model(directory).check_vocabulary(other, "the test set")
    vocabulary.write_both(pieces("d"), directory)
    with pytest.raises(RarewordError, match=f"{ours[:12]}, but .*{other[:12]}"):
        load_model(directory)


def test_a_checkpoint_of_another_run_is_not_resumed(tmp_path: Path) -> None:
    run = Run()
    run.save(str(tmp_path))
    for identity, sentence in (
        (Identity("run 2", pieces().hash, SIZES), "training run run 1, but this is"),
        (Identity("run 1", pieces("d").hash, SIZES), "belongs to vocabulary"),
    ):
        with pytest.raises(RarewordError, match=sentence):
            checkpoints.resume(str(tmp_path), "step-00000000", run.model, run.optimiser, identity)


def test_a_torn_checkpoint_is_a_sentence_with_the_file(tmp_path: Path) -> None:
    vocabulary.write_both(pieces(), str(tmp_path))
    Run().save(str(tmp_path), best=True)
    file = tmp_path / "checkpoints" / "step-00000000" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RarewordError, match=r"model\.safetensors is damaged"):
        load_model(str(tmp_path))
