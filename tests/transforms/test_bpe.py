"""The options of byte-pair encoding against subword-nmt and plain Python."""

import collections
import io
import itertools
from typing import Any

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE

from rareword.schemas import merges as merge_files
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.tables import SIDES
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary, joined
from rareword.transforms import glossary, segmenters, segmenting, transliteration
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.segmenters import Segmenter, VocabularyRules

LINES = st.lists(st.text("abcé ", max_size=20), min_size=1, max_size=6)
ANY_TEXT = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=8),
    max_size=6,
).map(" ".join)


def learnt(text: list[str], limit: int = 15) -> list[Merge]:
    pairs = oracles.learn_bpe(oracles.count_words(text), limit, 1)
    return [Merge(Symbol(*a), Symbol(*b), count) for (a, b), count in pairs]


def plain(merges: list[Merge]) -> list[oracles.Symbols]:
    return [(tuple(merge.left), tuple(merge.right)) for merge in merges]


def vocabulary_of(segmenter: Segmenter, text: list[str], **rules: int) -> Vocabulary:
    counter = oracles.count_words(text)
    words, counts = pa.array(list(counter), pa.string()), np.array(list(counter.values()), np.int64)
    both = dict.fromkeys(SIDES, segmenter)
    found = segmenting.count_pieces(words, {"source": counts, "target": 0 * counts}, both)
    found = segmenting.with_possible_pieces(found, both)
    made = segmenters.build_vocabularies(found, VocabularyRules(True, **rules), segmenter.spells)
    return made.source


def rows(ids: Any, offsets: Any) -> list[list[int]]:
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def encode(segmenter: Segmenter, vocabulary: Vocabulary, text: list[str], threads: int = 1):
    encoded = segmenter.encoder(vocabulary).encode(pa.array(text, pa.string()), threads)
    assert encoded.words.tolist() == [len(oracles.split_words(line)) for line in text]
    return rows(encoded.ids, encoded.offsets)


def normal(text: str) -> str:
    return " ".join(oracles.split_words(text))


def peer(merges: list[Merge], **options: Any) -> BPE:
    return BPE(io.StringIO(merge_files.to_codes(merges)), **options)


# ---- a vocabulary that does not have all pieces ----


@given(LINES, LINES, LINES, st.integers(0, 6))
def test_a_threshold_undoes_merges_as_in_subword_nmt(train, other, test, least) -> None:
    """Joint merges of two languages, the vocabulary of one."""
    merges = learnt([*train, *other])
    segmenter = BpeSegmenter(merges)
    vocabulary = vocabulary_of(segmenter, train, min_count=least)
    if not merges:
        return
    counts = collections.Counter(
        piece for line in train for piece in peer(merges).process_line(normal(line)).split()
    )
    frequent = {piece for piece, count in counts.items() if count >= max(least, 1)}
    characters = set("".join(train)) - {" "}
    if frequent and least:  # an empty vocabulary is none to subword-nmt
        theirs = peer(merges, vocab=frequent)
        for line, ids in zip(test, encode(segmenter, vocabulary, test, 2), strict=True):
            expected = theirs.process_line(normal(line)).split()
            expected = [
                p
                if p.removesuffix("@@") in characters or len(p.removesuffix("@@")) > 1
                else "<unk>"
                for p in expected
            ]
            assert vocabulary.display(ids) == expected
    for line, ids in zip(train, encode(segmenter, vocabulary, train), strict=True):
        assert vocabulary.words(ids) == normal(line), "no character of the training text is lost"


@given(LINES, st.integers(0, 9))
def test_counts_are_of_pieces_before_any_is_undone_and_characters_stay(train, least) -> None:
    merges = learnt(train)
    vocabulary = vocabulary_of(BpeSegmenter(merges), train, min_count=least)
    counts = collections.Counter(
        Symbol(*piece)
        for line in train
        for word in oracles.split_words(line)
        for piece in oracles.segment_word(word, plain(merges))
    )
    found = dict(
        zip(
            map(Symbol, vocabulary.pieces[3:], vocabulary.final[3:]),
            vocabulary.source_counts[3:],
            strict=True,
        )
    )
    characters = {Symbol(c, final) for c in set("".join(train)) - {" "} for final in (True, False)}
    assert set(found) == characters | {
        piece for piece in {*counts, *(m.result for m in merges)} if counts[piece] >= least
    }
    assert all(count == counts[piece] for piece, count in found.items())


