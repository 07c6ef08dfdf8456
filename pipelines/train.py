"""`rareword train`: trains a translation model on segmented data, in one process or many.

With `--processes N` this process prepares the output directory and starts N workers with
`torch.distributed.run`. Started by torchrun itself (on several machines, say), the workers join
that group, and worker 0 does what the job does around its work.
"""

import contextlib
import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rareword.pipelines import job, launcher
from rareword.pipelines.job import Job
from rareword.schemas import manifest as manifests
from rareword.schemas import options as typed_options
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions, option
from rareword.schemas.tables import Side, file_record
from rareword.schemas.vocabulary import Vocabularies
from rareword.trainer.config import TrainConfig, model_config

if TYPE_CHECKING:
    from rareword.trainer.distributed import Group
    from rareword.trainer.piece_dropout import PieceDropout
    from rareword.transforms.bpe import BpeSegmenter

NAME = "train"
DESCRIPTION = "Trains an attentional encoder-decoder on segmented data."
HISTORY = "history.json"
ERRORS_VARIABLE = "RAREWORD_TRAIN_ERRORS"
"""Set for workers that this module starts: a directory where each leaves its error sentence."""
WORKER = ("-m", "--", "rareword.pipelines.train")
"""What the launcher runs in each worker. Without `--` it would take our options for its own if they
begin like them: `--monitor` and its `--monitor-interval`."""
LAST_S = 60
"""Seconds that a failed worker has for its end."""


@dataclasses.dataclass(frozen=True)
class TrainOptions(JobOptions, TrainConfig):
    """Options of `rareword train`: where the data is, and all of TrainConfig."""

    segmented: str = option(
        help="directory that `segment` wrote: training data", shapes_result=False
    )
    dev: str = option(help="directory that `segment` wrote: development data", shapes_result=False)
    processes: int = option(
        1,
        help="processes on this machine, each with a GPU if there are",
        shapes_result=False,
        at_least=1,
    )


def plan(options: TrainOptions) -> Plan:
    """Checks the options against each other and against the two corpora."""
    options.check()
    train, dev = _inputs(options)
    both = vocabularies.read_both(options.segmented)
    model_config(options, len(both.source), len(both.target), both.joint)
    _bpe_segmenters(options, train)
    if options.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise RarewordError(
            "--tensorboard needs the library tensorboard: pip install 'rareword[tensorboard]'"
        )
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise RarewordError("--device cuda: torch finds no GPU; use --device cpu or auto")
    return Plan(
        NAME,
        typed_options.shaping(options),
        {"segmented": train.content, "dev": dev.content, **_older_model(options)},
    )


def _older_model(options: TrainOptions) -> dict[str, str]:
    """The content of the model directory that --init-from names, if it does."""
    if options.init_from is None:
        if options.init_checkpoint != "best":
            raise RarewordError("--init-checkpoint needs --init-from")
        return {}
    older = manifests.read(options.init_from, NAME, "--init-from")
    which = options.init_checkpoint
    parts = (record.name.split("/") for record in older.files)
    names = sorted({part[1] for part in parts if len(part) == 3})
    if which not in ("best", "latest", *names):
        raise RarewordError(
            f"--init-checkpoint: {options.init_from} has no checkpoint {which!r}; there are best, "
            f"latest, {', '.join(names)}"
        )
    return {"init_from": older.content}


def _inputs(options: TrainOptions) -> tuple[Manifest, Manifest]:
    """The manifests of training and development data, of one vocabulary."""
    train = manifests.read(options.segmented, "segment", "--segmented")
    dev = manifests.read(options.dev, "segment", "--dev")
    found = vocabularies.read_both(options.segmented).hash
    for name, manifest, flag in (
        (options.segmented, train, "--segmented"),
        (options.dev, dev, "--dev"),
    ):
        recorded = str(manifest.rules.get("vocabulary"))
        if recorded != found:
            raise RarewordError(
                f"{flag}: {name} has vocabulary {recorded[:12]}, but the vocabulary files in "
                f"{options.segmented} are {found[:12]}; segment both with the same merges"
            )
    return train, dev


# ---- the work ----


def _work(options: TrainOptions, plan: Plan, arguments: Sequence[str]) -> None:
    """Trains in this process, or starts the processes that do."""
    if options.processes > 1:
        _launch(options)
        return
    from rareword.trainer import distributed

    with distributed.join(options.device, options.threads) as group:
        _train(options, plan, group)


