"""Any text comes back from its pieces."""

import itertools

import oracles
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary
from rareword.transforms.bpe import BpeSegmenter

any_character = st.characters(exclude_categories=["Cs"])
marks = st.sampled_from(["</w>", "@@", "@@ ", "##", "\u2581", "\uffed", "<unk>", "</s>", " ", "  "])
odd = st.sampled_from(
    "\x00\t\n\r\x0b\x1c\x85\xa0\u2028\u3000\u200b\u200d\ufeff\u0301\u064e\U0010ffff"
)
line = st.lists(any_character | marks | odd | st.sampled_from("ab"), max_size=25).map("".join)
lines = st.lists(line, max_size=5)


def segmenter_and_vocabulary(train: list[str], limit: int) -> tuple[BpeSegmenter, Vocabulary]:
    learnt = [
        Merge(Symbol(*left), Symbol(*right), count)
        for (left, right), count in oracles.learn_bpe(oracles.count_words(train), limit, 1)
    ]
    characters = {c for text in train for c in text if c != " "}
    pieces = sorted({Symbol(c, final) for c in characters for final in (False, True)})
    # The text `<unk>` is a piece of its own beside the special one.
    pieces = [*SPECIALS, *dict.fromkeys([*pieces, *(merge.result for merge in learnt)])]
    counts = [0] * len(pieces)
    texts, final = [piece.text for piece in pieces], [piece.final for piece in pieces]
    return BpeSegmenter(learnt), Vocabulary(texts, final, counts, counts)


@given(lines, lines, st.integers(0, 20), st.integers(1, 3))
@example(["</w> a</w> </w>a"] * 2, [], 9, 1)
@example(["\x00\x00 \x00"] * 3, ["\x00 \x00\x00"], 9, 2)
@example(["\u0301 \u0301\u0301", "e\u0301"], [], 9, 1)
@example(["@@ a@@ @@a a@@b"] * 2, ["a@@ b"], 9, 1)
@example(["100\xa0000\xa0000"] * 2, ["\xa0 000"], 9, 1)
@example(["<unk> </s>"], ["<unk>"], 9, 1)
def test_any_text_comes_back_from_its_pieces(train, test, merges, threads):
    segmenter, vocabulary = segmenter_and_vocabulary(train, merges)
    encoded = segmenter.encoder(vocabulary).encode(pa.array([*train, *test], pa.string()), threads)
    known = {c for text in train for c in text if c != " "}
    spans = list(itertools.pairwise(encoded.offsets.tolist()))
    for text, (begin, end) in zip([*train, *test], spans, strict=True):
        ids = encoded.ids[begin:end].tolist()
        unknown = [c for word in oracles.split_words(text) for c in word if c not in known]
        assert ids.count(UNK) == len(unknown)
        if not unknown:
            assert vocabulary.words(ids) == " ".join(oracles.split_words(text))
    assert encoded.words.tolist() == [len(oracles.split_words(t)) for t in [*train, *test]]