def test_the_bound_on_the_size_takes_characters_last_and_bytes_never() -> None:
    text = ["abab abab ab ba c é"]
    segmenter = BpeSegmenter(learnt(text))
    vocabulary = vocabulary_of(segmenter, text, max_size=3 + 8 + 1)
    assert sorted(vocabulary.pieces[3:]) == sorted([*"abcé" * 2, "abab"])
    assert vocabulary.source_counts[3:] == sorted(vocabulary.source_counts[3:], reverse=True)
    few = vocabulary_of(segmenter, text, max_size=3 + 3)
    # These two are pieces once; the other characters are always merged.
    assert {("c", True), ("é", True)} <= set(zip(few.pieces[3:], few.final[3:], strict=True))
    assert all(len(piece) == 1 for piece in few.pieces[3:])
    spelled = BpeSegmenter(learnt(text), byte_fallback=True)
    small = vocabulary_of(spelled, text, max_size=3 + 512)
    assert all(small.is_bytes[3:])
    assert [small.words(ids) for ids in encode(spelled, small, text)] == text
    with pytest.raises(RarewordError, match="514 pieces has no room for the 512 pieces of single"):
        vocabulary_of(spelled, text, max_size=514)


SYMBOL = st.tuples(st.text("ab", min_size=1, max_size=3), st.just(False))
HAND_MADE = st.lists(
    st.tuples(SYMBOL, st.tuples(st.text("ab", min_size=1, max_size=3), st.booleans())), max_size=12
)


@given(HAND_MADE, st.text("ab ", max_size=30), st.sets(st.integers(0, 12)))
@example(
    # Two merges that make one string: the first of them is what is undone.
    [(("a", False), ("b", False)), (("b", False), ("a", False)), (("ab", False), ("a", False)),
     (("a", False), ("ba", False))], "abaaba abab", {0},
)  # fmt: skip
def test_merges_that_nobody_learnt_are_undone_too(pairs, text, chosen) -> None:
    merges = [Merge(Symbol(*left), Symbol(*right), 0) for left, right in pairs]
    results = list(dict.fromkeys(merge.result for merge in merges))
    kept = [piece for k, piece in enumerate(results) if k in chosen]
    kept += [Symbol(c, final) for c in "ab" for final in (True, False)]
    none = [0] * (3 + len(kept))
    pieces = [*SPECIALS, *kept]
    vocabulary = Vocabulary([p.text for p in pieces], [p.final for p in pieces], none, none)
    ids = encode(BpeSegmenter(merges), vocabulary, [text])[0]
    assert UNK not in ids
    assert vocabulary.words(ids) == normal(text)
    made = {Symbol(c, final) for c in "ab" for final in (True, False)}
    usable = [pair for pair in pairs if _can_be(pair, pairs)]
    expected = [
        piece
        for word in oracles.split_words(text)
        for symbol in oracles.segment_word(word, pairs)
        for piece in undone(Symbol(*symbol), usable, {*kept, *made})
    ]
    assert [Symbol(vocabulary.pieces[i], vocabulary.final[i]) for i in ids] == expected


def _can_be(pair: oracles.Symbols, pairs: list[oracles.Symbols]) -> bool:
    """Whether characters or merges make both symbols."""
    made = {(a[0] + b[0], b[1]) for a, b in pairs}
    return all(len(symbol[0]) == 1 or symbol in made for symbol in pair)


def undone(symbol: Symbol, pairs: list[oracles.Symbols], known: set[Symbol]) -> list[Symbol]:
    if symbol in known:
        return [symbol]
    left, right = next(p for p in pairs if (p[0][0] + p[1][0], p[1][1]) == symbol)
    return [*undone(Symbol(*left), pairs, known), *undone(Symbol(*right), pairs, known)]


# ---- bytes for characters without id ----


