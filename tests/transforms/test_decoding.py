"""Batches of a shard, rows of translations, and their way back into one shard."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rareword.schemas import tables
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Symbol
from rareword.schemas.tables import CORPUS, SEGMENTED
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary
from rareword.transforms import decoding

PIECES = (*SPECIALS, Symbol("lo", False), Symbol("wer", True), Symbol("low", True))
VOCABULARY = Vocabulary(
    [piece.text for piece in PIECES], [piece.final for piece in PIECES], [1] * 6, [1] * 6
)
PLAIN = {"tokenise": "none", "truecase": "none"}
MOSES = {"source_language": "en", "target_language": "en"}


def write_segmented(directory: Path, ids: list[int]) -> str:
    table = pa.table(
        {"id": ids, "source": [[3, 4]] * len(ids), "target": [[5]] * len(ids)},
        schema=SEGMENTED.fields,
    )
    tables.write_shard(str(directory), "part-00000-of-00001.parquet", SEGMENTED, [table])
    return str(directory / "part-00000-of-00001.parquet")


def rows(ids: list[int], at_limit: bool = False) -> pa.Table:
    found = [[([3, 4], -0.5, None), ([5], -0.75, None)] for _ in ids]
    return decoding.to_rows(ids, found, [3 if at_limit else 9] * len(ids), VOCABULARY, PLAIN)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_batches_are_the_rows_of_the_shard_in_order(tmp_path: Path, size: int) -> None:
    url = write_segmented(tmp_path, [7, 3, 9, 1, 4])
    batches = list(decoding.read_batches(6, url, rows=size))
    assert [(shard, place) for shard, (place, _) in batches] == [
        (6, i) for i in range(len(batches))
    ]
    assert max(table.num_rows for _, (_, table) in batches) <= size
    assert [id_ for _, (_, t) in batches for id_ in t["id"].to_pylist()] == [7, 3, 9, 1, 4]


def write_corpus(directory: Path, ids: list[int], source: str) -> str:
    table = pa.table(
        {"id": ids, "source": [source] * len(ids), "target": ["low"] * len(ids)},
        schema=CORPUS.fields,
    )
    tables.write_shard(str(directory), "part-00000-of-00001.parquet", CORPUS, [table])
    return str(directory / "part-00000-of-00001.parquet")


def test_the_words_of_the_corpus_come_with_the_rows(tmp_path: Path) -> None:
    url = write_segmented(tmp_path / "s", [7, 3, 9])
    corpus = write_corpus(tmp_path / "c", [7, 3, 9], "lo  wer ")
    batches = [table for _, (_, table) in decoding.read_batches(0, url, corpus, rows=2)]
    assert [table.num_rows for table in batches] == [2, 1]
    assert [table["words"].to_pylist() for table in batches] == [
        [["lo", "wer"]] * 2,
        [["lo", "wer"]],
    ]


@pytest.mark.parametrize(
    ("ids", "source"), [([7, 9, 3], "lo wer"), ([7, 3], "lo wer"), ([7, 3, 9], "lower")]
)
def test_other_rows_or_words_in_the_corpus_are_an_error(
    tmp_path: Path, ids: list[int], source: str
) -> None:
    url = write_segmented(tmp_path / "s", [7, 3, 9])
    corpus = write_corpus(tmp_path / "c", ids, source)
    with pytest.raises(RarewordError, match="do not hold the same sentences in the same words"):
        list(decoding.read_batches(0, url, corpus))


def test_an_empty_shard_is_a_batch_too_and_becomes_an_empty_shard(tmp_path: Path) -> None:
    url = write_segmented(tmp_path, [])
    [(shard, (place, table))] = decoding.read_batches(0, url)
    assert (shard, place, table.num_rows) == (0, 0, 0)
    record = decoding.write_translations((0, [(0, rows([]))]), [url], str(tmp_path / "out"))
    assert record.rows == 0
    assert record.counters == dict.fromkeys(decoding.COUNTERS, 0)


def test_rows_hold_text_pieces_score_and_alignment() -> None:
    weights = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)
    found = [
        [([5], -0.5, weights)],
        [([], 0.0, None)],
        [([3, 4, UNK], -1.5, None), ([3], -2.0, None)],
    ]
    table = decoding.to_rows([8, 2, 5], found, [9, 9, 4], VOCABULARY, PLAIN)
    assert table.to_pylist() == [
        {
            "id": 8,
            "rank": 0,
            "text": "low",
            "pieces": ["low"],
            "score": -0.5,
            "alignment": [[0.25, 0.75], [1.0, 0.0]],
            "at_limit": False,
        },
        {
            "id": 2,
            "rank": 0,
            "text": "",
            "pieces": [],
            "score": 0.0,
            "alignment": None,
            "at_limit": False,
        },
        {
            "id": 5,
            "rank": 0,
            "text": "lower <unk>",
            "pieces": ["lo@@", "wer", "<unk>"],
            "score": -1.5,
            "alignment": None,
            "at_limit": True,
        },
        {
            "id": 5,
            "rank": 1,
            "text": "lo",
            "pieces": ["lo@@"],
            "score": -2.0,
            "alignment": None,
            "at_limit": False,
        },
    ]
    assert decoding.count(table) == {
        "sentences": 3,
        "target_pieces": 4,
        "empty_outputs": 1,
        "at_limit_outputs": 1,
    }


def test_the_text_is_restored_by_the_rules_of_the_corpus() -> None:
    found = [[([4, 5], -0.5, None)]]
    assert decoding.to_rows([1], found, [9], VOCABULARY, MOSES)["text"].to_pylist() == ["Wer low"]


def test_a_shard_is_written_in_the_order_of_its_input_whatever_the_order_of_arrival(
    tmp_path: Path,
) -> None:
    url = write_segmented(tmp_path, [7, 3, 9])
    parts = [(0, rows([7])), (1, rows([3], at_limit=True)), (2, rows([9]))]
    records = [
        decoding.write_translations((0, order), [url], str(tmp_path / name))
        for name, order in (("a", parts), ("b", parts[::-1]))
    ]
    assert records[0] == records[1]
    assert records[0].counters == {
        "sentences": 3,
        "target_pieces": 6,
        "empty_outputs": 0,
        "at_limit_outputs": 1,
    }
    found = pq.read_table(tmp_path / "b" / "part-00000-of-00001.parquet")
    assert found["id"].to_pylist() == [7, 7, 3, 3, 9, 9]
    assert found["rank"].to_pylist() == [0, 1] * 3
    assert found.column_names == tables.TRANSLATIONS.fields.names


@pytest.mark.parametrize("ids", [[7, 3], [7, 3, 3, 9], [3, 7, 9], [7, 3, 8]])
def test_a_lost_doubled_or_moved_row_is_an_error(tmp_path: Path, ids: list[int]) -> None:
    url = write_segmented(tmp_path, [7, 3, 9])
    with pytest.raises(RarewordError, match="lost or doubled"):
        decoding.write_translations((0, [(0, rows(ids))]), [url], str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