def _train(options: TrainOptions, plan: Plan, group: "Group") -> None:
    """Reads the data, trains, and, in the first process, finishes the directory."""
    from rareword.trainer import data
    from rareword.trainer.train import Corpora, Trainer

    console = job.Console()
    train, dev = _inputs(options)
    both = vocabularies.read_both(options.segmented)
    sizes = len(both.source), len(both.target)
    if group.rank == 0 and not options.quiet:
        console.say(f"train: looking through {train.rows:,} pairs")
    corpora = Corpora(
        data.scan(train, *sizes, options.max_length, group),
        data.read_pairs(dev, *sizes),
        both,
        _dropout(options, train, both),
    )
    trainer = Trainer(
        options,
        corpora,
        directory=options.output,
        run=plan.fingerprint,
        group=group,
        say=_quiet if options.quiet else console.say,
        show=_quiet if options.quiet else console.show,
    )
    try:
        state = trainer.train()
    finally:
        console.clear()
    group.leave()  # what is left to do is for one process, and may take long
    if group.rank > 0:
        return
    from rareword.trainer import checkpoints

    output = options.output
    storage.write_json(storage.join(output, HISTORY), state.history)
    names = [HISTORY, *checkpoints.files(output)]
    best = next(entry for entry in state.history if entry["step"] == state.best_step)
    manifests.finish(
        plan,
        output,
        None,
        (),
        files=[
            *(file_record(output, name) for name in names),
            *vocabularies.write_both(both, output),
        ],
        figures={
            "steps": state.step,
            "best_step": state.best_step,
            "epochs": state.epoch,
            "parameters": trainer.parameters,
            "pairs": len(corpora.train),
            "pairs_too_long": corpora.train.too_long,
            "pairs_blank": corpora.train.blank,
            "dev_pairs": len(corpora.dev),
            "dev_loss": best["loss"],
            "dev_bleu_on_tokens": best["bleu"],
        },
        rules=train.rules,
        packages=("torch", "safetensors", "sacrebleu", "pyarrow"),
    )


def _dropout(options: TrainOptions, train: Manifest, both: Vocabularies) -> "PieceDropout | None":
    """BPE-dropout by the segmenter beside the training data, if it is asked for."""
    import torch

    from rareword.trainer.piece_dropout import PieceDropout

    found = _bpe_segmenters(options, train)
    if not found:
        return None
    of_side = {"source": both.source, "target": both.target}
    sides = {side: segmenter.dropout(of_side[side]) for side, segmenter in found.items()}
    return PieceDropout(
        sides, options.bpe_dropout, options.seed, options.max_length, torch.get_num_threads()
    )


def _bpe_segmenters(options: TrainOptions, train: Manifest) -> "dict[Side, BpeSegmenter]":
    """The segmenters of the sides that --bpe-dropout draws anew; none without that option.

    Raises RarewordError if the training data was segmented by something without merges.
    """
    if not options.bpe_dropout:
        return {}
    from rareword.transforms import segmenters
    from rareword.transforms.bpe import BpeSegmenter

    rules = train.rules["segmenter"]
    kind, where = rules["kind"], options.segmented
    if segmenters.class_of(kind, where) is not BpeSegmenter:
        raise RarewordError(
            f"--bpe-dropout: {where} was segmented by {kind!r}, which has no merges to pass over; "
            "segment by byte-pair encoding, or leave the option out"
        )
    found: dict[Side, BpeSegmenter] = {}
    for side, segmenter in segmenters.load(train.directory, kind, rules["settings"]).items():
        if options.bpe_dropout_side in ("both", side) and isinstance(segmenter, BpeSegmenter):
            found[side] = segmenter
    return found


def _quiet(text: str) -> None:
    pass


JOB = Job(NAME, DESCRIPTION, TrainOptions, plan, _work, resumes=True, uses_beam=False)


# ---- many processes ----


def run(argv: Sequence[str]) -> int:
    """The job's command line; in a process that torchrun started, one worker's part of it."""
    if "RANK" not in os.environ:
        return job.run(JOB, argv)
    options, rest = typed_options.parse(TrainOptions, f"rareword {NAME}", DESCRIPTION, argv)
    if ERRORS_VARIABLE in os.environ:
        return _run_launched(options, Path(os.environ[ERRORS_VARIABLE]))
    return _run_under_torchrun(options, rest)