@given(LINES, st.lists(ANY_TEXT, max_size=4), st.integers(0, 4), st.sampled_from([1, 3]))
def test_with_bytes_to_fall_back_on_no_text_is_unknown(train, test, least, threads) -> None:
    segmenter = BpeSegmenter(learnt(train), byte_fallback=True)
    vocabulary = vocabulary_of(segmenter, train, min_count=least)
    text = [*train, *test]
    known = set("".join(train))
    found = encode(segmenter, vocabulary, text, threads)
    for line, ids in zip(text, found, strict=True):
        assert UNK not in ids
        assert vocabulary.words(ids) == normal(line)
        assert joined(vocabulary.display(ids)) == normal(line)
        unknown = "".join(c for c in line if c != " " and c not in known)
        assert sum(vocabulary.is_bytes[i] for i in ids) == len(unknown.encode())
    plain_pieces = encode(BpeSegmenter(learnt(train)), vocabulary, train)
    assert found[: len(train)] == plain_pieces


def test_the_bytes_of_a_character_end_its_word_only_at_the_last() -> None:
    segmenter = BpeSegmenter(learnt(["ab"]), byte_fallback=True)
    vocabulary = vocabulary_of(segmenter, ["ab"])
    (ids,) = encode(segmenter, vocabulary, ["é€ a€b"])
    shown = [(vocabulary.pieces[i], vocabulary.final[i], vocabulary.is_bytes[i]) for i in ids]
    assert shown == [
        ("\xc3", False, True), ("\xa9", False, True),
        ("\xe2", False, True), ("\x82", False, True), ("\xac", True, True),
        ("a", False, False),
        ("\xe2", False, True), ("\x82", False, True), ("\xac", False, True),
        ("b", True, False),
    ]  # fmt: skip


# ---- glossaries ----


@given(LINES, LINES, st.sampled_from([["ab"], ["re:[bc]+"], ["é"], ["re:a."], ["abc"], ["c", "é"]]))
def test_glossaries_are_those_of_subword_nmt(train, test, entries) -> None:
    """Where entries do not overlap and their pieces are known."""
    merges = learnt(train)
    segmenter = BpeSegmenter(merges, glossary=entries)
    vocabulary = vocabulary_of(segmenter, [*train, *test])
    if merges:
        theirs = peer(merges, glossaries=[entry.removeprefix("re:") for entry in entries])
        for line, ids in zip(test, encode(segmenter, vocabulary, test, 2), strict=True):
            expected = theirs.process_line(normal(line)).split()
            assert vocabulary.display(ids) == expected


ENTRIES = ["ab", "abc", "b", "re:b+c?", "re:^a", "re:c$", "é", "re:(ab)+", "re:()", "re:x*", "cb"]


def segmented(
    word: str, entries: list[str], pairs: list[oracles.Symbols], known: set[Symbol]
) -> list[Symbol]:
    """Plain Python: parts kept whole if they are known, the rest merged as words of their own."""
    found: list[Symbol] = []
    parts = glossary.Glossary(entries).parts(word) or [(word, False)]
    for number, (text, whole) in enumerate(parts, 1):
        ends = number == len(parts)
        if whole and Symbol(text, ends) in known:
            found.append(Symbol(text, ends))
            continue
        symbols = [Symbol(*symbol) for symbol in oracles.segment_word(text, pairs)]
        found += [Symbol(s.text, s.final and ends) for s in symbols]
    return found


@given(LINES, LINES, st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=4), st.integers(0, 3))
def test_glossaries_with_a_vocabulary_against_plain_python(train, test, entries, least) -> None:
    merges = learnt(train)
    segmenter = BpeSegmenter(merges, glossary=entries)
    vocabulary = vocabulary_of(segmenter, train, min_count=least)
    pieces = list(map(Symbol, vocabulary.pieces[3:], vocabulary.final[3:]))
    counts: collections.Counter[Symbol] = collections.Counter()
    everything = {Symbol(w[a:b], e) for line in train for w in oracles.split_words(line)
                  for a in range(len(w)) for b in range(a + 1, len(w) + 1)
                  for e in (True, False)}  # fmt: skip
    for line in train:
        for word in oracles.split_words(line):
            counts.update(segmented(word, entries, plain(merges), everything))
    assert dict(zip(pieces, vocabulary.source_counts[3:], strict=True)) == {
        piece: counts[piece] for piece in pieces
    }
    assert {piece for piece, count in counts.items() if count >= least} <= set(pieces)
    characters = set("".join(train))
    for line, ids in zip(test, encode(segmenter, vocabulary, test), strict=True):
        if set(line) <= {*characters, " "}:
            assert UNK not in ids
            assert vocabulary.words(ids) == normal(line)
        found = [Symbol(vocabulary.pieces[i], vocabulary.final[i]) for i in ids]
        expected = [
            piece
            for word in oracles.split_words(line)
            for symbol in segmented(word, entries, plain(merges), set(pieces))
            for piece in parted(symbol, merges, set(pieces))
        ]
        assert found == expected


