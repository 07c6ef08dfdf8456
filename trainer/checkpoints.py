"""Checkpoints: safetensors and JSON, never a pickle, complete or not there at all.

    checkpoints/step-00001200/model.safetensors      parameters, float32
                              optimiser.safetensors  the optimiser's moments
                              state.json             step, rate, history, config, hashes
    latest.json  best.json                           {"checkpoint": "step-00001200"}

Each file is written to a temporary name, flushed to the disk and renamed. `state.json` comes after
the tensors and the pointer after that, so a run killed at any moment goes on from the checkpoint
that `latest.json` names. The files hold no times and no machine's name: the same run gives the
same bytes.

A checkpoint that is due by the clock, and not by the number of updates, is named
`step-00001234-timed` and only guards against loss: the next one replaces it, and it does not count
among the last ones. So what a finished run leaves does not depend on the machine's speed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Symbol
from rareword.schemas.options import flag
from rareword.schemas.tables import SIDES, Side
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabularies, Vocabulary
from rareword.trainer.config import ModelConfig
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.state import RunState

FORMAT = 2
FOLDER = "checkpoints"
MODEL, OPTIMISER, STATE = "model.safetensors", "optimiser.safetensors", "state.json"
POINTERS = ("best", "latest")
TIMED = "-timed"
"""Ends the name of a checkpoint that only the clock asked for."""
ROWS: Mapping[str, Side] = {
    "source_embedding.weight": "source",
    "target_embedding.weight": "target",
    "output.weight": "target",
    "output.bias": "target",
}
"""The parameters with a row for each piece, and the side of the pieces."""


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
    timed: bool = False,
) -> None:
    """Writes a checkpoint, moves the pointers to it and removes those no longer wanted.

    best: point `best.json` to it too. keep: latest checkpoints to keep. timed: only the clock
    asked for it.
    """
    name = f"step-{state.step:08d}" + TIMED * timed
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
    for which in POINTERS if best else ("latest",):
        storage.write_json(storage.join(directory, f"{which}.json"), {"checkpoint": name})
    tidy(directory, keep)


def latest(directory: str) -> str | None:
    """The name of the checkpoint that an unfinished run goes on from; None if there is none."""
    return _named(directory, "latest")


def resume(
    directory: str,
    name: str,
    model: EncoderDecoder,
    optimiser: Optimiser,
    identity: Identity,
) -> RunState:
    """Takes up a checkpoint of an unfinished run.

    Raises RarewordError if it belongs to other data, options or vocabulary.
    """
    folder, value = _read_state(directory, name)
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


def load_model(directory: str, which: str = "best") -> LoadedModel:
    """Loads a model directory's checkpoint: best (by development data), latest, or a name.

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


def _named(directory: str, pointer: str) -> str | None:
    """The name of the checkpoint that a pointer names; None if there is no such pointer."""
    url = storage.join(directory, f"{pointer}.json")
    return str(storage.read_json(url)["checkpoint"]) if storage.exists(url) else None


def _read_state(directory: str, which: str) -> tuple[str, dict[str, Any]]:
    """The folder of the checkpoint best, latest or of a name, and its state.json."""
    name = _named(directory, which) if which in POINTERS else which
    if name is None:
        raise RarewordError(
            f"{directory} has no {which} checkpoint (no {which}.json); run `rareword train` first"
        )
    folder = storage.join(directory, FOLDER, name)
    url = storage.join(folder, STATE)
    if not storage.exists(url):
        found = {file.split("/")[0] for file in storage.list_files(storage.join(directory, FOLDER))}
        raise RarewordError(
            f"{directory} has no checkpoint {name!r}, or not all of it; there are: "
            f"{', '.join(sorted(found)) or 'none'}. On several machines all must see one directory"
        )
    value: dict[str, Any] = storage.read_json(url)
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


def tidy(directory: str, keep: int) -> None:
    """Removes checkpoints but the best, the latest and the last `keep`, and a killed run's remains.

    Only the process that writes calls it. `state.json` goes first: half a checkpoint has none.
    """
    everything = storage.list_files(directory)
    for name in everything:
        if storage.TEMPORARY_MARK in name:
            storage.remove(storage.join(directory, name))
    root, prefix = storage.join(directory, FOLDER), f"{FOLDER}/"
    names = [name.removeprefix(prefix) for name in everything if name.startswith(prefix)]
    newest = latest(directory) or ""
    whole = sorted(name.split("/")[0] for name in names if name.endswith(f"/{STATE}"))
    lasting = [name for name in whole if name <= newest and not name.endswith(TIMED)]
    wanted = {*lasting[-keep:], newest, _named(directory, "best")}
    for folder in sorted({name.split("/")[0] for name in names} - wanted):
        storage.remove(storage.join(root, folder, STATE))
        storage.remove(storage.join(root, folder))


