"""Lines of text to pieces and back: against plain Python, for any cut into blocks."""

import io
import itertools
from functools import partial

import oracles
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.vocabulary import SPECIALS, Vocabulary
from rareword.transforms import plain_text, segmenters, segmenting
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.plain_text import Block, read_blocks
from rareword.transforms.segment_text import TextSegmenter, restore_ids, restore_pieces
from rareword.transforms.segmenters import VocabularyRules
from rareword.transforms.sentencepieces import SentencePieceSegmenter

# Letters, marks that the display uses itself, and characters of several bytes.
WORDS = st.text(st.sampled_from("ab@</w>ж😀"), min_size=1, max_size=6)
LINES = st.lists(st.lists(WORDS, max_size=4).map(" ".join), max_size=6)


def bpe(lines: list[str], units: str) -> tuple[BpeSegmenter, Vocabulary]:
    """A segmenter learnt from lines, by plain Python, and its vocabulary."""
    words = oracles.count_words(lines)
    table = {w.encode().decode("latin-1") if units == "bytes" else w: n for w, n in words.items()}
    merges = [
        Merge(Symbol(*left), Symbol(*right), count)
        for (left, right), count in oracles.learn_bpe(table, 5, 1)
    ]
    segmenter = BpeSegmenter(merges, units)
    counts = pa.array(list(words.values()), pa.int64()).to_numpy()
    both = {"source": segmenter, "target": segmenter}
    found = segmenting.count_pieces(
        pa.array(list(words), pa.string()), dict.fromkeys(both, counts), both
    )
    found = segmenting.with_possible_pieces(found, both)
    return segmenter, segmenters.build_vocabularies(found, VocabularyRules(True)).source


def blocks(text: str, size: int = 1 << 20) -> list[Block]:
    whole, plain_text.BLOCK_BYTES = plain_text.BLOCK_BYTES, size
    try:
        return list(read_blocks(io.BytesIO(text.encode()), "input"))
    finally:
        plain_text.BLOCK_BYTES = whole


@pytest.mark.parametrize("units", ["characters", "bytes"])
@given(lines=LINES, size=st.integers(1, 60), last=st.sampled_from(["", "\n"]))
def test_pieces_and_ids_come_back_as_the_text(
    units: str, lines: list[str], size: int, last: str
) -> None:
    segmenter, vocabulary = bpe([*lines, "ab aab"], units)
    text = "\n".join(lines) + last
    for as_ids in (False, True):
        cutter = TextSegmenter(segmenter, vocabulary, as_ids)
        shown = b"".join(cutter.segment(block) for block in blocks(text, size)).decode()
        assert shown.count("\n") == text.count("\n")
        restored = b"".join(
            restore_ids(vocabulary, block) if as_ids else restore_pieces(vocabulary, block)
            for block in blocks(shown, size)
        )
        assert restored.decode() == text
        assert cutter.unknown == 0
        assert cutter.pieces == sum(
            len(oracles.segment_word(as_units(word, units), pairs(segmenter)))
            for line in lines
            for word in oracles.split_words(line)
        )


def as_units(word: str, units: str) -> str:
    return word.encode().decode("latin-1") if units == "bytes" else word


def pairs(segmenter: BpeSegmenter) -> list:
    return [(tuple(merge.left), tuple(merge.right)) for merge in segmenter.merges]


@given(lines=LINES)
def test_pieces_are_those_of_the_merges_one_by_one(lines: list[str]) -> None:
    segmenter, vocabulary = bpe([*lines, "ab aab"], "characters")
    cutter = TextSegmenter(segmenter, vocabulary)
    (block,) = blocks("".join(f"{line}\n" for line in lines)) or [Block(b"", "input", 0)]
    shown = cutter.segment(block).decode().split("\n")[:-1]
    expected = [
        " ".join(
            text + (" " if text.endswith("@@") else "") if final else f"{text}@@"
            for word in oracles.split_words(line)
            for text, final in oracles.segment_word(word, pairs(segmenter))
        )
        for line in lines
    ]
    assert shown == expected


def test_line_ends_are_no_text() -> None:
    segmenter, vocabulary = bpe(["lower"], "characters")
    cutter = TextSegmenter(segmenter, vocabulary)
    shown = cutter.segment(Block(b"low er\r\n\r\n\nlow\r", "input", 0))
    ends = [line[-1:] for line in shown.split(b"\n")]
    assert ends == [b"\r", b"\r", b"", b"\r"]
    assert restore_pieces(vocabulary, Block(shown, "input", 0)) == b"low er\r\n\r\n\nlow\r"