def parted(symbol: Symbol, merges: list[Merge], known: set[Symbol]) -> list[Symbol]:
    """A symbol as known pieces; one that ends a part but not its word was merged as if it did."""
    if symbol in known:
        return [symbol]
    if len(symbol.text) == 1:
        return [SPECIALS[UNK]]
    for final in (symbol.final, True):
        for merge in merges:
            if merge.result == Symbol(symbol.text, final):
                last = Symbol(merge.right.text, symbol.final)
                return [*parted(merge.left, merges, known), *parted(last, merges, known)]
    raise AssertionError(symbol)


@given(st.text("abcé", max_size=9), st.lists(st.text("abc", min_size=1, max_size=3), max_size=5))
def test_literal_entries_are_found_longest_first(word, texts) -> None:
    kept = [False] * len(word)
    spans = []
    for text in sorted(set(texts), key=lambda text: (-len(text), text)):
        for at in range(len(word) - len(text) + 1):
            if word.startswith(text, at) and not any(kept[at : at + len(text)]):
                kept[at : at + len(text)] = [True] * len(text)
                spans.append((at, at + len(text)))
    found = glossary.Glossary(texts).parts(word)
    assert (found is None) == (not spans)
    if found is not None:
        ends = list(itertools.accumulate(len(text) for text, _ in found))
        whole = [
            (end - len(text), end) for end, (text, is_whole) in zip(ends, found, strict=True)
            if is_whole
        ]  # fmt: skip
        assert whole == sorted(spans)
        assert "".join(text for text, _ in found) == word


@pytest.mark.parametrize(
    ("entries", "word", "parts"),
    [
        (["US", "USA"], "xUSAy", [("x", False), ("USA", True), ("y", False)]),
        (["C++"], "C++11", [("C++", True), ("11", False)]),
        (["U.S"], "UXS", None),
        (["re:U.S"], "UXS", [("UXS", True)]),
        (["re:USA|UK"], "USAx", [("USA", True), ("x", False)]),
        (["re:^USA$"], "USAx", None),
        (["re:^b", "a"], "ab", [("a", True), ("b", False)]),
        (["re:(?<=x)US"], "xUSA", [("x", False), ("US", True), ("A", False)]),
        (["re:(ab)+"], "xababy", [("x", False), ("abab", True), ("y", False)]),
        (["\\re:x"], "re:x", [("re:x", True)]),
        (["\\\\n"], "a\\n", [("a", False), ("\\n", True)]),
        (["re:z*"], "ab", None),
        (["re:[0-9]+", "COVID-19"], "COVID-19", [("COVID-19", True)]),
    ],
)
def test_what_entries_mean(entries, word, parts) -> None:
    assert glossary.Glossary(entries).parts(word) == parts


def test_a_glossary_takes_time_in_proportion_to_the_word() -> None:
    word = "ab" * 100_000  # each of so many matches against all others would take hours
    parts = glossary.Glossary(["a", "re:b"]).parts(word)
    assert parts == [("a", True), ("b", True)] * 100_000


