"""What every job does around its own work: plan, refuse or skip, run, clean up, report.

A job module holds its options (a dataclass), a `plan` that reads and checks all inputs and does no
work, a `build(pipeline, options, plan)` whose last step writes the manifest, and

    JOB = Job("count-words", "...", CountWordsOptions, plan, beam_work(build), count_files)

    def run(argv: Sequence[str]) -> int:
        return job.run(JOB, argv)

`rareword run CONFIG.yaml` calls `execute` with options of its own making.
"""

import contextlib
import difflib
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from rareword.schemas import manifest as manifests
from rareword.schemas import options as typed_options
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions

OptionsT = TypeVar("OptionsT", bound=JobOptions)

DEFAULT_RUNNER = "FnApiRunner"


@dataclass(frozen=True)
class Job(Generic[OptionsT]):
    """A job as the command line and the whole-run driver see it."""

    name: str
    description: str
    options: type[OptionsT]
    plan: Callable[[OptionsT], Plan]
    """Reads and checks every input; raises RarewordError before any work starts."""
    work: Callable[[OptionsT, Plan, Sequence[str]], None]
    """Does the work; the last thing it writes is the manifest. Gets the Beam arguments."""
    progress: Callable[[OptionsT], str] | None = None
    """A few words on how far the running job is, from what lies in its output directory."""
    resumes: bool = False
    """True if the job goes on from files that a killed run left; else they are removed first."""
    uses_beam: bool = True


def run(job: Job[OptionsT], argv: Sequence[str]) -> int:
    """The job's command line. Returns the exit code; errors are RarewordError."""
    options, rest = typed_options.parse(job.options, f"rareword {job.name}", job.description, argv)
    execute(job, options, rest)
    return 0


def execute(job: Job[OptionsT], options: OptionsT, beam_arguments: Sequence[str] = ()) -> Manifest:
    """Runs a job, or skips it if its output is there already. Returns the output's manifest.

    With `dry_run` nothing is written and the manifest is an empty one.
    """
    return perform(job, options, beam_arguments).manifest


class Outcome(NamedTuple):
    """What came of a job."""

    manifest: Manifest
    seconds: float | None
    """None if the output was there already."""


def perform(job: Job[OptionsT], options: OptionsT, beam_arguments: Sequence[str] = ()) -> Outcome:
    """`execute`, with the time that the work took."""
    if job.uses_beam:
        check_beam_arguments(beam_arguments, typed_options.flags(job.options))
    elif beam_arguments:
        refuse_arguments(beam_arguments, typed_options.flags(job.options))
    plan = job.plan(options)
    say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr))
    finished = _prepare_output(job, options, plan)
    if options.dry_run:
        print(_describe(job, options, plan, finished is not None))
        planned = Manifest(job.name, plan.fingerprint, plan.options, plan.inputs, "", ())
        return Outcome(finished or planned, None)
    if finished is not None:
        say(f"{job.name}: {options.output} is finished already, skipped")
        return Outcome(finished, None)
    started = time.monotonic()
    try:
        with _terminated_cleanly(), _progress(job, options):
            job.work(options, plan, beam_arguments)
    except BaseException as error:
        if not job.resumes:
            _remove_unfinished(options.output)
        found = _user_error(error)
        if found is not None and found is not error:
            raise found from error
        raise
    result = manifests.read(options.output, job.name, "--output")
    storage.remove(storage.join(options.output, manifests.STARTED_NAME))
    seconds = time.monotonic() - started
    say(f"{job.name}: {_summary(result)} in {seconds:.1f} s -> {options.output}")
    return Outcome(result, seconds)


# ---- the output directory ----


