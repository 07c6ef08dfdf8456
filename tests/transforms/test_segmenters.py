"""Segmenters and vocabularies against plain Python and subword-nmt."""

import collections
import functools
import io
import itertools

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE

from rareword.schemas import merges as merge_files
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary, joined
from rareword.transforms import segmenters, segmenting
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.segmenters import VocabularyRules, WordSegmenter

line = st.text("abcé ", max_size=20)
lines = st.lists(line, min_size=1, max_size=8)


def learnt(text: list[str], limit: int = 12) -> list[Merge]:
    pairs = oracles.learn_bpe(oracles.count_words(text), limit, 1)
    return [Merge(Symbol(*a), Symbol(*b), count) for (a, b), count in pairs]


def count_pieces(segmenter: segmenters.Segmenter, counter: dict[str, int]) -> dict[Symbol, int]:
    """All pieces that the vocabulary may hold, by one side's counts."""
    words, counts = pa.array(list(counter), pa.string()), np.array(list(counter.values()), np.int64)
    none = np.zeros(len(counts), np.int64)
    both = {"source": segmenter, "target": segmenter}
    table = segmenting.count_pieces(words, {"source": counts, "target": none}, both)
    rows = segmenting.with_possible_pieces(table, both).to_pylist()
    return {Symbol(row["piece"], row["final"]): row["source_count"] for row in rows}


def counts_table(found: dict[Symbol, int], is_bytes: bool = False) -> pa.Table:
    return pa.table(
        {
            "piece": [p.text for p in found],
            "final": [p.final for p in found],
            "bytes": [is_bytes] * len(found),
            "source_count": list(found.values()),
            "target_count": [0] * len(found),
        },
        schema=segmenters.PIECE_COUNTS,
    )


def vocabulary_of(found: dict[Symbol, int], is_bytes: bool = False, **rules: int):
    table = counts_table(found, is_bytes)
    return segmenters.build_vocabularies(table, VocabularyRules(True, **rules)).source


def rows(encoded: segmenters.Encoded) -> list[list[int]]:
    bounds = encoded.offsets.tolist()
    return [encoded.ids[a:b].tolist() for a, b in itertools.pairwise(bounds)]


@given(lines, lines)
@settings(deadline=None)
def test_bpe_gives_the_pieces_of_subword_nmt(train, test):
    merges = learnt(train)
    segmenter = BpeSegmenter(merges)
    counter = oracles.count_words([*train, *test])
    vocabulary = vocabulary_of(count_pieces(segmenter, counter))
    encoded = segmenter.encoder(vocabulary).encode(pa.array(test))
    codes = merge_files.to_codes(merges)
    if merges:  # subword-nmt refuses an empty list
        peer = BPE(io.StringIO(codes))
        expected = [peer.process_line(text.strip(" ")).split() for text in test]
        assert [vocabulary.display(ids) for ids in rows(encoded)] == expected
    assert [vocabulary.words(ids) for ids in rows(encoded)] == [
        " ".join(oracles.split_words(text)) for text in test
    ]
    assert encoded.words.tolist() == [len(oracles.split_words(text)) for text in test]


@given(lines)
@settings(deadline=None)
def test_piece_counts_are_those_of_the_segmented_text(train):
    merges = learnt(train)
    counter = oracles.count_words(train)
    expected: collections.Counter[Symbol] = collections.Counter()
    for word, count in counter.items():
        for piece in oracles.segment_word(word, [(tuple(m.left), tuple(m.right)) for m in merges]):
            expected[Symbol(*piece)] += count
    found = count_pieces(BpeSegmenter(merges), counter)
    assert {piece: count for piece, count in found.items() if count} == expected
    every = {Symbol(c, final) for word in counter for c in word for final in (True, False)}
    assert set(found) == every | {merge.result for merge in merges}


def as_bytes(text: str) -> str:
    """A character for each byte."""
    return text.encode().decode("latin-1")


@given(
    lines,
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters=" "), max_size=12), max_size=4
    ),
)
@settings(deadline=None)
def test_merges_of_bytes_cut_any_text_and_give_it_back(train, test):
    merges = learnt([as_bytes(text) for text in train])
    segmenter = BpeSegmenter(merges, "bytes")
    vocabulary = vocabulary_of(count_pieces(segmenter, oracles.count_words(train)), True)
    characters = {Symbol(chr(byte), final) for byte in range(256) for final in (True, False)}
    assert characters <= set(map(Symbol, vocabulary.pieces, vocabulary.final))
    encoded = segmenter.encoder(vocabulary).encode(pa.array([*train, *test], pa.string()))
    assert UNK not in encoded.ids
    pairs = [(tuple(m.left), tuple(m.right)) for m in merges]
    for text, ids in zip([*train, *test], rows(encoded), strict=True):
        words = oracles.split_words(text)
        expected = [p for word in words for p in oracles.segment_word(as_bytes(word), pairs)]
        assert [(vocabulary.pieces[i], vocabulary.final[i]) for i in ids] == expected
        assert vocabulary.words(ids) == " ".join(words)
        assert joined(vocabulary.display(ids)) == " ".join(words)


def test_bytes_that_are_no_text_become_replacement_characters():
    vocabulary = vocabulary_of({Symbol("\xc3", True): 2, Symbol("\xa9", False): 1}, True)
    assert vocabulary.words([3, 4]) == "\ufffd \ufffd"
    assert vocabulary.words([4, UNK, 3]) == "\ufffd<unk> \ufffd"


