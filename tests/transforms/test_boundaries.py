"""Boundary scores against Morfessor's own evaluation; gold files of all layouts."""

import gzip
import itertools
from pathlib import Path

import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from morfessor.evaluation import MorfessorEvaluation

from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.transforms import boundaries
from rareword.transforms.boundaries import Gold, evaluate, locate, read_gold, score
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.ngrams import NgramSegmenter
from rareword.transforms.segmenters import WordSegmenter, pieces_of_words


def cut(word: str, bounds) -> list[str]:
    return [word[a:b] for a, b in itertools.pairwise([0, *sorted(bounds), len(word)])]


def shown(gold: Gold) -> dict[str, list[str]]:
    """`{"lower": ["low|er"]}`."""
    return {word: ["|".join(cut(word, one)) for one in found] for word, found in gold.words.items()}


def gold_of(words: dict[str, list[set[int]]]) -> Gold:
    return Gold(
        {word: list(map(frozenset, found)) for word, found in words.items()}, len(words), {}
    )


# ---- scores ----

segmented = st.text("ab", min_size=2, max_size=7).flatmap(
    lambda word: st.tuples(
        st.just(word),
        st.lists(st.sets(st.integers(1, len(word) - 1)), min_size=1, max_size=3),
        st.sets(st.integers(1, len(word) - 1)),
    )
)


@given(st.lists(segmented, min_size=1, max_size=12, unique_by=lambda one: one[0]))
def test_the_macro_scores_are_those_of_the_morfessor_library(rows):
    gold = gold_of({word: found for word, found, _ in rows})
    library = MorfessorEvaluation({word: [cut(word, a) for a in found] for word, found, _ in rows})
    predicted = {
        word: [tuple(library._segmentation_indices(cut(word, bounds)))] for word, _, bounds in rows
    }
    scores = score(gold, {word: cut(word, bounds) for word, _, bounds in rows})
    try:
        precision, recall, f1, words = library._evaluate(predicted)
    except ZeroDivisionError:  # the library has no F1 where nothing is right
        assert scores.macro_f1 == 0 or 0 in (scores.macro_precision, scores.macro_recall)
        return
    assert scores.words == words
    found = (scores.macro_precision, scores.macro_recall, scores.macro_f1)
    assert found == pytest.approx((precision, recall, f1))


@given(st.lists(segmented, min_size=1, max_size=12, unique_by=lambda one: one[0]))
def test_the_micro_scores_are_sums_over_the_best_alternatives(rows):
    hits = found = gold_sum = 0
    for _, alternatives, bounds in rows:

        def f1(one, bounds=bounds):
            return 2 * len(one & bounds) / (len(one) + len(bounds)) if one or bounds else 1.0

        ordered = sorted(alternatives, key=lambda one: (-f1(one), len(one), sorted(one)))
        hits += len(ordered[0] & bounds)
        found += len(bounds)
        gold_sum += len(ordered[0])
    gold = gold_of({word: alternatives for word, alternatives, _ in rows})
    scores = score(gold, {word: cut(word, bounds) for word, _, bounds in rows})
    assert (scores.hits, scores.found, scores.gold) == (hits, found, gold_sum)
    assert scores.precision == (hits / found if found else 1.0)
    assert scores.recall == (hits / gold_sum if gold_sum else 1.0)
    both = scores.precision + scores.recall
    if both and (found or gold_sum):
        assert scores.f1 == pytest.approx(2 * scores.precision * scores.recall / both)


def test_scores_by_hand():
    gold = gold_of({"Aktionsplan": [{7}], "Abwasser": [{2}, set()], "Haus": [set()], "a": [set()]})
    pieces = {
        "Aktionsplan": ["Aktion", "s", "plan"],
        "Abwasser": ["Abwasser"],
        "Haus": ["Ha", "us"],
        "a": ["a"],
    }
    scores = score(gold, pieces)
    assert (scores.words, scores.gold, scores.found, scores.hits) == (3, 1, 3, 1)
    assert (scores.precision, scores.recall, scores.f1) == (1 / 3, 1.0, 0.5)
    assert (scores.macro_precision, scores.macro_recall) == ((1 / 2 + 1 + 0) / 3, 1.0)


def test_no_words_have_no_scores():
    with pytest.raises(RarewordError, match="no words of two or more"):
        score(gold_of({"a": [set()]}), {"a": ["a"]})


# ---- pieces of words ----

words = st.lists(st.text("abcé𝒳", min_size=1, max_size=9), min_size=1, max_size=9)


@given(words, words)
def test_pieces_of_bpe_are_those_of_plain_python(train, test):
    learnt = oracles.learn_bpe(oracles.count_words(train), 9, 1)
    merges = [Merge(Symbol(*a), Symbol(*b), count) for (a, b), count in learnt]
    expected = []
    for word in test:
        symbols = oracles.characters(word)
        for pair, _ in learnt:
            symbols = oracles.merge_pair(symbols, pair)
        expected.append([text for text, _ in symbols])
    assert pieces_of_words(BpeSegmenter(merges), test) == expected