def _prepare_output(job: Job[OptionsT], options: OptionsT, plan: Plan) -> Manifest | None:
    """Returns the manifest if the work is done; else makes the directory ready (not in a dry run).

    Raises RarewordError if the directory holds something else. With `overwrite` another run is
    replaced; files that no job wrote are never touched, and the same work is not done twice.
    """
    output = options.output
    if storage.exists(output) and not storage.is_directory(output):
        raise RarewordError(f"--output: {output} is a file, not a directory")
    names = storage.list_files(output)
    finished = manifests.MANIFEST_NAME in names
    if names and not finished and manifests.STARTED_NAME not in names:
        raise RarewordError(
            f"--output: {output} holds files that no rareword job wrote ({names[0]}, ...); "
            "choose another directory"
        )
    found: Mapping[str, Any] = {}
    if names:
        found = _read_mark(
            storage.join(output, manifests.MANIFEST_NAME if finished else manifests.STARTED_NAME)
        )
    same = (found.get("job"), found.get("plan")) == (job.name, plan.fingerprint)
    if finished and same:
        try:
            return manifests.read(output, job.name, "--output")
        except RarewordError:  # damaged
            if not options.overwrite:
                raise
    # What a killed run of this job left is of no use to anyone unless the job can resume.
    worth_keeping = finished or job.resumes or found.get("job") != job.name
    if names and not same and worth_keeping and not options.overwrite:
        raise RarewordError(
            f"--output: {output} holds {'another' if finished else 'an unfinished'} run "
            f"({_difference(found, plan)}); choose another directory or add --overwrite"
        )
    if options.dry_run:
        return None
    if names and not (same and job.resumes and not finished):
        storage.remove(output)
    storage.write_json(
        storage.join(output, manifests.STARTED_NAME),
        {
            "job": job.name,
            "plan": plan.fingerprint,
            "options": dict(plan.options),
            "inputs": dict(plan.inputs),
        },
    )
    return None


def _read_mark(url: str) -> Mapping[str, Any]:
    """A manifest or start mark; a file of another kind that bears its name is refused."""
    value = storage.read_json(url)
    if not isinstance(value, dict) or not {"job", "plan"} <= set(value):
        raise RarewordError(f"{url} was not written by rareword; choose another --output")
    return value


def _difference(found: Mapping[str, Any], plan: Plan) -> str:
    """Says in what a finished directory differs from the plan."""
    if found.get("job") != plan.job:
        return f"of `{found.get('job')}`"
    for what, old, new in (
        ("option", found.get("options", {}), plan.options),
        ("input", found.get("inputs", {}), plan.inputs),
    ):
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                values = f": {old.get(name)!r} there, {new.get(name)!r} here"
                return f"{what} {name!r} differs" + (values if what == "option" else "")
    return "written by another release"


def _remove_unfinished(output: str) -> None:
    """Takes back what a failed run wrote."""
    with contextlib.suppress(Exception):
        if not manifests.is_finished(output):
            storage.remove(output)


def _describe(job: Job[OptionsT], options: OptionsT, plan: Plan, finished: bool) -> str:
    lines = [f"{job.name} would write {options.output}"]
    lines += [f"  input  {name}: {content[:12]}" for name, content in sorted(plan.inputs.items())]
    lines += [f"  option {name}: {value}" for name, value in sorted(plan.options.items())]
    lines.append(f"  plan   {plan.fingerprint[:12]}" + (", finished already" if finished else ""))
    return "\n".join(lines)


def _summary(result: Manifest) -> str:
    figures = [f"{k} {v:,}" for k, v in result.figures.items() if isinstance(v, int)]
    rows = [f"{result.rows:,} rows"] if result.schema else []
    return ", ".join([*rows, *figures])


# ---- Beam ----


def beam_work(
    build: Callable[[Any, OptionsT, Plan], None],
) -> Callable[[OptionsT, Plan, Sequence[str]], None]:
    """The `work` of a Beam job: builds its graph and runs it to the end."""

    def work(options: OptionsT, plan: Plan, arguments: Sequence[str]) -> None:
        import apache_beam as beam  # a second of import; not for --help
        from apache_beam.options.pipeline_options import PipelineOptions

        # Long graphs of unrolled rounds pass through recursive visitors.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 20000))
        if not any(a == "--runner" or a.startswith("--runner=") for a in arguments):
            arguments = [*arguments, f"--runner={DEFAULT_RUNNER}"]
        pipeline = beam.Pipeline(options=PipelineOptions(list(arguments)))
        build(pipeline, options, plan)
        pipeline.run().wait_until_finish()

    return work


