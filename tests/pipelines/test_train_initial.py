"""--init-from and --freeze through the whole job."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_runs
from safetensors.numpy import load_file

from rareword.pipelines import cli
from rareword.schemas import manifest

TINY = small_runs.SIZES | {
    "max_steps": 4,
    "validate_every": 2,
    "checkpoint_every": 1,
    "keep": 9,
    "bleu_pairs": 0,
}


@pytest.fixture
def run(
    tmp_path: Path, write_segmented: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Trains on letters; `run(output, letters, ...)` gives the exit code and what was said."""

    def train(output: str, letters: int, **values: object) -> tuple[int, str]:
        data = {}
        for name, count in (("segmented", 16), ("dev", 5)):
            folder = tmp_path / f"{name}-{letters}"
            if not folder.exists():
                generator = np.random.default_rng(count)
                rows = [generator.integers(3, 3 + letters, 4).tolist() for _ in range(count)]
                write_segmented(folder, [(row, row) for row in rows], letters=letters)
            data[name] = str(folder)
        merged = {**TINY, **data, "output": str(tmp_path / output), **values}
        capfd.readouterr()
        return cli.main(["train", *small_runs.words(merged)]), capfd.readouterr().err

    return train


def test_training_starts_from_an_older_model(
    tmp_path: Path, run: Callable[..., tuple[int, str]]
) -> None:
    assert run("old", 6)[0] == 0
    start = {"init_from": tmp_path / "old", "init_checkpoint": "step-00000003"}
    code, said = run("new", 8, **start)
    assert code == 0, said
    assert (
        f"parameters of {tmp_path / 'old'} (step-00000003): 6 source pieces taken and 2 new, "
        "6 target pieces taken and 2 new; the optimiser starts afresh"
    ) in said
    found = manifest.read(str(tmp_path / "new"), "train", "--model")
    old = manifest.read(str(tmp_path / "old"), "train", "--model")
    assert found.inputs["init_from"] == old.content
    assert found.options["init_checkpoint"] == "step-00000003"

    # Another older model is another run; the same one elsewhere is the same.
    shutil.copytree(tmp_path / "old", tmp_path / "moved")
    assert "is finished already" in run("new", 8, **{**start, "init_from": tmp_path / "moved"})[1]
    assert run("other", 6, seed=2)[0] == 0
    code, said = run("new", 8, **{**start, "init_from": tmp_path / "other"})
    assert code == 1
    assert "input 'init_from' differs" in said
    code, said = run("new", 8, **{**start, "init_checkpoint": "latest"})
    assert "option 'init_checkpoint' differs" in said


def test_a_run_that_goes_on_does_not_read_the_older_model_again(
    tmp_path: Path, run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rareword.trainer import checkpoints
    from rareword.trainer.train import Trainer

    assert run("old", 6)[0] == 0
    start = {"init_from": tmp_path / "old", "dropout": 0.2}
    assert run("whole", 8, **start)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_validate", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run("broken", 8, **start)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "take_parameters", lambda *arguments: 1 / 0)
        code, said = run("broken", 8, **start)
    assert code == 0
    assert "going on from step 1" in said
    assert "optimiser starts afresh" not in said
    whole, broken = (manifest.read(str(tmp_path / n), "train", "x") for n in ("whole", "broken"))
    assert whole.content == broken.content


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"init_from": "nowhere"}, "--init-from: nowhere does not exist"),
        ({"init_checkpoint": "latest"}, "--init-checkpoint needs --init-from"),
        (
            {"init_checkpoint": "step-7"},
            "has no checkpoint 'step-7'; there are best, latest, step-",
        ),
        ({"hidden": 12}, "give the options of that model: --hidden 16"),
    ],
)
def test_what_cannot_start_is_a_sentence(
    tmp_path: Path, run: Callable[..., tuple[int, str]], values: dict[str, object], sentence: str
) -> None:
    if "needs" not in sentence and "nowhere" not in sentence:
        assert run("old", 6)[0] == 0
        values = {"init_from": tmp_path / "old", **values}
    code, said = run("new", 6, **values)
    assert code == 1
    assert sentence in said


def test_frozen_groups_stay_and_the_run_says_so(
    tmp_path: Path, run: Callable[..., tuple[int, str]]
) -> None:
    code, said = run("m", 6, tied="target", freeze="source-embedding output")
    assert code == 0
    assert (
        "not updated (--freeze): output.bias, output.weight, source_embedding.weight, "
        "target_embedding.weight"
    ) in said
    first, last = (
        load_file(tmp_path / "m" / "checkpoints" / f"step-0000000{step}" / "model.safetensors")
        for step in (1, 4)
    )
    still = {name for name, value in first.items() if np.array_equal(value, last[name])}
    assert still == {n for n in first if n.startswith(("output", "source_emb", "target_emb"))}
