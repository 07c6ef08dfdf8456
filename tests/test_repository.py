"""The repository keeps its own rules: imports, pins, documents that say what is true."""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rareword.pipelines import cli, export_segmenter, segment_text, subword_nmt
from rareword.schemas import options

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MAY_IMPORT = {
    "schemas": {"schemas"},
    "transforms": {"schemas", "transforms"},
    "trainer": {"schemas", "transforms", "trainer"},
    "pipelines": {"schemas", "transforms", "trainer", "pipelines"},
}


# ---- the code ----


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imported(path: Path) -> Iterator[str]:
    """All modules that a file imports, anywhere in it."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_run_one_way(folder: str) -> None:
    for path in (ROOT / folder).glob("*.py"):
        for module in imported(path):
            parts = module.split(".")
            if parts[0] == "rareword":
                assert parts[1] in MAY_IMPORT[folder], f"{path} imports {module}"
            if folder == "trainer":
                assert parts[0] != "apache_beam", f"{path} imports {module}"


def test_nothing_is_pickled_on_disk() -> None:
    forbidden = {"pickle", "dill", "shelve", "joblib"}
    for folder in MAY_IMPORT:
        for path in (ROOT / folder).glob("*.py"):
            assert not forbidden & {name.split(".")[0] for name in imported(path)}, path
            calls = [n.func for n in ast.walk(parse(path)) if isinstance(n, ast.Call)]
            assert not {"torch.save", "torch.load"} & set(map(ast.unparse, calls)), path


def test_a_missing_compiler_is_a_sentence_that_says_what_to_install(tmp_path: Path) -> None:
    missing = str(tmp_path / "c++")
    places = (f"--build-lib={tmp_path}/lib", f"--build-temp={tmp_path}/temp")
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", *places],
        cwd=ROOT,
        env={**os.environ, "CC": missing, "CXX": missing},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "rareword needs a C++17 compiler to build its kernels" in done.stderr
    assert "apt-get install g++" in done.stderr


# ---- the pins ----


def requirements() -> Iterator[Requirement]:
    """What setup.py asks for, with all extras."""
    tree = parse(ROOT / "setup.py")
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "setup"
    )
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    yield from map(Requirement, ast.literal_eval(given["install_requires"]))
    for extra in ast.literal_eval(given["extras_require"]).values():
        yield from map(Requirement, extra)


def test_every_requirement_has_a_pin_inside_its_range() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert sorted(map(canonicalize_name, pins)) == sorted(pins), "pins are named canonically"
    for requirement in requirements():
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} has no pin"
        assert requirement.specifier.contains(pin), f"{requirement} excludes its pin {pin}"


def test_no_package_index_is_named() -> None:
    for path in (ROOT / "Makefile", ROOT / "constraints.txt", ROOT / "pyproject.toml"):
        assert not re.search(r"https?://|index-url|find-links", path.read_text("utf-8")), path


# ---- the documents ----


def code_lines(path: Path) -> Iterator[str]:
    """The lines of a document's code blocks, continued ones joined."""
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", path.read_text("utf-8"), re.S | re.M):
        yield from block.replace("\\\n", " ").splitlines()


def flags_of(job: str, command: str) -> set[str]:
    if job in ("run", "experiment", "compare-segmenters"):
        module = import_module(f"rareword.pipelines.{job.replace('-', '_')}")
        return set(module.argument_parser()._option_string_actions)
    if job == "subword-nmt":
        (commands,) = subword_nmt.argument_parser()._subparsers._group_actions
        return set(commands.choices[command]._option_string_actions)
    if job == "segment-text":
        known = options.flags(segment_text.SegmentTextOptions)
    elif job == "export-segmenter":
        known = options.flags(export_segmenter.ExportSegmenterOptions)
    else:
        module = import_module(f"rareword.pipelines.{job.replace('-', '_')}")
        known = options.flags(module.JOB.options)
    return {*known, *(flag.replace("--", "--no-", 1) for flag in known), "--help"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_have_their_options(path: Path) -> None:
    for line in code_lines(path):
        if not line.startswith(("rareword ", "make ")):
            continue
        words = shlex.split(line, comments=True)
        if words[0] == "rareword" and words[1] not in ("JOB", "--version"):
            assert words[1] in cli.JOBS, f"{path.name}: {line}"
            known = flags_of(*words[1:3])
            for word in words[2:]:
                name = word.split("=")[0]
                if name.startswith("--") and "_" not in name and name != "--runner":
                    assert name in known, f"{path.name}: {name} in {line}"
        if words[0] == "make":
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)


def test_the_small_run_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for split, sentences in (("train", 9), ("dev", 2), ("test", 2)):
        for language, words in (
            ("en", "the small cat runs home"),
            ("de", "die kleine Katze läuft"),
        ):
            lines = [f"{words} {number}." for number in range(sentences)]
            Path(f"{split}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    small = ["--embedding=8", "--hidden=8", "--encoder-hidden=8", "--max-epochs=1", "--threads=1"]
    (block,) = re.findall(
        r"^## A small run.*?^```\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.S | re.M
    )
    for line in block.replace("\\\n", " ").splitlines():
        command, job, *arguments = shlex.split(line)
        assert command == "rareword"
        assert cli.main([job, *arguments, "--quiet", *(small if job == "train" else ())]) == 0
    assert Path("run/report/index.html").exists()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_in_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name}: {target}"


@pytest.mark.parametrize("job", cli.JOBS)
def test_every_job_has_its_page(job: str) -> None:
    page = ROOT / "docs" / f"{job}.md"
    assert page.read_text("utf-8").startswith(f"# {job}\n")
    assert f"({job}.md)" in (ROOT / "docs" / "index.md").read_text("utf-8")


def test_the_long_text_of_the_licence_is_there() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
