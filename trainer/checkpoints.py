"""Checkpoints: safetensors and JSON, never a pickle, complete or not there at all.

    checkpoints/step-00001200/model.safetensors      parameters, float32
                              optimiser.safetensors  the optimiser's moments
                              state.json             step, rate, history, config, hashes
    latest.json  best.json                           {"checkpoint": "step-00001200"}

Each file is written to a temporary name, flushed to the disk and renamed. `state.json` comes after
the tensors and the pointer after that, so a run killed at any moment goes on from the checkpoint
that `latest.json` names. The files hold no times and no machine's name: the same run gives the
same bytes.
"""

from dataclasses import dataclass
from typing import Any, Literal

import safetensors.torch
from torch import Tensor

from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.trainer.config import ModelConfig
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.state import RunState

FORMAT = 2
FOLDER = "checkpoints"
MODEL, OPTIMISER, STATE = "model.safetensors", "optimiser.safetensors", "state.json"
Which = Literal["best", "latest"]


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to; checked when a run goes on from it."""

    run: str
    """Fingerprint of the training job's plan: its options and data."""
    vocabulary: str
    """Hash of `schemas.vocabulary.Vocabularies`."""
    model: ModelConfig


@dataclass(frozen=True)
class LoadedModel:
    """A trained model for scoring and search."""

    model: EncoderDecoder
    """In evaluation mode, on the CPU."""
    vocabulary_hash: str
    step: int
    config: ModelConfig
    directory: str

    def check_vocabulary(self, found: str, where: str) -> None:
        """Raises RarewordError unless `found`, the vocabulary hash of `where`, is the model's."""
        if found != self.vocabulary_hash:
            raise RarewordError(
                f"the model in {self.directory} was trained with vocabulary "
                f"{self.vocabulary_hash[:12]}, but {where} has vocabulary {found[:12]}; use the "
                "segmented data and the model of one run"
            )


def save(
    directory: str,
    model: EncoderDecoder,
    optimiser: Optimiser,
    state: RunState,
    identity: Identity,
    *,
    best: bool,
    keep: int,
) -> None:
    """Writes a checkpoint, moves the pointers to it and removes those no longer wanted.

    best: point `best.json` to it too. keep: latest checkpoints to keep.
    """
    name = f"step-{state.step:08d}"
    folder = storage.join(directory, FOLDER, name)
    _write_tensors(storage.join(folder, MODEL), dict(model.named_parameters()))
    _write_tensors(storage.join(folder, OPTIMISER), optimiser.tensors())
    storage.write_json(
        storage.join(folder, STATE),
        {
            "format": FORMAT,
            "run": identity.run,
            "vocabulary": identity.vocabulary,
            "model": identity.model.to_json(),
            "state": state.to_json(),
        },
    )
    for which in ("best", "latest") if best else ("latest",):
        storage.write_json(storage.join(directory, f"{which}.json"), {"checkpoint": name})
    _prune(directory, name, keep)


def resume(
    directory: str, model: EncoderDecoder, optimiser: Optimiser, identity: Identity
) -> RunState | None:
    """Takes up the latest checkpoint of an unfinished run; None if there is none yet.

    Raises RarewordError if it belongs to other data, options or vocabulary.
    """
    if not storage.exists(storage.join(directory, "latest.json")):
        return None
    folder, value = _read_state(directory, "latest")
    for what, found, expected in (
        ("vocabulary", value["vocabulary"], identity.vocabulary),
        ("training run", value["run"], identity.run),
    ):
        if found != expected:
            raise RarewordError(
                f"{folder} belongs to {what} {found[:12]}, but this is {what} {expected[:12]}; "
                "choose another --output or add --overwrite"
            )
    _load_parameters(model, folder)
    optimiser.load(_read_tensors(storage.join(folder, OPTIMISER)))
    return RunState.from_json(value["state"])


def load_model(directory: str, which: Which = "best") -> LoadedModel:
    """Loads a model directory's best (by development data) or latest checkpoint.

    Raises RarewordError for a missing or torn checkpoint, and for one whose vocabulary is not
    that of the directory's vocabulary files.
    """
    folder, value = _read_state(directory, which)
    config = ModelConfig(**value["model"])
    model = EncoderDecoder(config)
    _load_parameters(model, folder)
    loaded = LoadedModel(
        model.eval(), value["vocabulary"], value["state"]["step"], config, directory
    )
    loaded.check_vocabulary(
        vocabularies.read_both(directory).hash, f"its {vocabularies.TARGET_NAME}"
    )
    return loaded


def files(directory: str) -> list[str]:
    """The names, below the directory, of all files of its checkpoints and pointers."""
    return [
        name
        for name in storage.list_files(directory)
        if name.startswith(f"{FOLDER}/") or name in ("best.json", "latest.json")
    ]


def _read_state(directory: str, which: Which) -> tuple[str, dict[str, Any]]:
    """The folder that a pointer names and its state.json."""
    pointer = storage.join(directory, f"{which}.json")
    if not storage.exists(pointer):
        raise RarewordError(
            f"{directory} has no {which} checkpoint (no {which}.json); run `rareword train` first"
        )
    folder = storage.join(directory, FOLDER, storage.read_json(pointer)["checkpoint"])
    value: dict[str, Any] = storage.read_json(storage.join(folder, STATE))
    if value["format"] != FORMAT:
        raise RarewordError(f"{folder} was written by another release; train again")
    return folder, value


def _load_parameters(model: EncoderDecoder, folder: str) -> None:
    """Copies a checkpoint's parameters into the model."""
    url = storage.join(folder, MODEL)
    tensors, parameters = _read_tensors(url), dict(model.named_parameters())
    for name in sorted({*tensors, *parameters}):
        found = tuple(tensors[name].shape) if name in tensors else "none"
        expected = tuple(parameters[name].shape) if name in parameters else "none"
        if found != expected:
            raise RarewordError(f"{url}: tensor {name!r} has shape {found}, expected {expected}")
        parameters[name].data.copy_(tensors[name])


def _write_tensors(url: str, tensors: dict[str, Tensor]) -> None:
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    storage.write_bytes(url, safetensors.torch.save(plain))


def _read_tensors(url: str) -> dict[str, Tensor]:
    with storage.open_read(url) as stream:
        data = stream.read()
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # the library's own class is not public in all its versions
        raise RarewordError(
            f"{url} is damaged: {error}; restore it or train again with --overwrite"
        ) from error


def _prune(directory: str, latest: str, keep: int) -> None:
    """Removes checkpoints but the best and the last `keep`, and a killed run's remains."""
    root = storage.join(directory, FOLDER)
    names = storage.list_files(root)
    whole = sorted(name.split("/")[0] for name in names if name.endswith(f"/{STATE}"))
    wanted = set([name for name in whole if name <= latest][-keep:])
    best = storage.join(directory, "best.json")
    if storage.exists(best):
        wanted.add(storage.read_json(best)["checkpoint"])
    for folder in sorted({name.split("/")[0] for name in names} - wanted):
        storage.remove(storage.join(root, folder))
    for name in names:
        if storage.TEMPORARY_MARK in name:
            storage.remove(storage.join(root, name))
