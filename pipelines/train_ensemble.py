"""`rareword train-ensemble`: the paper's protocol, from a few trainings to an ensemble.

    clip-1/                     a training for each of --clips
    clip-1-step-00001200/ ...   its last checkpoints, each trained on with frozen embeddings
    ensemble.json               the members, and the best of them on the development data

Every directory below is one of `rareword train`, made by that job: finished ones are skipped, and
an interrupted one goes on from its checkpoint.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

from rareword.pipelines import job, train
from rareword.pipelines.job import Job
from rareword.pipelines.train import TrainOptions
from rareword.schemas import manifest as manifests
from rareword.schemas import options as typed_options
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import option
from rareword.schemas.tables import ShardRecord, file_record
from rareword.trainer.config import FREEZABLE

NAME = "train-ensemble"
ENSEMBLE = "ensemble.json"


@dataclasses.dataclass(frozen=True)
class TrainEnsembleOptions(TrainOptions):
    """All options of `rareword train`, and what makes an ensemble of it."""

    clips: tuple[float, ...] = option(
        (1.0, 5.0),
        help="a training for each of these values of --clip; each has a seed of its own",
        at_least=0,
        heading="the ensemble",
    )
    last: int = option(4, help="last checkpoints of each training that are trained on", at_least=1)
    continue_steps: int | None = option(
        None,
        help="updates of each continuation (default: --checkpoint-every); 0: none, and the members "
        "are the best checkpoints of the trainings",
        at_least=0,
    )
    continue_freeze: tuple[str, ...] = option(
        ("source-embedding", "target-embedding"),
        help="--freeze of the continuations; without a name nothing is held",
    )

    def check(self) -> None:
        """Refuses contradictions between options: RarewordError."""
        super().check()
        default = next(f.default for f in dataclasses.fields(self) if f.name == "clip")
        if self.clip != default:
            raise RarewordError(f"--clip: give --clips {self.clip:g} instead, a value a training")
        if self.finish:
            raise RarewordError(
                "--finish: an ensemble has several trainings; finish one with `rareword train`, in "
                "its own directory and with its own options"
            )
        if not self.clips or len(set(self.clips)) < len(self.clips):
            raise RarewordError("--clips: give one value or more, each of them once")
        for name in self.continue_freeze:
            if name not in FREEZABLE:
                raise RarewordError(
                    f"--continue-freeze: {name!r} is none of the groups {', '.join(FREEZABLE)}"
                )


def train_options(options: TrainEnsembleOptions, **changes: Any) -> TrainOptions:
    """The options of `train` that these hold, with some changed."""
    names = [field.name for field in dataclasses.fields(TrainOptions)]
    return TrainOptions(**{**{name: getattr(options, name) for name in names}, **changes})


def plan(options: TrainEnsembleOptions) -> Plan:
    """Checks the options, those of every training, and the two corpora."""
    if "RANK" in os.environ:
        raise RarewordError(
            "train-ensemble runs one training after the other and is not to be started by "
            "torchrun; use --processes, or start each training by torchrun and give their "
            "directories to `rareword decode --model`"
        )
    options.check()
    found = train.plan(train_options(options))
    return Plan(NAME, typed_options.shaping(options), found.inputs)


def _work(options: TrainEnsembleOptions, plan: Plan, arguments: Sequence[str]) -> None:
    """Trains, trains on, and names the best."""
    members = []
    for number, clip in enumerate(options.clips):
        name = f"clip-{clip:.15g}"
        training = _train(
            options,
            name,
            clip=clip,
            seed=options.seed + number,
            keep=max(options.keep, options.last),
        )
        if options.continue_steps == 0:
            members.append(_member(options, name, training))
            continue
        last = checkpoints(training)[-options.last :]
        if len(last) < options.last:
            _say(options, f"{name} has fewer checkpoints than --last {options.last}: {len(last)}")
        for place, checkpoint in enumerate(last):
            member = f"{name}-{checkpoint}"
            found = _train(
                options, member, **_continuation(options, name, number, checkpoint, place)
            )
            members.append(_member(options, member, found))
    _finish(options, plan, members)


def _continuation(
    options: TrainEnsembleOptions, training: str, number: int, checkpoint: str, place: int
) -> dict[str, Any]:
    """What is different where a checkpoint is trained on.

    number: of its training. place: of the checkpoint among the last ones.
    """
    directory = storage.join(options.output, training)
    steps = options.continue_steps or options.checkpoint_every
    return {
        "clip": options.clips[number],
        "seed": options.seed + len(options.clips) + number * options.last + place,
        "freeze": options.continue_freeze,
        "init_from": directory,
        "init_checkpoint": checkpoint,
        "learning_rate": learning_rate(directory, checkpoint),
        "schedule": "plateau",
        "warmup": 0,
        # Exactly so many updates, each epoch having one at least.
        "max_steps": steps,
        "max_epochs": steps,
        "patience": 0,
    }


def learning_rate(directory: str, checkpoint: str) -> float:
    """The learning rate at a checkpoint of a `train` directory."""
    state = storage.read_json(storage.join(directory, "checkpoints", checkpoint, "state.json"))
    return float(state["state"]["learning_rate"])


def checkpoints(training: Manifest) -> list[str]:
    """The names of a finished training's checkpoints, the earliest first."""
    parts = (record.name.split("/") for record in training.files)
    return sorted({part[1] for part in parts if len(part) == 3})


