"""Words, merges and vocabularies of plain text, against plain Python and subword-nmt."""

import collections
import io

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt.get_vocab import get_vocab

from rareword.schemas import merges as merge_files
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Codes
from rareword.transforms import plain_text
from rareword.transforms.rendering import BpeRenderer

TEXT = st.text("abcé\t\r\u2028\u00a0 \n", max_size=80)


def block(text: str) -> plain_text.Block:
    return plain_text.Block(text.encode(), "text", 0)


def as_dict(table: plain_text.WordCounts) -> dict[str, int]:
    return dict(zip(table.words.to_pylist(), table.counts.tolist(), strict=True))


def stripped(text: str) -> list[str]:
    return [line.strip("\r\n ") for line in text.split("\n")]


def peer_vocabulary(text: str) -> str:
    out = io.StringIO()
    get_vocab(io.StringIO(text, newline="\n"), out)
    return out.getvalue()


# ---- reading ----


@given(st.binary(max_size=60), st.integers(1, 20), st.booleans())
def test_blocks_are_the_text_and_end_with_lines(data: bytes, size: int, at_once: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_text, "BLOCK_BYTES", size)
        blocks = list(plain_text.read_blocks(io.BytesIO(data), "text", at_once))
    assert b"".join(found.text for found in blocks) == data
    assert all(found.text.endswith(b"\n") for found in blocks[:-1])
    line = 0
    for found in blocks:
        assert found.first_line == line
        line += found.text.count(b"\n")


@given(TEXT, st.integers(1, 5), st.integers(1, 30))
def test_words_are_counted_in_the_order_of_first_sight(text, threads, size) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_text, "BLOCK_BYTES", size)
        blocks = plain_text.read_blocks(io.BytesIO(text.encode()), "text")
        table = plain_text.count_words(blocks, threads)
    expected = oracles.count_words(stripped(text))
    assert as_dict(table) == expected
    assert table.words.to_pylist() == list(expected)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_counting_names_the_line_that_is_not_utf8(threads: int) -> None:
    text = plain_text.Block(b"a b\nc\n" * 4 + b" d \xe9\n" + b"e\n" * 3, "here", 10)
    with pytest.raises(RarewordError, match=r"^here, line 19: byte 3 is not UTF-8"):
        plain_text.count_words([text], threads)


# ---- vocabularies ----


@given(st.text("abcé\t\u00a0 \n", max_size=80), st.integers(1, 4))
@settings(max_examples=60)
def test_vocabularies_are_those_of_subword_nmt(text: str, threads: int) -> None:
    table = plain_text.count_words([block(text)], threads)
    assert b"".join(table.lines()).decode() == peer_vocabulary(text)


@given(TEXT, TEXT)
def test_pieces_are_counted_as_in_the_segmented_text(text: str, other: str) -> None:
    words = plain_text.count_words([block(text), block(other)])
    renderer = BpeRenderer(Codes((0, 2), plain_text.learn_merges([words], 10, 1)))
    segmented = b"".join(renderer.render(text.encode())).decode()
    found = plain_text.count_pieces(renderer, plain_text.count_words([block(text)]))
    expected = oracles.count_words(stripped(segmented))
    assert as_dict(found) == expected
    assert found.words.to_pylist() == list(expected)


# ---- merges ----


@given(st.text("ab</w>\r\u2028\u00a0\t \n", max_size=60))
@settings(max_examples=60)
def test_marks_and_white_space_in_text_are_ordinary_and_codes_can_be_read(text: str) -> None:
    table = plain_text.count_words([block(text)])
    words = as_dict(table)
    merges = plain_text.learn_merges([table], 30, 1)
    written = merge_files.to_codes(merges)
    found = merge_files.from_codes(written, "codes").merges
    assert [(m.left, m.right) for m in found] == [(m.left, m.right) for m in merges]
    # Algorithm 1 on words that are cut where a symbol would end in `</w>` or hold a return.
    parts: collections.Counter[oracles.Symbols] = collections.Counter()
    for word, count in words.items():
        begin = 0
        symbols = oracles.characters(word)
        for i in range(1, len(word) + 1):
            if i == len(word) or "\r" in word[i - 1 : i + 1] or (word[: i + 1].endswith("</w>")):
                parts[symbols[begin:i]] += count
                begin = i
    expected = []
    while len(expected) < 30:
        pairs: collections.Counter[oracles.Symbols] = collections.Counter()
        for part, count in parts.items():
            for i in range(len(part) - 1):
                pairs[part[i : i + 2]] += count
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], [oracles.printed(s) for s in p]))
        expected.append((best, pairs[best]))
        merged: collections.Counter[oracles.Symbols] = collections.Counter()
        for part, count in parts.items():
            merged[oracles.merge_pair(part, best)] += count
        parts = merged
    assert [((m.left, m.right), m.count) for m in merges] == expected
