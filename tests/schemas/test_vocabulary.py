"""The vocabulary: ids and text both ways, its hash, and what is no vocabulary."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import tables, vocabulary
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Symbol
from rareword.schemas.vocabulary import EOS, PAD, SPECIALS, UNK, Vocabularies, Vocabulary

PIECE = st.text(min_size=1, max_size=5)
SYMBOLS = st.lists(st.builds(Symbol, PIECE, st.booleans()), unique=True, max_size=20)
WORD = st.lists(PIECE.filter(lambda text: " " not in text), min_size=1, max_size=4)


def build(symbols: list[Symbol], count: int = 1) -> Vocabulary:
    rows = [*SPECIALS, *symbols]
    counts = [count] * len(rows)
    return Vocabulary([s.text for s in rows], [s.final for s in rows], counts, counts)


@given(SYMBOLS)
def test_a_vocabulary_comes_back_from_disk(symbols: list[Symbol]) -> None:
    found = build(symbols)
    found.write("memory://v", "vocabulary.parquet")
    again = vocabulary.read("memory://v/vocabulary.parquet")
    assert again == found
    assert again.hash == found.hash


@given(SYMBOLS)
def test_every_piece_has_its_own_id_and_others_are_unknown(symbols: list[Symbol]) -> None:
    found = build(symbols)
    assert [found.id(symbol) for symbol in symbols] == list(range(3, 3 + len(symbols)))
    assert found.id(Symbol("longer than any", True)) == UNK


def test_special_pieces_are_not_text() -> None:
    assert (PAD, UNK, EOS) == (0, 1, 2)
    found = build([Symbol("</s>", False)])
    assert [found.id(special) for special in SPECIALS] == [UNK] * 3
    assert found.id(Symbol("</s>", False)) == 3


@given(SYMBOLS.filter(bool))
def test_the_hash_sees_pieces_flags_and_order_but_no_counts(symbols: list[Symbol]) -> None:
    found = build(symbols)
    assert build(symbols, count=9).hash == found.hash
    assert build(symbols[:-1]).hash != found.hash
    turned = [*symbols[:-1], Symbol(symbols[-1].text, not symbols[-1].final)]
    assert build(turned).hash != found.hash
    if len(symbols) > 1:
        assert build(symbols[::-1]).hash != found.hash


@given(st.lists(WORD, max_size=6))
def test_pieces_join_back_to_the_words_they_were_cut_from(words: list[list[str]]) -> None:
    cut = [
        Symbol(piece, place == len(word) - 1) for word in words for place, piece in enumerate(word)
    ]
    found = build(list(dict.fromkeys(cut)))
    text = " ".join("".join(word) for word in words)
    assert found.words([found.id(symbol) for symbol in cut]) == text


def test_people_see_where_a_piece_does_not_end_its_word() -> None:
    found = build([Symbol("lo", False), Symbol("wer", True)])
    assert found.display([3, 4, UNK]) == ["lo@@", "wer", "<unk>"]
    assert found.words([3, 4, UNK]) == "lower <unk>"


@given(st.lists(st.lists(st.sampled_from(["@", "@@", "a@@", "a", "@@@"]), min_size=1), max_size=5))
def test_displayed_pieces_join_back_even_if_they_look_like_the_separator(
    words: list[list[str]],
) -> None:
    cut = [
        Symbol(piece, place == len(word) - 1) for word in words for place, piece in enumerate(word)
    ]
    found = build(list(dict.fromkeys(cut)))
    text = " ".join("".join(word) for word in words)
    shown = found.display([found.id(symbol) for symbol in cut])
    assert vocabulary.words_of(shown) == words
    assert vocabulary.joined(shown) == text


def write(path: Path, rows: list[tuple[int, str, bool]]) -> str:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], []]
    table = pa.table(
        {
            "id": columns[0],
            "piece": columns[1],
            "final": columns[2],
            "bytes": [False] * len(rows),
            "source_count": [0] * len(rows),
            "target_count": [0] * len(rows),
        },
        schema=tables.VOCABULARY.fields,
    )
    tables.write_shard(str(path), "v.parquet", tables.VOCABULARY, [table])
    return str(path / "v.parquet")


SPECIAL_ROWS = [(i, special.text, special.final) for i, special in enumerate(SPECIALS)]


@pytest.mark.parametrize("rows", [[], SPECIAL_ROWS[:2], [(0, "a", True), *SPECIAL_ROWS[1:]]])
def test_a_vocabulary_must_begin_with_the_special_pieces(
    tmp_path: Path, rows: list[tuple[int, str, bool]]
) -> None:
    with pytest.raises(RarewordError, match=r"v\.parquet: does not begin with the special pieces"):
        vocabulary.read(write(tmp_path, rows))


def test_ids_must_count_from_nought(tmp_path: Path) -> None:
    with pytest.raises(RarewordError, match=r"v\.parquet: ids are not 0, 1, 2"):
        vocabulary.read(write(tmp_path, [*SPECIAL_ROWS, (4, "a", True)]))


def test_both_sides_come_back_and_know_whether_they_are_one(tmp_path: Path) -> None:
    left, right = build([Symbol("a", True)]), build([Symbol("b", True)])
    for pair, joint in ((Vocabularies(left, left), True), (Vocabularies(left, right), False)):
        records = vocabulary.write_both(pair, str(tmp_path))
        again = vocabulary.read_both(str(tmp_path))
        assert again == pair
        assert again.joint is joint
        assert [record.name for record in records] == [
            "vocabulary-source.parquet",
            "vocabulary-target.parquet",
        ]
    assert Vocabularies(left, right).hash != Vocabularies(right, left).hash
