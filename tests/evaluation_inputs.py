"""Inputs of the evaluate job, small enough to count by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rareword.pipelines import cli
from rareword.schemas import manifest as manifests
from rareword.schemas import tables
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.manifest import Plan
from rareword.schemas.tables import CORPUS, SEGMENTED, TRANSLATIONS, WORDS, TableSchema
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabularies, Vocabulary

Pairs = Sequence[tuple[int, str, str]]
"""Id, source and target."""
Weights = Sequence[Sequence[float]]

RULES = {"source_language": "en", "target_language": "en", "tokenise": "moses", "truecase": "moses"}

# id, source, target: in the corpus, and before `prepare`
CORPUS_ROWS = [
    (30, "the cat sleeps .", "der Kater schläft ."),
    (10, "the dog barks .", "der Hund bellt ."),
    (20, "a zebra , a gnu .", "ein Zebra , ein Gnu ."),
    (40, "<b> & co", "<b> & co"),
]
RAW_ROWS = [
    (10, "The dog barks.", "Der Hund bellt."),
    (20, "A zebra, a gnu.", "Ein Zebra, ein Gnu."),
    (30, "The cat sleeps.", "Der Kater schläft."),
    (40, "<b> & co", "<b> & co"),
]
TRAINING = {"der": 500, "ein": 20, ".": 900, ",": 300, "Hund": 7, "bellt": 2, "Kater": 1}

# id, text, pieces of the system under test and of a word-level one
MODEL_ROWS = [
    (30, "Der Kater schläft.", ["der", "Ka@@", "ter", "schl@@", "äft", "."]),
    (10, "Der Hund Hund.", ["der", "Hund", "Hund", "."]),
    (20, "Ein Zebra, ein Hund.", ["ein", "Ze@@", "bra", ",", "ein", "Hund", "."]),
    (40, "<b> Zoo", ["<b>", "Z@@", "oo"]),
]
WORD_ROWS = [
    (40, "", []),
    (20, "Ein <unk>, ein <unk>.", ["ein", "<unk>", ",", "ein", "<unk>", "."]),
    (30, "Der Kater <unk>.", ["der", "Kater", "<unk>", "."]),
    (10, "Der Hund bellt.", ["der", "Hund", "bellt", "."]),
]


def finish(
    job: str, directory: Path, schema: TableSchema, table: pa.Table, shards: int = 2, **more: Any
) -> Path:
    """A finished directory of `job` that holds a table."""
    step = -(-table.num_rows // shards) or 1
    records = [
        tables.write_shard(
            str(directory),
            tables.shard_name(number, shards),
            schema,
            [table.slice(number * step, step)],
        )
        for number in range(shards)
    ]
    plan = Plan(job, {}, more.pop("inputs", {}))
    manifests.finish(plan, str(directory), schema, records, **more)
    return directory


def write_references(
    directory: Path, corpus: Pairs = CORPUS_ROWS, raw: Pairs | None = RAW_ROWS
) -> Path:
    """raw: the untouched text, if it was kept."""
    files = []
    if raw is not None:
        table = pa.Table.from_pylist(rows(raw), schema=CORPUS.fields)
        name = tables.shard_name(0, 1, "raw/part")
        files.append(tables.write_shard(str(directory), name, CORPUS, [table]))
    return finish(
        "prepare",
        directory,
        CORPUS,
        pa.Table.from_pylist(rows(corpus), schema=CORPUS.fields),
        files=files,
        figures={"rejected": 3},
        rules={"text": RULES},
    )


def rows(triples: Pairs) -> list[dict[str, Any]]:
    return [{"id": i, "source": source, "target": target} for i, source, target in triples]


def write_words(directory: Path, counts: Mapping[str, int] = TRAINING) -> Path:
    table = pa.table(
        {
            "word": list(counts),
            "source_count": [10**6] * len(counts),
            "target_count": list(counts.values()),
        },
        schema=WORDS.fields,
    )
    return finish("count-words", directory, WORDS, table)


def write_translations(
    directory: Path,
    found: Sequence[tuple[int, str, list[str]]],
    segmented: str = "none",
    scores: Mapping[int, float] | None = None,
    alignments: Mapping[int, Weights] | None = None,
    **more: Any,
) -> Path:
    """found: id, text and pieces of the best translation; each gets a second one too."""
    values = []
    for id_, text, pieces in found:
        score = -1.0 if scores is None else scores[id_]
        best = {"id": id_, "rank": 0, "text": text, "pieces": pieces, "score": score}
        best["alignment"] = (alignments or {}).get(id_)
        second = {**best, "rank": 1, "text": "second", "pieces": ["second"]}
        values += [best, {**second, "alignment": [[1.0]] if alignments else None}]
    table = pa.Table.from_pylist(values, schema=TRANSLATIONS.fields)
    more["inputs"] = {"segmented": segmented}
    return finish("decode", directory, TRANSLATIONS, table, **more)


CUTS: Mapping[str, Sequence[str]] = {"zebra": ("ze", "bra"), "Zebra": ("Ze", "bra"), "Gnu": ()}


def write_segmented(
    directory: Path,
    corpus: Pairs = CORPUS_ROWS,
    cuts: Mapping[str, Sequence[str]] = CUTS,
) -> Path:
    """The test set in pieces. cuts: those of some words; none for a word that is unknown."""
    symbols: dict[tuple[str, bool], int] = {}

    def ids(text: str) -> list[int]:
        found = []
        for word in text.split(" "):
            pieces = cuts.get(word, (word,))
            for place, piece in enumerate(pieces, 1):
                symbol = (piece, place == len(pieces))
                found.append(symbols.setdefault(symbol, len(SPECIALS) + len(symbols)))
            if not pieces:
                found.append(UNK)
        return found

    cut = [
        {"id": id_, "source": ids(source), "target": ids(target)} for id_, source, target in corpus
    ]
    pieces = [*SPECIALS, *symbols]
    counts = [1] * len(pieces)
    one = Vocabulary([p[0] for p in pieces], [p[1] for p in pieces], counts, counts)
    table = pa.Table.from_pylist(cut, schema=SEGMENTED.fields)
    files = vocabularies.write_both(Vocabularies(one, one), str(directory))
    return finish("segment", directory, SEGMENTED, table, files=files)


def content(segmented: Path) -> str:
    """By what translations know what they were decoded from."""
    return manifests.read(str(segmented), "segment", "--segmented").content


def evaluate(arguments: Sequence[str], output: Path) -> tuple[dict[str, Any], str]:
    """Runs the job; what it measured, and its page."""
    assert cli.main(["evaluate", *arguments, f"--output={output}"]) == 0
    found = json.loads((output / "metrics.json").read_text("utf-8"))
    return found, (output / "index.html").read_text("utf-8")
