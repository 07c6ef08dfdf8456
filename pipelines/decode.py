"""`rareword decode`: translates a segmented corpus with one model or several, by beam search.

    segmented shard k -> batches of rows -> RunInference(beam search) -> by shard -> shard k

Nothing is shuffled but the rows of a shard back into their order; a shard's name and content are
fixed by input and options, so any part may run again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from rareword.pipelines import job
from rareword.pipelines.job import Job
from rareword.pipelines.train_ensemble import ENSEMBLE
from rareword.schemas import manifest as manifests
from rareword.schemas import options as typed_options
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions, option
from rareword.schemas.tables import SEGMENTED, TRANSLATIONS, ShardRecord, open_parquet
from rareword.trainer.search_options import SearchOptions

if TYPE_CHECKING:
    from rareword.transforms.candidates import CandidateRules


@dataclass(frozen=True)
class DecodeOptions(JobOptions, SearchOptions):
    """Options of `rareword decode`: data and models, and all of SearchOptions."""

    segmented: tuple[str, ...] = option(
        help="directory that `segment` wrote; its source side is translated. Of several, each has "
        "its translations in a directory of its own name below --output",
        shapes_result=False,
    )
    model: tuple[str, ...] = option(
        help="directories that `train` wrote, of which several make an ensemble, or one that "
        "`train-ensemble` wrote",
        shapes_result=False,
    )
    members: Literal["all", "best"] = option(
        "all",
        help="models of a directory that `train-ensemble` wrote to use: all together, or the one "
        "that is best on the development data",
        shapes_result=False,  # the models themselves are in the plan
    )
    ensemble_mean: Literal["log", "probability"] = option(
        "log",
        help="what an ensemble takes the mean of: its models' log-probabilities (the paper) or "
        "their probabilities",
        shapes_result=False,  # in the plan if there are several models
    )
    checkpoint: Literal["best", "latest"] = option(
        "best", help="checkpoint to use: best on the development data, or the latest"
    )
    replace_unk: Literal["none", "copy", "dictionary"] = option(
        "none",
        help="what takes the place of <unk>, where pieces are whole words: the source word with "
        "the highest attention, or its most probable translation in --dictionary if it has one",
        shapes_result=False,  # in the plan if it is done
    )
    candidates: bool = option(
        False,
        help="take the softmax over --frequent-pieces and the translations of the source's words "
        "in --dictionary alone",
        shapes_result=False,  # in the plan if it is done
    )
    frequent_pieces: int = option(
        30_000,
        help="of --candidates: most frequent target pieces that every sentence has",
        shapes_result=False,
        at_least=1,
    )
    word_translations: int = option(
        10,
        help="of --candidates: most probable translations of each source word",
        shapes_result=False,
        at_least=0,
    )
    dictionary: str | None = option(
        None,
        help="directory that `align` wrote, for --replace-unk dictionary and --candidates",
        shapes_result=False,
    )
    corpus: tuple[str, ...] = option(
        (),
        help="directory that `prepare` wrote, from which --segmented was cut, for --replace-unk: "
        "has the words that --segmented has no ids for; of several, in their order",
        shapes_result=False,
    )
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", help="where to compute; auto is cuda if a worker has it", shapes_result=False
    )
    precision: Literal["auto", "float32", "tf32", "bf16"] = option(
        "float32",
        help="of matrix products; auto: bf16 where a worker is faster with it, else float32",
    )
    threads: int = option(
        0,
        help="CPU threads of a worker process; 0 leaves it to torch",
        shapes_result=False,
        at_least=0,
    )


def plan(options: DecodeOptions) -> Plan:
    """Checks that data and models are finished and belong together."""
    options.check()
    segmented = _segmented(options)
    data_hash = vocabularies.read_both(segmented.directory).hash
    found = models(options)
    inputs, shaping = {"segmented": segmented.content}, typed_options.shaping(options)
    for number, model in enumerate(found, 1):
        inputs["model" if len(found) == 1 else f"model {number}"] = model.content
        _check_model(model.directory, options, segmented.directory, data_hash)
    if len(found) > 1:
        shaping["ensemble_mean"] = options.ensemble_mean
    for url in segmented.urls:
        open_parquet(url, SEGMENTED).close()
    if options.replace_unk != "none":
        shaping["replace_unk"] = options.replace_unk
    if options.candidates:
        names = ("frequent_pieces", "word_translations")
        shaping |= {"candidates": True, **{name: getattr(options, name) for name in names}}
    _check_replacement(options, segmented)
    dictionary = _check_dictionary(options, segmented)
    if dictionary is not None:
        inputs["dictionary"] = dictionary.content
    return Plan("decode", shaping, inputs)


def _segmented(options: DecodeOptions) -> Manifest:
    """What one run of the job translates; `run` makes several of it."""
    if len(options.segmented) != 1:
        raise RarewordError(
            f"--segmented: expected one directory, found {len(options.segmented)}; several can be "
            "given to the command `rareword decode` only"
        )
    return manifests.read(options.segmented[0], "segment", "--segmented")


def _check_replacement(options: DecodeOptions, segmented: Manifest) -> None:
    """Raises RarewordError for what does not go together with --replace-unk."""
    if options.replace_unk == "none":
        if options.corpus:
            raise RarewordError("--corpus is for --replace-unk; give that too")
        return
    kind = segmented.rules["segmenter"]["kind"]
    if kind != "words":
        raise RarewordError(
            f"--replace-unk: {segmented.directory} was segmented by {kind!r}, whose pieces are "
            "parts of words, and an attention weight says nothing of the word that a part belongs "
            "to; leave the option out, or segment by `words`"
        )
    if options.forbid_unk:
        raise RarewordError("--replace-unk: --forbid-unk leaves nothing to replace; give one only")
    if options.search == "forced":
        raise RarewordError("--replace-unk: --search forced has outputs already; give one only")
    if len(options.corpus) != 1:
        raise RarewordError(
            f"--replace-unk needs --corpus: the directory from which {segmented.directory} was "
            "cut, for the words that have no ids there"
        )
    corpus = manifests.read(options.corpus[0], "prepare", "--corpus")
    if corpus.content != segmented.inputs["corpus"]:
        raise RarewordError(
            f"--corpus: {segmented.directory} was not cut from {corpus.directory}; give the "
            "directory that it was, or segment that corpus"
        )


def _check_dictionary(options: DecodeOptions, segmented: Manifest) -> Manifest | None:
    """The dictionary, if one is needed. Raises RarewordError if it does not fit."""
    if options.candidates and options.search == "forced":
        raise RarewordError(
            "--candidates: --search forced scores pieces that no list may lack; give one only"
        )
    users = [
        name
        for name, used in (
            ("--replace-unk dictionary", options.replace_unk == "dictionary"),
            ("--candidates", options.candidates),
        )
        if used
    ]
    if options.dictionary is None:
        if users:
            raise RarewordError(
                f"{users[0]} needs --dictionary: a directory that `rareword align` wrote"
            )
        return None
    if not users:
        raise RarewordError(
            "--dictionary is for --replace-unk dictionary or --candidates; give one of them too"
        )
    dictionary = manifests.read(options.dictionary, "align", "--dictionary")
    if dictionary.rules["text"] != segmented.rules["text"]:
        raise RarewordError(
            f"--dictionary: {options.dictionary} was made from text that was prepared by other "
            f"rules than {segmented.directory}; align the training corpus of the model"
        )
    return dictionary


def models(options: DecodeOptions) -> list[Manifest]:
    """The models that translate, those of an ensemble one by one."""
    found = []
    for directory in options.model:
        manifest = manifests.read(directory, ("train", "train-ensemble"), "--model")
        if manifest.job == "train":
            found.append(manifest)
            continue
        ensemble = storage.read_json(storage.join(directory, ENSEMBLE))
        every = [member["name"] for member in ensemble["members"]]
        names = every if options.members == "all" else [ensemble["best"]]
        found += [
            manifests.read(storage.join(directory, name), "train", "--model") for name in names
        ]
    return found


def _check_model(model: str, options: DecodeOptions, segmented: str, data_hash: str) -> None:
    """Raises RarewordError unless the model has the data's vocabulary and the checkpoint."""
    model_hash = vocabularies.read_both(model).hash
    if data_hash != model_hash:
        raise RarewordError(
            f"--segmented: {segmented} has vocabulary {data_hash[:12]}, but --model: "
            f"{model} was trained with vocabulary {model_hash[:12]}; segment the data with "
            "the segmenter and the vocabulary of the training data"
        )
    pointer = f"{options.checkpoint}.json"
    if not storage.exists(storage.join(model, pointer)):
        other = "latest" if options.checkpoint == "best" else "best"
        raise RarewordError(
            f"--checkpoint: {model} has no {options.checkpoint} checkpoint (no {pointer}); "
            f"try --checkpoint {other}"
        )


