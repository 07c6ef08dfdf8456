"""Unigram LM and raw-text segmentation against the sentencepiece library and plain code."""

import collections
import io
import itertools
import json
import math
import re
import struct
import sys
from collections.abc import Iterable

import numpy as np
import oracles
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rareword import transforms
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Symbol
from rareword.schemas.vocabulary import UNK, Vocabulary
from rareword.transforms import segmenters
from rareword.transforms import sentencepiece_models as models
from rareword.transforms.sentencepieces import SentencePieceSegmenter
from rareword.transforms.unigram import UNKNOWN_PENALTY, UnigramSegmenter

own = st.sampled_from("\u2581\u2585\x00\t\n\r\x1f\U0010ff00\U0010ff20\U0010ff22\u2047\ufffd\ufeff")
texts = st.sampled_from(["<unk>", "<0x41>", "e\u0301", "\U0001f600", "##", "@@", "</w>"])
letters = st.sampled_from("aabcé")
any_character = st.characters(exclude_categories=["Cs"])
word = st.lists(
    own | texts | letters | any_character.filter(lambda c: c != " "), min_size=1, max_size=8
).map("".join)
word_counts = st.dictionaries(word, st.integers(1, 9), max_size=8).map(
    lambda counter: {"ab": 3, **counter}
)
line = st.lists(
    own | texts | letters | any_character | st.sampled_from([" ", "  "]), max_size=20
).map("".join)
lines = st.lists(line, max_size=4)


def columns(counter: dict[str, int]) -> tuple[pa.Array, np.ndarray]:
    return pa.array(list(counter), pa.string()), np.array(list(counter.values()), np.int64)


def unigram(counter: dict[str, int], more: int = 8) -> UnigramSegmenter:
    size = len(set("".join(counter))) + more
    return UnigramSegmenter.learn(*columns(counter), pieces=size)


def raw(text: list[str], more: int = 20, **options: str) -> SentencePieceSegmenter:
    size = 256 + len(set("".join(text))) + more
    return SentencePieceSegmenter.learn_text(text, pieces=size, **options)


def with_pieces(probabilities: dict[str, float]) -> bytes:
    """A unigram model of given pieces and U+4E00. A model file is a protocol buffer, to which more
    pieces can be appended: field 1, with their text in its field 1 and their score in its field 2.
    """
    model = models.learn_model({"\u4e00": 1}, pieces=1)
    for piece, probability in probabilities.items():
        text = piece.encode()
        fields = b"\x0a" + bytes([len(text)]) + text
        fields += b"\x15" + struct.pack("<f", math.log(probability))
        model += b"\x0a" + bytes([len(fields)]) + fields
    return model


def rows(encoded: segmenters.Encoded) -> list[list[int]]:
    return [encoded.ids[a:b].tolist() for a, b in itertools.pairwise(encoded.offsets.tolist())]


def vocabulary_of(counted: pa.Table, **rules: int) -> Vocabulary:
    columns = counted.to_pydict()
    table = pa.table(
        {
            **{name: columns[name] for name in ("piece", "final", "bytes")},
            "source_count": columns["count"],
            "target_count": [0] * counted.num_rows,
        },
        schema=segmenters.PIECE_COUNTS,
    )
    return segmenters.build_vocabularies(table, segmenters.VocabularyRules(True, **rules)).source


# ---- characters of the library's own ----


@given(line)
@example("\u2581 \U0010ff20 \U0010ff22")
def test_protected_text_holds_nothing_of_the_librarys_own_and_comes_back(text):
    protected = models.protect(text)
    assert not set(protected) & {*map(chr, range(32)), "\u2581", "\u2585"}
    assert len(protected) == len(text)
    private = {chr(0x10FF00 + number) for number in range(35)}
    for before, after in zip(text, protected.replace(" ", "\u2581"), strict=True):
        assert models.text_of(after) == before or before in private


@given(lines, st.integers(0, 3), st.sampled_from([pa.string(), pa.large_string()]))
def test_rows_that_are_not_odd_are_protected_already(text, start, kind):
    array = pa.array([*text, None], kind)[start:]
    odd = models.odd_rows(array)
    for row, string in enumerate(array.to_pylist()):
        if row not in odd:
            assert models.protect(string or "") == (string or "")
        elif string is None or string.isascii():
            assert models.protect(string) != string


# ---- learning ----


