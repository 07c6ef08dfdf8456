"""The train job: its directory, its processes, and what it says to bad input."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs
from safetensors.numpy import load_file

from rareword.pipelines import cli, job, train
from rareword.pipelines.train import TrainOptions
from rareword.schemas import manifest, storage
from rareword.schemas.errors import RarewordError
from rareword.trainer.train import Trainer

TINY = small_runs.SIZES | {
    "max_steps": 12,
    "validate_every": 5,
    "bleu_pairs": 5,
    "checkpoint_every": 2,
    "log_every": 1,
}


@pytest.fixture
def data(tmp_path: Path, write_segmented: Callable[..., Path]) -> dict[str, str]:
    """33 pairs, so the epoch's last batch of 8 has a single one."""
    return small_runs.copies(write_segmented, tmp_path, 33)


def arguments(data: dict[str, str], output: Path, **values: object) -> list[str]:
    return small_runs.words({**TINY, **data, "output": str(output), **values})


def command(*prefix: str) -> list[str]:
    return [sys.executable, "-m", *prefix]


def artifacts(directory: Path) -> dict[str, str]:
    found = manifest.read(str(directory), "train", "--model")
    return {record.name: record.checksum for record in found.files}


def recorded(directory: Path) -> list[dict[str, Any]]:
    return small_runs.without_times(directory / "training.jsonl")


