"""tokenizer.json: the tokenizers library gives the pieces and ids that rareword gives."""

import collections
import itertools
import json
import random

import numpy as np
import oracles
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sharded
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary
from rareword.transforms import huggingface, rounds, segmenters, segmenting
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.rounds import Control, Rules
from rareword.transforms.segmenters import VocabularyRules

REAL_LINES = 10_000
UNITS = ("characters", "bytes")


def load(value: dict) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(value))


def learn(lines: list[str], merges: int, is_bytes: bool = False) -> list[Merge]:
    counter = oracles.count_words(lines)
    words, counts = pa.array(list(counter), pa.string()), np.array(list(counter.values()), np.int64)
    if is_bytes:
        words = pa.array([word.encode().decode("latin-1") for word in counter], pa.string())
    states = sharded.shards_of(words, counts, 1)
    control = sharded.learn(states, Rules(merges, 1, rounds.ONE_ROUND), Control())
    return rounds.to_merges(control.merges)


def vocabulary_of(segmenter: segmenters.Segmenter, lines: list[str], **rules: int) -> Vocabulary:
    counter = oracles.count_words(lines)
    words, counts = pa.array(list(counter), pa.string()), np.array(list(counter.values()), np.int64)
    both = dict.fromkeys(("source", "target"), segmenter)
    table = segmenting.count_pieces(words, dict.fromkeys(both, counts), both)
    table = segmenting.with_possible_pieces(table, both)
    return segmenters.build_vocabularies(table, VocabularyRules(True, **rules)).source


def encode(
    segmenter: segmenters.Segmenter, vocabulary: Vocabulary, lines: list[str]
) -> list[list[int]]:
    found = segmenter.encoder(vocabulary).encode(pa.array(lines, pa.string()))
    return [found.ids[a:b].tolist() for a, b in itertools.pairwise(found.offsets.tolist())]


def check_bpe(train: list[str], test: list[str], merges: int, units: str) -> None:
    segmenter = BpeSegmenter(learn(train, merges, units == "bytes"), units)
    vocabulary = vocabulary_of(segmenter, train)
    exported = huggingface.from_bpe(segmenter.merges, vocabulary, units == "bytes")
    peer = load(exported)
    ours = encode(segmenter, vocabulary, test)
    theirs = peer.encode_batch(test, add_special_tokens=False)
    assert [found.ids for found in theirs] == ours
    for text, ids in zip(test, ours, strict=True):
        if UNK not in ids:
            plain = " ".join(oracles.split_words(text))
            assert vocabulary.words(ids) == plain
            if "</w>" not in text:
                assert peer.decode(ids) == plain


# ---- BPE ----

word_text = st.text(st.characters(codec="utf-8"), max_size=12)
line = st.one_of(st.text("aab<>/wé😀 ", max_size=20), word_text)
lines = st.lists(line, min_size=1, max_size=8)


@pytest.mark.parametrize("units", UNITS)
@given(lines, lines)
@settings(deadline=None)
def test_bpe_has_the_same_ids_and_text_in_tokenizers(units, train, test):
    if units == "characters" and any("</w>" in text for text in train):
        return
    check_bpe(train, [*train, *test], 15, units)


@pytest.mark.parametrize("units", UNITS)
def test_bpe_of_made_up_text_has_the_same_ids_in_tokenizers(units):
    draw = random.Random(1)
    stems = ["".join(draw.choices("abcdeiou", k=draw.randint(1, 6))) for _ in range(80)]
    text = [
        " ".join(draw.choice(stems) + draw.choice(stems) for _ in range(draw.randint(0, 9)))
        for _ in range(600)
    ]
    odd = ["", " ", "  a  b ", "</s> <unk> <pad>", "aж жж ж", "\t\n", "a</w>", "Ġ Ġa ▁a", "é\u0301"]
    check_bpe(text[:400], [*text, *odd], 500, units)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("units", UNITS)
def test_bpe_of_real_text_has_the_same_ids_in_tokenizers(shared_data, units, side):
    corpus = shared_data / "catalog" / "ende.train.parquet"
    text = pq.read_table(corpus, columns=[side])[side].to_pylist()
    test = text[-REAL_LINES:]
    assert len(test) == REAL_LINES
    train = [t for t in text[:40_000] if "</w>" not in t]
    check_bpe(train, test, 8000, units)


# ---- WordPiece ----


def longest_match(word: str, initial: set[str], continuing: set[str], most: int) -> list[str]:
    """WordPiece as its authors describe it: the longest piece that fits, again and again."""
    pieces: list[str] = []
    at = 0
    while at < len(word) and len(word) <= most:
        known, mark = (continuing, "##") if at else (initial, "")
        ends = [end for end in range(len(word), at, -1) if word[at:end] in known]
        if not ends:
            break
        pieces.append(mark + word[at : ends[0]])
        at = ends[0]
    return pieces if at == len(word) else ["<unk>"]


