"""The loop: it learns, goes on exactly where it stopped, and ends on what is not a number."""

import json
import math
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs
import torch

from rareword.schemas import manifest, storage, vocabulary
from rareword.schemas.errors import RarewordError
from rareword.trainer import checkpoints
from rareword.trainer import train as training
from rareword.trainer.config import TrainConfig
from rareword.trainer.data import read_pairs, scan
from rareword.trainer.distributed import Group
from rareword.trainer.feed import Feed
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.precision import FLOAT32
from rareword.trainer.progress import RECORD
from rareword.trainer.search import SearchOptions, translate
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
    precision="float32",
)


def words_and(order: int, count: int, seed: int) -> list[tuple[list[int], list[int]]]:
    """Random strings and the same again: forwards with order 1, backwards with -1."""
    generator = np.random.default_rng(seed)
    words = [
        generator.integers(3, 3 + len(LETTERS), length).tolist()
        for length in generator.integers(1, 6, count)
    ]
    return [(word, word[::order]) for word in words]


@pytest.fixture
def corpora(
    tmp_path_factory: pytest.TempPathFactory, write_segmented: Callable[..., Path]
) -> Callable[..., Corpora]:
    """Makes the data of a run: `corpora(count, order)`, see `words_and`."""

    def make(count: int = 100, order: int = -1) -> Corpora:
        root = tmp_path_factory.mktemp("data")
        found = []
        for name, rows in (("train", words_and(order, count, 1)), ("dev", words_and(order, 30, 2))):
            write_segmented(root / name, rows, letters=len(LETTERS), group=10)
            found.append(manifest.read(str(root / name), "segment", "--segmented"))
        both = vocabulary.read_both(str(root / "train"))
        size = len(both.source)
        return Corpora(scan(found[0], size, size), read_pairs(found[1], size, size), both)

    return make


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


@pytest.mark.parametrize("order", [1, -1], ids=["copy", "reverse"])
@pytest.mark.parametrize("form", [{}, {"gru": "groundhog", "embedding_bias": True}], ids=str)
def test_it_learns_to_copy_and_to_reverse(
    tmp_path: Path,
    corpora: Callable[..., Corpora],
    order: int,
    form: dict[str, Any],
) -> None:
    """To a perplexity below 1.05 on strings that it has not seen, and search gives them."""
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
        precision="float32",
        **form,
    )
    data = corpora(1500, order)
    state = run(tmp_path, config, data)
    assert state.best is not None
    assert math.exp(state.best) < 1.05
    assert state.history[-1]["bleu"] > 95
    vocabulary.write_both(data.vocabularies, str(tmp_path))
    model = checkpoints.load_model(str(tmp_path)).model
    found = translate(model.network(), [np.array([3, 5, 7, 9], np.int32)], SearchOptions(), "cpu")
    assert found[0][0].ids == [3, 5, 7, 9][::order]


def checksums(directory: Path) -> dict[str, str]:
    """Of all files but the record, which holds times."""
    names = set(storage.list_files(str(directory))) - {RECORD}
    return {name: storage.sha256(str(directory / name)) for name in names}


def recorded(directory: Path) -> list[dict[str, Any]]:
    return small_runs.without_times(directory / RECORD)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("shuffle_pairs", [1000, 30])
@pytest.mark.parametrize("stop_after", [2, 5, 8, 12])
def test_a_run_broken_off_anywhere_ends_with_the_same_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    corpora: Callable[..., Corpora],
    stop_after: int,
    shuffle_pairs: int,
) -> None:
    """In an epoch of one block of 7 batches, or of 4 blocks, three of 2 batches and one of 1.
    The learning rate is another at every update."""
    changes = {"max_steps": 17, "checkpoint_every": 3, "log_every": 4}
    changes |= {"max_epochs": 3, "schedule": "cosine", "warmup": 6}
    config = TrainConfig(**{**vars(TINY), **changes, "shuffle_pairs": shuffle_pairs})
    data = corpora()
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


def test_a_finished_run_does_nothing_more(tmp_path: Path, corpora: Callable[..., Corpora]) -> None:
    config, data = TrainConfig(**{**vars(TINY), "max_steps": 3}), corpora()
    run(tmp_path, config, data)
    before, lines = (checksums(tmp_path), recorded(tmp_path)), list[str]()
    run(tmp_path, config, data, lines)
    assert (checksums(tmp_path), recorded(tmp_path)) == before
    assert "going on from step 3" in lines[0]
    assert lines[-1].startswith("train: ended at step 3: --max-steps 3 reached; took ")


def test_lines_tell_how_it_goes(tmp_path: Path, corpora: Callable[..., Corpora]) -> None:
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


