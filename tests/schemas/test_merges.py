"""Merges and codes files, against the installed subword-nmt 0.3.8."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from rareword.schemas import merges, storage, tables
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol

TEXT = "low low low lower newest newest widest aaaa aaa Öl жук жуки 北京 low\u00a0er x\u2028y\n" * 3

SYMBOLS = st.builds(Symbol, st.text(min_size=1, max_size=6), st.booleans())
MERGES = st.lists(
    st.builds(Merge, SYMBOLS.map(lambda s: Symbol(s.text, False)), SYMBOLS, st.integers(0, 2**62)),
    max_size=20,
)
PLAIN = MERGES.filter(
    lambda found: (
        not any(
            character in symbol.text or symbol.text.endswith("</w>")
            for merge in found
            for symbol in (merge.left, merge.right)
            for character in " \r\n"
        )
    )
)


def learn(text: str, number: int) -> str:
    """The codes file that subword-nmt writes."""
    codes = io.StringIO()
    learn_bpe(io.StringIO(text), codes, number, min_frequency=1)
    return codes.getvalue()


def as_subword_nmt_reads(codes: str) -> list[tuple[str, str]]:
    """The pairs, in order of rank, of subword-nmt's own reader."""
    ranks = BPE(io.StringIO(codes)).bpe_codes
    return sorted(ranks, key=ranks.__getitem__)


def as_pairs(found: list[Merge]) -> list[tuple[str, str]]:
    """Flags written as subword-nmt writes them; of equal pairs the first one counts, as there."""
    pairs = [tuple(s.text + "</w>" * s.final for s in (m.left, m.right)) for m in found]
    return list(dict.fromkeys(pairs))


@given(MERGES)
def test_merges_come_back_from_their_table(found: list[Merge]) -> None:
    assert merges.from_table(merges.to_table(found)) == found


@given(MERGES)
def test_merges_come_back_from_disk_even_none(found: list[Merge]) -> None:
    tables.write_shard("memory://m", "merges.parquet", tables.MERGES, [merges.to_table(found)])
    assert merges.read("memory://m/merges.parquet") == found


@given(PLAIN)
def test_subword_nmt_reads_the_codes_we_write(found: list[Merge]) -> None:
    if found:  # it refuses a file without merges
        assert as_subword_nmt_reads(merges.to_codes(found)) == as_pairs(found)


@given(PLAIN)
def test_codes_we_write_are_read_by_us_without_their_counts(found: list[Merge]) -> None:
    plain = [Merge(merge.left, merge.right, 0) for merge in found]
    assert merges.from_codes(merges.to_codes(found), "codes") == ((0, 2), plain)


def test_we_read_the_codes_that_subword_nmt_writes() -> None:
    codes = learn(TEXT, 25)
    version, found = merges.from_codes(codes, "codes")
    assert version == (0, 2)
    assert len(found) == 25
    assert as_pairs(found) == as_subword_nmt_reads(codes)
    assert merges.to_codes(found) == codes


def test_version_0_1_has_no_header_and_ends_words_with_a_symbol() -> None:
    codes = "l o\nw </w>\nlo w</w>\n"
    version, found = merges.from_codes(codes, "codes")
    assert version == (0, 1) == BPE(io.StringIO(codes)).version
    assert found[1] == Merge(Symbol("w", False), Symbol("", True), 0)
    assert as_pairs(found) == as_subword_nmt_reads(codes)


def test_version_0_2_cannot_hold_the_end_symbol_of_version_0_1() -> None:
    found = merges.from_codes("l o\nw </w>\n", "codes").merges
    with pytest.raises(RarewordError, match=r"^merge 1 \('w' ''\) cannot be written"):
        merges.to_codes(found)


@pytest.mark.parametrize("text", ["a b", "a\n", "\rb", "x</w>", "</w>"])
@pytest.mark.parametrize("final", [True, False])
def test_what_a_codes_file_cannot_hold_is_refused_by_name(text: str, final: bool) -> None:
    good = Merge(Symbol("a", False), Symbol("b", True), 3)
    bad = Merge(Symbol("a", False), Symbol(text, final), 2)
    with pytest.raises(RarewordError, match=r"^merge 1 \('a' .*cannot be written to a codes file"):
        merges.to_codes([good, bad])


def test_a_byte_order_mark_and_windows_line_ends_are_read() -> None:
    plain = merges.from_codes("#version: 0.2\na b</w>\n", "codes")
    assert merges.from_codes("\ufeff#version: 0.2\r\na b</w>\r\n\r\n", "codes") == plain
    assert plain.merges == [Merge(Symbol("a", False), Symbol("b", True), 0)]


def test_the_counts_of_fastbpe_are_read() -> None:
    version, found = merges.from_codes("a b</w> 17\n", "codes")
    assert version == (0, 2)
    assert found == [Merge(Symbol("a", False), Symbol("b", True), 17)]


@pytest.mark.parametrize(
    ("codes", "line"),
    [
        ("#version: 0.2\na b\nabc\n", 3),
        ("a b\n\na c\n", 2),
        ("a b c\n", 1),
        ("a  b\n", 1),
    ],
)
def test_a_bad_line_is_named(codes: str, line: int) -> None:
    with pytest.raises(
        RarewordError, match=rf"^my\.codes, line {line}: expected two symbols, found"
    ):
        merges.from_codes(codes, "my.codes")


@pytest.mark.parametrize("header", ["0.1", "0.1.0", "0.2", " 0.2 ", "0.2.0", "0.2.0.00"])
def test_the_version_is_that_which_subword_nmt_reads(header: str) -> None:
    codes = f"#version: {header}\na b\n"
    assert merges.from_codes(codes, "codes").version == BPE(io.StringIO(codes)).version


@pytest.mark.parametrize("version", ["0.3", "1.0", "0.20", "0.2.1", "0.2 byte", "", "two"])
def test_an_unknown_version_is_named(version: str) -> None:
    with pytest.raises(RarewordError, match=rf"my\.codes: codes version '{version}' is not known"):
        merges.from_codes(f"#version: {version}\na b\n", "my.codes")


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"#version: 0.2\na \xff\n")
    with pytest.raises(RarewordError, match=r"/c: byte 16 is not UTF-8"):
        merges.read_codes(str(tmp_path / "c"))


def test_the_result_of_a_merge_is_final_as_its_right_side() -> None:
    merge = Merge(Symbol("lo", False), Symbol("w", True), 1)
    assert merge.result == Symbol("low", True)


def test_the_golden_codes_pass_through_unchanged(shared_data: Path) -> None:
    url = str(shared_data / "subword-nmt-tests" / "bpe.ref")
    with storage.open_read(url) as stream:
        assert merges.to_codes(merges.read_codes(url).merges) == stream.read().decode()