def test_a_finished_directory_holds_all_that_later_jobs_need(
    data: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "model"
    assert cli.main(["train", *arguments(data, output)]) == 0
    said = capsys.readouterr().err
    assert "dev BLEU on tokens" in said
    assert "ended at step 12: --max-steps 12 reached" in said
    found = manifest.read(str(output), "train", "--model")
    assert found.rules == manifest.read(data["segmented"], "segment", "x").rules
    assert found.figures["steps"] == 12
    assert found.figures["pairs"] == 33
    names = [record.name for record in found.files]
    # The record holds times, so it is no part of what the manifest vouches for.
    others = ("manifest.json", "training.jsonl")
    assert names == [n for n in storage.list_files(str(output)) if n not in others]
    history = json.loads((output / "history.json").read_text())
    assert [entry["step"] for entry in history] == [5, 10, 12]
    assert cli.main(["train", *arguments(data, output)]) == 0
    assert "is finished already, skipped" in capsys.readouterr().err
    assert cli.main(["train", *arguments(data, output, seed=2)]) == 1
    assert "option 'seed' differs: 1 there, 2 here" in capsys.readouterr().err


def test_quiet_is_quiet(
    data: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", *arguments(data, tmp_path / "m", max_steps=2), "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")
    assert [line["kind"] for line in recorded(tmp_path / "m")] == [
        *("train", "train", "validation", "end")
    ]


def test_a_stopped_run_is_finished_as_it_stands(
    data: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Stopped after step 9 of 12: of its checkpoints at 5 (validated) and 8 the latter is, too,
    and the directory is like that of a run of 8 steps."""
    output = tmp_path / "model"
    assert cli.main(["train", *arguments(data, output), "--finish"]) == 1
    assert "--finish: " in (said := capsys.readouterr().err)
    assert "has no checkpoint yet" in said
    step = Trainer._step

    def stopped(trainer: Trainer, given: Any) -> None:
        if trainer._state.step == 9:
            raise KeyboardInterrupt
        step(trainer, given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stopped)
        with contextlib.suppress(KeyboardInterrupt):
            cli.main(["train", *arguments(data, output)])
    assert not manifest.is_finished(str(output))
    assert cli.main(["train", *arguments(data, output), "--finish"]) == 0
    assert "ended at step 8: --finish was given" in capsys.readouterr().err
    whole = tmp_path / "eight"
    assert cli.main(["train", *arguments(data, whole, max_steps=8)]) == 0
    found, wanted = (manifest.read(str(path), "train", "x") for path in (output, whole))
    assert found.figures == wanted.figures
    for name in ("best.json", "history.json", "checkpoints/step-00000008/model.safetensors"):
        assert (output / name).read_bytes() == (whole / name).read_bytes()
    assert cli.main(["train", *arguments(data, output)]) == 0
    assert "is finished already, skipped" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(data: dict[str, str], tmp_path: Path) -> None:
    assert cli.main(["train", *arguments(data, tmp_path / "m"), "--dry-run"]) == 0
    assert not (tmp_path / "m").exists()


def check_close(found: Path, wanted: Path, step: int = 12) -> None:
    """Two runs of the same plan that differ in rounding only."""
    small_runs.check_curves(found, wanted)
    checkpoint = Path("checkpoints", f"step-{step:08d}")
    for name in ("model.safetensors", "optimiser.safetensors"):
        tensors, others = (load_file(path / checkpoint / name) for path in (found, wanted))
        assert set(tensors) == set(others)
        for tensor, value in tensors.items():
            np.testing.assert_allclose(value, others[tensor], rtol=1e-4, atol=1e-5)


def test_two_processes_under_torchrun_give_what_one_gives(
    data: dict[str, str], tmp_path: Path
) -> None:
    """Without dropout, for 50 updates: each one's loss. A batch of a single pair leaves the second
    process without a share."""
    values = {"max_steps": 50, "validate_every": 20}
    call = [
        *command("torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *("-m", "rareword.pipelines.train", *arguments(data, tmp_path / "two", **values)),
    ]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "2 x cpu" in done.stderr
    assert done.stderr.count("ended at step 50") == 1
    assert cli.main(["train", *arguments(data, tmp_path / "one", **values)]) == 0
    check_close(tmp_path / "two", tmp_path / "one", 50)
    both = [recorded(tmp_path / name) for name in ("two", "one")]
    losses = [[line["loss"] for line in lines if line["kind"] == "train"] for lines in both]
    assert len(losses[0]) == 50
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for left, right in zip(*both, strict=True):
        for name in ("kind", "reason", "samples"):
            assert left.pop(name, None) == right.pop(name, None)
        assert left == pytest.approx(right, rel=1e-4)
    assert manifest.read(str(tmp_path / "two"), "train", "--model").figures["steps"] == 50


def kill_at(call: list[str], words: str) -> None:
    """Sends kill -9 to the job's process alone once it prints the words; workers must follow it."""
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(words in line for line in process.stderr)
        process.kill()
        process.stderr.read()  # ends when the last worker is gone


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(
    data: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With dropout; the job is long enough to be killed before it ends by itself."""
    values = {"dropout": 0.2, "max_steps": 200, "validate_every": 100, "checkpoint_every": 10}
    values |= {"log_every": 7}
    killed = arguments(data, tmp_path / "killed", **values)
    kill_at([*command("rareword.pipelines.cli"), "train", *killed], "step 28,")
    assert not manifest.is_finished(str(tmp_path / "killed"))
    assert cli.main(["train", *killed]) == 0
    assert "going on from step" in capsys.readouterr().err
    assert cli.main(["train", *arguments(data, tmp_path / "whole", **values)]) == 0
    assert artifacts(tmp_path / "killed") == artifacts(tmp_path / "whole")
    assert recorded(tmp_path / "killed") == recorded(tmp_path / "whole")


def test_two_processes_killed_go_on_as_one(
    data: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The feed's position means the same for any number of processes."""
    values = {"checkpoint_every": 1}
    killed = arguments(data, tmp_path / "killed", processes=2, **values)
    kill_at([*command("rareword.pipelines.cli"), "train", *killed], "step 3,")
    assert cli.main(["train", *arguments(data, tmp_path / "killed", **values)]) == 0
    assert "going on from step" in capsys.readouterr().err
    assert cli.main(["train", *arguments(data, tmp_path / "whole", **values)]) == 0
    check_close(tmp_path / "killed", tmp_path / "whole")


def test_a_failing_worker_ends_the_job_with_its_cause(data: dict[str, str], tmp_path: Path) -> None:
    call = [
        *command("rareword.pipelines.cli"),
        *("train", *arguments(data, tmp_path / "m", processes=2, learning_rate=1e38)),
    ]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("rareword train: training broke down at step")
    assert (tmp_path / "m" / "failed-batch.json").exists()


def test_other_vocabulary_in_dev_is_refused_naming_both(
    data: dict[str, str], tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    other = write_segmented(tmp_path / "other", [([3], [3])], letters=7)
    options = TrainOptions(segmented=data["segmented"], dev=str(other), output="memory://x")
    with pytest.raises(RarewordError) as caught:
        job.execute(train.JOB, options)
    for directory in (data["segmented"], str(other)):
        recorded = manifest.read(directory, "segment", "x").rules["vocabulary"]
        assert recorded[:12] in str(caught.value)
    assert "--dev" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"segmented": "/nowhere"}, "--segmented: /nowhere does not exist"),
        ({"hidden": 9}, "--hidden: 9 is odd"),
        ({"batch": 5, "batch_unit": "tokens"}, "--batch: 5 tokens cannot hold"),
        ({"max_length": 0}, "--max-length: 0 is below 1"),
        ({"beam": 5}, "unknown argument --beam; did you mean"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_nothing(
    data: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    values: dict[str, object],
    sentence: str,
) -> None:
    output = tmp_path / "model"
    assert cli.main(["train", *arguments(data, output, **values)]) == 1
    assert sentence in capsys.readouterr().err
    assert not output.exists()


def test_pairs_left_out_are_counted_and_said(
    tmp_path: Path, write_segmented: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [([3, 4], [5]), ([3], []), ([3] * 4, [4]), ([4], [5] * 4), ([5, 6], [6]), ([], [])]
    data = {
        name: str(write_segmented(tmp_path / name, rows, letters=6, group=2))
        for name in ("segmented", "dev")
    }
    assert cli.main(["train", *arguments(data, tmp_path / "m", max_length=3, max_steps=2)]) == 0
    said = capsys.readouterr().err
    assert "2 pairs (left out: 2 over --max-length, 2 with an empty side)" in said
    figures = manifest.read(str(tmp_path / "m"), "train", "--model").figures
    names = ("pairs", "pairs_too_long", "pairs_blank", "dev_pairs")
    assert [figures[name] for name in names] == [2, 2, 2, 4]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_damaged_shard_is_refused_before_the_first_step(
    data: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], processes: int
) -> None:
    """With two processes only one of them reads it."""
    shard = Path(data["segmented"], "part-00001-of-00002.parquet")
    content = bytearray(shard.read_bytes())
    content[40:60] = bytes(20)
    shard.write_bytes(content)
    assert cli.main(["train", *arguments(data, tmp_path / "m", processes=processes)]) == 1
    said = capfd.readouterr().err
    assert f"{shard}: row group 0 is damaged" in said
    assert "step 1" not in said
    assert not (tmp_path / "m" / "checkpoints").exists()


def test_models_are_written_to_urls(data: dict[str, str]) -> None:
    from rareword.trainer.checkpoints import load_model

    output = f"memory://{os.getpid()}-{time.monotonic_ns()}/model"
    options = TrainOptions(**{**TINY, **data, "output": output, "quiet": True})
    found = job.execute(train.JOB, options)
    assert load_model(output, "latest").step == found.figures["steps"] == 12


def test_without_tensorboard_the_option_says_what_to_install(
    data: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    call = [*arguments(data, tmp_path / "m"), "--tensorboard"]
    assert cli.main(["train", *call]) == 1
    sentence = "--tensorboard needs the library tensorboard: pip install 'rareword[tensorboard]'"
    assert capsys.readouterr().err == f"rareword train: {sentence}\n"
    assert not (tmp_path / "m").exists()


def test_tensorboard_events_lie_beside_the_model(data: dict[str, str], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    output = tmp_path / "m"
    assert cli.main(["train", *arguments(data, output, max_steps=3), "--tensorboard"]) == 0
    events = EventAccumulator(str(output / "tensorboard"))
    events.Reload()
    losses = [line["loss"] for line in recorded(output) if line["kind"] == "train"]
    found = [event.value for event in events.Scalars("train/loss")]
    assert found == pytest.approx(losses)
    assert not any(name.startswith("tensorboard") for name in artifacts(output))


@pytest.mark.parametrize("finished", [True, False])
def test_a_worker_that_breaks_down_after_the_manifest_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    """The launcher ends with an error; whether that matters is for the manifest to say."""
    output = tmp_path / "model"
    if finished:
        storage.write_json(str(output / manifest.MANIFEST_NAME), {})
    start = subprocess.Popen
    monkeypatch.setattr(
        train.subprocess,
        "Popen",
        lambda call, **how: start([sys.executable, "-c", "raise SystemExit(1)"], **how),
    )
    options = TrainOptions(segmented="", dev="", output=str(output), processes=2)
    if finished:
        train._launch(options)
    else:
        with pytest.raises(RarewordError, match="torch's launcher ended with code 1"):
            train._launch(options)


# ---- BPE-dropout ----


def write_bpe(directory: Path, rows: int) -> str:
    """A `segmented` directory as `segment` writes it, of words that merges make."""
    import oracles
    import pyarrow as pa

    from rareword.schemas import tables, vocabulary
    from rareword.schemas.merges import Merge, Symbol
    from rareword.transforms import segmenters, segmenting
    from rareword.transforms.bpe import BpeSegmenter

    lines = ["lower newest low", "the newest widest", "low low"]
    learnt = oracles.learn_bpe(oracles.count_words(lines), 30, 1)
    one = BpeSegmenter([Merge(Symbol(*a), Symbol(*b), n) for (a, b), n in learnt])
    both = dict.fromkeys(tables.SIDES, one)
    counts = dict.fromkeys(tables.SIDES, np.ones(5, np.int64))
    words = pa.array(["lower", "newest", "low", "the", "widest"])
    found = segmenting.count_pieces(words, counts, both)
    rules = segmenters.VocabularyRules(joint=True)
    made = segmenters.build_vocabularies(found, rules, one.spells)
    encoded = one.encoder(made.source).encode(pa.array([lines[i % 3] for i in range(rows)]))
    column = pa.ListArray.from_arrays(pa.array(encoded.offsets, pa.int32()), encoded.ids)
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "source": column, "target": column})
    record = tables.write_shard(str(directory), tables.shard_name(0, 1), tables.SEGMENTED, [table])
    manifest.finish(
        manifest.Plan("segment", {}, {}),
        str(directory),
        tables.SEGMENTED,
        [record],
        files=[
            *segmenters.save(both, str(directory)),
            *vocabulary.write_both(made, str(directory)),
        ],
        rules={
            "text": {},
            "segmenter": {"kind": "bpe", "settings": segmenters.settings(both)},
            "vocabulary": made.hash,
        },
    )
    return str(directory)


def test_bpe_dropout_takes_the_segmenter_beside_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {
        "segmented": write_bpe(tmp_path / "train", 30),
        "dev": write_bpe(tmp_path / "dev", 6),
    }
    whole, by_tokens = tmp_path / "whole", {"batch": 200, "batch_unit": "tokens", "dropout": 0.1}
    changes = {**by_tokens, "bpe_dropout": 0.2, "bpe_dropout_side": "target"}
    assert cli.main(["train", *arguments(data, whole, **changes)]) == 0
    said = capsys.readouterr().err
    assert "epoch 1: BPE-dropout makes 1." in said
    assert cli.main(["train", *arguments(data, tmp_path / "plain", **by_tokens)]) == 0
    assert "BPE-dropout" not in capsys.readouterr().err
    assert cli.main(["train", *arguments(data, whole, **by_tokens)]) == 1
    assert "option 'bpe_dropout' differs: 0.2 there, 0.0 here" in capsys.readouterr().err


def test_bpe_dropout_needs_merges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = Path(write_bpe(tmp_path / "train", 9))
    text = (directory / "manifest.json").read_text()
    (directory / "manifest.json").write_text(text.replace('"bpe"', '"words"'))
    data = {"segmented": str(directory), "dev": str(directory)}
    assert cli.main(["train", *arguments(data, tmp_path / "m", bpe_dropout=0.1)]) == 1
    said = capsys.readouterr().err
    assert "was segmented by 'words', which has no merges to pass over" in said
    assert not (tmp_path / "m").exists()
    assert cli.main(["train", *arguments(data, tmp_path / "m", bpe_dropout_side="source")]) == 1
    assert "--bpe-dropout-side needs --bpe-dropout above 0" in capsys.readouterr().err
