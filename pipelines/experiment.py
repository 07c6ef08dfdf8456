"""An experiment: a config file, checked, and the stages of the whole run that it describes.

    corpus/{train,dev,test}   words   merges   segmenter   segmented/{train,dev,test}   model
    translations/test   report   baselines/NAME/{merges,segmenter,segmented,model,translations}

Every stage's options are built here, before the first stage starts, so a typing error in the last
section costs seconds, not the night before it.
"""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from rareword.pipelines import learn_segmenter
from rareword.pipelines.job import Job
from rareword.schemas import config, storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import JobOptions, from_mapping, refuse_unknown

SECTIONS = (
    "prepare",
    "count_words",
    "learn_merges",
    "learn_segmenter",
    "segment",
    "train",
    "train_ensemble",
    "decode",
    "evaluate",
)
"""Keys of the config that hold a job's own options."""

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Segmenter:
    """What the config calls a segmenter, in the terms of the jobs."""

    kind: str
    """The option of `rareword learn-segmenter`."""
    sides: tuple[str, ...] = ()
    """The words that merges are learnt from, one `learn-merges` each."""
    merging: Mapping[str, str] = field(default_factory=dict)
    """Options of `learn-merges`."""
    learning: Mapping[str, Any] = field(default_factory=dict)
    """Options of `learn-segmenter`, where the config does not give them."""


SEGMENTERS = {
    "words": Segmenter("words"),
    "bpe": Segmenter("bpe", ("source", "target")),
    "bpe-joint": Segmenter("bpe", ("joint",)),
    "bpe-joint-iso9": Segmenter("bpe", ("joint",), {"transliterate": "iso9"}),
    "bytes": Segmenter("bytes", ("joint",), {"units": "bytes"}),
    "wordpiece": Segmenter("wordpiece"),
    "unigram": Segmenter("unigram"),
    "sentencepiece": Segmenter("sentencepiece"),
    "char-ngram": Segmenter("char-ngram"),
    "c2-50k": Segmenter("char-ngram", learning={"ngram": 2, "shortlist": 50_000}),
    "c2-3-500k": Segmenter(
        "char-ngram",
        learning={"ngram": 2, "source_shortlist": 300_000, "target_shortlist": 500_000},
    ),
    "compound": Segmenter("compound"),
    "morfessor": Segmenter("morfessor"),
    "hyphenation": Segmenter("hyphenation"),
}
"""A kind that is learnt by `learn-segmenter` itself needs its name only."""


@dataclass(frozen=True)
class Stage:
    """One job of the run."""

    name: str
    """Its directory below the run directory."""
    job: Job[Any]
    options: JobOptions
    needs: tuple[str, ...]
    """Names of the stages whose output it reads."""


@dataclass(frozen=True)
class Experiment:
    """A whole run, ready to start."""

    output: str
    """The run directory."""
    stages: tuple[Stage, ...]
    """In the order of work."""
    config: Mapping[str, Any]
    """What the config file and `--set` said."""


def load(
    url: str, changes: Sequence[str] = (), output: str | None = None, **flags: bool
) -> Experiment:
    """Reads a config file and builds the options of all stages.

    changes: `section.key=value`, as `--set` gives them; they win over the file. output: wins over
    the file's own. flags: `quiet` and the like, for every stage.
    Raises RarewordError for whatever is unknown, missing or of the wrong type.
    """
    value = config.read(url)
    if not isinstance(value, dict):
        raise RarewordError(f"{url}: expected keys and values, found {value!r}")
    for change in changes:
        _set(value, change)
    if output is not None:
        value["output"] = output
    return _Builder(url, value, flags).build()


def _set(value: dict[str, Any], change: str) -> None:
    """Applies `train.dropout=0.2` to the config."""
    path, equals, text = change.partition("=")
    *parents, last = path.split(".")
    if not equals or not all((*parents, last)):
        raise RarewordError(f"--set: expected section.key=value, found {change!r}")
    for parent in parents:
        value = value.setdefault(parent, {})
        if not isinstance(value, dict):
            raise RarewordError(f"--set: {change!r}: {parent!r} has no keys below it")
    value[last] = config.parse(text, f"--set {change}")


@dataclass(frozen=True)
class _System:
    """A segmenter with its own model: the one asked for, or a baseline beside it."""

    name: str
    segmenter: Segmenter
    directory: str
    """Where its stages lie below the run directory; empty for the one asked for."""
    sections: Mapping[str, Mapping[str, Any]]
    ensemble: bool
    """True if there is a section `train_ensemble`, which may be empty."""

    def at(self, name: str) -> str:
        """Stage name of one of its own directories."""
        return f"{self.directory}/{name}" if self.directory else name


