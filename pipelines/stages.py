"""A config file, checked, becomes the stages of the whole run that it describes.

Every stage's options are built here, before the first stage starts, so a typing error in the last
section costs seconds, not the night before it. What two systems have alike is made once.
"""

import abc
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, cast

from rareword.pipelines import learn_segmenter
from rareword.pipelines.job import Job
from rareword.schemas import config, storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import JobOptions, from_mapping, refuse_unknown

SECTIONS = (
    "prepare",
    "count_words",
    "align",
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
REPORT = "report"
"""The last stage."""


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
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """The same of `decode`."""
    models: str = ""
    """Under what name such systems share their models; empty if they do not."""


SEGMENTERS = {
    "words": Segmenter("words"),
    "wunk": Segmenter("words", models="words"),
    "wdict": Segmenter("words", decoding={"replace_unk": "dictionary"}, models="words"),
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
class System:
    """What is compared in the report, by the names of its stages."""

    name: str
    segmenter: str
    segmented: str
    """Of the test data."""
    models: tuple[str, ...]
    """One, or one a seed."""
    translations: tuple[tuple[str, str], ...]
    """For each model its name in the report, and the stage."""
    ensemble: tuple[str, str] | None = None
    """The same of all models together."""

    @property
    def decoded(self) -> tuple[tuple[str, str], ...]:
        """All translations: names in the report, and stages."""
        return self.translations + ((self.ensemble,) if self.ensemble else ())


@dataclass(frozen=True)
class Run:
    """A whole run, ready to start."""

    output: str
    """The run directory."""
    stages: tuple[Stage, ...]
    """In the order of work."""
    systems: tuple[System, ...]
    """In the order of the report."""
    config: Mapping[str, Any]
    """What the config file and `--set` said."""

    def directory(self, stage: str) -> str:
        """Where a stage's output lies."""
        return storage.join(self.output, stage)


def load(
    url: str,
    changes: Sequence[str] = (),
    output: str | None = None,
    *,
    builder: "type[Builder]",
    **flags: bool,
) -> Run:
    """Reads a config file and builds the options of all stages.

    changes: `section.key=value`, as `--set` gives them; they win over the file. output: wins over
    the file's own. builder: that of the command. flags: `quiet` and the like, for every stage.
    Raises RarewordError for whatever is unknown, missing or of the wrong type.
    """
    value = config.read(url)
    if not isinstance(value, dict):
        raise RarewordError(f"{url}: expected keys and values, found {value!r}")
    for change in changes:
        _set(value, change)
    if output is not None:
        value["output"] = output
    return builder(url, value, flags).build()


def _set(value: dict[str, Any], change: str) -> None:
    """Applies `train.dropout=0.2` to the config."""
    path, equals, text = change.partition("=")
    *parents, last = path.split(".")
    if not equals or not all((*parents, last)):
        raise RarewordError(f"--set: expected section.key=value, found {change!r}")
    for parent in parents:
        if value.get(parent) is None:  # also a key without a value
            value[parent] = {}
        value = value[parent]
        if not isinstance(value, dict):
            raise RarewordError(f"--set: {change!r}: {parent!r} has no keys below it")
    value[last] = config.parse(text, f"--set {change}")


@dataclass(frozen=True)
class Recipe:
    """A segmenter with its own models: what a system is made by."""

    name: str
    segmenter: Segmenter
    directory: str
    """Where its translations lie below the run directory; empty for the system asked for."""
    shared: str
    """Where all before them lies; other systems may use it too."""
    sections: Mapping[str, Mapping[str, Any]]
    trains_ensemble: bool
    """True if there is a section `train_ensemble`, which may be empty."""

    def at(self, name: str) -> str:
        """Stage name of what comes before the translations."""
        return f"{self.shared}/{name}" if self.shared else name

    def translations(self, name: str) -> str:
        """Stage name of what it made of the test data."""
        return f"{self.directory}/translations/{name}" if self.directory else f"translations/{name}"


class Builder(abc.ABC):
    """Turns the config's keys into stages; `where` stands before every error.

    Each command has a subclass, for what its config says of the systems.
    """

    command: ClassVar[str]
    required: ClassVar[tuple[str, ...]] = ("output", "languages", "data")
    optional: ClassVar[tuple[str, ...]] = ()
    """Keys beside those that are required and the sections."""

    def __init__(self, where: str, value: dict[str, Any], flags: Mapping[str, bool]) -> None:
        self.where, self.flags = where, flags
        refuse_unknown(value, (*self.required, *self.optional, *SECTIONS), where)
        for key in self.required:
            if key not in value:
                raise RarewordError(
                    f"{where}: the key {key!r} is missing; see docs/{self.command}.md"
                )
        self.config = value
        self.output = _text(value["output"], f"{where}: output")
        self.sections = self._sections(value, where)
        self.languages = self._mapping("languages", ("source", "target"))
        self.data = self._mapping("data", SPLITS)
        self.stages: list[Stage] = []

    def build(self) -> Run:
        recipes = list(self.recipes())
        self._prepare()
        self._add("words", "count-words", {"corpus": "corpus/train"})
        systems = [self.system(recipe) for recipe in recipes]
        self._evaluate(systems)
        return Run(self.output, tuple(self.stages), tuple(systems), self.config)

    @abc.abstractmethod
    def recipes(self) -> Iterator[Recipe]:
        """The systems, in the order of the report."""

    @abc.abstractmethod
    def system(self, recipe: Recipe) -> System:
        """Adds the stages from the words to the translations of the test data."""

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

    def several(self, key: str, folder: str, taken: Sequence[str] = ()) -> Iterator[Recipe]:
        """The systems that a key of the config lists, or maps to keys of their own.

        folder: where they lie below the run directory. taken: names that are not theirs.
        """
        one = key.removesuffix("s")
        listed = self.config.get(key) or {}
        if isinstance(listed, list):
            listed = dict.fromkeys(map(str, listed))
        if not isinstance(listed, dict):
            raise RarewordError(f"{self.where}: {key}: expected a list of segmenters")
        for name, keys in listed.items():
            given, where = keys or {}, f"{self.where}: {key}.{name}"
            if not re.fullmatch(r"[\w.-]+", str(name)) or name in (*taken, "copy"):
                others = f"neither {taken[0]} nor copy" if taken else "not copy"
                raise RarewordError(
                    f"{where}: a {one} needs a name of its own (letters, digits, - _ .), "
                    f"which is {others}"
                )
            if not isinstance(given, dict):
                raise RarewordError(f"{where}: expected keys and values, found {given!r}")
            refuse_unknown(given, ("segmenter", *_OF_A_SYSTEM), where)
            sections = self._sections(given, where)
            segmenter = self.segmenter(given.get("segmenter", name), f"{key}.{name}")
            inherited = dict(self.sections)
            inherited["learn_segmenter"] = {  # but for options of other kinds
                option: value
                for option, value in inherited["learn_segmenter"].items()
                if learn_segmenter.belongs(option, segmenter.kind)
            }
            shared = str(name) if "segmenter" in given else segmenter.models or str(name)
            yield Recipe(
                str(name),
                segmenter,
                f"{folder}/{name}",
                f"{folder}/{shared}",
                {section: {**inherited[section], **sections[section]} for section in SECTIONS},
                ENSEMBLE_SECTION in self.config or ENSEMBLE_SECTION in given,
            )

    def segmenter(self, name: Any, key: str) -> Segmenter:
        if not isinstance(name, str):
            raise RarewordError(f"{self.where}: {key}: expected a segmenter, found {name!r}")
        refuse_unknown([name], SEGMENTERS, f"{self.where}: {key}")
        return SEGMENTERS[name]

    # ---- the stages ----

    def _add(
        self,
        directory: str,
        job_name: str,
        inputs: Mapping[str, str | Sequence[str]],
        given: Mapping[str, Any] | None = None,
        needs: tuple[str, ...] = (),
        **wired: Any,
    ) -> Stage:
        """Adds a stage, unless there is one that does the same; returns it.

        inputs: option -> name of the stage, or of the stages, whose directory it gets. given: the
        user's keys, if not just those of the job's section. needs: stages that are read besides
        the inputs. wired: options that the run sets by itself.
        """
        job = load_job(job_name)
        section = job_name.replace("-", "_")
        where = f"{self.where}: {section}"
        given = self.sections[section] if given is None else given
        for option, stages in inputs.items():
            if isinstance(stages, str):
                wired[option], needs = storage.join(self.output, stages), (*needs, stages)
            else:
                wired[option] = [storage.join(self.output, stage) for stage in stages]
                needs = (*needs, *stages)
        for key in given:
            if key in wired:
                raise RarewordError(f"{where}: {key!r} is set by the run itself; leave it out")
        values = {**self.flags, **given, **wired, "output": storage.join(self.output, directory)}
        options: JobOptions = from_mapping(job.options, values, where)
        for stage in self.stages:
            if stage.job is job and replace(stage.options, output=options.output) == options:
                return stage
            if stage.name == directory:
                raise RarewordError(
                    f"{self.where}: two systems would write {directory}, but with other options; "
                    "give both the same keys, or one of them another name and the key 'segmenter'"
                )
        self.stages.append(Stage(directory, job, options, needs))
        return self.stages[-1]

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

    def segmented(self, recipe: Recipe) -> tuple[str, dict[str, str]]:
        """Adds the stages from the words to segmented data; the names of segmenter and data."""
        at, sections = recipe.at, recipe.sections
        merging: dict[str, Any] = {"units": "characters", "transliterate": "none"}
        merging |= recipe.segmenter.merging
        merges = {}
        for side in recipe.segmenter.sides:
            joint = side == "joint"
            merges["merges" if joint else f"{side}_merges"] = self._add(
                at("merges" if joint else f"merges-{side}"),
                "learn-merges",
                {"words": "words"},
                sections["learn_merges"],
                side=side,
                **merging,
            ).name
        kind = recipe.segmenter.kind
        is_raw = learn_segmenter.KINDS[kind].learnt_from == "corpus"
        text = {"corpus": "corpus/train"} if is_raw else {"words": "words"}
        segmenter = self._add(
            at("segmenter"),
            "learn-segmenter",
            {**text, **merges},
            {**recipe.segmenter.learning, **sections["learn_segmenter"]},
            segmenter=kind,
        )
        try:
            learn_segmenter.check(
                cast("Any", segmenter.options), lambda name: f"learn_segmenter.{name}"
            )
        except RarewordError as error:
            raise RarewordError(f"{self.where}: {error}") from error
        data = {
            split: self._add(
                at(f"segmented/{split}"),
                "segment",
                {"corpus": f"corpus/{split}", "segmenter": segmenter.name},
                sections["segment"],
            ).name
            for split in SPLITS
        }
        return segmenter.name, data

    def train(self, recipe: Recipe, name: str, segmented: Mapping[str, str], **wired: Any) -> str:
        """Adds a training; the name of its stage."""
        data = {"segmented": segmented["train"], "dev": segmented["dev"]}
        trained = recipe.sections["train"]
        if not recipe.trains_ensemble:
            return self._add(recipe.at(name), "train", data, trained, **wired).name
        # Errors in these keys belong to their own section.
        paths = dict.fromkeys((*data, "output"), "")
        from_mapping(load_job("train").options, {**trained, **paths}, f"{self.where}: train")
        keys = {**trained, **recipe.sections[ENSEMBLE_SECTION]}
        return self._add(recipe.at(name), "train-ensemble", data, keys, **wired).name

    def decode(
        self, recipe: Recipe, name: str, segmented: str, models: Sequence[str], **wired: Any
    ) -> str:
        """Adds the decoding of the test data; the name of its stage."""
        given = {**recipe.segmenter.decoding, **recipe.sections["decode"]}
        inputs: dict[str, str | Sequence[str]] = {"segmented": segmented, "model": models}
        rule = given.get("replace_unk", "none")
        if rule != "none":
            if recipe.segmenter.kind != "words":
                raise RarewordError(
                    f"{self.where}: decode.replace_unk is for systems of whole words, not for "
                    f"{recipe.name}; give it to those, or take the system wdict"
                )
            inputs["corpus"] = "corpus/test"
        if rule == "dictionary" or given.get("candidates"):
            align = self._add("dictionary", "align", {"corpus": "corpus/train"})
            inputs["dictionary"] = align.name
        return self._add(recipe.translations(name), "decode", inputs, given, **wired).name

    def _evaluate(self, systems: Sequence[System]) -> None:
        """One report on all systems."""
        (name, translations), *others = (pair for system in systems for pair in system.decoded)
        self._add(
            REPORT,
            "evaluate",
            {
                "translations": translations,
                "references": "corpus/test",
                "words": "words",
                "segmented": list(dict.fromkeys(system.segmented for system in systems)),
            },
            needs=tuple(stage for _, stage in others),
            name=name,
            quiet=True,  # the summary of the run shows its figures
            baseline=[f"{name}={storage.join(self.output, stage)}" for name, stage in others],
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