# ---- starting from an older model ----


def take_parameters(
    model: EncoderDecoder, ours: Vocabularies, directory: str, which: str
) -> dict[Side, tuple[int, int]]:
    """Gives a new model the parameters of an older one, whose vocabularies may be others.

    Pieces that both have on a side keep their embedding, output row and output bias; the others
    stay as they were initialised. which: best, latest or the name of a checkpoint. Returns how many
    pieces of each side were taken and how many are new, special ones left out.

    Raises RarewordError if the two models differ in form, or if a side has no piece in common.
    """
    old = load_model(directory, which)
    theirs = vocabularies.read_both(directory)
    given = dict(old.model.named_parameters(remove_duplicate=False))
    wanted = dict(model.named_parameters(remove_duplicate=False))
    _check_form(given, old.config, wanted, model.config, directory)
    rows = {side: _in_common(getattr(theirs, side), getattr(ours, side), side) for side in SIDES}
    for name, parameter in wanted.items():
        if name in ROWS:
            there, here = (torch.from_numpy(ids) for ids in rows[ROWS[name]])
            parameter.data[here.to(parameter.device)] = given[name].data[there].to(parameter.device)
        else:
            parameter.data.copy_(given[name].data)
    counts: dict[Side, tuple[int, int]] = {}
    for side, (_, ids) in rows.items():
        taken = len(ids) - len(SPECIALS)
        counts[side] = taken, len(getattr(ours, side)) - len(SPECIALS) - taken
    return counts


def _check_form(
    given: Mapping[str, Tensor],
    theirs: ModelConfig,
    wanted: Mapping[str, Tensor],
    ours: ModelConfig,
    directory: str,
) -> None:
    """Raises RarewordError unless the parameters of two models mean the same, piece by piece."""
    free = {"source_vocabulary", "target_vocabulary", "tied", "initialisation", "dropout"}
    advice = " ".join(
        _as_option(field.name, getattr(theirs, field.name))
        for field in fields(ModelConfig)
        if field.name not in free and getattr(theirs, field.name) != getattr(ours, field.name)
    )
    for name in sorted({*given, *wanted}):
        found, expected = (
            "none" if name not in side else tuple(side[name].shape[name in ROWS :])
            for side in (given, wanted)
        )
        if found != expected:
            raise RarewordError(
                f"--init-from: tensor {name!r} has shape {found} in {directory}, but {expected} "
                f"here{' (a piece)' * (name in ROWS)}; give the options of that model: {advice}"
            )
    if advice:
        raise RarewordError(
            f"--init-from: {directory} holds a model of another form; give its options: {advice}"
        )
    first: dict[int, str] = {}
    for name, parameter in wanted.items():
        other = first.setdefault(id(parameter), name)
        if given[other] is not given[name]:
            raise RarewordError(
                f"--init-from: {other!r} and {name!r} are two matrices in {directory} and one "
                f"here; give the option of that model: --tied {theirs.tied}"
            )


def _as_option(name: str, value: Any) -> str:
    """A value as the command line has it: `--hidden 1000`, `--no-layer-norm`."""
    if isinstance(value, bool):
        return flag(name if value else f"no_{name}")
    return f"{flag(name)} {value}"


def _in_common(
    theirs: Vocabulary, ours: Vocabulary, side: Side
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids, there and here, of the pieces that both vocabularies have, special ones too."""
    if theirs.is_raw != ours.is_raw:
        kinds = [("raw text" if one.is_raw else "words") for one in (theirs, ours)]
        raise RarewordError(
            f"--init-from: the {side} pieces of that model are of {kinds[0]}, here they are of "
            f"{kinds[1]}; segment with the same kind of segmenter"
        )
    is_bytes = ours.is_bytes or [False] * len(ours)
    pairs = [(i, i) for i in range(len(SPECIALS))]
    for i in range(len(SPECIALS), len(ours)):
        found = theirs.id(Symbol(ours.pieces[i], ours.final[i]), is_bytes[i])
        if found != UNK:
            pairs.append((found, i))
    if len(pairs) == len(SPECIALS):
        raise RarewordError(
            f"--init-from: that model has no {side} piece in common with the training data; "
            "segment with the same kind of segmenter, or train without the option"
        )
    there, here = np.array(pairs, np.int64).T
    return there, here