def _train(options: TrainEnsembleOptions, name: str, **changes: Any) -> Manifest:
    """Runs one training below the output directory, unless it is finished."""
    _say(options, f"training {name}")
    directory = storage.join(options.output, name)
    return job.execute(train.JOB, train_options(options, output=directory, **changes))


def _say(options: TrainEnsembleOptions, text: str) -> None:
    if not options.quiet:
        print(f"{NAME}: {text}", file=sys.stderr, flush=True)


def _member(options: TrainEnsembleOptions, name: str, found: Manifest) -> dict[str, Any]:
    """A line of ensemble.json."""
    return {
        "name": name,
        "content": found.content,
        "clip": found.options["clip"],
        "seed": found.options["seed"],
        "best_step": found.figures["best_step"],
        "dev_loss": found.figures["dev_loss"],
        "dev_bleu_on_tokens": found.figures["dev_bleu_on_tokens"],
    }


def _files(output: str, name: str) -> list[ShardRecord]:
    """The files of a member as those of the whole directory."""
    found = manifests.read(storage.join(output, name), train.NAME, "--output")
    return [dataclasses.replace(record, name=f"{name}/{record.name}") for record in found.files]


def _finish(options: TrainEnsembleOptions, plan: Plan, members: list[dict[str, Any]]) -> None:
    """Writes ensemble.json, the vocabularies and the manifest, which vouches for the members."""
    if options.monitor == "loss":
        best = min(members, key=lambda member: member["dev_loss"])
    else:
        best = max(members, key=lambda member: member["dev_bleu_on_tokens"])
    output = options.output
    storage.write_json(
        storage.join(output, ENSEMBLE),
        {"members": members, "best": best["name"], "monitor": options.monitor},
    )
    bleu = best["dev_bleu_on_tokens"]
    figure = f"loss {best['dev_loss']:.4f}" + (f", BLEU on tokens {bleu:.2f}" if bleu else "")
    _say(options, f"best of {len(members)} on the development data: {best['name']} ({figure})")
    manifests.finish(
        plan,
        output,
        None,
        (),
        files=[
            file_record(output, ENSEMBLE),
            *(record for member in members for record in _files(output, member["name"])),
            *vocabularies.write_both(vocabularies.read_both(options.segmented), output),
        ],
        figures={
            "members": len(members),
            "best": best["name"],
            "dev_loss": best["dev_loss"],
            "dev_bleu_on_tokens": bleu,
        },
        rules=manifests.read(options.segmented, "segment", "--segmented").rules,
        packages=("torch", "safetensors", "sacrebleu", "pyarrow"),
    )


JOB = Job(
    NAME,
    "Trains several models and their last checkpoints on, for an ensemble.",
    TrainEnsembleOptions,
    plan,
    _work,
    resumes=True,
    uses_beam=False,
)


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword train-ensemble`."""
    return job.run(JOB, argv)
