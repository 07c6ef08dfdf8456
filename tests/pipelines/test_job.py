"""The frame of every job: refuse, skip, run, clean up. A toy job writes one shard."""

import io
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

from rareword.pipelines import job as jobs
from rareword.pipelines.job import Job
from rareword.schemas import manifest, options, storage, tables
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Plan
from rareword.schemas.options import JobOptions, option
from rareword.schemas.tables import CORPUS


@dataclass(frozen=True)
class Options(JobOptions):
    rows: int = option(3, help="rows to write", at_least=0)
    threads: int = option(1, help="threads", shapes_result=False)


def plan(given: Options) -> Plan:
    return Plan("toy", options.shaping(given), {"text": "abc"})


def write(given: Options, planned: Plan, arguments: Sequence[str] = ()) -> None:
    table = pa.table(
        {"id": range(given.rows), "source": ["a"] * given.rows, "target": ["b"] * given.rows},
        schema=CORPUS.fields,
    )
    shard = tables.write_shard(given.output, "part-00000-of-00001.parquet", CORPUS, [table])
    manifest.finish(planned, given.output, CORPUS, [shard], figures={"words": 7})


def toy(work: Callable[[Options, Plan, Sequence[str]], None] = write, **changes: Any) -> Job:
    return replace(Job("toy", "A toy.", Options, plan, work, uses_beam=False), **changes)


def refuse_to_work(given: Options, planned: Plan, arguments: Sequence[str]) -> None:
    raise AssertionError("a finished job was run again")


@pytest.fixture
def given(tmp_path: Path) -> Options:
    return Options(output=str(tmp_path / "out"))


def files(given: Options) -> list[str]:
    return storage.list_files(given.output)


# ---- run and skip ----