def _run_under_torchrun(options: TrainOptions, rest: Sequence[str]) -> int:
    """Worker 0 does what `execute` does around the work; the others wait for its word.

    If torchrun starts all again after a failure (`--max-restarts`), worker 0 finds an unfinished
    directory of the same plan, and all go on from its last checkpoint.
    """
    from rareword.trainer import distributed

    with _telling_torchrun(), distributed.join(options.device, options.threads) as group:
        if group.rank > 0:
            if group.from_first(None):
                _train(options, plan(options), group)
            return 0
        told = False

        def work(options: TrainOptions, plan: Plan, arguments: Sequence[str]) -> None:
            nonlocal told
            told = True
            group.from_first(True)
            _train(options, plan, group)

        try:
            job.execute(dataclasses.replace(JOB, work=work), options, rest)
        finally:
            if not told:  # finished already, a dry run, or refused
                with contextlib.suppress(distributed.PeerLostError):
                    group.from_first(False)
                    group.leave()
    return 0


@contextlib.contextmanager
def _telling_torchrun() -> Iterator[None]:
    """Leaves the cause of a failure where torchrun looks for it, to be shown in its summary."""
    try:
        yield
    except Exception as error:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        from rareword.trainer.distributed import PeerLostError

        if not isinstance(error, PeerLostError):  # which is no cause
            get_error_handler().record_exception(error)
        _end_soon()
        raise


def _end_soon() -> None:
    """Bounds the end of a failed worker: libraries may wait for processes that are gone."""
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LAST_S)


def _launch(options: TrainOptions) -> None:
    """Starts the workers with torch's launcher and waits for them.

    Raises RarewordError with what the first failed worker left; a worker that only lost the others
    is asked last.
    """
    with tempfile.TemporaryDirectory(prefix="rareword-train-") as folder:
        command = [
            *(sys.executable, "-m", "rareword.pipelines.launcher", folder, "--standalone"),
            *(f"--nproc-per-node={options.processes}", *WORKER, *_arguments(options)),
        ]
        log = Path(folder, "launcher.log")
        with log.open("wb") as stream:
            # The launcher reports a failure as a long traceback without the cause: that goes to a
            # file. The workers' progress lines come through their standard output.
            process = subprocess.Popen(
                command,
                env={"OMP_NUM_THREADS": "1", **os.environ, ERRORS_VARIABLE: folder},
                stdout=2,
                stderr=stream,
                preexec_fn=_ending_with_parent(signal.SIGTERM),  # noqa: PLW1509 (one C call)
            )
            try:
                code = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        # The manifest comes last: a worker that breaks down while it leaves takes nothing away.
        if code and not manifests.is_finished(options.output):
            failures, lost = (
                sorted(Path(folder).glob(pattern), key=lambda file: file.stat().st_mtime_ns)
                for pattern in ("failure-*", "lost-*")
            )
            killed = [file for file in (Path(folder, launcher.KILLED),) if file.exists()]
            text = [*failures, *killed, *lost, log][0].read_text(errors="replace")
            raise RarewordError(text.strip() or f"torch's launcher ended with code {code}")


def _run_launched(options: TrainOptions, folder: Path) -> int:
    """A worker of `_launch`; the output directory is prepared already."""
    from rareword.trainer import distributed
    from rareword.trainer.distributed import PeerLostError

    _ending_with_parent(signal.SIGKILL)()
    try:
        with (
            contextlib.redirect_stderr(sys.stdout),
            distributed.join(options.device, options.threads) as group,
        ):
            _train(options, plan(options), group)
    except Exception as error:
        text = str(error) if isinstance(error, RarewordError) else traceback.format_exc()
        what = "lost" if isinstance(error, PeerLostError) else "failure"
        Path(folder, f"{what}-{os.environ['RANK']}").write_text(text)
        _end_soon()
        return 1
    return 0


def _arguments(options: TrainOptions) -> list[str]:
    """The command line that gives these options, whatever the preset's defaults are."""
    arguments = []
    for field in dataclasses.fields(options):
        value, flag = getattr(options, field.name), typed_options.flag(field.name)
        if isinstance(value, bool):
            arguments.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, tuple):
            arguments += [flag, *value] if value else []
        elif value is not None:
            arguments += [flag, str(value)]
    return arguments


def _ending_with_parent(signal_number: int) -> Callable[[], None]:
    """A call after which Linux sends this process a signal when its parent dies, by kill -9 too.

    Workers left over would go on writing while a second run starts on the same directory.
    """
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    prctl, pr_set_pdeathsig = ctypes.CDLL(None).prctl, 1
    return lambda: prctl(pr_set_pdeathsig, signal_number)


if __name__ == "__main__":
    from rareword.pipelines.cli import main

    sys.exit(main([NAME, *sys.argv[1:]]))