def slow_seeds(counter: dict[str, int], longest: int) -> list[tuple[str, int]]:
    sums: collections.Counter[str] = collections.Counter()
    for text, count in counter.items():
        for i, j in itertools.combinations(range(len(text) + 1), 2):
            sums[text[i:j]] += count
    longer = collections.Counter()
    for piece, count in sums.items():
        if len(piece) <= longest:
            for part in (piece[1:], piece[:-1]):
                longer[part] = max(longer[part], count)
    return sorted(
        (
            (piece, count)
            for piece, count in sums.items()
            if 2 <= len(piece) <= longest and count >= 2 and longer[piece] < count
        ),
        key=lambda row: (-row[1] * len(row[0]), row[0]),
    )


@given(
    st.dictionaries(st.text("ab\U0001f600", min_size=1, max_size=9), st.integers(1, 4), min_size=1),
    st.integers(2, 6),
)
def test_seeds_are_the_repeated_substrings_that_no_longer_one_stands_for(counter, longest):
    assert models.seed_pieces(list(counter.items()), longest) == slow_seeds(counter, longest)


def by_the_library(text: Iterable[str], pieces: int, **options: object) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, vocab_size=pieces + 1,
        normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False,
        character_coverage=1.0, hard_vocab_limit=False, num_threads=1, minloglevel=2,
        split_by_unicode_script=False, split_by_number=False, unk_piece="\x01",
        unk_id=0, bos_id=-1, eos_id=-1, pad_id=-1, **options,
    )  # fmt: skip
    return model.getvalue()


def scores(model: bytes) -> list[tuple[str, float]]:
    processor = models.load_model(model, "the model")
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor))]


@given(
    st.dictionaries(st.text("abcé", min_size=1, max_size=6), st.integers(1, 30), min_size=2),
    st.integers(1, 12),
    st.randoms(),
)
@settings(max_examples=40)
def test_counts_weigh_as_much_as_the_text_written_out(tmp_path_factory, counter, more, random):
    pieces = len(set("".join(counter))) + more
    seeds = tmp_path_factory.mktemp("seeds") / "seeds.tsv"
    table = "".join(f"{piece}\t{count}\n" for piece, count in slow_seeds(counter, 16))
    seeds.write_text(table, "utf-8")
    text = [word for word, count in sorted(counter.items()) for _ in range(count)]
    expected = by_the_library(text, pieces, seed_sentencepieces_file=str(seeds))
    shuffled = random.sample(list(counter.items()), len(counter))
    assert scores(models.learn_model(dict(shuffled), pieces=pieces)) == scores(expected)


@given(word_counts, st.randoms())
@settings(max_examples=30)
def test_order_and_shards_of_the_words_do_not_matter(counter, random):
    split = [(word, 1) for word, count in counter.items() for _ in range(count)]
    random.shuffle(split)
    words, counts = zip(*split, strict=True)
    size = len(set("".join(counter))) + 5
    one = UnigramSegmenter.learn(*columns(counter), pieces=size)
    other = UnigramSegmenter.learn(pa.array(words), np.array(counts), pieces=size)
    assert one.model == other.model


def test_very_frequent_words_are_pieces_however_often_they_occur():
    # google/sentencepiece#359, #967: with counts in a table frequent short words end as letters.
    for often in (100, 2**31, 2**45):
        learnt = unigram({"hello": often, "help": 5, "he": often, "yelp": 7}, more=20)
        assert learnt.cut(["hello", "he"]) == [["hello"], ["he"]]


def test_a_long_word_and_the_librarys_own_characters_are_learnt_from():
    counter = {"x" * 70_000: 3, "a\u2585b": 9, "\x00\t": 9, "\u2581\u2581": 9, "a\nb": 9}
    learnt = unigram(counter, more=12)
    for text in ("a\u2585b", "\x00\t", "\u2581\u2581", "a\nb"):
        assert learnt.cut([text]) == [[text]]
    assert "".join(learnt.cut(["x" * 70_000])[0]) == "x" * 70_000


def test_too_few_pieces_and_empty_text_are_refused():
    with pytest.raises(RarewordError, match="3 pieces are too few for the 4 characters"):
        UnigramSegmenter.learn(*columns({"abcd": 1}), pieces=3)
    with pytest.raises(RarewordError, match="258 characters and bytes"):
        SentencePieceSegmenter.learn_text(["ab"], pieces=257)
    with pytest.raises(RarewordError, match="no text"):
        UnigramSegmenter.learn(*columns({}), pieces=3)