def test_a_finished_job_has_a_manifest_and_no_start_mark(
    given: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    found = jobs.execute(toy(), given)
    assert found.rows == 3
    assert files(given) == ["manifest.json", "part-00000-of-00001.parquet"]
    assert "toy: 3 rows, words 7 in " in capsys.readouterr().err


def test_the_same_work_is_skipped_and_said_so(
    given: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    first = jobs.execute(toy(), given)
    again = jobs.execute(toy(refuse_to_work), replace(given, threads=8))
    assert again == first
    assert f"toy: {given.output} is finished already, skipped" in capsys.readouterr().err


def test_quiet_is_quiet(given: Options, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        jobs.execute(toy(), replace(given, quiet=True))
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    given: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.execute(toy(refuse_to_work), replace(given, dry_run=True))
    assert not storage.exists(given.output)
    out = capsys.readouterr().out
    assert f"toy would write {given.output}" in out
    assert "option rows: 3" in out
    jobs.execute(toy(), given)
    jobs.execute(toy(refuse_to_work), replace(given, dry_run=True))
    assert "finished already" in capsys.readouterr().out


def test_the_command_line_runs_the_job(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert jobs.run(toy(), ["--output", out, "--rows", "5", "--quiet"]) == 0
    assert manifest.read(out, "toy", "--output").rows == 5


# ---- other content ----


def test_another_run_is_refused_with_the_option_that_differs(given: Options) -> None:
    jobs.execute(toy(), given)
    before = {name: (Path(given.output) / name).read_bytes() for name in files(given)}
    with pytest.raises(
        RarewordError, match=r"^--output: .* another run \(option 'rows' differs: 3 there, 4 here"
    ):
        jobs.execute(toy(refuse_to_work), replace(given, rows=4))
    assert {name: (Path(given.output) / name).read_bytes() for name in files(given)} == before


def test_another_run_is_refused_with_the_input_that_differs(given: Options) -> None:
    def other(given: Options) -> Plan:
        return replace(plan(given), inputs={"text": "xyz"})

    jobs.execute(toy(), given)
    with pytest.raises(RarewordError, match=r"another run \(input 'text' differs\)"):
        jobs.execute(toy(refuse_to_work, plan=other), given)


def test_another_job_is_refused_by_its_name(given: Options) -> None:
    jobs.execute(toy(), given)
    with pytest.raises(RarewordError, match=r"holds another run \(of `toy`\)"):
        jobs.execute(toy(refuse_to_work, name="game", plan=lambda o: Plan("game", {}, {})), given)


def test_overwrite_replaces_another_run(given: Options) -> None:
    jobs.execute(toy(), given)
    (Path(given.output) / "old.txt").write_text("old")
    found = jobs.execute(toy(), replace(given, rows=4, overwrite=True))
    assert found.rows == 4
    assert files(given) == ["manifest.json", "part-00000-of-00001.parquet"]


def test_overwrite_does_not_do_the_same_work_twice(given: Options) -> None:
    jobs.execute(toy(), given)
    jobs.execute(toy(refuse_to_work), replace(given, overwrite=True))


def test_a_damaged_result_is_refused_and_replaced_by_overwrite(given: Options) -> None:
    jobs.execute(toy(), given)
    (Path(given.output) / "part-00000-of-00001.parquet").write_bytes(b"torn")
    with pytest.raises(RarewordError, match="run the job again with --overwrite"):
        jobs.execute(toy(refuse_to_work), given)
    assert jobs.execute(toy(), replace(given, overwrite=True)).rows == 3


@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_files_are_refused_and_stay(given: Options, overwrite: bool) -> None:
    Path(given.output).mkdir()
    (Path(given.output) / "thesis.txt").write_text("years of work")
    with pytest.raises(RarewordError, match=r"files that no rareword job wrote \(thesis\.txt"):
        jobs.execute(toy(refuse_to_work), replace(given, overwrite=overwrite))
    assert files(given) == ["thesis.txt"]


@pytest.mark.parametrize("text", ["[]", '{"name": "web app"}'])
def test_a_foreign_manifest_is_refused(given: Options, text: str) -> None:
    Path(given.output).mkdir()
    (Path(given.output) / "manifest.json").write_text(text)
    with pytest.raises(RarewordError, match=r"manifest\.json was not written by rareword"):
        jobs.execute(toy(refuse_to_work), given)
    assert files(given) == ["manifest.json"]


def test_an_empty_directory_is_used(given: Options) -> None:
    Path(given.output).mkdir()
    assert jobs.execute(toy(), given).rows == 3


def test_a_file_is_no_directory(given: Options) -> None:
    Path(given.output).write_text("text")
    with pytest.raises(RarewordError, match="is a file, not a directory"):
        jobs.execute(toy(refuse_to_work), given)


@pytest.mark.parametrize("place", ["below a file", "/proc/rareword"])
def test_no_write_permission_is_a_sentence(tmp_path: Path, place: str) -> None:
    """Below a file and below /proc not even root can write."""
    if place == "below a file":
        (tmp_path / "file").write_text("text")
        place = str(tmp_path / "file" / "out")
    with pytest.raises(RarewordError, match=rf"^cannot write {place}/started\.json: "):
        jobs.execute(toy(refuse_to_work), Options(output=place))


# ---- failures ----


def fail(error: BaseException) -> Callable[[Options, Plan, Sequence[str]], None]:
    def work(given: Options, planned: Plan, arguments: Sequence[str]) -> None:
        storage.write_bytes(storage.join(given.output, "half.bin"), b"half")
        raise error

    return work


@pytest.mark.parametrize("error", [RarewordError("no"), ValueError("no"), KeyboardInterrupt()])
def test_a_failed_job_leaves_nothing(given: Options, error: BaseException) -> None:
    with pytest.raises(type(error)):
        jobs.execute(toy(fail(error)), given)
    assert not storage.exists(given.output)


def test_a_plan_that_fails_touches_nothing(given: Options) -> None:
    def refuse(given: Options) -> Plan:
        raise RarewordError("--text: no file x")

    with pytest.raises(RarewordError, match="--text: no file x"):
        jobs.execute(toy(refuse_to_work, plan=refuse), given)
    assert not storage.exists(given.output)


def test_a_job_without_a_manifest_at_its_end_has_failed(given: Options) -> None:
    with pytest.raises(RarewordError, match="is not finished"):
        jobs.execute(toy(lambda *_: None), given)


def killed(given: Options, **changes: Any) -> None:
    """Leaves the directory as kill -9 in the middle of the work leaves it."""
    job = toy(fail(KeyboardInterrupt()), resumes=True, **changes)
    with pytest.raises(KeyboardInterrupt):
        jobs.execute(job, given)


def test_what_a_killed_job_left_is_cleared_away(given: Options) -> None:
    killed(given)
    (Path(given.output) / "a.parquet.tmp-123").write_text("torn")
    assert jobs.execute(toy(), given).rows == 3
    assert files(given) == ["manifest.json", "part-00000-of-00001.parquet"]


def test_a_job_that_resumes_finds_what_it_left(given: Options) -> None:
    seen = []

    def work(given: Options, planned: Plan, arguments: Sequence[str]) -> None:
        seen.extend(files(given))
        write(given, planned)

    killed(given)
    jobs.execute(toy(work, resumes=True), given)
    assert seen == ["half.bin", "started.json"]


def test_an_unfinished_run_that_could_go_on_is_not_thrown_away(given: Options) -> None:
    killed(given)
    with pytest.raises(
        RarewordError, match=r"holds an unfinished run \(option 'rows' differs: 3 there"
    ):
        jobs.execute(toy(refuse_to_work, resumes=True), replace(given, rows=4))
    assert files(given) == ["half.bin", "started.json"]
    again = replace(given, rows=4, overwrite=True)
    assert jobs.execute(toy(write, resumes=True), again).rows == 4


def test_an_unfinished_other_job_is_refused(given: Options) -> None:
    killed(given, name="game")
    with pytest.raises(RarewordError, match=r"holds an unfinished run \(of `game`\)"):
        jobs.execute(toy(refuse_to_work), given)


def test_sigterm_ends_a_job_as_ctrl_c_does(given: Options) -> None:
    def work(given: Options, planned: Plan, arguments: Sequence[str]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        raise AssertionError("went on after SIGTERM")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        jobs.execute(toy(work), given)
    assert signal.getsignal(signal.SIGTERM) is before
    assert not storage.exists(given.output)


# ---- Beam ----


def build(pipeline: beam.Pipeline, given: Options, planned: Plan) -> None:
    def check(number: int) -> int:
        if number == 2:
            raise RarewordError("in.txt, row 2: no; mend it")
        return number

    _ = pipeline | "Numbers" >> beam.Create([1, 2]) | "Check" >> beam.Map(check)


def test_an_error_in_a_worker_is_the_same_sentence(given: Options) -> None:
    with pytest.raises(RarewordError) as error:
        jobs.execute(toy(jobs.beam_work(build), uses_beam=True), given)
    assert str(error.value) == "in.txt, row 2: no; mend it"
    assert not storage.exists(given.output)


def test_the_sentence_is_found_in_the_text_of_a_remote_failure(given: Options) -> None:
    remote = RuntimeError(
        "Pipeline failed in state FAILED: Traceback (most recent call last):\n  File ...\n"
        "rareword.schemas.errors.RarewordError: a.parquet: torn [while running 'X']\n\nmore"
    )
    with pytest.raises(RarewordError, match=r"^a\.parquet: torn$"):
        jobs.execute(toy(fail(remote)), given)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--direct_running_mode=multi_threading"],
        ["--runner=DirectRunner", "--direct_running_mode", "multi_threading"],
    ],
)
def test_the_mode_that_loses_data_is_refused_with_the_reason(
    given: Options, arguments: list[str]
) -> None:
    with pytest.raises(RarewordError, match="multi_threading is refused, because Beam loses data"):
        jobs.execute(toy(refuse_to_work, uses_beam=True), given, arguments)
    assert not storage.exists(given.output)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--row=4"], "unknown argument --row; did you mean --rows?"),
        (["--runer=X"], "unknown argument --runer; did you mean --runner?"),
        (["file.txt"], "unknown argument file.txt; see --help"),
        (["--runner=FnApiRuner"], "--runner: FnApiRuner is not to be had: Unexpected pipeline"),
        (["--runner=no.such.Runner"], "--runner: no.such.Runner is not to be had: "),
        (["--direct_num_worker", "2"], "unknown argument --direct_num_worker; did you mean"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest(
    given: Options, arguments: list[str], sentence: str
) -> None:
    with pytest.raises(RarewordError) as error:
        jobs.execute(toy(refuse_to_work, uses_beam=True), given, arguments)
    assert str(error.value).startswith(sentence)


def test_beams_own_options_reach_the_work(given: Options) -> None:
    seen: list[str] = []

    def work(given: Options, planned: Plan, arguments: Sequence[str]) -> None:
        seen.extend(arguments)
        write(given, planned)

    arguments = ["--runner=FnApiRunner", "--direct_running_mode=in_memory", "--job_name=x"]
    jobs.execute(toy(work, uses_beam=True), given, arguments)
    assert seen == arguments


def test_a_job_without_beam_refuses_beams_options(given: Options) -> None:
    with pytest.raises(RarewordError, match="unknown argument --runner"):
        jobs.execute(toy(refuse_to_work), given, ["--runner=FnApiRunner"])


# ---- progress ----


def test_a_log_gets_plain_lines_of_progress(
    given: Options, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_LOG_EVERY_S", 0.05)

    def work(given: Options, planned: Plan, arguments: Sequence[str]) -> None:
        for number in range(2):
            storage.write_bytes(storage.join(given.output, tables.shard_name(number, 4)), b"x")
        time.sleep(0.3)
        write(given, planned)

    jobs.execute(toy(work, progress=jobs.count_files), given)
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("toy: 2 of 4 shards, ") for line in lines)
    assert not any("\x1b" in line or "\r" in line for line in lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as a terminal reads it: `\\r` goes to the line's start, `\\x1b[K` clears from there."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("COLUMNS", "20")
    console = jobs.Console()
    console.show("step 1")
    console.show("step 2")
    console.say("validation")
    console.say("another line")
    console.show("a line that is wider than this terminal")
    seen = [line.split("\r\x1b[K")[-1] for line in stream.getvalue().split("\n")]
    assert seen == ["validation", "another line", "a line that is wide"]
    console.clear()
    assert stream.getvalue().endswith("wide\r\x1b[K")
    written = stream.getvalue()
    console.clear()
    assert stream.getvalue() == written


def test_a_log_gets_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = jobs.Console()
    console.show("step 1" * 99)
    console.say("validation")
    console.clear()
    assert capsys.readouterr().err == "step 1" * 99 + "\nvalidation\n"
