"""Checkpoints: whole or absent, same run same bytes, refused where they do not fit."""

import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
FILES = (checkpoints.MODEL, checkpoints.OPTIMISER, checkpoints.STATE)


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
        self.state.consume(Position(0, 0, self.state.step + 1), 1.0, 1, 1)

    def save(self, directory: str, best: bool = False, keep: int = 2, timed: bool = False) -> None:
        checkpoints.save(
            *(directory, self.model, self.optimiser, self.state, IDENTITY),
            best=best,
            keep=keep,
            timed=timed,
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


def test_a_checkpoint_of_the_clock_lasts_until_the_next(directory: str) -> None:
    run = Run()
    for number in range(1, 7):
        run.step()
        run.save(directory, best=number == 2, keep=1, timed=number in (3, 4, 6))
        found = checkpoints.latest(directory)
        assert found is not None
        assert checkpoints.resume(directory, found, run.model, run.optimiser, IDENTITY) == run.state
        if number == 4:
            assert steps(directory) == ["step-00000002", "step-00000004-timed"]
    assert steps(directory) == ["step-00000002", "step-00000005", "step-00000006-timed"]


class CrashError(BaseException):
    """As sudden as a process's death: nothing of ours catches it."""


def test_a_crash_before_any_change_of_a_file_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write, rename and removal of a save is made the last thing that happens."""
    changes = 0

    def dying(call: Callable[..., Any], at: int) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal changes
            changes += 1
            if changes >= at:  # what cleans up on the way out changes nothing either
                raise CrashError
            return call(*arguments, **named)

        return counted

    def save_all(directory: str, at: int) -> bool:
        """Three checkpoints; True if the process lived to the end."""
        nonlocal changes
        changes = 0
        run = Run()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", dying(os.fsync, at))
            patch.setattr(os, "replace", dying(os.replace, at))
            patch.setattr(os, "remove", dying(os.remove, at))
            patch.setattr(shutil, "rmtree", dying(shutil.rmtree, at))
            try:
                for number in range(3):
                    run.step()
                    run.save(directory, best=number == 1, keep=1, timed=number == 0)
            except CrashError:
                return False
        return True

    wanted = {}
    run = Run()
    for _ in range(3):
        run.step()
        wanted[run.state.step] = {name: p.clone() for name, p in run.model.named_parameters()}
    at, alive = 1, False
    while not alive:
        directory = str(tmp_path / str(at))
        alive = save_all(directory, at)
        again = Run(seed=2)
        found = checkpoints.latest(directory)
        if found is not None:
            state = checkpoints.resume(directory, found, again.model, again.optimiser, IDENTITY)
            for name, parameter in again.model.named_parameters():
                assert torch.equal(parameter, wanted[state.step][name])
            again.state = state
        while again.state.step < 3:
            again.step()
            again.save(directory, keep=1)
        checkpoints.tidy(directory, keep=1)
        whole = {f"checkpoints/{name}/{file}" for name in steps(directory) for file in FILES}
        assert set(checkpoints.files(directory)) - {"best.json", "latest.json"} == whole
        assert steps(directory)[-1] == "step-00000003"
        at += 1
    assert at > 20


def test_remains_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    run = Run()
    torn = tmp_path / "checkpoints" / "step-00000009"
    torn.mkdir(parents=True)
    (torn / "model.safetensors").write_bytes(b"half")
    run.step()
    (tmp_path / "checkpoints" / "step-00000001").mkdir()
    (tmp_path / "checkpoints" / "step-00000001" / "state.json.tmp-1234").write_bytes(b"{")
    (tmp_path / "latest.json.tmp-1234").write_bytes(b"{")
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


def test_a_checkpoint_of_another_release_is_refused(tmp_path: Path) -> None:
    run = Run()
    run.save(str(tmp_path))
    url = str(tmp_path / "checkpoints" / "step-00000000" / "state.json")
    storage.write_json(url, {**storage.read_json(url), "format": 1})
    with pytest.raises(RarewordError, match="was written by another release; train again"):
        checkpoints.resume(str(tmp_path), "step-00000000", run.model, run.optimiser, IDENTITY)


def test_checkpoints_hold_no_pickle(tmp_path: Path) -> None:
    """A pickle begins with the byte 0x80, in a zip or not; these are tensors and JSON."""
    run = Run()
    run.step()
    run.save(str(tmp_path), best=True)
    for name in checkpoints.files(str(tmp_path)):
        data = (tmp_path / name).read_bytes()
        if name.endswith(".json"):
            json.loads(data)
        else:
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            assert all(
                {"dtype", "shape", "data_offsets"} == set(entry) for entry in header.values()
            )