def test_a_missing_library_is_a_sentence_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    for module in ("unigram", "sentencepiece_models"):
        monkeypatch.delitem(sys.modules, f"rareword.transforms.{module}")
        monkeypatch.delattr(transforms, module)
    with pytest.raises(RarewordError, match=r"pip install 'rareword\[segmenters\]'"):
        segmenters.class_of("unigram", "here")


def test_a_damaged_model_is_named():
    with pytest.raises(RarewordError, match=r"x\.model is damaged"):
        UnigramSegmenter(b"\x07nothing", "x.model")


# ---- unigram: the best, the n best, and random segmentations ----


def all_cuts(text: str) -> list[tuple[str, ...]]:
    inner = range(1, len(text))
    return [
        tuple(text[i:j] for i, j in itertools.pairwise([0, *cuts, len(text)]))
        for n in range(len(text))
        for cuts in itertools.combinations(inner, n)
    ]


CATS = {
    "c": 0.02, "a": 0.04, "t": 0.03, "s": 0.05, "ca": 0.002, "at": 0.0015, "ts": 0.0004,
    "cat": 0.003, "ats": 0.00005, "cats": 0.0001,
}  # fmt: skip


def test_the_worked_example_has_its_printed_values():
    # Lecture notes, "Segment cats by bottom-up DP": the best cut of each part of the word.
    segmenter = UnigramSegmenter(with_pieces(CATS))
    printed = {
        "ca": (["ca"], 0.002),
        "at": (["at"], 0.0015),
        "ts": (["t", "s"], 0.0015),
        "cat": (["cat"], 0.003),
        "ats": (["at", "s"], 0.000075),
        "cats": (["cat", "s"], 1.5e-4),
    }
    for text, (pieces, probability) in printed.items():
        assert segmenter.cut([text]) == [pieces]
        assert math.exp(segmenter.log_probability(pieces)) == pytest.approx(probability, rel=1e-5)
    by_hand = sorted(
        ((math.prod(CATS[p] for p in cut), list(cut)) for cut in all_cuts("cats")), reverse=True
    )
    assert segmenter.n_best("cats", 8) == [cut for _, cut in by_hand]
    assert segmenter.n_best("cats", 512) == segmenter.n_best("cats", 8)
    for n in (0, 513):
        with pytest.raises(RarewordError, match=f"{n} segmentations of a word cannot be listed"):
            segmenter.n_best("cats", n)


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(0.001, 0.2), min_size=2),
    st.text("abcd", min_size=1, max_size=7),
)
@settings(max_examples=60)
def test_the_best_segmentation_is_the_most_probable_of_all(probabilities, text):
    segmenter = UnigramSegmenter(with_pieces({"c": 0.1, **probabilities}))
    known = segmenter.log_probabilities
    possible = [
        cut for cut in all_cuts(text) if all(piece in known or len(piece) == 1 for piece in cut)
    ]
    found = segmenter.cut([text])[0]
    assert tuple(found) in possible
    best = max(map(segmenter.log_probability, possible))
    assert segmenter.log_probability(found) == pytest.approx(best, abs=1e-4)
    three = [segmenter.log_probability(cut) for cut in segmenter.n_best(text, 3)]
    expected = sorted(map(segmenter.log_probability, possible), reverse=True)[:3]
    assert three == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 2.0])
def test_samples_come_as_often_as_their_probability_says(alpha):
    segmenter = UnigramSegmenter(with_pieces(CATS))
    draws = 20_000
    counts = collections.Counter(map(tuple, segmenter.sample(["cats"] * draws, alpha, seed=7)))
    weights = {cut: math.prod(CATS[p] for p in cut) ** alpha for cut in all_cuts("cats")}
    for cut, weight in weights.items():
        expected = draws * weight / sum(weights.values())
        assert abs(counts[cut] - expected) <= 5 * math.sqrt(expected) + 3, cut


@given(word_counts, st.lists(word, max_size=4), st.floats(0, 3), st.integers(0, 2**32))
@settings(max_examples=30)
def test_samples_are_a_function_of_the_seed_and_give_their_words(counter, words, alpha, seed):
    segmenter = unigram(counter)
    found = segmenter.sample(words, alpha, seed)
    segmenter.sample(words, 1.0, seed + 1)
    assert segmenter.sample(words, alpha, seed) == found
    assert ["".join(pieces) for pieces in found] == words