def test_what_has_no_piece_is_unknown_by_itself_and_counted() -> None:
    segmenter, vocabulary = bpe(["lower lower"], "characters")
    cutter = TextSegmenter(segmenter, vocabulary)
    shown = cutter.segment(Block("lo☃er\n".encode(), "input", 0)).decode()
    assert shown.split() == [
        "<unk>" if text == "☃" else text if final else f"{text}@@"
        for text, final in oracles.segment_word("lo☃er", pairs(segmenter))
    ]
    assert cutter.unknown == 1
    assert cutter.pieces == len(shown.split())


def test_raw_text_is_shown_by_its_neighbours() -> None:
    pieces = [special.text for special in SPECIALS] + ["the", " small", "er", " "]
    final = [True] * len(SPECIALS) + [False] * 4
    vocabulary = Vocabulary(pieces, final, [0] * 7, [0] * 7)
    assert vocabulary.is_raw
    ids = " ".join(map(str, [3, 4, 5, 6, 6, 3]))
    assert restore_ids(vocabulary, Block(f"{ids}\n".encode(), "input", 0)) == b"the smaller  the\n"


# Spaces, the character that shows them, what stands before it, and characters of several bytes.
@given(
    lines=st.lists(
        st.text(st.sampled_from(" a\u2581\\@\u0436\U0001f600\x00"), max_size=9), max_size=4
    )
)
@settings(deadline=None, max_examples=50)
@example(lines=["  two  spaces  ", " ", "", "   ", "a@@  b", "\\ \u2581 \\\u2581 \\\\"])
def test_raw_text_comes_back_from_pieces_with_all_its_spaces(lines: list[str]) -> None:
    pieces = [*" a", " a", "@", *map(chr, range(256))]
    none = [0] * (len(pieces) + 3)
    vocabulary = Vocabulary(
        [special.text for special in SPECIALS] + pieces,
        [True] * 3 + [False] * len(pieces),
        none,
        none,
        [False] * 7 + [True] * 256,
    )
    segmenter = SentencePieceSegmenter.learn_text([" a", "a @"], pieces=256 + 8)
    cutter = TextSegmenter(segmenter, vocabulary)
    text = "".join(f"{line}\n" for line in lines)
    shown = cutter.segment(Block(text.encode(), "input", 0))
    assert cutter.unknown == 0
    assert restore_pieces(vocabulary, Block(shown, "input", 0)).decode() == text


def test_raw_pieces_show_their_spaces() -> None:
    segmenter = SentencePieceSegmenter.learn_text(["the cat"] * 9, pieces=256 + 20)
    vocabulary = segmenters.build_vocabularies(
        segmenting.sum_pieces([_of_both(segmenter.count_lines(pa.array(["the cat"] * 9)))]),
        VocabularyRules(True),
    ).source
    cutter = TextSegmenter(segmenter, vocabulary)
    shown = cutter.segment(Block("the  cat\u2581\n".encode(), "input", 0)).decode()
    assert shown.replace(" ", "") == "the\u2581\u2581cat\\\u2581\n"


def _of_both(counts: pa.Table) -> pa.Table:
    both = {"source_count": counts["count"], "target_count": counts["count"]}
    return pa.table({**{name: counts[name] for name in ("piece", "final", "bytes")}, **both})


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("3 x", "input, line 12: '3 x' is not of ids"),
        ("3 99", "input, line 12: the vocabulary has no id 99; ids are 0 to"),
        ("-1", "input, line 12: the vocabulary has no id -1; ids are 0 to"),
    ],
)
def test_what_is_no_id_is_named_with_its_line(line: str, sentence: str) -> None:
    _, vocabulary = bpe(["lower"], "characters")
    with pytest.raises(RarewordError, match=sentence):
        restore_ids(vocabulary, Block(f"3\n{line}\n".encode(), "input", 10))


def test_bytes_that_are_no_text_are_named_with_their_line() -> None:
    segmenter, vocabulary = bpe(["lower"], "characters")
    block = Block(b"lower\nlow\xff\n", "standard input", 5)
    works = [TextSegmenter(segmenter, vocabulary).segment, partial(restore_pieces, vocabulary)]
    for work in works:
        with pytest.raises(RarewordError, match="standard input, line 7: byte 3 is not UTF-8"):
            work(block)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(threads: int) -> None:
    lines = ["".join(p) for p in itertools.product("ab", repeat=7)]
    segmenter, vocabulary = bpe(lines, "characters")
    text = Block("\n".join(lines).encode(), "input", 0)
    one = TextSegmenter(segmenter, vocabulary).segment(text)
    assert TextSegmenter(segmenter, vocabulary, threads=threads).segment(text) == one