def check_wordpiece(initial: set[str], continuing: set[str], most: int, words: list[str]) -> None:
    peer = load(huggingface.from_wordpiece(sorted(initial), sorted(continuing), most))
    found = peer.encode(" ".join(words), add_special_tokens=False)
    pieces = [longest_match(word, initial, continuing, most) for word in words]
    assert found.tokens == list(itertools.chain(*pieces))
    names = [*(special.text for special in SPECIALS), *sorted(initial)]
    names += ["##" + piece for piece in sorted(continuing)]
    assert [names[i] for i in found.ids] == found.tokens
    if UNK not in found.ids:
        assert peer.decode(found.ids) == " ".join(words)


pieces = st.sets(st.text("abc#▁é", min_size=1, max_size=3), max_size=12)
words = st.lists(
    st.text("abc#▁éd", min_size=1, max_size=9).filter(lambda word: not word.startswith("##")),
    max_size=6,
)


@given(pieces, pieces, st.integers(1, 9), words)
@settings(deadline=None)
def test_wordpiece_has_the_same_pieces_in_tokenizers(initial, continuing, most, words):
    initial = {piece for piece in initial if not piece.startswith("##")}
    check_wordpiece(initial, continuing, most, words)


def test_wordpiece_of_real_text_has_the_same_pieces_in_tokenizers(shared_data):
    corpus = shared_data / "catalog" / "ende.train.parquet"
    text = pq.read_table(corpus, columns=["target"])["target"].to_pylist()
    counter = oracles.count_words(text[:20_000])
    beginnings = collections.Counter()
    endings = collections.Counter()
    for word, count in counter.items():
        for size in range(1, 7):
            beginnings[word[:size]] += count
            for at in range(1, len(word)):
                endings[word[at : at + size]] += count
    initial = {p for p, _ in beginnings.most_common(6000) if not p.startswith("##")}
    continuing = {p for p, _ in endings.most_common(6000)}
    test = text[-REAL_LINES:]
    check_wordpiece(initial, continuing, 100, oracles.split_words(" ".join(test)))


# ---- unigram ----