def test_a_glossary_file_has_an_entry_a_line(tmp_path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffUSA\r\n\n  re:[0-9]+ \n#tag\n\\re:x".encode())
    assert glossary.read(str(path)) == ["USA", "re:[0-9]+", "#tag", "\\re:x"]
    for content, message in (
        (b"a\nb c\n", r"names.txt, line 2: glossary entry 'b c' can match nothing"),
        (b"\\\n", r"names.txt, line 1: glossary entry '' can match nothing"),
        (b"re:\n", r"names.txt, line 1: glossary entry 're:' can match nothing"),
        (b"a\n\nre:(\n", r"names.txt, line 3: glossary '\(' is not a regular expression"),
        (b"a\xff", r"names.txt: byte 1 is not UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(RarewordError, match=message):
            glossary.read(str(path))


# ---- a prefix of the merges, settings ----


@given(LINES, st.integers(0, 20))
def test_a_limit_takes_the_first_merges(train, limit) -> None:
    merges = learnt(train)
    limited = BpeSegmenter(merges, merge_limit=limit)
    vocabulary = vocabulary_of(limited, train)
    expected = [
        [piece for word in oracles.split_words(line)
         for piece in oracles.segment_word(word, plain(merges[:limit]))]
        for line in train
    ]  # fmt: skip
    found = [
        [(vocabulary.pieces[i], vocabulary.final[i]) for i in ids]
        for ids in encode(limited, vocabulary, train)
    ]
    assert found == expected


def test_options_come_back_from_disk(tmp_path) -> None:
    train = ["abab abc ab cab"]
    given_options: dict[str, Any] = {
        "byte_fallback": True,
        "glossary": ["re:c+", "ba"],
        "merge_limit": 3,
    }
    one = BpeSegmenter(learnt(train), **given_options)
    assert one.settings() == {"units": "characters", **given_options}
    assert BpeSegmenter([]).settings() == {"units": "characters"}
    one.save(str(tmp_path), "both")
    two = BpeSegmenter.load(str(tmp_path), "both", one.settings())
    assert two.settings() == one.settings()
    vocabulary = vocabulary_of(one, train)
    text = ["abcab é bab"]
    assert encode(two, vocabulary, text) == encode(one, vocabulary, text)


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(RarewordError, match="merge_limit is 0 or more merges, not -1"):
        BpeSegmenter([], merge_limit=-1)
    with pytest.raises(RarewordError, match="leave out byte_fallback"):
        BpeSegmenter([], "bytes", byte_fallback=True)
    with pytest.raises(RarewordError, match="leave out the glossary"):
        BpeSegmenter([], "bytes", glossary=["a"])


# ---- dropout ----

KINDS = [
    {},
    {"byte_fallback": True},
    {"glossary": ["ab", "re:é+", "re:^c"]},
    {"byte_fallback": True, "glossary": ["c", "xy"]},
]


def drawn(segmenter, vocabulary, ids, probability, seed=1, numbers=None, threads=1):
    offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
    flat = np.array([i for row in ids for i in row], np.int32)
    numbers = np.arange(len(ids)) if numbers is None else np.array(numbers)
    dropout = segmenter.dropout(vocabulary)
    return rows(*dropout.draw(flat, offsets, numbers, probability, seed, threads))


@given(LINES, st.lists(ANY_TEXT, max_size=3), st.sampled_from(KINDS), st.integers(0, 3))
def test_dropout_of_nothing_gives_the_same_pieces(train, test, options, least) -> None:
    segmenter = BpeSegmenter(learnt(train), **options)
    vocabulary = vocabulary_of(segmenter, train, min_count=least)
    ids = encode(segmenter, vocabulary, [*train, *test])
    ids = [row for row in ids if UNK not in row]
    assert drawn(segmenter, vocabulary, ids, 0.0) == ids


@given(LINES, st.lists(ANY_TEXT, max_size=3), st.integers(0, 2**64 - 1))
def test_dropout_of_everything_gives_characters(train, test, seed) -> None:
    segmenter = BpeSegmenter(learnt(train))
    vocabulary = vocabulary_of(segmenter, train)
    text = [*train, *test]
    found = drawn(segmenter, vocabulary, encode(segmenter, vocabulary, text), 1.0, seed)
    expected = [
        [vocabulary.id(Symbol(*c)) for word in oracles.split_words(line)
         for c in oracles.characters(word)]
        for line in text
    ]  # fmt: skip
    assert found == expected


@given(
    LINES, st.lists(ANY_TEXT, max_size=3), st.sampled_from(KINDS), st.floats(0, 1),
    st.integers(0, 2**64 - 1), st.randoms(use_true_random=False),
)  # fmt: skip
def test_dropout_keeps_the_text_and_is_a_function_of_seed_and_row(
    train, test, options, probability, seed, random
) -> None:
    segmenter = BpeSegmenter(learnt(train), **options)
    vocabulary = vocabulary_of(segmenter, train, min_count=2)
    text = [*train, *test]
    ids = encode(segmenter, vocabulary, text)
    numbers = [random.randrange(2**40) for _ in ids]
    found = drawn(segmenter, vocabulary, ids, probability, seed, numbers)
    for before, after in zip(ids, found, strict=True):
        assert vocabulary.words(after) == vocabulary.words(before)
        assert after.count(UNK) == before.count(UNK)
    order = random.sample(range(len(ids)), len(ids))
    again = drawn(
        segmenter,
        vocabulary,
        [ids[k] for k in order],
        probability,
        seed,
        [numbers[k] for k in order],
        threads=3,
    )
    assert again == [found[k] for k in order]
    assert encode(segmenter, vocabulary, text) == ids, "dropout left something in the cache"


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("threshold", [0, 2])
def test_dropout_has_the_distribution_of_subword_nmt(dropout: float, threshold: int) -> None:
    """Each outcome as often as plain Python says, merges undone after the draw."""
    draws = 20_000
    train = ["low lower newer wider low", "lowlow er"]
    merges = learnt(train, 7)
    segmenter = BpeSegmenter(merges)
    vocabulary = vocabulary_of(segmenter, train, min_count=threshold)
    known = set(map(Symbol, vocabulary.pieces[3:], vocabulary.final[3:]))
    (ids,) = encode(segmenter, vocabulary, ["lower"])
    found = drawn(segmenter, vocabulary, [ids] * draws, dropout, seed=7)
    seen = collections.Counter(map(tuple, found))
    chances: collections.Counter[tuple[int, ...]] = collections.Counter()
    start = oracles.characters("lower")
    for symbols, chance in oracles.dropout_outcomes(start, plain(merges), dropout).items():
        pieces = [p for s in symbols for p in undone(Symbol(*s), plain(merges), known)]
        chances[tuple(map(vocabulary.id, pieces))] += chance
    assert set(seen) <= set(chances)
    cells = [(seen[o], p * draws) for o, p in chances.items() if p * draws >= 10]
    score = sum((n - mean) ** 2 / mean for n, mean in cells)
    assert score < len(cells) + 5 * (2 * len(cells)) ** 0.5


def test_broken_bytes_and_foreign_ids_stay_or_are_named() -> None:
    segmenter = BpeSegmenter(learnt(["abab ab"]), byte_fallback=True)
    vocabulary = vocabulary_of(segmenter, ["abab ab"])
    byte = [
        vocabulary.id(Symbol(chr(b), final), is_bytes=True)
        for b, final in ((0xC3, False), (0xC3, True), (0xA9, True), (0xFF, False))
    ]
    a, b = vocabulary.id(Symbol("a", False)), vocabulary.id(Symbol("b", True))
    for ids in ([byte[0], a, b], [byte[1], byte[2]], [byte[3]], [UNK, byte[0], UNK], []):
        (found,) = drawn(segmenter, vocabulary, [ids], 1.0)
        assert found == ids
    with pytest.raises(ValueError, match=f"piece id {len(vocabulary)} is not in the vocabulary"):
        drawn(segmenter, vocabulary, [[3, len(vocabulary)]], 0.5)


# ---- two scripts ----


def test_latin_words_in_cyrillic_text_are_cut_by_the_latin_merges() -> None:
    english = ["Moscow power tower now power"] * 3
    russian = ["Москов повер товер нов"] * 2 + ["мост - товар"]
    latin = [transliteration.to_latin(line) for line in russian]
    learnt_on_both = learnt([*english, *latin], 25)
    both = BpeSegmenter(transliteration.with_cyrillic(learnt_on_both))
    alone = BpeSegmenter(learnt_on_both)
    vocabulary = vocabulary_of(both, [*english, *russian, *latin])
    test = ["Москов power товер Moscow tower-нов"]
    pieces = vocabulary.display(encode(both, vocabulary, test)[0])
    words = collections.deque(pieces)
    for word in ("Москов", "power", "товер", "Moscow"):
        as_latin = transliteration.to_latin(word)
        expected = vocabulary.display(encode(alone, vocabulary, [as_latin])[0])
        found = [words.popleft() for _ in expected]
        assert [transliteration.to_latin(piece) for piece in found] == expected
        assert "".join(piece.removesuffix("@@") for piece in found) == word
    assert len(vocabulary.display(encode(both, vocabulary, ["power товер"])[0])) == 2
    assert "".join(piece.removesuffix("@@") for piece in words) == "tower-нов"