def build(pipeline: Any, options: DecodeOptions, plan: Plan) -> None:
    """The graph; its last step checks the balance and writes the manifest."""
    import apache_beam as beam
    from apache_beam.ml.inference.base import RunInference

    from rareword.pipelines.translator import TranslatorHandler
    from rareword.transforms.decoding import Batch, WriteTranslations, read_batches
    from rareword.transforms.elements import Finish

    segmented = _segmented(options)
    rules = {
        "text": segmented.rules["text"],
        "segmenter": segmented.rules["segmenter"],
        "vocabulary": vocabularies.read_both(segmented.directory).hash,
    }
    handler = TranslatorHandler(
        models=[model.directory for model in models(options)],
        mean=options.ensemble_mean,
        checkpoint=options.checkpoint,
        vocabulary_hash=rules["vocabulary"],
        text_rules=rules["text"],
        search=SearchOptions(**{f.name: getattr(options, f.name) for f in fields(SearchOptions)}),
        precision=options.precision,
        device=options.device,
        threads=options.threads,
        replace_unk=options.replace_unk,
        dictionary=options.dictionary,
        lists=_candidate_rules(options, segmented),
    )
    corpus_urls: list[str | None] = [None] * len(segmented.shards)
    if options.corpus:  # shard by shard as `segment` read it
        corpus_urls = [*manifests.read(options.corpus[0], "prepare", "--corpus").urls]
    rows = [shard.rows for shard in segmented.shards]
    _ = (
        pipeline
        | "Shards"
        >> beam.Create(list(zip(range(len(rows)), segmented.urls, corpus_urls, strict=True)))
        | "Read" >> beam.FlatMapTuple(read_batches).with_output_types(Batch)
        | "Translate" >> RunInference(handler).with_output_types(Batch)
        | "Write" >> WriteTranslations(segmented.urls, options.output)
        | "Manifest" >> Finish(_Finish(plan, options.output, rows, rules))
    )