@given(words)
def test_pieces_of_bytes_and_others_join_to_the_word(test):
    for segmenter in (BpeSegmenter([], "bytes"), NgramSegmenter(2), WordSegmenter()):
        assert ["".join(pieces) for pieces in pieces_of_words(segmenter, test)] == test
    found = pieces_of_words(BpeSegmenter([], "bytes"), test)
    assert [boundaries.positions(pieces) for pieces in found] == [
        frozenset(range(1, len(word))) for word in test
    ]


def test_a_segmenter_is_measured():
    gold = gold_of({"abcd": [{2}], "abc": [{1}, {2}]})
    assert evaluate(NgramSegmenter(2), gold).f1 == 1.0
    assert evaluate(WordSegmenter(), gold).recall == 0.0
    characters = evaluate(NgramSegmenter(1), gold)
    assert (characters.recall, characters.precision) == (1.0, 2 / 5)


# ---- locating parts ----


@pytest.mark.parametrize(
    "expected",
    [
        "Aktions|plan < Aktion Plan",
        "Gänse|leber < Gans Leber",
        "Abdeck|plane < abdecken Plane",
        "Schul|hof < Schule Hof",
        "100-|Meter-|Lauf < 100 Meter Lauf",
        "expresse|s < express s",
        "nominat|ed < nominate ed",
        "in|compatibil|ity < in compatible ity",
        "re|tir|ing < re tire ing",
        "low|er < low er",
        "adami < adami",
    ],
)
def test_parts_are_found_in_the_word(expected):
    cut_word, parts = expected.split(" < ")
    word = cut_word.replace("|", "")
    bounds = locate(word, parts.split(" "))
    assert "|".join(cut(word, bounds)) == cut_word


@pytest.mark.parametrize(
    ("word", "parts"), [("went", ["go", "ed"]), ("has", ["have", "s"]), ("a", [""])]
)
def test_parts_that_are_not_there_are_not_found(word, parts):
    assert locate(word, parts) is None


def edits(part: str, chunk: str) -> int:
    """The edit distance, by its definition."""
    if not part or not chunk:
        return len(part) + len(chunk)
    return min(
        edits(part[1:], chunk[1:]) + (part[0] != chunk[0]),
        edits(part[1:], chunk) + 1,
        edits(part, chunk[1:]) + 1,
    )