class _Builder:
    """Turns the config's keys into stages; `where` stands before every error."""

    def __init__(self, where: str, value: dict[str, Any], flags: Mapping[str, bool]) -> None:
        self.where, self.flags = where, flags
        known = ("output", "languages", "data", "segmenter", "baselines", *SECTIONS)
        refuse_unknown(value, known, where)
        for key in ("output", "languages", "data", "segmenter"):
            if key not in value:
                raise RarewordError(f"{where}: the key {key!r} is missing; see docs/run.md")
        self.config = value
        self.output = _text(value["output"], f"{where}: output")
        self.sections = self._sections(value, where)
        self.languages = self._mapping("languages", ("source", "target"))
        self.data = self._mapping("data", SPLITS)
        self.stages: list[Stage] = []

    def build(self) -> Experiment:
        main, *baselines = self._systems()
        self._prepare()
        self._add("words", "count-words", {"corpus": "corpus/train"})
        for system in (main, *baselines):
            self._system(system)
        self._evaluate(main, baselines)
        return Experiment(self.output, tuple(self.stages), self.config)

    # ---- the parts of the config ----

    def _mapping(self, key: str, required: Sequence[str]) -> dict[str, Any]:
        value, where = self.config[key], f"{self.where}: {key}"
        if not isinstance(value, dict):
            raise RarewordError(f"{where}: expected the keys {', '.join(required)}")
        refuse_unknown(value, required, where)
        for name in required:
            if name not in value:
                raise RarewordError(f"{where}: the key {name!r} is missing")
        return value

    def _sections(self, value: Mapping[str, Any], where: str) -> dict[str, Mapping[str, Any]]:
        """The jobs' own sections of the config, or of one baseline; keys are checked."""
        found: dict[str, Mapping[str, Any]] = {}
        for name in SECTIONS:
            section = value.get(name)
            if section is None:
                section = {}
            if not isinstance(section, dict):
                raise RarewordError(f"{where}: {name}: expected keys and values, found {section!r}")
            refuse_unknown(section, _keys(name), f"{where}: {name}")
            found[name] = section
        return found

    def _systems(self) -> Iterator[_System]:
        """The system asked for, then the baselines."""
        name = self.config["segmenter"]
        ensemble = ENSEMBLE_SECTION in self.config
        segmenter = self._segmenter(name, "segmenter")
        yield _System(str(name), segmenter, "", self.sections, ensemble)
        baselines = self.config.get("baselines") or {}
        if isinstance(baselines, list):
            baselines = dict.fromkeys(map(str, baselines))
        if not isinstance(baselines, dict):
            raise RarewordError(f"{self.where}: baselines: expected a list of segmenters")
        for baseline, keys in baselines.items():
            given, where = keys or {}, f"{self.where}: baselines.{baseline}"
            if not re.fullmatch(r"[\w.-]+", str(baseline)) or baseline in (name, "copy"):
                raise RarewordError(
                    f"{where}: a baseline needs a name of its own (letters, digits, - _ .), "
                    f"which is neither {name} nor copy"
                )
            if not isinstance(given, dict):
                raise RarewordError(f"{where}: expected keys and values, found {given!r}")
            refuse_unknown(given, ("segmenter", *_OF_A_SYSTEM), where)
            sections = self._sections(given, where)
            segmenter = self._segmenter(given.get("segmenter", baseline), f"baselines.{baseline}")
            inherited = dict(self.sections)
            inherited["learn_segmenter"] = {  # but for options of other kinds
                key: value
                for key, value in inherited["learn_segmenter"].items()
                if learn_segmenter.belongs(key, segmenter.kind)
            }
            yield _System(
                str(baseline),
                segmenter,
                f"baselines/{baseline}",
                {key: {**inherited[key], **sections[key]} for key in SECTIONS},
                ensemble or ENSEMBLE_SECTION in given,
            )

    def _segmenter(self, name: Any, key: str) -> Segmenter:
        if not isinstance(name, str):
            raise RarewordError(f"{self.where}: {key}: expected a segmenter, found {name!r}")
        refuse_unknown([name], SEGMENTERS, f"{self.where}: {key}")
        return SEGMENTERS[name]

    # ---- the stages ----

    def _add(
        self,
        directory: str,
        job_name: str,
        inputs: Mapping[str, str],
        given: Mapping[str, Any] | None = None,
        needs: tuple[str, ...] = (),
        **wired: Any,
    ) -> JobOptions:
        """Adds a stage; returns its options.

        inputs: option -> name of the stage whose directory it gets. given: the user's keys, if not
        just those of the job's section. needs: stages that are read besides the inputs. wired:
        options that the run sets by itself.
        """
        job = load_job(job_name)
        section = job_name.replace("-", "_")
        where = f"{self.where}: {section}"
        given = self.sections[section] if given is None else given
        wired |= {option: storage.join(self.output, stage) for option, stage in inputs.items()}
        for key in given:
            if key in wired:
                raise RarewordError(f"{where}: {key!r} is set by the run itself; leave it out")
        values = {**self.flags, **given, **wired, "output": storage.join(self.output, directory)}
        options: JobOptions = from_mapping(job.options, values, where)
        self.stages.append(Stage(directory, job, options, (*inputs.values(), *needs)))
        return options

    def _prepare(self) -> None:
        """The three corpora: development and test data follow the training data's rules."""
        for split in SPLITS:
            where = f"{self.where}: data.{split}"
            files = self.data[split]
            if not isinstance(files, dict):
                raise RarewordError(f"{where}: expected keys and values, found {files!r}")
            from_mapping(load_job("prepare").options, {**files, "output": ""}, where)
            if split == "train":
                self._add(
                    "corpus/train",
                    "prepare",
                    {},
                    {**self.sections["prepare"], **files},
                    source_language=self.languages["source"],
                    target_language=self.languages["target"],
                )
            else:
                self._add(
                    f"corpus/{split}",
                    "prepare",
                    {"rules_from": "corpus/train"},
                    files,
                    shuffle=False,
                    keep_raw=True,
                )

    def _system(self, system: _System) -> None:
        """From the words to the translations of the test data."""
        at, sections = system.at, system.sections
        merging: dict[str, Any] = {"units": "characters", "transliterate": "none"}
        merging |= system.segmenter.merging
        merges = {}
        for side in system.segmenter.sides:
            joint = side == "joint"
            name = at("merges" if joint else f"merges-{side}")
            merges["merges" if joint else f"{side}_merges"] = name
            self._add(
                name,
                "learn-merges",
                {"words": "words"},
                sections["learn_merges"],
                side=side,
                **merging,
            )
        kind = system.segmenter.kind
        is_raw = learn_segmenter.KINDS[kind].learnt_from == "corpus"
        text = {"corpus": "corpus/train"} if is_raw else {"words": "words"}
        options = self._add(
            at("segmenter"),
            "learn-segmenter",
            {**text, **merges},
            {**system.segmenter.learning, **sections["learn_segmenter"]},
            segmenter=kind,
        )
        try:
            learn_segmenter.check(cast("Any", options), lambda name: f"learn_segmenter.{name}")
        except RarewordError as error:
            raise RarewordError(f"{self.where}: {error}") from error
        for split in SPLITS:
            self._add(
                at(f"segmented/{split}"),
                "segment",
                {"corpus": f"corpus/{split}", "segmenter": at("segmenter")},
                sections["segment"],
            )
        data = {"segmented": at("segmented/train"), "dev": at("segmented/dev")}
        trained = sections["train"]
        if system.ensemble:
            # Errors in these keys belong to their own section.
            paths = dict.fromkeys((*data, "output"), "")
            from_mapping(load_job("train").options, {**trained, **paths}, f"{self.where}: train")
            keys = {**trained, **sections[ENSEMBLE_SECTION]}
            self._add(at("model"), "train-ensemble", data, keys)
        else:
            self._add(at("model"), "train", data, trained)
        self._add(
            at("translations/test"),
            "decode",
            {"segmented": at("segmented/test"), "model": at("model")},
            sections["decode"],
        )

    def _evaluate(self, main: _System, baselines: Sequence[_System]) -> None:
        """One report on all systems."""
        decoded = {system.name: system.at("translations/test") for system in baselines}
        segmented = [system.at("segmented/test") for system in (main, *baselines)]
        self._add(
            "report",
            "evaluate",
            {
                "translations": main.at("translations/test"),
                "references": "corpus/test",
                "words": "words",
            },
            needs=(*segmented, *decoded.values()),
            segmented=[storage.join(self.output, stage) for stage in segmented],
            name=main.name,
            quiet=True,  # the summary of the run shows its figures
            baseline=[
                f"{name}={storage.join(self.output, stage)}" for name, stage in decoded.items()
            ],
        )


ENSEMBLE_SECTION = "train_ensemble"
"""The section that makes an ensemble of the model; it has the keys that `train` lacks."""

_OF_A_SYSTEM = (
    "learn_merges",
    "learn_segmenter",
    "segment",
    "train",
    ENSEMBLE_SECTION,
    "decode",
)
"""Sections that a baseline may set for itself."""


def load_job(name: str) -> Job[Any]:
    """The job of a module below `rareword.pipelines`."""
    module = importlib.import_module(f"rareword.pipelines.{name.replace('-', '_')}")
    return cast("Job[Any]", module.JOB)


def _keys(section: str) -> list[str]:
    """The keys that a job's section may have: its options, less those of every job.

    Those of an ensemble's trainings stand in `train`.
    """
    common = {field.name for field in fields(JobOptions)}
    if section == ENSEMBLE_SECTION:
        common = {field.name for field in fields(load_job("train").options)}
    return [f.name for f in fields(load_job(section).options) if f.name not in common]


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise RarewordError(f"{where}: expected text, found {value!r}")
    return value