def _candidate_rules(options: DecodeOptions, segmented: Manifest) -> "CandidateRules | None":
    if not options.candidates:
        return None
    from rareword.transforms.candidates import CandidateRules

    segmenter = segmented.rules["segmenter"]
    return CandidateRules(
        segmented.directory,
        segmenter["kind"],
        segmenter["settings"],
        options.frequent_pieces,
        options.word_translations,
    )


@dataclass(frozen=True)
class _Finish:
    """Writes the manifest when every shard has one best translation for each of its rows."""

    plan: Plan
    output: str
    rows: Sequence[int]
    """Of the segmented shards, in order."""
    rules: dict[str, Any]

    def __call__(self, records: list[ShardRecord]) -> None:
        records = sorted(records, key=lambda record: record.name)
        best = [record.counters["sentences"] for record in records]
        manifests.check_balance(
            {
                "shards": (len(self.rows), len(records)),
                **{
                    f"sentences of shard {shard}": (rows, found)
                    for shard, (rows, found) in enumerate(zip(self.rows, best, strict=False))
                },
            }
        )
        names = ["sentences", "target_pieces", "empty_outputs", "at_limit_outputs"]
        if "replace_unk" in self.plan.options:
            names += ["replaced_by_dictionary", "replaced_by_copy"]
        if "candidates" in self.plan.options:
            names += ["searched_again", "reference_pieces", "reference_pieces_outside"]
        figures = {name: sum(record.counters[name] for record in records) for name in names}
        manifests.finish(
            self.plan,
            self.output,
            TRANSLATIONS,
            records,
            figures=figures,
            rules=self.rules,
            packages=("apache-beam", "pyarrow", "torch"),
        )


JOB = Job(
    "decode",
    "Translates a segmented corpus with a trained model, or an ensemble, by beam search.",
    DecodeOptions,
    plan,
    job.beam_work(build),
    job.count_files,
)


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword decode`."""
    options, rest = typed_options.parse(JOB.options, "rareword decode", JOB.description, argv)
    parts = one_by_one(options)
    for part in parts[1:]:  # what is wrong with the last one shows before the first one starts
        plan(part)
    for part in parts:
        job.execute(JOB, part, rest)
    return 0


def one_by_one(options: DecodeOptions) -> list[DecodeOptions]:
    """The options for each directory of --segmented. Raises RarewordError if two have one name."""
    if len(options.segmented) == 1:
        return [options]
    if options.corpus and len(options.corpus) != len(options.segmented):
        raise RarewordError(
            f"--corpus: {len(options.corpus)} directories for {len(options.segmented)} of "
            "--segmented; give one for each, in the same order"
        )
    parts: dict[str, DecodeOptions] = {}
    for number, directory in enumerate(options.segmented):
        name = directory.rstrip("/").rsplit("/", 1)[-1]
        if name in parts:
            raise RarewordError(
                f"--segmented: two directories are called {name!r}, and their translations would "
                "lie in one; decode them one at a time"
            )
        parts[name] = replace(
            options,
            segmented=(directory,),
            corpus=options.corpus[number : number + 1],
            output=storage.join(options.output, name),
        )
    return list(parts.values())