def unigram_model(tmp_path, train: list[str], size: int):
    """A model that the sentencepiece library learns from words, and its pieces."""
    import sentencepiece

    table = tmp_path / "words.tsv"
    counter = oracles.count_words(train)
    table.write_text("".join(f"{word}\t{n}\n" for word, n in counter.items()), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(table), input_format="tsv", model_prefix=str(tmp_path / "unigram"),
        model_type="unigram", vocab_size=size, character_coverage=1.0, hard_vocab_limit=False,
        normalization_rule_name="identity", add_dummy_prefix=False, minloglevel=2,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(str(tmp_path / "unigram.model"))
    scored = [
        (model.id_to_piece(i), model.get_score(i))
        for i in range(len(model))
        if not model.is_control(i) and not model.is_unknown(i)
    ]
    return model, scored


def check_unigram(tmp_path, train: list[str], test: list[str], size: int) -> None:
    model, scored = unigram_model(tmp_path, train, size)
    peer = load(huggingface.from_unigram(scored))
    names = [*(special.text for special in SPECIALS), *(piece for piece, _ in scored)]
    for text in test:
        expected = [
            p for word in oracles.split_words(text) for p in model.encode(word, out_type=str)
        ]
        found = peer.encode(text, add_special_tokens=False)
        assert found.tokens == expected, text
        assert all(names[i] in ("<unk>", p) for i, p in zip(found.ids, found.tokens, strict=True))
        if UNK not in found.ids:
            assert peer.decode(found.ids) == "".join(oracles.split_words(text))


def test_unigram_of_made_up_text_has_the_same_pieces_in_tokenizers(tmp_path):
    draw = random.Random(2)
    stems = ["".join(draw.choices("abcdeiou", k=draw.randint(1, 6))) for _ in range(60)]
    text = [
        " ".join(draw.choice(stems) + draw.choice(stems) for _ in range(draw.randint(0, 9)))
        for _ in range(600)
    ]
    odd = ["", " ", "  a  b ", "aж жж ж", "<pad> </s>", "ae\t\n", "é\u0301"]
    train = [*text[:400], *["< u n k > < p a d > < / s >"] * 40]
    check_unigram(tmp_path, train, [*text, *odd], 300)


def test_unigram_of_real_text_has_the_same_pieces_in_tokenizers(tmp_path, shared_data):
    corpus = shared_data / "catalog" / "ende.train.parquet"
    text = pq.read_table(corpus, columns=["target"])["target"].to_pylist()
    check_unigram(tmp_path, text[:20_000], text[-REAL_LINES:], 4000)


def test_where_a_format_reads_the_name_of_another_piece():
    """What the docstrings of `from_wordpiece` and `from_unigram` warn of, and BPE does not do."""
    assert load(huggingface.from_wordpiece(["<"], ["/", "s", ">"], 9)).encode("</s>").ids == [2]
    value = huggingface.from_wordpiece(["#"], ["#", "a"], 9)
    assert load(value).encode("#a ##a").tokens == ["#", "##a", "##a"]
    letters = [(letter, -2.0) for letter in "</s>"]
    assert load(huggingface.from_unigram(letters)).encode("</s>").ids == [3, 4, 5, 6]
    assert load(huggingface.from_unigram(letters[1:])).encode("</s>").ids == [2]
    segmenter = BpeSegmenter([])
    vocabulary = vocabulary_of(segmenter, ["/s"])
    peer = load(huggingface.from_bpe([], vocabulary, False))
    assert peer.encode("</s>").ids == encode(segmenter, vocabulary, ["</s>"])[0]
    assert peer.encode("</s>").ids.count(UNK) == 2


# ---- refusals ----


def plain_vocabulary(*pieces: tuple[str, bool], is_bytes: list[bool] | None = None) -> Vocabulary:
    texts = [special.text for special in SPECIALS] + [text for text, _ in pieces]
    final = [True] * len(SPECIALS) + [final for _, final in pieces]
    none = [0] * len(texts)
    flags = [False] * len(SPECIALS) + is_bytes if is_bytes else ()
    return Vocabulary(texts, final, none, none, flags)


def merge(left: str, right: str) -> Merge:
    """A merge of two symbols, `_` behind what ends a word."""
    symbols = (Symbol(text.removesuffix("_"), text.endswith("_")) for text in (left, right))
    return Merge(*symbols, 1)


LETTERS = [(letter, final) for letter in "abc" for final in (False, True)]


@pytest.mark.parametrize(
    ("merges", "pieces", "says"),
    [
        ([], [("x</w>y", False)], "'x</w>y' holds the text </w>"),
        ([], [("<unk>", False)], "'<unk>' would have the name '<unk>' of piece 1"),
        ([merge("a", "b")], [], "merge 'a' + 'b' makes a piece without an id"),
        ([merge("a", "ж_")], [], "merge 'a' + 'ж' \\(final\\) makes a piece without an id"),
        (
            [merge("ab", "a"), merge("a", "b")],
            [("ab", False), ("aba", False)],
            "merge 'ab' \\+ 'a' stands before 'a' \\+ 'b'",
        ),
    ],
)
def test_bpe_that_the_format_cannot_express_is_refused(merges, pieces, says):
    with pytest.raises(RarewordError, match=says.replace("' + '", "' \\+ '")):
        huggingface.from_bpe(merges, plain_vocabulary(*LETTERS, *pieces), False)


def test_why_merges_out_of_order_are_refused():
    merges = [merge("ab", "a"), merge("a", "b"), merge("ab", "ab")]
    vocabulary = plain_vocabulary(*LETTERS, ("ab", False), ("aba", False), ("abab", False))
    value = huggingface.from_bpe(merges[1:], vocabulary, False)
    value["model"]["merges"].insert(0, ["ab", "a"])
    ours = encode(BpeSegmenter(merges), vocabulary, ["ababc"])[0]
    assert load(value).encode("ababc").ids != ours


def test_merges_that_never_apply_are_left_out():
    merges = [merge("a", "b"), merge("a_", "b"), merge("xy", "c"), merge("a", " "), merge("a", "b")]
    vocabulary = plain_vocabulary(*LETTERS, ("ab", False))
    value = huggingface.from_bpe(merges, vocabulary, False)
    assert value["model"]["merges"] == [["a", "b"]]
    assert (
        load(value).encode("abc ab").ids == encode(BpeSegmenter(merges), vocabulary, ["abc ab"])[0]
    )


def test_bytes_beside_characters_are_refused():
    vocabulary = plain_vocabulary(("a", True), ("\xc3", False), is_bytes=[False, True])
    for is_bytes in (False, True):
        with pytest.raises(RarewordError, match="byte fallback"):
            huggingface.from_bpe([], vocabulary, is_bytes)


@pytest.mark.parametrize(
    ("initial", "continuing", "says"),
    [
        (["##a"], [], "'##a' begins a word with ##"),
        (["<pad>"], [], "'<pad>' is there twice, or has the name of a special piece"),
        (["a", "a"], [], "'a' is there twice"),
        ([], ["b", "b"], "'##b' is there twice"),
    ],
)
def test_wordpiece_that_the_format_cannot_express_is_refused(initial, continuing, says):
    with pytest.raises(RarewordError, match=says):
        huggingface.from_wordpiece(initial, continuing, 100)


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        (["</s>"], "'</s>' is there twice, or has the name"),
        (["a", "ab"], "'ab' holds 'b', which is no piece itself"),
        (["a", "a"], "'a' is there twice"),
    ],
)
def test_unigram_that_the_format_cannot_express_is_refused(pieces, says):
    with pytest.raises(RarewordError, match=says):
        huggingface.from_unigram([(piece, -1.0) for piece in pieces])