def test_possible_pieces_do_not_depend_on_how_words_are_sharded():
    # `abcd` is made of characters that no single shard of the source side has.
    merges = [Merge(Symbol(a, False), Symbol(b, False), 1) for a, b in (("a", "b"), ("ab", "c"))]
    both = dict.fromkeys(("source", "target"), BpeSegmenter(merges))
    shards = [
        segmenting.count_pieces(
            pa.array([word]), {"source": np.array([1]), "target": np.array([0])}, both
        )
        for word in ("ab", "c")
    ]
    together = segmenting.count_pieces(
        pa.array(["ab", "c"]), {"source": np.array([1, 1]), "target": np.array([0, 0])}, both
    )
    one, many = (
        segmenting.with_possible_pieces(table, both).sort_by(
            [("piece", "ascending"), ("final", "ascending")]
        )
        for table in (together, segmenting.sum_pieces(shards))
    )
    assert one.equals(many)
    assert "abc" in one["piece"].to_pylist()


def test_only_what_has_an_unknown_character_is_unknown():
    train = ["abab ab"]
    segmenter = BpeSegmenter(learnt(train))
    vocabulary = vocabulary_of(count_pieces(segmenter, oracles.count_words(train)))
    encoded = segmenter.encoder(vocabulary).encode(pa.array(["abжab", "aabbba", "ж"]))
    assert [ids.count(UNK) for ids in rows(encoded)] == [1, 0, 1]
    assert vocabulary.words(rows(encoded)[1]) == "aabbba"


@given(lines, lines)
@settings(deadline=None)
def test_word_segmenter_looks_words_up(train, test):
    counter = oracles.count_words(train)
    segmenter = WordSegmenter()
    found = count_pieces(segmenter, counter)
    assert found == {Symbol(word, True): count for word, count in counter.items()}
    vocabulary = vocabulary_of(found)
    encoded = segmenter.encoder(vocabulary).encode(pa.array(test))
    assert rows(encoded) == [
        [vocabulary.id(Symbol(word, True)) for word in oracles.split_words(text)] for text in test
    ]


@given(
    st.dictionaries(
        st.tuples(st.text("ab<>unk", min_size=1, max_size=5), st.booleans()), st.integers(0, 5)
    ),
    st.integers(0, 9),
    st.integers(0, 3),
)
def test_vocabulary_is_cut_by_count_and_size_and_ordered_by_count_then_piece(
    counts, max_size, min_count
):
    found = {Symbol(*piece): count for piece, count in counts.items()}
    vocabulary = vocabulary_of(found, max_size=max_size, min_count=min_count)
    order = sorted((p for p in found if found[p] >= min_count), key=lambda p: (-found[p], p))
    if max_size:
        order = order[: max(max_size - len(SPECIALS), 0)]
    pieces = list(zip(vocabulary.pieces, vocabulary.final, strict=True))
    assert pieces == [*SPECIALS, *order]
    for number, piece in enumerate(order, len(SPECIALS)):
        assert vocabulary.id(piece) == number


def test_separate_vocabularies_hold_the_pieces_of_their_side():
    table = pa.table(
        {
            "piece": ["x", "y", "z"],
            "final": [True, True, True],
            "bytes": [False] * 3,
            "source_count": [3, None, 1],
            "target_count": [0, 2, 9],
        },
        schema=segmenters.PIECE_COUNTS,
    )
    both = segmenters.build_vocabularies(table, VocabularyRules(joint=False))
    assert both.source.pieces[3:] == ["x", "z"]
    assert both.target.pieces[3:] == ["z", "y", "x"]
    assert not both.joint
    assert segmenters.build_vocabularies(table, VocabularyRules(joint=True)).source.pieces[3:] == [
        "z",
        "x",
        "y",
    ]


PIECES = ["<pad>", "<unk>", "</s>", "a", "a", "é ж", "😀"]
FINAL = [True, True, True, True, False, False, True]


@given(
    st.lists(
        st.tuples(st.text("aé 😀", max_size=70), st.lists(st.integers(1, 6), max_size=9)),
        max_size=5,
    ),
    st.booleans(),
    st.integers(1, 3),
)
@settings(deadline=None)
def test_pieces_that_do_not_give_their_text_are_found(drawn, raw, threads):
    # Half of the lines are what their pieces say, so that right and wrong rows both occur.
    final = [True] * 3 + [False] * 4 if raw else FINAL
    vocabulary = Vocabulary(PIECES, final, [0] * 7, [0] * 7)
    rows = [(text if len(text) % 2 else vocabulary.words(ids), ids) for text, ids in drawn]
    ids = [i for _, row in rows for i in row]
    words = [len(oracles.split_words(text)) for text, _ in rows]
    encoded = segmenters.Encoded(
        np.array(ids, np.int32),
        np.cumsum([0, *(len(row) for _, row in rows)]),
        np.array(words, np.int64),
    )
    lines = pa.array([text for text, _ in rows], pa.string())

    def is_wrong(text: str, row: list[int], count: int) -> bool:
        size = sum(len(PIECES[i].encode()) for i in row)
        text_bytes = len((text if raw else text.replace(" ", "")).encode())
        ends = count if raw else sum(final[i] for i in row)
        return UNK not in row and (size != text_bytes or ends != count)

    wrong = [k for k, row in enumerate(rows) if is_wrong(*row, words[k])]
    check = functools.partial(
        segmenting.check_joins, encoded, lines, segmenting.measured(vocabulary), "f", threads
    )
    if wrong:
        with pytest.raises(RarewordError, match=f"^f: the pieces of row {wrong[0]} of a row group"):
            check()
    else:
        unknown, used = check()
        assert unknown == ids.count(UNK)
        assert np.flatnonzero(used).tolist() == sorted(set(ids))
