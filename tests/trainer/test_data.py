"""Corpora on disk and parts of them in memory: what is read, counted, refused."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rareword.schemas import manifest
from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer import data
from rareword.trainer.data import Corpus, Pairs, Sentences, read_pairs, scan
from rareword.trainer.distributed import Group

ROWS = [
    ([3, 4], [5]),
    ([], [3]),
    ([3] * 6, [4]),
    ([4], [5] * 5),
    ([], [5] * 9),
    ([5], [6, 7]),
    ([8, 3, 3], [7, 7]),
]


def sentences(ids: list[list[int]]) -> Sentences:
    flat = np.array([i for sentence in ids for i in sentence], np.int32)
    return Sentences(flat, np.cumsum([0, *map(len, ids)]))


def rows_of(pairs: Pairs) -> list[tuple[int, list[int], list[int]]]:
    return [
        (int(pairs.ids[i]), pairs.source[i].tolist(), pairs.target[i].tolist())
        for i in range(len(pairs))
    ]


def test_sentences_are_padded_on_the_right_after_their_end() -> None:
    side = sentences([[3, 4, 5], [6], [], [7, 8]])
    np.testing.assert_array_equal(
        side.padded(np.array([3, 0, 2])),
        [[7, 8, EOS, PAD], [3, 4, 5, EOS], [EOS, PAD, PAD, PAD]],
    )
    np.testing.assert_array_equal(side.lengths, [4, 2, 1, 3])
    np.testing.assert_array_equal(side.lengths_of(np.array([3, 0])), [3, 4])
    np.testing.assert_array_equal(side[3], [7, 8])


def test_a_batch_masks_what_is_padding() -> None:
    pairs = Pairs(np.arange(2), sentences([[3], [4, 5]]), sentences([[6, 7], [8]]))
    batch = data.make_batch(pairs, np.array([0, 1]))
    assert batch.source_BS.tolist() == [[3, EOS, PAD], [4, 5, EOS]]
    assert batch.mask_BS.tolist() == [[True, True, False], [True, True, True]]
    assert batch.target_BT.tolist() == [[6, 7, EOS], [8, EOS, PAD]]


def written(directory: Path | str, write_segmented: Callable[..., Path], **how: int) -> Path:
    return write_segmented(directory, ROWS, letters=6, **how)


def scanned(directory: Path | str, *limits: int) -> Corpus:
    return scan(manifest.read(str(directory), "segment", "--segmented"), *limits)


def test_long_and_blank_pairs_are_counted_and_skipped(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    corpus = scanned(written(tmp_path, write_segmented, shards=2, group=2), 9, 9, 5)
    assert (len(corpus), corpus.too_long, corpus.blank) == (4, 1, 2)
    usable = [
        (1000 + i, source, target)
        for i, (source, target) in enumerate(ROWS)
        if source and target and max(len(source), len(target)) <= 5
    ]
    assert corpus.target_tokens == sum(len(target) + 1 for _, _, target in usable)
    # Shard 0 has rows 0-1 and 2, shard 1 rows 3-4 and 5-6; row 2 alone is too long.
    assert corpus.row_groups[["shard", "index", "pairs"]].tolist() == [
        (0, 0, 1),
        (1, 0, 1),
        (1, 1, 2),
    ]
    assert rows_of(corpus.read(np.array([0, 1, 2]))) == usable
    assert rows_of(corpus.read(np.array([0, 2]))) == [usable[0], *usable[2:]]


def test_without_a_limit_only_blank_pairs_are_skipped(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    found = manifest.read(str(written(tmp_path, write_segmented)), "segment", "--dev")
    assert [row[0] for row in rows_of(read_pairs(found, 9, 9))] == [1000, 1002, 1003, 1005, 1006]


@pytest.mark.parametrize(
    ("sizes", "shard", "side", "wrong"), [((8, 9), 1, "source", 8), ((9, 5), 0, "target", 5)]
)
def test_an_id_that_the_vocabulary_lacks_is_refused_with_its_file(
    tmp_path: Path,
    write_segmented: Callable[..., Path],
    sizes: tuple[int, int],
    shard: int,
    side: str,
    wrong: int,
) -> None:
    directory = written(tmp_path, write_segmented)
    with pytest.raises(RarewordError, match=f"part-0000{shard}.*'{side}' holds piece id {wrong}"):
        scanned(directory, *sizes)


def test_padding_inside_a_sentence_is_refused(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    write_segmented(tmp_path, [([3], [3]), ([3, PAD], [3])], letters=2)
    with pytest.raises(RarewordError, match=r"part-00001.*'source' holds piece id 0"):
        scanned(tmp_path, 9, 9)


def test_a_shard_with_other_rows_than_promised_is_refused(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    found = manifest.read(str(written(tmp_path, write_segmented)), "segment", "--segmented")
    first, second = found.shards
    wrong = replace(found, shards=(first, replace(second, rows=second.rows + 1)))
    with pytest.raises(RarewordError, match=r"part-00001.* holds 4 pairs, its manifest says 5"):
        scan(wrong, 9, 9)


@pytest.mark.parametrize("shard", [0, 1])
def test_a_damaged_row_group_is_refused_with_its_file(
    tmp_path: Path, write_segmented: Callable[..., Path], shard: int
) -> None:
    file = written(tmp_path, write_segmented, group=2) / f"part-0000{shard}-of-00002.parquet"
    content = bytearray(file.read_bytes())
    content[40:60] = bytes(20)
    file.write_bytes(content)
    with pytest.raises(RarewordError, match=f"part-0000{shard}.*row group 0 is damaged"):
        scanned(tmp_path, 9, 9)


def test_a_file_that_changed_after_the_scan_is_refused(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    corpus = scanned(written(tmp_path, write_segmented), 9, 9)
    changed = [*ROWS[:-1], ([8, 3], [7, 7])]
    write_segmented(tmp_path, changed, letters=6)
    assert len(corpus.read(np.array([0]))) == 2
    with pytest.raises(RarewordError, match=r"part-00001.*row group 0 is not what it was"):
        corpus.read(np.array([1]))


@pytest.mark.parametrize(
    ("name", "rows", "why"),
    [
        ("blank", [([], [3]), ([3], [])], r"0 with a side over 2 pieces, 2 with an empty side"),
        ("long", [([3] * 3, [3])], r"1 with a side over 2 pieces, 0 with an empty side"),
        ("none", [], r"0 with a side over 2 pieces, 0 with"),
    ],
)
def test_a_corpus_without_a_usable_pair_is_refused(
    tmp_path: Path,
    write_segmented: Callable[..., Path],
    name: str,
    rows: list[tuple[list[int], list[int]]],
    why: str,
) -> None:
    directory = write_segmented(tmp_path / name, rows, letters=2)
    with pytest.raises(RarewordError, match=rf"{name}: none of its {len(rows)} pairs.*{why}"):
        scanned(directory, 9, 9, 2)


def scanned_by(world: int, *arguments: object) -> list[Corpus | RarewordError]:
    """What each of some processes (here threads) gets from a common scan."""
    values: list[object] = [None] * world
    barrier = threading.Barrier(world)

    class Process(Group):
        def gather(self, value: object) -> list[object]:
            values[self.rank] = value
            barrier.wait(timeout=60)
            return list(values)

    def work(rank: int) -> Corpus | RarewordError:
        try:
            return scan(*arguments, Process(torch.device("cpu"), rank, world))
        except RarewordError as error:
            return error

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(work, range(world)))


@pytest.mark.parametrize("world", [2, 3, 6])
def test_processes_that_share_the_look_find_the_same(
    tmp_path: Path, write_segmented: Callable[..., Path], world: int
) -> None:
    directory = written(tmp_path, write_segmented, shards=5)
    found = manifest.read(str(directory), "segment", "--segmented")
    alone = scan(found, 9, 9, 5)
    for corpus in scanned_by(world, found, 9, 9, 5):
        np.testing.assert_array_equal(corpus.row_groups, alone.row_groups)
        assert (corpus.too_long, corpus.blank) == (alone.too_long, alone.blank)


def test_what_one_process_refuses_all_refuse(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    found = manifest.read(str(written(tmp_path, write_segmented)), "segment", "--segmented")
    sentences = [str(error) for error in scanned_by(2, found, 8, 9, None)]
    assert "part-00001" in sentences[0]  # where piece 8 is, which process 1 reads
    assert sentences[0] == sentences[1]
