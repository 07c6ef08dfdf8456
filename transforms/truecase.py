"""Truecasing as Moses does it, with a model learnt on any number of machines.

Words that do not begin a sentence show how a word is usually written. Their forms are counted per
table, the counts are summed as Arrow tables, and the sums are the model, one JSON file a side:

    {"the": {"The": 40, "the": 400}, ...}

Sums do not depend on the order of the additions, so the same corpus gives the same model.
"""

import functools
import hashlib
import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsIter
from sacremoses import MosesTruecaser

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import SIDES, ShardRecord, Side, file_record
from rareword.transforms.elements import MergeTablesCombineFn
from rareword.transforms.parts import KeyedTable

COUNTS = pa.schema([("word", pa.string()), ("form", pa.string()), ("weight", pa.int64())])
"""How often each form of a word was seen inside a sentence; `word` is the form in small letters."""

PARTS = 16
"""Key shards of each side's counts."""

SENTENCE_ENDS = frozenset(".:?!")
DELAYS = frozenset(["(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"])
"""Tokens after which the start of a sentence is still to come."""


def model_name(side: Side) -> str:
    """File name of a side's model in the corpus directory."""
    return f"truecase-{side}.json"


# ---- learning ----


def count_forms(sentences: Iterable[str]) -> pa.Table:
    """The COUNTS of tokenised sentences: every token with letters that begins no sentence.

    Weights are whole numbers: the first word of a sentence, whose form says little, counts nothing.
    """
    counts: Counter[str] = Counter()
    for sentence in sentences:
        begins = True
        for token in sentence.split(" "):
            if token in DELAYS or _is_tag(token):
                continue
            if token in SENTENCE_ENDS and not begins:
                begins = True
                continue
            if not begins and _has_case(token):
                counts[token] += 1
            begins = False
    forms = list(counts)
    columns = [[form.lower() for form in forms], forms, list(counts.values())]
    return pa.table(columns, schema=COUNTS)


_TAG = re.compile(r"<\S[^>]*>")


def _is_tag(token: str) -> bool:
    return "<" in token and _TAG.search(token) is not None


@functools.lru_cache(maxsize=1 << 18)
def _has_case(token: str) -> bool:
    return _letters().search(token) is not None


@functools.cache
def _letters() -> re.Pattern[str]:
    return re.compile(f"[{MosesTruecaser.Lowercase_Letter}{MosesTruecaser.Uppercase_Letter}]")


def merge_counts(tables: list[pa.Table]) -> pa.Table:
    """The sum of COUNTS tables."""
    merged = pa.concat_tables(tables).group_by(["word", "form"]).aggregate([("weight", "sum")])
    return pa.table([merged[n] for n in ("word", "form", "weight_sum")], schema=COUNTS)


def split_parts(table: pa.Table, side: Side) -> Iterator[KeyedTable]:
    """Cuts COUNTS by a stable hash of the word; the key holds side and part."""
    parts = pa.array([zlib.crc32(word.encode()) % PARTS for word in table["word"].to_pylist()])
    for part in sorted(parts.unique().to_pylist()):
        yield SIDES.index(side) * PARTS + part, table.filter(pc.equal(parts, part))


def write_model(directory: str, side: Side, tables: Iterable[pa.Table]) -> str:
    """Writes the model from the sums of all parts, a line a word; returns the file's SHA-256."""
    model: dict[str, dict[str, int]] = defaultdict(dict)
    for table in tables:
        columns = (table[name].to_pylist() for name in COUNTS.names)
        for word, form, weight in zip(*columns, strict=True):
            model[word][form] = weight
    lines = (f"{_json(word)}: {_json(forms)}" for word, forms in sorted(model.items()))
    data = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
    storage.write_bytes(storage.join(directory, model_name(side)), data)
    return hashlib.sha256(data).hexdigest()


def _json(value: str | dict[str, int]) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


