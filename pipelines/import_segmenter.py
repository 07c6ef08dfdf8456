"""`rareword import-segmenter`: the file of another program -> segmenter."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from rareword.pipelines import job, segmenter_directory
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Plan
from rareword.schemas.options import JobOptions, flag, option, shaping
from rareword.schemas.tables import SIDES, ShardRecord, Side
from rareword.schemas.vocabulary import Vocabularies

if TYPE_CHECKING:
    from rareword.transforms.importing import Imported
    from rareword.transforms.segmenting import BuiltVocabulary


@dataclass(frozen=True)
class ImportSegmenterOptions(JobOptions):
    file: str | None = option(
        None, help="file of the other program, for both sides", shapes_result=False
    )
    source_file: str | None = option(
        None, help="file of the other program for the source side", shapes_result=False
    )
    target_file: str | None = option(
        None, help="file of the other program for the target side", shapes_result=False
    )
    format: Literal["auto", "subword-nmt", "fastbpe", "sentencepiece", "huggingface"] = option(
        "auto", help="what wrote the file; auto: tell by its content"
    )
    vocabulary: str | None = option(
        None,
        help="vocabulary file of subword-nmt or fastBPE (lines `piece count`) for both sides; "
        "without one, and without --words, the vocabulary is what the file itself has",
        shapes_result=False,
    )
    source_vocabulary: str | None = option(
        None, help="vocabulary file for the source side", shapes_result=False
    )
    target_vocabulary: str | None = option(
        None, help="vocabulary file for the target side", shapes_result=False
    )
    words: str | None = option(
        None,
        help="`count-words` directory of the training corpus: the vocabulary is made of it, as "
        "`learn-segmenter` does",
        shapes_result=False,
    )
    joint_vocabulary: Literal["auto", "yes", "no"] = option(
        "auto", help="with --words: one vocabulary for both sides; auto: if they have one file"
    )
    max_vocabulary_size: int = option(
        0,
        help="with --words: pieces in a vocabulary at most (0: no limit); the rest is <unk>",
        at_least=0,
    )
    min_piece_count: int = option(
        0, help="with --words: rarer pieces are <unk>, as in `learn-segmenter`", at_least=0
    )


def _given(options: ImportSegmenterOptions, name: str) -> dict[str, str]:
    """The paths of `--name`, or of `--source-name` and `--target-name`, by option; may be none.

    Raises RarewordError if they do not go together.
    """
    names = (name, *(f"{side}_{name}" for side in SIDES))
    found = {n: getattr(options, n) for n in names if getattr(options, n) is not None}
    if found and list(found) not in ([name], list(names[1:])):
        raise RarewordError(
            f"give {flag(name)} for both sides, or both {flag(names[1])} and {flag(names[2])}"
        )
    for option_name, url in found.items():
        if not storage.exists(url):
            raise RarewordError(f"{flag(option_name)}: {url} does not exist")
    return found


def plan(options: ImportSegmenterOptions) -> Plan:
    files, lists = _given(options, "file"), _given(options, "vocabulary")
    if not files:
        raise RarewordError("give --file for both sides, or both --source-file and --target-file")
    inputs = {name: storage.sha256(url) for name, url in (files | lists).items()}
    if options.words is None:
        for found in fields(options):
            name = found.name
            if found.metadata["help"].startswith("with --words") and (
                getattr(options, name) != found.default
            ):
                raise RarewordError(f"{flag(name)} goes with --words only; leave it out")
    elif lists:
        raise RarewordError(
            f"{flag(next(iter(lists)))} and --words both make the vocabulary; give one of them"
        )
    else:
        inputs["words"] = manifests.read(options.words, "count-words", "--words").content
    vocabularies.check_limit(options.max_vocabulary_size, flag("max_vocabulary_size"))
    _read(options)
    return Plan(JOB.name, shaping(options), inputs)


def _read(options: ImportSegmenterOptions) -> "dict[Side, Imported]":
    """What the files hold, by side: one object if there is one file."""
    from rareword.transforms import importing

    files = _given(options, "file")
    found = {name: importing.read(url, options.format) for name, url in files.items()}
    both = {side: found["file" if "file" in found else f"{side}_file"] for side in SIDES}
    kinds = [both[side].kind for side in SIDES]
    if kinds[0] != kinds[1]:
        raise RarewordError(
            f"--source-file is a segmenter of kind {kinds[0]!r}, --target-file one of "
            f"{kinds[1]!r}; both must be of one kind"
        )
    if kinds[0] != "bpe" and _given(options, "vocabulary"):
        raise RarewordError(
            f"--vocabulary is for codes of subword-nmt and fastBPE; {next(iter(files.values()))} "
            "has its own"
        )
    if kinds[0] == "sentencepiece" and options.words is not None:
        raise RarewordError(
            "--words: pieces of raw text hold spaces and cannot be counted in words; leave it out, "
            "the model brings its vocabulary"
        )
    return both


def _own_vocabularies(
    options: ImportSegmenterOptions, both: "dict[Side, Imported]"
) -> Vocabularies:
    """Those of the vocabulary files, or of the pieces that the files have."""
    from rareword.transforms import importing

    lists = _given(options, "vocabulary")
    if not lists:
        return Vocabularies(both["source"].vocabulary, both["target"].vocabulary)
    found = {name: importing.read_vocabulary(url) for name, url in lists.items()}
    return Vocabularies(
        *(found["vocabulary" if "vocabulary" in found else f"{s}_vocabulary"] for s in SIDES)
    )


def work(options: ImportSegmenterOptions, plan: Plan, arguments: Sequence[str]) -> None:
    """Writes the segmenter; a pipeline counts the words' pieces, if there are words."""
    if options.words is not None:
        job.beam_work(build)(options, plan, arguments)
        return
    both = _read(options)
    files = _save(options, both)
    own = _own_vocabularies(options, both)
    vocabularies.write_both(own, options.output)
    _finish(options, plan, both, files, own.joint, {})