def test_the_record_has_the_figures_of_the_run(
    tmp_path: Path, corpora: Callable[..., Corpora]
) -> None:
    """Tokens of an epoch are those of the data, and losses those of the history."""
    data = corpora()
    config = TrainConfig(**{**vars(TINY), "max_steps": 14, "log_every": 3})
    state = run(tmp_path, config, data)
    lines = recorded(tmp_path)
    train = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in train] == [3, 6, 7, 9, 12, 14]
    assert sum(line["target_tokens"] for line in train) == 2 * data.train.target_tokens
    pairs = data.train.read(np.arange(len(data.train.row_groups)))
    assert sum(line["source_tokens"] for line in train) == 2 * pairs.source.lengths.sum()
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
def test_the_share_of_clipped_steps(
    tmp_path: Path, corpora: Callable[..., Corpora], clip: float, share: float
) -> None:
    run(tmp_path, TrainConfig(**{**vars(TINY), "max_steps": 3, "clip": clip}), corpora())
    train = [line for line in recorded(tmp_path) if line["kind"] == "train"]
    assert [line["clipped"] for line in train] == [share] * 3
    assert all(1e-3 < line["gradient_norm"] < 1e3 for line in train)


def test_a_run_that_breaks_down_keeps_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpora: Callable[..., Corpora]
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpora: Callable[..., Corpora]
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
    with closing(Feed(data.train, TINY, Group(torch.device("cpu"))).steps()) as steps:
        assert failed["ids"] == next(steps).ids.tolist()
    assert len(failed["ids"]) == 16


# ---- shares and parts ----


@pytest.mark.parametrize("changes", [{}, {"batch": 100, "batch_unit": "tokens"}])
def test_a_batch_in_parts_trains_as_the_whole(
    tmp_path: Path, corpora: Callable[..., Corpora], changes: dict[str, object]
) -> None:
    data, histories = corpora(), []
    for accumulate in (1, 4):
        values = {**vars(TINY), **changes, "dropout": 0.0, "max_steps": 20, "validate_every": 5}
        config = TrainConfig(**{**values, "accumulate": accumulate})
        histories.append(run(tmp_path / str(accumulate), config, data).history)
    for one, four in zip(*histories, strict=True):
        assert one["train_loss"] == pytest.approx(four["train_loss"], rel=1e-6)
        assert one["loss"] == pytest.approx(four["loss"], rel=1e-6)


@pytest.mark.parametrize("loss_scale", ["sum", "mean"])
def test_four_shares_of_20_make_the_step_of_one_batch_of_80(
    corpora: Callable[..., Corpora], loss_scale: str
) -> None:
    """The same clipped gradient and the same parameters after the update."""
    data = corpora(160)
    config = TrainConfig(
        **{**vars(TINY), "dropout": 0.0, "batch": 80, "loss_scale": loss_scale, "clip": 0.2}
    )
    results = []
    for world, accumulate in ((1, 1), (4, 1), (4, 3)):
        torch.manual_seed(1)
        size = len(data.vocabularies.source)
        model = EncoderDecoder(training.model_config(config, size, size, joint=True))
        optimiser = Optimiser(model, config)
        optimiser.zero()
        for rank in range(world):
            group = Group(torch.device("cpu"), rank, world)
            parts = TrainConfig(**{**vars(config), "accumulate": accumulate})
            with closing(Feed(data.train, parts, group).steps()) as steps:
                step = next(steps)
            assert sum(len(part.source_BS) for part in step.parts) == 80 // world
            for part in step.parts:
                loss, _ = batch_loss(model, part, FLOAT32)
                (loss / (step.tokens if loss_scale == "mean" else 1)).backward()
        norm, _ = optimiser.step(0.01, Group(torch.device("cpu")))
        assert norm > config.clip, "else nothing is clipped"
        gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
        parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
        results.append((norm, gradients, parameters))
    norm, gradients, parameters = results[0]
    assert gradients.norm().item() == pytest.approx(config.clip, rel=1e-5)
    for other in results[1:]:
        assert other[0] == pytest.approx(norm, rel=1e-5)
        torch.testing.assert_close(other[1], gradients, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(other[2], parameters, rtol=1e-4, atol=1e-6)


def test_a_sum_of_losses_has_the_gradient_of_all_tokens(
    tmp_path: Path, corpora: Callable[..., Corpora]
) -> None:
    data, norms = corpora(), []
    for scale in ("mean", "sum"):
        lines: list[str] = []
        config = TrainConfig(**{**vars(TINY), "max_steps": 1, "loss_scale": scale})
        run(tmp_path / scale, config, data, lines)
        (norm,) = (re.search(r"gradient norm ([\d.]+)", x) for x in lines if "gradient" in x)
        norms.append(float(norm[1]))
    with closing(Feed(data.train, TINY, Group(torch.device("cpu"))).steps()) as steps:
        assert norms[1] == pytest.approx(norms[0] * next(steps).tokens, rel=0.02)
