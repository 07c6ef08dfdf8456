"""Text to text against subword-nmt, and against plain Python where subword-nmt is wrong."""

import collections
import io
import re

import oracles
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import Symbols
from subword_nmt.apply_bpe import BPE

from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Codes, Merge, Symbol
from rareword.transforms.rendering import BpeRenderer, NgramRenderer

# Few letters, so that merges meet; the marks of the format and what only subword-nmt takes for a
# line end or white space are ordinary.
LETTERS = "abcдé\U0001f600</w>@\u2028\x85\u00a0\t\x00\u0301"
TEXT = st.text(LETTERS + " \r\n", max_size=60)
SEPARATORS = st.sampled_from(["@@", "￭", "_", "", "a"])


def merges_of(text: str, number: int = 25) -> list[Symbols]:
    words = oracles.count_words(line.strip("\r\n ") for line in text.split("\n"))
    return [pair for pair, _ in oracles.learn_bpe(words, number, 1)]


def codes(pairs: list[Symbols], version: tuple[int, int] = (0, 2)) -> Codes:
    return Codes(version, [Merge(Symbol(*left), Symbol(*right), 0) for left, right in pairs])


def render(renderer: BpeRenderer, text: str, **options: float) -> str:
    return b"".join(renderer.render(text.encode(), **options)).decode()


def expected(text: str, pairs: list[Symbols], **options) -> str:
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    return "".join(oracles.render_line(line, pairs, **options) for line in lines)


def printed_codes(pairs: list[Symbols]) -> str:
    return "".join(" ".join(map(oracles.printed, pair)) + "\n" for pair in pairs)


# ---- plain ----


@given(TEXT, TEXT, st.sampled_from([1, 2, 3, 7]))
@example("aaa", "aaaaa aaaa\n  a  aa \r\n \n\naaa", 2)
def test_every_text_is_segmented_as_by_plain_python(train: str, text: str, threads: int) -> None:
    pairs = merges_of(train)
    renderer = BpeRenderer(codes(pairs))
    assert render(renderer, text, threads=threads) == expected(text, pairs)


@given(st.text("abcdé ", max_size=60), st.text("abcdéx \n", max_size=60), SEPARATORS)
def test_ordinary_text_is_segmented_as_by_subword_nmt(
    train: str, text: str, separator: str
) -> None:
    pairs = merges_of(train)
    if pairs:  # it refuses an empty list
        peer = BPE(io.StringIO("#version: 0.2\n" + printed_codes(pairs)), separator=separator)
        ours = render(BpeRenderer(codes(pairs), separator), text)
        assert ours == "".join(map(peer.process_line, io.StringIO(text, newline="\n")))


@given(TEXT)
def test_pieces_join_back_to_the_text(text: str) -> None:
    """With a separator that the text does not hold."""
    rendered = render(BpeRenderer(codes(merges_of(text, 5)), "￭"), text)
    lines = [re.sub(" +", " ", line.strip("\r\n ")) for line in text.split("\n")]
    found = [line.strip("\r\n ") for line in rendered.replace("￭ ", "").split("\n")]
    assert found == lines


@given(TEXT, st.integers(0, 5))
def test_a_small_cache_changes_nothing(text: str, cache: int) -> None:
    pairs = merges_of(text)
    small = BpeRenderer(codes(pairs), cache_bytes=cache * 40_000)
    assert render(small, text + " " + text) == expected(text + " " + text, pairs)


def test_a_word_of_a_million_letters_is_no_trouble() -> None:
    renderer = BpeRenderer(codes(merges_of("aaaa ^^^^ abcabc")))
    for word in ("a" * 10**6, "^" * 10**6, "abc" * 300_000):
        for dropout in (0, 0.1):
            rendered = render(renderer, word, dropout=dropout, seed=1)
            assert rendered.replace("@@ ", "") == word


@pytest.mark.parametrize(
    ("text", "row", "byte"), [(b"a\nb \xff", 1, 2), (b" ab\xed\xa0\x80", 0, 3)]
)
def test_what_is_not_utf8_is_named_by_row_and_byte(text: bytes, row: int, byte: int) -> None:
    with pytest.raises(ValueError, match=rf"^row {row + 5}, byte {byte}: not UTF-8"):
        BpeRenderer(codes([])).render(text, first_line=5)


def test_after_an_error_the_renderer_still_works() -> None:
    renderer = BpeRenderer(codes([]))
    for _ in range(2):
        with pytest.raises(ValueError, match="not UTF-8"):
            renderer.render(b"ab\xff")
    assert render(renderer, "ab") == "a@@ b"


# ---- versions ----