def check_beam_arguments(arguments: Sequence[str], ours: Sequence[str]) -> None:
    """Refuses what Beam would only warn about, and the mode that loses data.

    ours: the job's own flags, among which the nearest to an unknown one may be.
    Raises RarewordError for an unknown option, for a runner that is not there and for
    `direct_running_mode=multi_threading`.
    """
    if not arguments:
        return
    import argparse

    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import create_runner

    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for cls in PipelineOptions.__subclasses__():
        cls._add_argparse_args(parser)
    known, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        refuse_arguments(unknown, [*ours, *parser._option_string_actions])
    if getattr(known, "direct_running_mode", None) == "multi_threading":
        raise RarewordError(
            "--direct_running_mode: multi_threading is refused, because Beam loses data silently "
            "in this mode (up to 6 % of the tokens of a word count, job state DONE); use "
            "in_memory or multi_processing, or --kernel-threads for more cores"
        )
    try:
        create_runner(known.runner or DEFAULT_RUNNER)
    except (AttributeError, ImportError, ValueError) as error:
        raise RarewordError(f"--runner: {known.runner} is not to be had: {error}") from error


def refuse_arguments(unknown: Sequence[str], known: Sequence[str]) -> None:
    """Raises RarewordError naming the first unknown argument and the nearest known one."""
    word = unknown[0].split("=")[0]
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "see --help"
    raise RarewordError(f"unknown argument {word}; {hint}")


_QUOTED = re.compile(rf"{RarewordError.__name__}: (.*?)(?: \[while running |\n|$)")


def _user_error(error: BaseException) -> RarewordError | None:
    """The sentence for the user inside whatever the runner raised, found by its text."""
    if isinstance(error, RarewordError):
        return RarewordError(re.sub(r" \[while running '.*", "", str(error), flags=re.DOTALL))
    matches = _QUOTED.findall(str(error))
    return RarewordError(matches[-1]) if matches else None


@contextlib.contextmanager
def _terminated_cleanly() -> Iterator[None]:
    """SIGTERM ends the run like Ctrl-C, so that runners stop and unfinished files go."""

    def stop(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


# ---- progress ----

_LOG_EVERY_S = 30.0


class Console:
    """Standard error as lines, and on a terminal one last line that is written over."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self._open = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        print(text, file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """How far the work is: on a terminal in place of what was shown before, else a line."""
        if not self.terminal:
            self.say(text)
            return
        # A line that is wider than the terminal could not be taken back.
        width = shutil.get_terminal_size().columns
        print(f"\r\x1b[K{text[: width - 1]}", end="", file=sys.stderr, flush=True)
        self._open = True

    def clear(self) -> None:
        """Takes back what was shown last."""
        if self._open:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._open = False


@contextlib.contextmanager
def _progress(job: Job[OptionsT], options: OptionsT) -> Iterator[None]:
    """Shows now and then how far a job is, by what lies in its output directory."""
    if options.quiet or job.progress is None:
        yield
        return
    stop, started, console = threading.Event(), time.monotonic(), Console()

    def watch() -> None:
        while not stop.wait(1.0 if console.terminal else _LOG_EVERY_S):
            with contextlib.suppress(Exception):  # a listing may meet a file that just went
                assert job.progress is not None
                seconds = time.monotonic() - started
                console.show(f"{job.name}: {job.progress(options)}, {seconds:.0f} s")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        console.clear()


def count_files(options: JobOptions, prefix: str = "part-") -> str:
    """The usual progress text: shards written so far."""
    names = [n for n in storage.list_files(options.output) if storage.TEMPORARY_MARK not in n]
    shards = [n for n in names if n.rsplit("/", 1)[-1].startswith(prefix)]
    total = re.search(r"-of-(\d+)", shards[0]) if shards else None
    return f"{len(shards)} of {int(total[1])} shards" if total else "reading"
