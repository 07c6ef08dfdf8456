"""The test set and the systems measured on it, read and brought to one order by their ids."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import CORPUS, SEGMENTED, TRANSLATIONS, TableSchema, iterate_row_groups
from rareword.transforms.text import restore

_LOT = 4096
"""Rows of pieces that are Python objects at a time."""


class Words(Sequence[list[str]]):
    """The words of texts that have a space between two; split where they are asked for."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, row: Any) -> Any:
        return [word for word in self._texts[row].split(" ") if word]


class Lists(Sequence[list[str]]):
    """A column of lists of strings; Python objects where they are asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: Any) -> Any:
        return self._column[row].as_py()

    def __iter__(self) -> Iterator[list[str]]:
        for begin in range(0, len(self), _LOT):
            yield from self._column.slice(begin, _LOT).to_pylist()


@dataclass(frozen=True)
class References:
    """The sentences that all systems translate, in the order of the corpus."""

    ids: Sequence[int]
    sources: Sequence[str]
    targets: Sequence[str]
    """As people read them."""
    source_words: Sequence[Sequence[str]]
    target_words: Sequence[Sequence[str]]
    """As models see them: tokenised and truecased."""
    raw: bool
    """True if sources and targets are the untouched text, False if the corpus was restored."""
    target_language: str | None = None
    """As `prepare` was told."""


@dataclass(frozen=True)
class System:
    """The translations of a test set, in its order."""

    name: str
    texts: Sequence[str]
    pieces: Sequence[Sequence[str]]
    """As `Vocabulary.display` shows them."""
    scores: NDArray[np.float32] | None = None
    """[sentences]: by which the search chose them; None for what no search made."""
    at_limit: int | None = None
    """Outputs that ended because they reached the length limit; None if nobody counted."""

    @property
    def words(self) -> Iterator[list[str]]:
        """The words before tokenisation and truecasing were undone."""
        for shown in self.pieces:
            # A piece of raw text may be of spaces alone, or hold one inside.
            texts = ["".join(word) for word in vocabularies.words_of(shown)]
            yield [word for text in texts for word in text.split(" ") if word]


def read_references(directory: str) -> References:
    """The test set of a `prepare` directory. Raises RarewordError if it has no sentence."""
    manifest = manifests.read(directory, "prepare", "--references")
    corpus = _read_columns(manifest.urls, CORPUS)
    if not corpus["id"]:
        raise RarewordError(f"--references: {directory} has no sentence pair; nothing to evaluate")
    raw_urls = [
        storage.join(directory, file.name)
        for file in manifest.files
        if file.name.startswith("raw/")
    ]
    if raw_urls:
        raw = _read_columns(raw_urls, CORPUS)
        place = {id_: row for row, id_ in enumerate(raw["id"])}
        rows = [place[id_] for id_ in corpus["id"]]
        sources, targets = ([raw[side][row] for row in rows] for side in ("source", "target"))
    else:
        rules = manifest.rules["text"]
        sources = restore(rules, corpus["source"], "source")
        targets = restore(rules, corpus["target"], "target")
    return References(
        corpus["id"],
        sources,
        targets,
        Words(corpus["source"]),
        Words(corpus["target"]),
        raw=bool(raw_urls),
        target_language=manifest.rules["text"].get("target_language"),
    )


def read_system(name: str, directory: str, test: References, flag: str) -> System:
    """The best translations, in the order of the test set.

    Raises RarewordError unless there is exactly one for each of its sentences.
    """
    manifest = manifests.read(directory, "decode", flag)
    names = ["id", "rank", "text", "pieces", "score"]
    best = pa.concat_tables(
        [TRANSLATIONS.fields.empty_table().select(names)]
        + [
            table.filter(pc.equal(table["rank"], 0))
            for url in manifest.urls
            for table in iterate_row_groups(url, TRANSLATIONS, names)
        ]
    )
    ids = best["id"].to_pylist()
    _check_ids(ids, test.ids, f"{flag}: {directory}")
    rows = {id_: row for row, id_ in enumerate(ids)}
    best = best.take(pa.array([rows[id_] for id_ in test.ids], pa.int64()))
    return System(
        name,
        best["text"].to_pylist(),
        Lists(best["pieces"]),
        best["score"].to_numpy(),
        manifest.figures.get("at_limit_outputs"),
    )


def _check_ids(found: Sequence[int], expected: Sequence[int], where: str) -> None:
    """Raises RarewordError, with counts and an example, if the ids are not the same."""
    wanted, there = set(expected), set(found)
    wrong = {
        "missing": sorted(wanted - there),
        "doubled": sorted(id_ for id_, count in Counter(found).items() if count > 1),
        "not in the references": sorted(there - wanted),
    }
    if any(wrong.values()):
        parts = [f"{len(ids):,} {what} (id {ids[0]})" for what, ids in wrong.items() if ids]
        raise RarewordError(
            f"{where} does not have one translation for each reference: {', '.join(parts)}; "
            "decode the test set that the references belong to"
        )


@dataclass(frozen=True)
class Details:
    """What is read of the sentences on the page alone, by id."""

    sources: Mapping[int, Sequence[str]]
    """The pieces of the source as the system had them, as they are shown; empty if not known."""
    targets: Mapping[int, Sequence[str]]
    """The same of the reference."""
    alignments: Mapping[int, Sequence[Sequence[float]]]
    """The attention weights of the best translation, where they were written: a row for each output
    piece with a weight for each source piece, end-of-sentence last on both sides."""


def read_details(directory: str, segmented: str | None, ids: Collection[int]) -> Details:
    """The details of some sentences of a system; memory holds one row group besides.

    directory: its translations. segmented: what they were decoded from, if known.
    """
    urls = manifests.read(directory, "decode", "--translations").urls
    best = pc.equal(pc.field("rank"), 0)
    rows = _rows_of(urls, TRANSLATIONS, ["id", "rank", "alignment"], ids).filter(best)
    present = rows.filter(pc.is_valid(pc.field("alignment")))
    alignments = _by_id(present, "alignment")
    if segmented is None:
        return Details({}, {}, alignments)
    both = vocabularies.read_both(segmented)
    urls = manifests.read(segmented, "segment", "--segmented").urls
    rows = _rows_of(urls, SEGMENTED, ["id", "source", "target"], ids)
    sources, targets = (
        {id_: vocabulary.display(pieces) for id_, pieces in _by_id(rows, side).items()}
        for side, vocabulary in (("source", both.source), ("target", both.target))
    )
    return Details(sources, targets, alignments)


def _rows_of(
    urls: Sequence[str], schema: TableSchema, names: list[str], ids: Collection[int]
) -> pa.Table:
    """The rows of some ids. Of row groups without any, only the ids are read."""
    wanted = pc.field("id").isin(pa.array(sorted(ids), pa.int64()))
    found = [schema.fields.empty_table().select(names)]
    for url in urls:
        groups = enumerate(iterate_row_groups(url, schema, ["id"]))
        chosen = [number for number, group in groups if group.filter(wanted).num_rows]
        found += [
            group.filter(wanted).combine_chunks()
            for group in iterate_row_groups(url, schema, names, chosen)
        ]
    return pa.concat_tables(found)


def _by_id(rows: pa.Table, name: str) -> dict[int, Any]:
    return dict(zip(rows["id"].to_pylist(), rows[name].to_pylist(), strict=True))


def _read_columns(urls: Sequence[str], schema: TableSchema) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in schema.fields.names}
    for url in urls:
        for table in iterate_row_groups(url, schema):
            for name in columns:
                columns[name] += table[name].to_pylist()
    return columns