def old(pairs: list[Symbols]) -> list[Symbols]:
    """The same merges in version 0.1, where a final character is a merge of its own."""
    out: list[Symbols] = []
    for left, right in pairs:
        if right[1] and len(right[0]) == 1:
            out.append(((right[0], False), ("", True)))
        out.append((left, right))
    return list(dict.fromkeys(out))


@given(st.text("abcé ", max_size=60), st.text("abcéx \n", max_size=60))
def test_version_0_1_is_read_as_by_subword_nmt(train: str, text: str) -> None:
    pairs = old(merges_of(train))
    if pairs:
        peer = BPE(io.StringIO(printed_codes(pairs)))
        assert peer.version == (0, 1)
        ours = render(BpeRenderer(codes(pairs, (0, 1))), text)
        assert ours == "".join(map(peer.process_line, io.StringIO(text, newline="\n")))


@given(TEXT, TEXT, st.randoms(use_true_random=False))
def test_version_0_1_with_a_vocabulary_leaves_no_empty_piece(train, text, random) -> None:
    pairs = old(merges_of(train))
    pieces = sorted(set(expected(text, pairs, end_symbol=True).split()))
    vocabulary = set(random.sample(pieces, len(pieces) // 2))
    ours = render(BpeRenderer(codes(pairs, (0, 1)), vocabulary=vocabulary), text)
    assert ours == expected(text, pairs, end_symbol=True, vocabulary=vocabulary)


def test_undoing_the_end_of_a_word_in_version_0_1() -> None:
    pairs = [
        (("u", False), ("n", False)),
        (("un", False), ("d", False)),
        (("und", False), ("", True)),
    ]
    assert printed_codes(pairs) == "u n\nun d\nund </w>\n"
    peer = BPE(io.StringIO(printed_codes(pairs)), vocab={"x"})
    assert peer.process_line("und\n") == "u@@ n@@ d@@ \n"
    assert render(BpeRenderer(codes(pairs, (0, 1)), vocabulary={"x"}), "und\n") == "u@@ n@@ d\n"


def test_a_last_piece_without_the_end_of_a_word_is_undone_like_any_other() -> None:
    pairs: list[Symbols] = [(("u", False), ("n", False)), (("un", False), ("d", False))]
    peer = BPE(io.StringIO(printed_codes(pairs)), vocab={"x"})
    assert peer.process_line("und\n") == "und\n"
    assert render(BpeRenderer(codes(pairs, (0, 1)), vocabulary={"x"}), "und\n") == "u@@ n@@ d\n"


def test_codes_of_fastbpe_end_words_as_version_0_2_does() -> None:
    from rareword.schemas.merges import from_codes

    found = from_codes("e n</w> 1423551864\no o 0\no o 0\n", "codes")
    assert render(BpeRenderer(found), "then enoo") == "t@@ h@@ en e@@ n@@ o@@ o"


# ---- hand-made merges ----


SYMBOL = st.tuples(st.text("ab", min_size=1, max_size=3), st.just(False))
HAND_MADE = st.lists(
    st.tuples(SYMBOL, st.tuples(st.text("ab", min_size=1, max_size=3), st.booleans())), max_size=12
)


@given(HAND_MADE, st.text("ab ", max_size=30), st.sets(st.text("ab@", max_size=4), max_size=8))
@example([(("ab", False), ("a", False)), (("a", False), ("b", False))], "abab ababa ababx", {"x"})
@example(
    # Two merges that make one string: the first of them is what the vocabulary undoes.
    [(("a", False), ("b", False)), (("b", False), ("a", False)), (("ab", False), ("a", False)),
     (("a", False), ("ba", False))],
    "abaaba abab", {"ab@@", "x"},
)  # fmt: skip
def test_any_list_of_merges_means_what_it_means_to_subword_nmt(pairs, text, vocabulary) -> None:
    """Merges of symbols that nothing makes, merges given twice, results made twice."""
    if not pairs:
        return
    written = "#version: 0.2\n" + printed_codes(pairs)
    for known in (None, vocabulary or None):
        peer = BPE(io.StringIO(written), vocab=known)
        ours = BpeRenderer(codes(pairs), vocabulary=known)
        assert render(ours, text) == peer.process_line(text)


# ---- vocabulary ----


@given(
    st.text("abcé ", max_size=80), st.text("abcéx \n", max_size=60), SEPARATORS, st.integers(0, 9)
)
def test_a_vocabulary_undoes_merges_as_in_subword_nmt(
    train: str, text: str, separator: str, least: int
) -> None:
    pairs = merges_of(train)
    counts = collections.Counter(expected(train, pairs, separator=separator).split())
    vocabulary = {piece for piece, count in counts.items() if count >= least}
    if pairs and vocabulary:  # an empty one is none to subword-nmt
        written = io.StringIO("#version: 0.2\n" + printed_codes(pairs))
        peer = BPE(written, separator=separator, vocab=vocabulary)
        ours = render(BpeRenderer(codes(pairs), separator, vocabulary), text)
        assert ours == "".join(map(peer.process_line, io.StringIO(text, newline="\n")))


@given(TEXT, TEXT, st.sets(st.text("ab@", max_size=4), max_size=6))
def test_an_incomplete_vocabulary_against_plain_python(train, text, vocabulary) -> None:
    pairs = merges_of(train)
    ours = render(BpeRenderer(codes(pairs), vocabulary=vocabulary), text)
    assert ours == expected(text, pairs, vocabulary=vocabulary)


def test_a_bare_end_of_a_word_in_version_0_2_joins_nothing() -> None:
    """What hand-made codes may hold: `ab</w>` joined with `</w>` would be itself."""
    end = ("", True)
    pairs: list[Symbols] = [(("ab", True), end), (end, ("ab", True)), (("a", False), ("b", True))]
    assert render(BpeRenderer(codes(pairs)), "ab") == "ab"
    for version in ((0, 1), (0, 2)):
        assert render(BpeRenderer(codes(pairs, version), vocabulary={"x"}), "ab") == "a@@ b"


def test_an_empty_vocabulary_leaves_characters() -> None:
    pairs = merges_of("low low lower")
    written = io.StringIO("#version: 0.2\n" + printed_codes(pairs))
    assert BPE(written, vocab=set()).process_line("low") == "low"  # no filter there
    assert render(BpeRenderer(codes(pairs), vocabulary=set()), "low") == "l@@ o@@ w"


# ---- glossaries ----

PLAIN_GLOSSARIES = ["ab", "c", "[bc]+", "a.", "é", "abc", r"b\w", "^a", "c$"]


@example("aa", "bbc", ["[bc]+", "c"], False)
@given(
    st.text("abcé ", max_size=60), st.text("abcéx \n", max_size=60),
    st.lists(st.sampled_from(PLAIN_GLOSSARIES[:7]), min_size=1, max_size=3), st.booleans(),
)  # fmt: skip
def test_glossaries_are_those_of_subword_nmt(train, text, glossaries, filtered) -> None:
    pairs = merges_of(train)
    if not pairs:
        return
    vocabulary = set(expected(train, pairs).split()[::2]) | {"x"} if filtered else None
    written = io.StringIO("#version: 0.2\n" + printed_codes(pairs))
    peer = BPE(written, vocab=vocabulary, glossaries=glossaries)
    ours = render(BpeRenderer(codes(pairs), "@@", vocabulary, glossaries), text, threads=2)
    assert ours == "".join(map(peer.process_line, io.StringIO(text, newline="\n")))


@given(
    TEXT, TEXT,
    st.lists(st.sampled_from(["ab|c", "(ab)+", "", "z*", "(a|b)c", "a", "a|ab", r"(a)\1"]),
             min_size=1, max_size=3),
)  # fmt: skip
def test_every_regular_expression_against_plain_python(train, text, glossaries) -> None:
    pairs = merges_of(train)
    ours = render(BpeRenderer(codes(pairs), glossaries=glossaries), text)
    assert ours == expected(text, pairs, glossaries=glossaries)


@pytest.mark.parametrize(
    ("glossaries", "word", "theirs", "ours"),
    [
        (["(ab)+"], "xababy", "x@@ abab@@ ab@@ y", "x@@ abab@@ y"),
        (["USA|UK"], "USAx", "U@@ S@@ A@@ x", "USA@@ x"),
        (["z*"], "ab", "a@@ b", "ab"),
        ([""], "ab", "a@@ b", "ab"),
        (["US"], "USx\ry\r", "US@@ x@@ \r@@ y", "US@@ x@@ \r@@ y@@ \r"),
    ],
)
def test_what_subword_nmt_gets_wrong_in_glossaries(glossaries, word, theirs, ours) -> None:
    pairs = [(("a", False), ("b", True)), (("q", False), ("q", True))]
    peer = BPE(io.StringIO("#version: 0.2\n" + printed_codes(pairs)), glossaries=glossaries)
    assert peer.segment_tokens([word]) == theirs.split(" ")
    rendered = render(BpeRenderer(codes(pairs), glossaries=glossaries), f"{word} q")
    assert rendered == f"{ours} q"


def test_what_a_glossary_finds_by_its_surroundings_stays_whole() -> None:
    peer = BPE(io.StringIO("#version: 0.2\nq q\n"), glossaries=["(?<=x)US"])
    assert peer.segment("xUSA US") == "x@@ U@@ S@@ A U@@ S"
    ours = BpeRenderer(codes([]), glossaries=["(?<=x)US"])
    assert render(ours, "xUSA US") == "x@@ US@@ A U@@ S"


def test_a_glossary_that_is_no_regular_expression_is_named() -> None:
    with pytest.raises(RarewordError, match=r"^glossary 'a\(' is not a regular expression"):
        BpeRenderer(codes([]), glossaries=["a("])


# ---- dropout ----


@given(TEXT, TEXT, st.integers(0, 2**64 - 1))
def test_dropout_of_nothing_and_of_everything(train: str, text: str, seed: int) -> None:
    pairs = merges_of(train)
    renderer = BpeRenderer(codes(pairs))
    assert render(renderer, text, dropout=0.0, seed=seed) == expected(text, pairs)
    assert render(renderer, text, dropout=1.0, seed=seed) == expected(text, [])
    assert render(renderer, text) == expected(text, pairs), "dropout left something in the cache"


@given(TEXT, st.floats(0, 1), st.integers(0, 2**64 - 1), st.integers(1, 5), st.integers(0, 40))
def test_dropout_is_a_function_of_seed_and_line(text, dropout, seed, threads, cut) -> None:
    renderer = BpeRenderer(codes(merges_of("abc ab bc" + text)), glossaries=["é"])
    whole = render(renderer, text, dropout=dropout, seed=seed)
    assert render(renderer, text, dropout=dropout, seed=seed, threads=threads) == whole
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    head, tail = "".join(lines[:cut]), "".join(lines[cut:])
    assert whole == render(renderer, head, dropout=dropout, seed=seed) + render(
        renderer, tail, dropout=dropout, seed=seed, first_line=len(lines[:cut])
    )
    assert whole.replace("@@ ", "") == expected(text, []).replace("@@ ", "")


def test_another_seed_gives_other_pieces_and_so_does_another_line() -> None:
    renderer = BpeRenderer(codes(merges_of("lower lowest " * 3)))
    text = "lower lowest lower lowest\n" * 20
    found = [render(renderer, text, dropout=0.3, seed=seed) for seed in range(5)]
    assert len(set(found)) == 5
    assert len(set(found[0].splitlines())) > 10


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(
    ("train", "word"),
    [
        ("low lower newer wider low", "lower"),
        ("aaaa aaa aa", "aaaaa"),
        ("abab ab ba", "ababa"),
        # Long words are merged by another algorithm.
        ("aaaa aaa aa", "xyz" * 30 + "aaaaa"),
        ("abab ab ba", "ababa" + "xyz" * 30),
    ],
)
def test_dropout_has_the_distribution_of_subword_nmt(train: str, word: str, dropout: float) -> None:
    draws = 20_000
    pairs = merges_of(train, 6)
    renderer = BpeRenderer(codes(pairs))
    text = render(renderer, f"{word}\n" * draws, dropout=dropout, seed=7)
    seen = collections.Counter(text.splitlines())
    chances: collections.Counter[str] = collections.Counter()
    for symbols, chance in oracles.dropout_outcomes(
        oracles.characters(word), pairs, dropout
    ).items():
        chances["@@ ".join(text for text, _ in symbols)] += chance
    assert sum(chances.values()) == pytest.approx(1)
    assert set(seen) <= set(chances)
    # Chi-square over outcomes that are not too rare; the rest is one outcome.
    rare = sum(p for p in chances.values() if p * draws < 10)
    cells = [(seen[o], p) for o, p in chances.items() if p * draws >= 10]
    cells.append((draws - sum(n for n, _ in cells), rare))
    score = sum((n - p * draws) ** 2 / (p * draws) for n, p in cells if p * draws >= 1)
    freedom = len(cells)
    assert score < freedom + 5 * (2 * freedom) ** 0.5


def test_dropout_draws_again_for_every_occurrence() -> None:
    renderer = BpeRenderer(codes(merges_of("lower " * 3)))
    words = render(renderer, "lower " * 200, dropout=0.5, seed=3).replace("@@ ", "|").split()
    assert len(set(words)) > 4


def test_dropout_of_many_equal_places_is_independent() -> None:
    """A word of one pair many times: about (1 - p) of them are merged in the first round."""
    pairs: list[Symbols] = [(("a", False), ("b", False))]
    text = render(BpeRenderer(codes(pairs)), "abx" * 20_000, dropout=0.999, seed=5)
    merged = text.split().count("ab@@")
    assert 0 < merged < 20_000


# ---- character n-grams ----


@given(st.text("abc \t\u00a0\u2028é", max_size=60), st.integers(1, 4), st.sets(st.text("abc")))
def test_ngrams_join_back_and_the_shortlist_stays(text, n, shortlist) -> None:
    rendered = NgramRenderer(shortlist, n, "￭").render(text + "\n")
    assert rendered.endswith("\n")
    assert rendered.replace("￭ ", "").split() == text.split()
    for piece in rendered.split():
        word = piece.removesuffix("￭")
        assert len(word) <= n or word in shortlist