@given(
    st.text("ab", min_size=1, max_size=6),
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_parts_lie_where_the_best_of_all_ways_puts_them(word, parts):
    ways = []
    for cuts in itertools.combinations_with_replacement(range(len(word) + 1), len(parts) - 1):
        bounds = [0, *cuts, len(word)]
        chunks = [word[a:b] for a, b in itertools.pairwise(bounds)]
        costs = [edits(part, chunk) for part, chunk in zip(parts, chunks, strict=True)]
        ways.append(((sum(costs), *costs[::-1]), frozenset(cuts) - {0, len(word)}))
    least = min(costs for costs, _ in ways)
    best = {bounds for costs, bounds in ways if costs == least}
    clear = len(best) == 1 and least[0] <= sum(map(len, parts)) // 3
    assert locate(word, parts) == (best.pop() if clear else None)


# ---- files ----


def written(path: Path, text: str, encoding: str = "utf-8") -> str:
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def test_morpho_challenge(tmp_path):
    url = written(
        tmp_path / "gold.txt",
        "abusing\tab:ab_p us:use_V ing:+PCP1\n"
        "adoptio'\tadoptio:adoptio_N ':+GEN, adopt:adopt_V io:io_N ':+GEN\n"
        "dogs\tdog:dog_N ~:+X s:+PL\n"
        "a:b\ta:a_N ::_ b:b_N\n"
        "broken\tbro:bro_N ke:ke_N\n",
    )
    gold = read_gold(url)
    assert shown(gold) == {
        "abusing": ["ab|us|ing"],
        "adoptio'": ["adopt|io|'", "adoptio|'"],
        "dogs": ["dog|s"],
        "a:b": ["a|:|b"],
    }
    assert (gold.rows, gold.skipped) == (5, {boundaries.NO_PARTS: 1})


def test_labels_are_read_as_far_as_they_are_text(tmp_path):
    url = written(
        tmp_path / "labels.txt", "abenteuerin\tabenteuer_N in\nabdrucke\tab druck_V +PL\n"
    )
    gold = read_gold(url)
    assert shown(gold) == {"abenteuerin": ["abenteuer|in"]}
    assert gold.skipped == {boundaries.NO_PARTS: 1}


def test_sigmorphon_words_and_sentences(tmp_path):
    url = written(
        tmp_path / "gold.tsv.gz",
        "nominated\tnominate @@ed\t100\nincult\tincult\t000\nwent\tgo @@ed\t100\n"
        "nominated\tnomin @@at @@ed\t100\nof course\tof course\t000\ntoo few\ttoo\t000\n",
    )
    gold = read_gold(url)
    assert shown(gold) == {
        "nominated": ["nomin|at|ed", "nominat|ed"],
        "incult": ["incult"],
        "of": ["of"],
        "course": ["course"],
    }
    assert gold.skipped == {boundaries.NO_PARTS: 1, boundaries.UNEVEN: 1}


def test_morphynet_takes_bases_apart_by_their_own_rows(tmp_path):
    url = written(
        tmp_path / "gold.tsv",
        "Gott\tgöttlich\tN\tJ\tlich\tsuffix\n"
        "göttlich\tungöttlich\tJ\tJ\tun\tprefix\n"
        "ungöttlich\tUngöttlichkeit\tJ\tN\tkeit\tsuffix\n"
        "b\ta\tN\tN\tb\tsuffix\na\tb\tN\tN\ta\tsuffix\n",
    )
    gold = read_gold(url)
    assert shown(gold) == {
        "göttlich": ["gött|lich"],
        "ungöttlich": ["un|gött|lich"],
        "Ungöttlichkeit": ["Un|gött|lich|keit"],
    }
    assert gold.skipped == {boundaries.NO_PARTS: 2}


def test_compounds_take_parts_apart_by_their_own_rows(tmp_path):
    url = written(
        tmp_path / "gold.txt",
        "compound\tmodifier1(|modifier2)\thead\n********\t****\t****\n"
        "Süßwasser\tsüß\tWasser\nSüßwassersee\tSüßwasser\tSee\n"
        "Schulhof\tSchule\tHof\nHofschulhöfe\tHof\tSchulhöfe\n"
        "Schulhofzaun\tSchulhof|schulen\tZaun\n"
        "100-Meter-Lauf\t100 Meter\tLauf\nRotkehlchen\tx\ty\n"
        "\tx\ty\n",
    )
    gold = read_gold(url)
    assert shown(gold) == {
        "Süßwasser": ["Süß|wasser"],
        "Süßwassersee": ["Süß|wasser|see"],
        "Schulhof": ["Schul|hof"],
        "Hofschulhöfe": ["Hof|schulhöfe"],
        "Schulhofzaun": ["Schul|hof|zaun", "Schulhof|zaun"],
        "100-Meter-Lauf": ["100-|Meter-|Lauf"],
    }
    assert gold.skipped == {boundaries.NO_PARTS: 1, boundaries.NO_WORD: 1}
    assert gold.rows == 8


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("a\tb\tc\n\na\tb\n", {"layout": "compounds"}, "line 3: 2 columns .* has 3"),
        ("a\tb\tN\tN\tc\tinfix\n", {}, "line 1: column 6 is 'infix'"),
        (
            "ab\ta b\nä\tä\n".encode("latin-1").decode("latin-1"),
            {"encoding": "ascii"},
            "line 2 is not ascii",
        ),
        ("a\n", {}, "lines of 1 columns"),
        ("\n", {}, "is empty"),
        ("abc\tx y\n", {}, "no line of 1 gives"),
        ("abc\tx y\n", {"encoding": "klingon"}, "no encoding 'klingon'"),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, options, says):
    url = written(tmp_path / "gold.txt", text)
    with pytest.raises(RarewordError, match=says) as caught:
        read_gold(url, **options)
    assert url in str(caught.value) or "encoding" in says


def test_another_encoding(tmp_path):
    url = written(tmp_path / "gold.txt", "tytöt\ttytö:tyttö_N t:+PL\n", "latin-1")
    assert shown(read_gold(url, encoding="latin-1")) == {"tytöt": ["tytö|t"]}
    with pytest.raises(RarewordError, match="line 1 is not utf-8"):
        read_gold(url)


def test_a_sample_is_spread_over_the_sorted_words():
    gold = gold_of({word: [set()] for word in "zyxabc"})
    assert list(gold.sample(3).words) == ["a", "c", "y"]
    assert set(gold.sample(99).words) == set(gold.words)
    with pytest.raises(RarewordError, match="1 or more"):
        gold.sample(0)


REAL = {
    "germanet18.compounds.txt.gz": ("compounds", 121_723),
    "morphochallenge2010.eng.segmentation.txt": ("morpho-challenge", 1686),
    "morphynet.deu.derivational.tsv.gz": ("morphynet", 28_372),
    "sigmorphon2022.ces.word.dev.tsv": ("sigmorphon", 4000),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_lose_only_what_is_counted(shared_data, name):
    url = str(shared_data / "morph" / name)
    gold = read_gold(url)
    layout, words = REAL[name]
    assert gold.words == read_gold(url, layout).words
    assert len(gold.words) == words
    assert sum(gold.skipped.values()) <= 0.02 * gold.rows
    assert all(
        0 < x < len(word) for word, found in gold.words.items() for one in found for x in one
    )