def test_an_unknown_character_is_cut_off_by_itself():
    segmenter = UnigramSegmenter(with_pieces(CATS))
    assert segmenter.cut(["catжжs"]) == [["cat", "ж", "ж", "s"]]
    assert segmenter.n_best("catжж", 1) == [["cat", "ж", "ж"]]
    unknown = math.log(min(CATS.values())) - UNKNOWN_PENALTY
    assert segmenter.log_probability(["ж"]) == pytest.approx(unknown, abs=1e-5)


@given(word_counts, lines)
@settings(max_examples=60)
def test_any_text_comes_back_from_words_but_for_unknown_characters(counter, test):
    segmenter = unigram(counter)
    vocabulary = vocabulary_of(segmenter.count_pieces(*columns(counter)))
    known = set("".join(counter))  # the vocabulary has all, those that the model leaves out too
    text = [*counter, *test]
    encoded = segmenter.encoder(vocabulary).encode(pa.array(text, pa.string()))
    for string, ids in zip(text, rows(encoded), strict=True):
        words = oracles.split_words(string)
        assert ids.count(UNK) == sum(c not in known for w in words for c in w)
        if UNK not in ids:
            assert vocabulary.words(ids) == " ".join(words)
    assert encoded.words.tolist() == [len(oracles.split_words(string)) for string in text]


# ---- raw text ----


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_lines_are_learnt_from_as_the_library_does(tmp_path, model_type):
    text = ["the low  lower lowest", " the newest", "the wider the new ", "low low"] * 9
    options = {"model_type": model_type, "byte_fallback": True}
    if model_type == "unigram":
        parts = [part for line in text for part in re.findall("^[^ ]+| [^ ]*", line)]
        seeds = slow_seeds(collections.Counter(parts), 16)
        table = "".join(f"{piece}\t{count}\n".replace(" ", "\u2581") for piece, count in seeds)
        (tmp_path / "seeds").write_text(table, "utf-8")
        options["seed_sentencepieces_file"] = str(tmp_path / "seeds")
    found = SentencePieceSegmenter.learn_text(text, pieces=256 + 30, model_type=model_type)
    assert scores(found.model) == scores(by_the_library(text, 256 + 30, **options))


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@given(train=lines, test=lines)
@settings(max_examples=40)
@example(train=["<0x41> <0x41>", "\u2581the"], test=["A<0x41>", " \u2581 "])
@example(train=["a"], test=["", " ", "  a  a ", "\x00", "\r\n", "\ufeff", "<unk></s>"])
def test_any_line_comes_back_exactly(model_type, train, test):
    segmenter = raw(["a b", *train], model_type=model_type)
    text = [*train, *test]
    array = pa.array([*text, None], pa.string())
    vocabulary = vocabulary_of(segmenter.count_lines(pa.array(["a b", *train], pa.string())))
    encoded = segmenter.encoder(vocabulary).encode(array)
    assert vocabulary.is_raw
    assert UNK not in encoded.ids
    assert [vocabulary.words(ids) for ids in rows(encoded)] == [*text, ""]
    assert encoded.words.tolist() == [len(oracles.split_words(s)) for s in [*text, ""]]


@given(lines)
@settings(max_examples=30)
def test_counted_lines_give_the_pieces_that_are_cut(train):
    segmenter = raw(["a b", *train])
    counted = segmenter.count_lines(pa.array(train, pa.string()))
    vocabulary = vocabulary_of(counted)
    encoded = segmenter.encoder(vocabulary).encode(pa.array(train, pa.string()))
    counts = np.bincount(encoded.ids, minlength=len(vocabulary))
    assert counts.tolist() == list(vocabulary.source_counts)
    possible = segmenter.possible_pieces(set()).to_pydict()
    assert possible["piece"] == counted["piece"].to_pylist()
    assert set(possible["count"]) == {0}
    assert sum(possible["bytes"]) == 256


