"""The train-ensemble job from end to end: its directory, an interruption, and what decodes it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_runs
from safetensors.numpy import load_file

from rareword.pipelines import cli, train_ensemble
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.trainer import checkpoints, ensemble
from rareword.trainer.search import SearchOptions, translate

TINY = {
    "embedding": "8",
    "hidden": "12",
    "encoder-hidden": "8",
    "dropout": "0.2",
    "tied": "none",
    "batch": "8",
    "batch-unit": "sentences",
    "precision": "float32",
    "max-steps": "8",
    "validate-every": "4",
    "checkpoint-every": "2",
    "keep": "1",
    "bleu-pairs": "5",
    "samples": "0",
    "threads": "1",
    "device": "cpu",
    "last": "2",
    "continue-steps": "3",
}
EMBEDDINGS = ("source_embedding.weight", "target_embedding.weight")


@pytest.fixture(scope="module")
def data(
    tmp_path_factory: pytest.TempPathFactory, write_segmented: Callable[..., Path]
) -> dict[str, str]:
    return small_runs.copies(write_segmented, tmp_path_factory.mktemp("data"), 36)


def arguments(data: dict[str, str], output: Path, *more: str, **values: str) -> list[str]:
    merged = {**TINY, **data, "output": str(output), **values}
    words = [part for name, value in merged.items() for part in (f"--{name}", value)]
    return ["train-ensemble", *words, *more]


@pytest.fixture(scope="module")
def finished(data: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("ensemble") / "model"
    assert cli.main(arguments(data, output, "--quiet")) == 0
    return output


def parameters(directory: Path, checkpoint: str) -> dict[str, np.ndarray]:
    return load_file(directory / "checkpoints" / checkpoint / "model.safetensors")


def last_checkpoint(directory: Path) -> str:
    return str(json.loads((directory / "latest.json").read_text())["checkpoint"])


MEMBERS = [
    f"clip-{clip}-step-{step:08d}" for clip, steps in ((1, (6, 8)), (5, (6, 8))) for step in steps
]


def test_the_last_checkpoints_of_each_training_go_on_with_frozen_embeddings(
    finished: Path,
) -> None:
    found = json.loads((finished / "ensemble.json").read_text())
    assert [member["name"] for member in found["members"]] == MEMBERS
    folders = sorted(path.name for path in finished.iterdir() if path.is_dir())
    assert folders == sorted(["clip-1", "clip-5", *MEMBERS])
    seeds = []
    for name in folders:
        directory = finished / name
        one = manifests.read(str(directory), "train", "x")
        seeds.append(one.options["seed"])
        assert one.options["clip"] == float(name.split("-")[1])
        assert one.figures["steps"] == (8 if name.startswith("clip") and "step" not in name else 3)
        if name not in MEMBERS:
            assert one.options["freeze"] == []
            continue
        training, checkpoint = finished / name[:6], name[7:]
        before = parameters(training, checkpoint)
        after = parameters(directory, last_checkpoint(directory))
        still = {key for key, value in before.items() if np.array_equal(value, after[key])}
        assert still == set(EMBEDDINGS)
        base = manifests.read(str(training), "train", "x")
        assert one.inputs["init_from"] == base.content
    assert len(set(seeds)) == len(folders)  # so that they are independent


def test_the_manifest_vouches_for_the_members_files(finished: Path) -> None:
    found = manifests.read(str(finished), "train-ensemble", "x")
    own = {"ensemble.json", "vocabulary-source.parquet", "vocabulary-target.parquet"}
    names = {record.name: record for record in found.files}
    assert {name for name in names if "/" not in name} == own
    assert {name.split("/")[0] for name in names if "/" in name} == set(MEMBERS)
    for name, record in names.items():
        assert record.checksum == storage.sha256(str(finished / name))
    assert all(f"{member}/best.json" in names for member in MEMBERS)


def test_a_training_below_is_the_one_that_train_makes(
    finished: Path, data: dict[str, str], tmp_path: Path
) -> None:
    ours = {k: v for k, v in TINY.items() if k not in ("last", "continue-steps", "keep")}
    for name, more in (
        ("clip-5", {"clip": "5", "seed": "2", "keep": "2"}),
        (
            MEMBERS[3],
            {
                **{"clip": "5", "seed": "6", "keep": "1", "patience": "0", "max-steps": "3"},
                **{"max-epochs": "3", "learning-rate": "0.001"},
                **{"init-from": str(finished / "clip-5"), "init-checkpoint": "step-00000008"},
            },
        ),
    ):
        merged = {**ours, **data, **more, "output": str(tmp_path / name)}
        words = [part for key, value in merged.items() for part in (f"--{key}", value)]
        if "init-from" in more:
            words += ["--freeze", "source-embedding", "target-embedding"]
        assert cli.main(["train", *words, "--quiet"]) == 0
        one, other = (manifests.read(str(p / name), "train", "x") for p in (tmp_path, finished))
        assert one.content == other.content


@pytest.mark.parametrize("monitor", ["loss", "bleu"])
def test_the_best_member_is_the_best_on_the_development_data(
    finished: Path, monitor: str, data: dict[str, str], tmp_path: Path
) -> None:
    output = finished
    if monitor == "bleu":
        output = tmp_path / "bleu"
        values = {"monitor": "bleu", "last": "1"}
        assert cli.main(arguments(data, output, "--quiet", **values)) == 0
    found = json.loads((output / "ensemble.json").read_text())
    figures = {}
    for member in found["members"]:
        one = manifests.read(str(output / member["name"]), "train", "x")
        history = json.loads((output / member["name"] / "history.json").read_text())
        figures[member["name"]] = (min if monitor == "loss" else max)(
            entry[monitor] for entry in history
        )
        assert member["content"] == one.content
    key = "dev_loss" if monitor == "loss" else "dev_bleu_on_tokens"
    best = (min if monitor == "loss" else max)(figures.values())
    manifest = manifests.read(str(output), "train-ensemble", "x")
    assert manifest.figures[key] == best == figures[found["best"]]
    assert manifest.figures["members"] == len(figures)
    assert manifest.figures["best"] == found["best"]


def decoded(data: dict[str, str], output: Path, *more: str) -> list[dict[str, Any]]:
    words = ["decode", "--segmented", data["dev"], "--output", str(output), "--beam=3"]
    assert cli.main([*words, "--threads=1", "--quiet", *more]) == 0
    found = manifests.read(str(output), "decode", "--output")
    return [row for url in found.urls for row in pq.read_table(url).to_pylist()]


def test_decoding_the_directory_is_search_with_all_its_members(
    finished: Path, data: dict[str, str], tmp_path: Path
) -> None:
    segmented = manifests.read(data["dev"], "segment", "x")
    sources = [
        np.array(s) for url in segmented.urls for s in pq.read_table(url)["source"].to_pylist()
    ]
    plans = {}
    for mean in ("log", "probability"):
        loaded = [checkpoints.load_model(str(finished / name)) for name in MEMBERS]
        both = ensemble.together(loaded, mean)  # type: ignore[arg-type]
        expected = translate(both, sources, SearchOptions(beam=3), "cpu")
        rows = decoded(data, tmp_path / mean, f"--model={finished}", f"--ensemble-mean={mean}")
        assert [row["score"] for row in rows] == pytest.approx(
            [h[0].score for h in expected], abs=1e-5
        )
        vocabulary = vocabularies.read_both(data["dev"]).target
        assert [row["pieces"] for row in rows] == [vocabulary.display(h[0].ids) for h in expected]
        plans[mean] = manifests.read(str(tmp_path / mean), "decode", "x").plan
    assert plans["log"] != plans["probability"]


def test_the_plan_of_decoding_is_that_of_its_models(
    finished: Path, data: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = json.loads((finished / "ensemble.json").read_text())["best"]
    decoded(data, tmp_path / "best", f"--model={finished}", "--members=best")
    decoded(data, tmp_path / "all", f"--model={finished}")
    one, every = (manifests.read(str(tmp_path / n), "decode", "x") for n in ("best", "all"))
    contents = [manifests.read(str(finished / n), "train", "x").content for n in MEMBERS]
    assert set(one.inputs) == {"segmented", "model"}
    assert not {"ensemble_mean", "members"} & set(one.options)
    assert [every.inputs[f"model {number}"] for number in range(1, 5)] == contents
    # Named one by one they are the same work, and so is the best.
    words = ["decode", "--segmented", data["dev"], "--beam=3", "--model"]
    for name, models in (("best", [best]), ("all", MEMBERS)):
        where = ["--output", str(tmp_path / name)]
        assert cli.main([*words, *(str(finished / model) for model in models), *where]) == 0
        assert "is finished already, skipped" in capsys.readouterr().err


def test_models_of_other_vocabularies_are_refused(
    finished: Path,
    data: dict[str, str],
    tmp_path: Path,
    write_segmented: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = [([3, 4], [3, 4])] * 9
    other = {n: str(write_segmented(tmp_path / n, pairs, letters=5)) for n in ("segmented", "dev")}
    words = [
        p for k, v in TINY.items() if k not in ("last", "continue-steps") for p in (f"--{k}", v)
    ]
    inputs = [p for k, v in other.items() for p in (f"--{k}", v)]
    model = tmp_path / "model"
    assert cli.main(["train", *words, *inputs, "--output", str(model), "--quiet"]) == 0
    words = ["decode", "--segmented", data["dev"], "--output", str(tmp_path / "o")]
    assert cli.main([*words, "--model", str(finished), str(model)]) == 1
    said = capsys.readouterr().err
    assert f"--model: {model} was trained with vocabulary" in said


def test_a_killed_run_goes_on_and_ends_with_the_same_content(
    finished: Path, data: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "model"
    words = arguments(data, output, "--log-every", "1")
    call = [sys.executable, "-m", "rareword.pipelines.cli", *words]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = 0
        for line in process.stderr:
            seen += f"training {MEMBERS[0]}" in line
            if seen and "step 2," in line:
                break
        process.kill()
    assert not manifests.is_finished(str(output))
    assert manifests.is_finished(str(output / "clip-1"))
    capfd.readouterr()
    assert cli.main(words) == 0
    said = capfd.readouterr().err
    assert f"train: {output}/clip-1 is finished already, skipped" in said
    one, other = (manifests.read(str(p), "train-ensemble", "x") for p in (output, finished))
    assert one.content == other.content
    assert cli.main(words) == 0
    assert f"train-ensemble: {output} is finished already, skipped" in capfd.readouterr().err


def test_without_continuation_the_trainings_are_the_members(
    data: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"continue-steps": "0", "clips": "0.5"}
    assert cli.main(arguments(data, tmp_path / "m", **values)) == 0
    found = json.loads((tmp_path / "m" / "ensemble.json").read_text())
    assert [member["name"] for member in found["members"]] == ["clip-0.5"]
    assert found["best"] == "clip-0.5"
    assert "best of 1 on the development data: clip-0.5 (loss " in capsys.readouterr().err


def test_fewer_checkpoints_than_asked_for_are_said(
    data: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"clips": "1", "last": "3", "max-steps": "2", "continue-steps": "1"}
    assert cli.main(arguments(data, tmp_path / "m", **values)) == 0
    assert "clip-1 has fewer checkpoints than --last 3: 1" in capsys.readouterr().err
    assert manifests.read(str(tmp_path / "m"), "train-ensemble", "x").figures["members"] == 1


@pytest.mark.parametrize("schedule", ["plateau", "linear"])
def test_the_learning_rate_of_a_continuation_is_that_of_its_checkpoint(
    data: dict[str, str], tmp_path: Path, schedule: str
) -> None:
    output = tmp_path / "m"
    # So high a rate makes the development loss worse, and worse is halved.
    values = {"clips": "1", "learning-rate": "3", "validate-every": "1", "halve-after": "1"}
    values |= {"schedule": schedule, "warmup": "2"}
    values["patience"] = "0"
    assert cli.main(arguments(data, output, "--quiet", **values, last="1")) == 0
    history = json.loads((output / "clip-1" / "history.json").read_text())
    rates = [entry["learning_rate"] for entry in history]
    assert rates[-1] < 3
    rate = train_ensemble.learning_rate(str(output / "clip-1"), "step-00000008")
    first = json.loads((output / "clip-1-step-00000008" / "history.json").read_text())[0]
    assert first["learning_rate"] == rate
    assert rate in (rates[-1], rates[-1] / 2)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--clip", "2"], "--clip: give --clips 2 instead"),
        (["--clips", "1", "1"], "--clips: give one value or more, each of them once"),
        (["--clips"], "--clips: give one value or more"),
        (["--clips", "-1"], "--clips: -1.0 is below 0"),
        (["--continue-freeze", "key"], "--continue-freeze: 'key' is none of the groups source-emb"),
        (["--hidden", "7"], "--hidden: 7 is odd"),
        (["--last", "0"], "--last: 0 is below 1"),
    ],
)
def test_what_cannot_be_is_a_sentence_before_the_first_training(
    data: dict[str, str],
    tmp_path: Path,
    more: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(arguments(data, tmp_path / "m", *more)) == 1
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


def test_torchrun_is_refused(
    data: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(os.environ, "RANK", "0")
    assert cli.main(arguments(data, tmp_path / "m")) == 1
    assert "is not to be started by torchrun; use --processes" in capsys.readouterr().err
    assert storage.list_files(str(tmp_path / "m")) == []