@dataclass(eq=False)
class LearnTruecaser(beam.PTransform):
    """KeyedTables with the columns source, target and reason -> one element, the checksums of the
    two models in `directory` by side. Rows with a reason are rejected ones and do not count."""

    directory: str

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        counts = (
            tables
            | "CountForms" >> beam.FlatMap(_count_accepted).with_output_types(KeyedTable)
            | "SumForms" >> beam.CombinePerKey(MergeTablesCombineFn(merge_counts))
        )
        return (
            tables.pipeline
            | "Once" >> beam.Create([0])
            | "WriteModels" >> beam.Map(_write_models, AsIter(counts), self.directory)
        )


def _count_accepted(element: KeyedTable) -> Iterator[KeyedTable]:
    table = element[1]
    accepted = table.filter(pc.is_null(table["reason"]))
    for side in SIDES:
        yield from split_parts(count_forms(accepted[side].to_pylist()), side)


def _write_models(_: int, counts: Iterable[KeyedTable], directory: str) -> dict[Side, str]:
    parts = sorted(counts, key=lambda element: element[0])
    return {
        side: write_model(
            directory, side, [table for key, table in parts if key // PARTS == SIDES.index(side)]
        )
        for side in SIDES
    }


@dataclass(eq=False)
class CopyTruecaser(beam.PTransform):
    """A corpus directory -> the same as LearnTruecaser gives, after copying its models."""

    directory: str

    def expand(self, corpus: beam.PCollection) -> beam.PCollection:
        return corpus | "CopyModels" >> beam.Map(_copy_models, self.directory)


def _copy_models(corpus: str, directory: str) -> dict[Side, str]:
    checksums: dict[Side, str] = {}
    for side in SIDES:
        with storage.open_read(storage.join(corpus, model_name(side))) as stream:
            data = stream.read()
        storage.write_bytes(storage.join(directory, model_name(side)), data)
        checksums[side] = hashlib.sha256(data).hexdigest()
    return checksums


# ---- applying ----


class Truecaser:
    """Gives words their usual form: at the start of a sentence always, inside it if the form there
    was never counted (`known` forms stay, so that names and capitals survive).

    This is Moses' truecase.perl, and sacremoses with `use_known=True`. Of forms with equal weights
    the one with the greatest code points is the usual one: small letters before capitals.
    """

    def __init__(self, model: Mapping[str, Mapping[str, int]]) -> None:
        self._best: dict[str, str] = {}
        self._known: set[str] = set()
        for word, forms in model.items():
            best = max(forms, key=lambda form: (forms[form], form))
            self._best[word] = best
            self._known.update(form for form in forms if form != best)

    def __call__(self, sentence: str) -> str:
        tokens = sentence.split(" ")
        begins = True
        for i, token in enumerate(tokens):
            if token.startswith("|"):  # Moses' mark for factors
                continue
            best = self._best.get(token.lower())
            if best is not None and (begins or token not in self._known):
                tokens[i] = best
            begins = token in SENTENCE_ENDS or (begins and token in DELAYS)
        return " ".join(tokens)


@functools.lru_cache(maxsize=4)
def load_truecaser(directory: str, side: Side, checksum: str) -> Truecaser:
    """The truecaser of a corpus directory, loaded once per process and content.

    Raises RarewordError if the file is missing or is not a model.
    """
    url = storage.join(directory, model_name(side))
    model = storage.read_json(url)
    if not isinstance(model, dict) or not all(
        isinstance(forms, dict) and forms and all(type(n) is int for n in forms.values())
        for forms in model.values()
    ):
        raise RarewordError(f"{url} is not a truecase model; prepare the corpus again")
    return Truecaser(model)


def model_record(directory: str, side: Side) -> ShardRecord:
    """The manifest's record of a model in its directory; rows are words."""
    name = model_name(side)
    return file_record(directory, name, len(storage.read_json(storage.join(directory, name))))