def test_a_piece_without_an_id_goes_by_characters_and_those_by_bytes():
    segmenter = raw(["the thé the thé"] * 9)
    pieces = [p.text for p in segmenter.pieces if len(p.text) > 1]
    assert " the" in pieces
    characters = [*"te ", *(chr(byte) for byte in "hé".encode())]
    pieces, is_bytes = ["", "", "", *characters], [False] * 6 + [True] * 3
    none = [0] * len(pieces)
    vocabulary = Vocabulary(pieces, [True] * 3 + [False] * 6, none, none, is_bytes)
    ids = rows(segmenter.encoder(vocabulary).encode(pa.array([" the thé"])))[0]
    assert vocabulary.words(ids) == " the thé"
    assert vocabulary.texts(ids) == [*" the th", "", "é"]
    small = Vocabulary(pieces[:-1], [True] * 3 + [False] * 5, none[:-1], none[:-1], is_bytes[:-1])
    ids = rows(segmenter.encoder(small).encode(pa.array(["thé"])))[0]
    assert ids.count(UNK) == 1


def test_a_word_table_cannot_count_pieces_of_raw_text():
    with pytest.raises(RarewordError, match="count them in the corpus"):
        raw(["a b"]).count_pieces(*columns({"a": 1}))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_matter(threads):
    text = ["the low lower", "newest wider", ""] * 50
    segmenter = raw(text)
    vocabulary = vocabulary_of(segmenter.count_lines(pa.array(text)))
    encoded = segmenter.encoder(vocabulary).encode(pa.array(text), threads)
    assert [vocabulary.words(ids) for ids in rows(encoded)] == text


# ---- on disk, and on real text ----


def test_saved_segmenters_are_loaded_again():
    made = {"unigram": unigram({"low": 5, "lower": 2, "\u2581": 1}), "sentencepiece": raw(["a b"])}
    for kind, segmenter in made.items():
        both = {
            "source": segmenter,
            "target": unigram({"x": 1}) if kind == "unigram" else raw(["x"]),
        }
        records = segmenters.save(both, f"memory://{kind}")
        assert [("source" in r.name, "target" in r.name) for r in records] == [(1, 0), (0, 1)]
        for record in records:
            assert storage.sha256(f"memory://{kind}/{record.name}") == record.checksum
        stored = json.loads(json.dumps(segmenters.settings(both)))
        loaded = segmenters.load(f"memory://{kind}", kind, stored)
        assert {side: one.model for side, one in loaded.items()} == {
            side: one.model for side, one in both.items()
        }


def messy(shared_data) -> list[str]:
    found = []
    for path in sorted((shared_data / "messy").glob("*.jsonl")):
        for row in map(json.loads, filter(None, path.read_text("utf-8").split("\n")[:60])):
            found += [row["source"] or "", row["target"] or ""]
    return found


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_messy_text_comes_back_exactly(shared_data, model_type):
    text = messy(shared_data)
    train = text[::3]
    segmenter = raw(train, more=500, model_type=model_type)
    vocabulary = vocabulary_of(segmenter.count_lines(pa.array(train)))
    encoded = segmenter.encoder(vocabulary).encode(pa.array(text))
    assert [vocabulary.words(ids) for ids in rows(encoded)] == text


def test_words_of_messy_text_come_back(shared_data):
    text = messy(shared_data)
    counter = oracles.count_words(text)
    segmenter = unigram(counter, more=500)
    vocabulary = vocabulary_of(segmenter.count_pieces(*columns(counter)))
    encoded = segmenter.encoder(vocabulary).encode(pa.array(text))
    assert UNK not in encoded.ids
    expected = [" ".join(oracles.split_words(string)) for string in text]
    assert [vocabulary.words(ids) for ids in rows(encoded)] == expected
    finals = {Symbol(word, True) for word in counter}
    assert finals & set(map(Symbol, vocabulary.pieces, vocabulary.final))


@pytest.mark.parametrize(
    "name", ["catalog/ende.test", "catalog/enru.test", "catalog-other/enja.dev"]
)
def test_raw_text_of_real_corpora_comes_back_exactly(shared_data, name):
    table = pq.read_table(shared_data / f"{name}.parquet")
    text = [*table["source"].to_pylist(), *table["target"].to_pylist()]
    segmenter = raw(text[::2], more=1000, model_type="bpe")
    vocabulary = vocabulary_of(segmenter.count_lines(pa.array(text[::2])))
    encoded = segmenter.encoder(vocabulary).encode(pa.array(text))
    assert [vocabulary.words(ids) for ids in rows(encoded)] == text