def build(pipeline: Any, options: ImportSegmenterOptions, plan: Plan) -> None:
    import apache_beam as beam

    from rareword.transforms import segmenters
    from rareword.transforms.segmenters import VocabularyRules
    from rareword.transforms.segmenting import BuildVocabulary, SegmenterPlace

    assert options.words is not None
    words = manifests.read(options.words, "count-words", "--words")
    both = _read(options)
    files = _save(options, both)
    joint = {"yes": True, "no": False, "auto": both["source"] is both["target"]}[
        options.joint_vocabulary
    ]
    settings = segmenters.settings({side: both[side].segmenter for side in SIDES})
    place = SegmenterPlace(
        options.output, both["source"].kind, json.dumps(settings, sort_keys=True), plan.fingerprint
    )

    def write(made: "BuiltVocabulary") -> None:
        segmenter_directory.check_words(words, made)
        _finish(options, plan, both, files, joint, {"text": words.rules["text"]})

    (
        pipeline
        | "Shards" >> beam.Create(words.urls)
        | "BuildVocabulary"
        >> BuildVocabulary(
            pipeline | "Place" >> beam.Create([place]),
            VocabularyRules(joint, options.max_vocabulary_size, options.min_piece_count),
            options.output,
            False,
        )
        | "Finish" >> beam.Map(write)
    )


def _save(options: ImportSegmenterOptions, both: "dict[Side, Imported]") -> list[ShardRecord]:
    from rareword.transforms import segmenters

    return segmenters.save({side: both[side].segmenter for side in SIDES}, options.output)


def _finish(
    options: ImportSegmenterOptions,
    plan: Plan,
    both: "dict[Side, Imported]",
    files: list[ShardRecord],
    joint: bool,
    rules: dict[str, Any],
) -> None:
    from rareword.transforms import segmenters

    notes = list(dict.fromkeys(note for side in SIDES for note in both[side].notes))
    if not options.quiet:
        for note in notes:
            print(f"import-segmenter: {note}", file=sys.stderr)
    segmenter_directory.finish(
        plan,
        options.output,
        files,
        {
            "kind": both["source"].kind,
            "settings": segmenters.settings({side: both[side].segmenter for side in SIDES}),
            "joint_vocabulary": joint,
        },
        rules,
        {"notes": notes},
    )


JOB = job.Job(
    name="import-segmenter",
    description="Makes a segmenter of codes of subword-nmt or fastBPE, a sentencepiece model, or\n"
    "tokenizer.json of Hugging Face. `segment` and `segment-text` cut any text by it.",
    options=ImportSegmenterOptions,
    plan=plan,
    work=work,
)


def run(argv: Sequence[str]) -> int:
    return job.run(JOB, argv)
