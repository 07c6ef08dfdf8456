"""The loop: it learns, goes on exactly where it stopped, and ends on what is not a number."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rareword.schemas import storage, vocabulary
from rareword.schemas.errors import RarewordError
from rareword.trainer import checkpoints
from rareword.trainer import train as training
from rareword.trainer.config import TrainConfig
from rareword.trainer.data import Pairs, Sentences
from rareword.trainer.distributed import Group
from rareword.trainer.progress import RECORD
from rareword.trainer.search import SearchOptions, beam_search
from rareword.trainer.state import RunState
from rareword.trainer.train import Corpora, Trainer

LETTERS = "abcdefghij"
TINY = TrainConfig(
    embedding=16,
    hidden=32,
    encoder_hidden=16,
    dropout=0.1,
    batch=16,
    batch_unit="sentences",
    bleu_pairs=5,
    log_every=1,
)


def reversed_words(count: int, seed: int) -> Pairs:
    """Random strings and the same backwards."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 6, count)
    offsets = np.cumsum([0, *lengths])
    flat = generator.integers(3, 3 + len(LETTERS), lengths.sum()).astype(np.int32)
    back = np.concatenate([flat[a:b][::-1] for a, b in itertools.pairwise(offsets)])
    return Pairs(np.arange(count) + 500, Sentences(flat, offsets), Sentences(back, offsets), 0, 0)


def corpora(count: int = 100) -> Corpora:
    pieces = ["<pad>", "<unk>", "</s>", *LETTERS]
    one = vocabulary.Vocabulary(pieces, [True] * 13, [0] * 13, [0] * 13)
    return Corpora(
        reversed_words(count, 1), reversed_words(30, 2), vocabulary.Vocabularies(one, one)
    )


def run(
    directory: Path, config: TrainConfig, data: Corpora, lines: list[str] | None = None
) -> RunState:
    return Trainer(
        config,
        data,
        directory=str(directory),
        run="a plan",
        group=Group(torch.device("cpu")),
        say=(lines if lines is not None else []).append,
    ).train()


def test_it_learns_to_reverse(tmp_path: Path) -> None:
    config = TrainConfig(
        embedding=32,
        hidden=64,
        encoder_hidden=32,
        dropout=0.0,
        label_smoothing=0.0,
        learning_rate=0.006,
        batch=32,
        batch_unit="sentences",
        max_epochs=8,
        patience=0,
    )
    data = corpora(1500)
    state = run(tmp_path, config, data)
    assert state.best is not None
    assert state.best < 0.05
    assert state.history[-1]["bleu"] > 95
    vocabulary.write_both(data.vocabularies, str(tmp_path))
    model = checkpoints.load_model(str(tmp_path)).model
    found = beam_search(model, [np.array([3, 5, 7, 9], np.int32)], SearchOptions(), "cpu")
    assert found[0][0].ids == [9, 7, 5, 3]


def checksums(directory: Path) -> dict[str, str]:
    """Of all files but the record, which holds times."""
    names = set(storage.list_files(str(directory))) - {RECORD}
    return {name: storage.sha256(str(directory / name)) for name in names}


def recorded(directory: Path) -> list[dict[str, Any]]:
    """The lines of the record without times."""
    lines = map(json.loads, (directory / RECORD).read_text().splitlines())
    times = {"seconds", "tokens_per_second"}
    return [{k: v for k, v in line.items() if k not in times} for line in lines]


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("stop_after", [2, 5, 7, 12])
def test_a_run_broken_off_anywhere_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    config = TrainConfig(**{**vars(TINY), "max_steps": 17, "checkpoint_every": 3, "log_every": 4})
    data = corpora()  # 7 batches an epoch
    run(tmp_path / "whole", config, data)
    step, count = training.Trainer._step, 0

    def stopping(self: Trainer, *arguments: object) -> None:
        nonlocal count
        if count == stop_after:
            raise StoppedError
        count += 1
        step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", stopping)
    with pytest.raises(StoppedError):
        run(tmp_path / "broken", config, data)
    monkeypatch.undo()
    run(tmp_path / "broken", config, data)
    assert checksums(tmp_path / "broken") == checksums(tmp_path / "whole")
    assert recorded(tmp_path / "broken") == recorded(tmp_path / "whole")


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    config = TrainConfig(**{**vars(TINY), "max_steps": 3})
    run(tmp_path, config, corpora())
    before, lines = (checksums(tmp_path), recorded(tmp_path)), list[str]()
    run(tmp_path, config, corpora(), lines)
    assert (checksums(tmp_path), recorded(tmp_path)) == before
    assert "going on from step 3" in lines[0]
    assert lines[-1].startswith("train: ended at step 3: --max-steps 3 reached; took ")


