"""The command line: quick help, exit codes, one sentence for an error."""

import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

from rareword.pipelines import cli


def job_module(name: str):
    return import_module(f"rareword.pipelines.{name.replace('-', '_')}")


COMMANDS = [
    "learn-bpe", "apply-bpe", "get-vocab", "learn-joint-bpe-and-vocab", "segment-char-ngrams",
]  # fmt: skip
CALLS = [[], *([name] for name in cli.JOBS), *(["subword-nmt", name] for name in COMMANDS)]


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_help_imports_neither_beam_nor_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom rareword.pipelines.cli import main\n"
        f"try:\n    main({[*arguments, '--help']!r})\nexcept SystemExit as stop:\n"
        "    assert stop.code == 0, stop.code\n"
        "print('LOADED', *(n for n in ('apache_beam', 'torch', 'sacrebleu', 'jinja2', 'fsspec') "
        "if n in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("usage: rareword ")
    assert done.stdout.splitlines()[-1] == "LOADED"


@pytest.mark.parametrize("name", cli.JOBS)
def test_every_job_has_its_module_and_its_name(name: str) -> None:
    module = job_module(name)
    assert callable(module.run)
    without = ("experiment", "export-segmenter", "run", "segment-text", "subword-nmt")
    if name not in without:
        assert module.JOB.name == name


def test_the_usage_lists_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:2] == "  "]
    assert listed == list(cli.JOBS)


def test_no_arguments_are_a_wrong_call() -> None:
    assert cli.main([]) == 2


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"rareword {metadata.version('rareword')}\n"


def test_a_mistyped_job_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["learn-merge"]) == 2
    assert (
        capsys.readouterr().err == "rareword: no job 'learn-merge'; did you mean 'learn-merges'?\n"
    )


def test_an_error_is_one_sentence_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "none")
    out = str(tmp_path / "out")
    assert cli.main(["count-words", "--corpus", missing, "--output", out]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"rareword count-words: --corpus: {missing} does not exist")
    assert len(captured.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_is_this_one() -> None:
    command = Path(sys.executable).with_name("rareword")
    done = subprocess.run([command, "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("rareword: no job 'nothing'")


def test_an_error_inside_the_graph_is_one_sentence_too(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\n")
    command = [
        sys.executable, "-m", "rareword.pipelines.cli", "prepare", "--source", "a.en",
        "--target", "a.de", "--source-language", "en", "--target-language", "de",
        "--output", "out",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "has 2 lines" in done.stderr
    assert not (tmp_path / "out").exists()
