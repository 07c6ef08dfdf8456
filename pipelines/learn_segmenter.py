"""`rareword learn-segmenter`: words (and merges), or corpus -> segmenter.

`KINDS` has a row for each kind of segmenter. A new kind is a class (transforms/segmenters.py), a
row here, and a field of the options for each option that is its own.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from rareword.pipelines import job, segmenter_directory
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions, flag, option, shaping
from rareword.schemas.tables import SIDES, Side

if TYPE_CHECKING:
    from rareword.transforms.learn_segmenter import Learnt
    from rareword.transforms.segmenting import BuiltVocabulary


@dataclass(frozen=True)
class Kind:
    """A kind of segmenter, as the command line sees it."""

    learnt_from: Literal["nothing", "merges", "words", "corpus"]
    """What the class learns from. Those of `corpus` cut raw text, all others cut words."""
    options: tuple[str, ...] = ()
    """Options of this kind, which the class gets if they are given. `source_x` and `target_x` are
    the option x of the segmenter of that side; its language is that of the text if not given."""
    needs: tuple[str, ...] = ()
    """Those of its options that must be given."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Those of its options that are files, and what reads them for the class: `module.function` of
    rareword.transforms. Their content shapes the result, not their path."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """What the class must be told besides."""


_LANGUAGES = ("source_language", "target_language")

KINDS = {
    "bpe": Kind(
        "merges",
        ("merge_limit", "byte_fallback", "glossary"),
        files={"glossary": "glossary.read"},
    ),
    "bytes": Kind("merges", ("merge_limit",), keywords={"units": "bytes"}),
    "words": Kind("nothing"),
    "wordpiece": Kind("words", ("pieces", "min_frequency", "max_word_length"), ("pieces",)),
    "unigram": Kind("words", ("pieces", "max_piece_length"), ("pieces",)),
    "sentencepiece": Kind("corpus", ("pieces", "model_type", "max_piece_length"), ("pieces",)),
    "char-ngram": Kind("words", ("ngram", "shortlist", "source_shortlist", "target_shortlist")),
    "compound": Kind("words", (*_LANGUAGES, "min_length", "min_count")),
    "morfessor": Kind("words", ("dampening", "corpus_weight", "min_count", "seed")),
    "hyphenation": Kind("words", _LANGUAGES),
}


@dataclass(frozen=True)
class LearnSegmenterOptions(JobOptions):
    segmenter: str = option(help=f"kind of segmenter: {', '.join(KINDS)}")
    words: str | None = option(
        None,
        help="`count-words` directory of the training corpus: the vocabulary is made of it",
        shapes_result=False,
    )
    corpus: str | None = option(
        None,
        help="`prepare` directory of the training corpus, instead of --words: for kinds that cut "
        "raw text",
        shapes_result=False,
    )
    merges: str | None = option(
        None,
        help="bpe, bytes: `learn-merges` directory for both sides",
        shapes_result=False,
    )
    source_merges: str | None = option(
        None,
        help="bpe, bytes: `learn-merges` directory for the source side",
        shapes_result=False,
    )
    target_merges: str | None = option(
        None,
        help="bpe, bytes: `learn-merges` directory for the target side",
        shapes_result=False,
    )
    joint: bool = option(
        False, help="kinds that are learnt here: learn one segmenter, from both sides"
    )
    merge_limit: int | None = option(
        None, help="bpe, bytes: use the first so many merges only", at_least=0
    )
    byte_fallback: bool = option(
        False, help="bpe: a character without an id becomes the pieces of its UTF-8 bytes"
    )
    glossary: str | None = option(
        None,
        help="bpe: file of what stays whole inside words, an entry a line (see docs/segmenters.md)",
        shapes_result=False,
    )
    pieces: int | None = option(
        None,
        help="wordpiece, unigram, sentencepiece: pieces to learn, characters included",
        at_least=1,
    )
    min_frequency: int | None = option(
        None,
        help="wordpiece: occurrences of a pair that may be joined (0: the highest with which there "
        "are enough pieces)",
        at_least=0,
    )
    max_word_length: int | None = option(
        None, help="wordpiece: characters; longer words are spelled (100)", at_least=1
    )
    max_piece_length: int | None = option(
        None, help="unigram, sentencepiece: characters of a piece (16)", at_least=1
    )
    model_type: Literal["unigram", "bpe"] | None = option(
        None, help="sentencepiece: how its pieces are learnt (unigram)"
    )
    ngram: int | None = option(None, help="char-ngram: characters a piece (2)", at_least=1)
    shortlist: int | None = option(
        None, help="char-ngram: leave so many most frequent words whole (0)", at_least=0
    )
    source_shortlist: int | None = option(
        None, help="char-ngram: the same for the source side alone", at_least=0
    )
    target_shortlist: int | None = option(
        None, help="char-ngram: the same for the target side alone", at_least=0
    )
    source_language: str | None = option(
        None, help="compound, hyphenation: code such as en (the language of the corpus)"
    )
    target_language: str | None = option(
        None, help="compound, hyphenation: code such as de (the language of the corpus)"
    )
    min_length: int | None = option(
        None, help="compound: characters that a part has at least (3)", at_least=1
    )
    min_count: int | None = option(
        None,
        help="compound: occurrences that a part has at least; morfessor: rarer words are not "
        "learnt from (1)",
        at_least=1,
    )
    dampening: Literal["types", "log", "tokens"] | None = option(
        None,
        help="morfessor: what a word's count is to it: 1, its binary logarithm, itself (types)",
    )
    corpus_weight: float | None = option(
        None, help="morfessor: the higher, the fewer cuts (1.0)", at_least=0
    )
    seed: int | None = option(None, help="morfessor: of the order of words in an epoch (1)")
    joint_vocabulary: Literal["auto", "yes", "no"] = option(
        "auto", help="one vocabulary for both sides; auto: if they have one segmenter"
    )
    max_vocabulary_size: int = option(
        0,
        help="pieces in a vocabulary at most (0: no limit); characters lose their ids last",
        at_least=0,
    )
    min_piece_count: int = option(
        0,
        help="rarer pieces get no id and are split into smaller ones, down to characters, which "
        "keep theirs (words, compound, morfessor, hyphenation: are <unk>); 0 also keeps pieces "
        "that other words of the training text's characters may have",
        at_least=0,
    )


# ---- which options go together ----


def belongs(name: str, kind: str) -> bool:
    """Whether an option may be given with a kind of segmenter."""
    row = KINDS[kind]
    if any(name in other.options for other in KINDS.values()):
        return name in row.options
    if name in ("merges", "source_merges", "target_merges"):
        return row.learnt_from == "merges"
    if name == "joint":
        return row.learnt_from in ("words", "corpus")
    if name in ("words", "corpus"):
        return (name == "corpus") == (row.learnt_from == "corpus")
    return True


def check(options: LearnSegmenterOptions, label: Callable[[str], str] = flag) -> None:
    """Raises RarewordError for options that do not go together; `label(name)` names one."""
    kind = options.segmenter
    if kind not in KINDS:
        raise RarewordError(f"{label('segmenter')}: {kind!r} is not one of {', '.join(KINDS)}")
    for found in fields(options):
        value = getattr(options, found.name)
        if value is not None and value is not False and not belongs(found.name, kind):
            those = [other for other in KINDS if belongs(found.name, other)]
            instead = f" but for {', '.join(those)}" if those else ""
            raise RarewordError(f"{label(found.name)} is not for {kind}{instead}; leave it out")
    vocabularies.check_limit(options.max_vocabulary_size, label("max_vocabulary_size"))
    text = "corpus" if KINDS[kind].learnt_from == "corpus" else "words"
    for name in (text, *KINDS[kind].needs):
        if getattr(options, name) is None:
            raise RarewordError(f"{label('segmenter')} {kind} needs {label(name)}")
    if KINDS[kind].learnt_from == "merges":
        given = [
            name
            for name in ("merges", "source_merges", "target_merges")
            if getattr(options, name) is not None
        ]
        if given not in (["merges"], ["source_merges", "target_merges"]):
            raise RarewordError(
                f"{label('segmenter')} {kind} needs {label('merges')}, or both "
                f"{label('source_merges')} and {label('target_merges')}"
            )


# ---- the job ----


def _inputs(options: LearnSegmenterOptions) -> dict[str, Manifest]:
    """The manifests of all inputs; the text is `words` or `corpus`."""
    if options.corpus is not None:
        return {"corpus": manifests.read(options.corpus, "prepare", "--corpus")}
    assert options.words is not None
    found = {"words": manifests.read(options.words, "count-words", "--words")}
    for name in ("merges", "source_merges", "target_merges"):
        path = getattr(options, name)
        if path is not None:
            found[name] = _read_merges(path, flag(name), options, found["words"])
    return found


def _read_merges(path: str, name: str, options: LearnSegmenterOptions, words: Manifest) -> Manifest:
    learnt = manifests.read(path, "learn-merges", name)
    units = learnt.rules["merges"].get("units", "characters")
    expected = KINDS[options.segmenter].keywords.get("units", "characters")
    if units != expected:
        raise RarewordError(
            f"{name}: {path} was learnt on {units}; use --segmenter "
            f"{'bytes' if units == 'bytes' else 'bpe'}"
        )
    if learnt.rules["text"] != words.rules["text"]:
        raise RarewordError(
            f"{name}: {path} was learnt on text that was prepared by other rules than that of "
            f"{options.words}; learn the merges from these words"
        )
    return learnt


def plan(options: LearnSegmenterOptions) -> Plan:
    check(options)
    found = _inputs(options)
    inputs = {name: manifest.content for name, manifest in found.items()}
    for name in KINDS[options.segmenter].files:
        if getattr(options, name) is not None:
            inputs[name] = storage.sha256(getattr(options, name))
    for side in SIDES:  # reads the files: better now than when the work has started
        _keywords(options, side, next(iter(found.values())))
    # Options that were not given are left out, so that a release with further kinds knows the work.
    shape = {name: value for name, value in shaping(options).items() if value is not None}
    return Plan(JOB.name, shape, inputs)


def _keywords(options: LearnSegmenterOptions, side: Side, text: Manifest) -> dict[str, Any]:
    """What the class of a side's segmenter gets: the options that were given."""
    row = KINDS[options.segmenter]
    found = dict(row.keywords)
    others = tuple(f"{other}_" for other in SIDES if other != side)
    for name in row.options:
        value = getattr(options, name)
        if value is None and name == f"{side}_language":
            value = text.rules["text"].get(name) or None
        if value is None or value is False or name.startswith(others):
            continue
        if name in row.files:
            module, _, function = row.files[name].partition(".")
            value = getattr(import_module(f"rareword.transforms.{module}"), function)(value)
        found[name.removeprefix(f"{side}_")] = value
    return found