def test_lines_tell_how_it_goes(tmp_path: Path) -> None:
    lines: list[str] = []
    data = corpora()
    state = run(tmp_path, TrainConfig(**{**vars(TINY), "max_steps": 7}), data, lines)
    for word in (
        *("step 1, epoch 1: loss ", "perplexity ", " tokens/s, at most ", " left, learning rate"),
        *("gradient norm ", " clipped, padding "),
    ):
        assert word in lines[1]
    shown = next(i for i, line in enumerate(lines) if "dev loss" in line)
    assert "dev BLEU on tokens" in lines[shown]
    text = data.vocabularies.source.words(data.dev.source[0].tolist())
    assert lines[shown + 1] == f"train:   source       {text}"
    assert lines[shown + 2] == f"train:   reference    {' '.join(reversed(text.split()))}"
    assert lines[shown + 3].startswith("train:   translation  ")
    assert len(lines) - shown == 1 + 3 * TINY.samples + 1
    best = f"; best at step 7: dev loss {state.history[-1]['loss']:.4f}, dev BLEU on tokens "
    assert "--max-steps 7 reached; took 0 s" + best in lines[-1].replace("took 1 s", "took 0 s")


def test_the_record_has_the_figures_of_the_run(tmp_path: Path) -> None:
    """Tokens of an epoch are those of the data, and losses those of the history."""
    data = corpora()
    config = TrainConfig(**{**vars(TINY), "max_steps": 14, "log_every": 3})
    state = run(tmp_path, config, data)
    lines = recorded(tmp_path)
    train = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in train] == [3, 6, 7, 9, 12, 14]
    assert sum(line["target_tokens"] for line in train) == 2 * data.train.target.lengths.sum()
    assert sum(line["source_tokens"] for line in train) == 2 * data.train.source.lengths.sum()
    for first, entry in zip((0, 3), state.history, strict=True):
        loss = sum(line["loss"] * line["target_tokens"] for line in train[first : first + 3])
        tokens = sum(line["target_tokens"] for line in train[first : first + 3])
        assert loss / tokens == pytest.approx(entry["train_loss"])
    validations = [line for line in lines if line["kind"] == "validation"]
    for line, entry in zip(validations, state.history, strict=True):
        for name in ("step", "epoch", "loss", "bleu", "train_loss"):
            assert line[name] == entry[name]
    sources = [[sample["source"] for sample in line["samples"]] for line in validations]
    assert sources[0] == sources[1]


@pytest.mark.parametrize(("clip", "share"), [(1e-3, 1.0), (1e3, 0.0), (0.0, 0.0)])
def test_the_share_of_clipped_steps(tmp_path: Path, clip: float, share: float) -> None:
    run(tmp_path, TrainConfig(**{**vars(TINY), "max_steps": 3, "clip": clip}), corpora())
    train = [line for line in recorded(tmp_path) if line["kind"] == "train"]
    assert [line["clipped"] for line in train] == [share] * 3
    assert all(1e-3 < line["gradient_norm"] < 1e3 for line in train)


def test_a_run_that_breaks_down_keeps_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, count = training.Trainer._step, 0

    def failing(self: Trainer, *arguments: object) -> None:
        nonlocal count
        count += 1
        if count == 5:
            raise StoppedError
        step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", failing)
    with pytest.raises(StoppedError):
        run(tmp_path, TINY, corpora())
    assert [line["step"] for line in recorded(tmp_path)] == [1, 2, 3, 4]


def test_what_is_not_a_number_ends_the_run_with_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = training.batch_loss

    def broken(*arguments: object) -> tuple[torch.Tensor, torch.Tensor]:
        smoothed, plain = loss(*arguments)
        return smoothed * float("nan"), plain

    monkeypatch.setattr(training, "batch_loss", broken)
    data = corpora()
    with pytest.raises(RarewordError, match=r"broke down at step 1: .*failed-batch\.json"):
        run(tmp_path, TINY, data)
    failed = json.loads((tmp_path / "failed-batch.json").read_text())
    assert len(failed["ids"]) == 16
    assert set(failed["ids"]) <= set(data.train.ids.tolist())