def build(pipeline: Any, options: LearnSegmenterOptions, plan: Plan) -> None:
    import apache_beam as beam
    from apache_beam.pvalue import AsSingleton

    from rareword.transforms.learn_segmenter import LearnSegmenter, Recipe
    from rareword.transforms.segmenters import VocabularyRules
    from rareword.transforms.segmenting import BuildVocabulary

    inputs = _inputs(options)
    row = KINDS[options.segmenter]
    text = inputs["corpus" if row.learnt_from == "corpus" else "words"]
    is_joint = options.joint or options.merges is not None
    has_joint_vocabulary = {"yes": True, "no": False, "auto": is_joint}[options.joint_vocabulary]
    learnt_from = {side: text for side in SIDES}
    if row.learnt_from == "merges":
        names = {side: "merges" if is_joint else f"{side}_merges" for side in SIDES}
        learnt_from = {side: inputs[name] for side, name in names.items()}
    recipe = Recipe(
        options.segmenter,
        row.learnt_from,
        {side: tuple(found.urls) for side, found in learnt_from.items()},
        {side: _keywords(options, side, text) for side in SIDES},
        is_joint,
    )

    def write(made: "BuiltVocabulary", learnt: "Learnt") -> None:
        if options.words is not None:
            segmenter_directory.check_words(text, made)
        segmenter_directory.finish(
            plan,
            options.output,
            learnt.files,
            {
                "kind": options.segmenter,
                "settings": json.loads(learnt.place.settings),
                "joint_vocabulary": has_joint_vocabulary,
            },
            {"text": text.rules["text"]},
        )

    learnt = pipeline | "LearnSegmenter" >> LearnSegmenter(recipe, options.output, plan.fingerprint)
    (
        pipeline
        | "Shards" >> beam.Create(text.urls)
        | "BuildVocabulary"
        >> BuildVocabulary(
            learnt | "Place" >> beam.Map(lambda found: found.place),
            VocabularyRules(
                has_joint_vocabulary, options.max_vocabulary_size, options.min_piece_count
            ),
            options.output,
            row.learnt_from == "corpus",
        )
        | "Finish" >> beam.Map(write, AsSingleton(learnt))
    )


def _progress(options: LearnSegmenterOptions) -> str:
    learnt = set(storage.list_files(options.output)) - {manifests.STARTED_NAME}
    return "counting pieces" if learnt else "learning"


JOB = job.Job(
    name="learn-segmenter",
    description="Learns a segmenter from a training corpus, with the vocabulary of its pieces.\n"
    "`segment` and `segment-text` cut any text by it.",
    options=LearnSegmenterOptions,
    plan=plan,
    work=job.beam_work(build),
    progress=_progress,
)


def run(argv: Sequence[str]) -> int:
    return job.run(JOB, argv)
