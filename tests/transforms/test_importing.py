"""Imported segmenters give the pieces of the program that learnt them."""

import copy
import dataclasses
import io
import itertools
import json
import random
from pathlib import Path

import oracles
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from rareword.schemas import merges as merge_files
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.vocabulary import UNK
from rareword.transforms import from_huggingface, huggingface, importing
from rareword.transforms.importing import Imported
from rareword.transforms.segmenting import check_joins, measured

REAL_LINES = 10_000


def made_up(seed: int) -> list[str]:
    draw = random.Random(seed)
    stems = ["".join(draw.choices("abcdeiouéж", k=draw.randint(1, 6))) for _ in range(60)]
    return [
        " ".join(draw.choice(stems) + draw.choice(stems) for _ in range(draw.randint(0, 9)))
        for _ in range(500)
    ]


ODD = ["", " ", "  a  b ", "aπaπ", "<unk> </s> <pad>", "a\tb", "Ġa ▁a", "e\u0301", "aaaaaaa bbb"]


def write(directory: Path, text: str, name: str = "file") -> str:
    path = directory / name
    path.write_bytes(text.encode())
    return str(path)


def ids_of(imported: Imported, lines: list[str]) -> list[list[int]]:
    found = imported.segmenter.encoder(imported.vocabulary).encode(pa.array(lines, pa.string()))
    return [found.ids[a:b].tolist() for a, b in itertools.pairwise(found.offsets.tolist())]


def pieces_of(imported: Imported, lines: list[str]) -> list[list[str]]:
    names = imported.vocabulary.pieces
    return [[names[i] for i in ids] for ids in ids_of(imported, lines)]


# ---- tokenizer.json ----


def tokenizer(
    lines: list[str], size: int, suffix: str | None, is_bytes: bool, whitespace: bool = False
) -> Tokenizer:
    """BPE that the tokenizers library itself learns."""
    ending = {} if suffix is None else {"end_of_word_suffix": suffix}
    made = Tokenizer(models.BPE(unk_token="<unk>", **ending))
    first = pre_tokenizers.WhitespaceSplit() if whitespace else pre_tokenizers.Split(" ", "removed")
    made.pre_tokenizer = first
    alphabet = []
    if is_bytes:
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([first, level])
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<unk>", "[CLS]"],
        initial_alphabet=alphabet,
        show_progress=False,
        **ending,
    )
    made.train_from_iterator(lines, trainer)
    return made


def check_pieces(made: Tokenizer, lines: list[str], suffix: str | None, is_bytes: bool) -> None:
    """Ours against the library's: the same texts of pieces, the same unknown ones."""
    imported = importing.of_huggingface(made.to_str(), "t.json")
    for text, pieces in zip(lines, pieces_of(imported, lines), strict=True):
        theirs = made.encode(text, add_special_tokens=False)
        expected = [
            token if token == "<unk>" else token.removesuffix(suffix or "")
            for token in theirs.tokens
        ]
        if is_bytes:
            expected = [t if t == "<unk>" else huggingface.from_letters(t) for t in expected]
        assert pieces == expected, text


@pytest.mark.parametrize("is_bytes", [False, True])
@pytest.mark.parametrize("suffix", ["</w>", None])
@pytest.mark.parametrize("size", [60, 700])
def test_bpe_of_tokenizers_has_the_same_pieces(suffix, is_bytes, size):
    train = made_up(1)
    made = tokenizer(train, size, suffix, is_bytes)
    lines = [*train, *made_up(2), *[t for t in ODD if "<" not in t]]
    check_pieces(made, lines, suffix, is_bytes)


@pytest.mark.parametrize("is_bytes", [False, True])
@pytest.mark.parametrize("suffix", ["</w>", None])
def test_bpe_of_tokenizers_has_the_same_pieces_on_real_text(shared_data, suffix, is_bytes):
    corpus = shared_data / "catalog" / "ende.train.parquet"
    text = pq.read_table(corpus, columns=["target"])["target"].to_pylist()
    made = tokenizer(text[:20_000], 4000, suffix, is_bytes)
    check_pieces(made, text[-REAL_LINES:], suffix, is_bytes)


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=5), st.data())
@settings(deadline=None)
def test_any_merges_of_tokenizers_have_the_same_pieces_or_are_refused(words, data):
    """Merges in any order, some twice: what is not refused is cut alike."""
    suffix = data.draw(st.sampled_from(["_", ""]))
    symbols = ["a", "b", *(["a_", "b_"] if suffix else [])]
    merges: list[list[str]] = []
    for _ in range(data.draw(st.integers(0, 8))):
        pair = [data.draw(st.sampled_from(symbols)) for _ in range(2)]
        merges.append(pair)
        symbols.append("".join(pair))
    merges = data.draw(st.permutations(merges))
    value = huggingface.from_bpe([], importing.vocabulary_of([]), False)
    vocab = {"<unk>": 0, **{s: i for i, s in enumerate(dict.fromkeys(symbols), 1)}}
    value["model"] |= {"vocab": vocab, "merges": merges, "end_of_word_suffix": suffix or None}
    refused = ""
    try:
        importing.of_huggingface(json.dumps(value), "t.json")
    except RarewordError as error:
        refused = str(error)
    if refused:
        assert "stands before" in refused or "makes the end-of-word suffix" in refused
    else:
        check_pieces(Tokenizer.from_str(json.dumps(value)), words, suffix, False)


@pytest.mark.parametrize("is_bytes", [False, True])
def test_what_was_exported_comes_back(is_bytes):
    letters = "abé" if not is_bytes else "".join(map(chr, range(256)))
    merges = [
        Merge(Symbol("a", False), Symbol("b", False), 0),
        Merge(Symbol("ab", False), Symbol("a", True), 0),
    ]
    pieces = [Symbol(c, final) for c in letters for final in (True, False)]
    vocabulary = importing.vocabulary_of([*(m.result for m in merges), *pieces], is_bytes)
    text = json.dumps(huggingface.from_bpe(merges, vocabulary, is_bytes))
    back = importing.of_huggingface(text, "t.json")
    assert back.segmenter.merges == merges
    assert back.segmenter.units == ("bytes" if is_bytes else "characters")
    assert back.vocabulary.hash == vocabulary.hash
    assert back.kind == ("bytes" if is_bytes else "bpe")
    assert not back.notes


def test_what_is_left_out_is_said():
    made = tokenizer(["ab ab"], 50, "</w>", False, whitespace=True)
    value = json.loads(made.to_str())
    value["truncation"] = {"max_length": 3}
    notes = importing.of_huggingface(json.dumps(value), "t.json").notes
    assert len(notes) == 3
    assert "<unk>, [CLS] are left out" in notes[0]
    assert "the truncation is left out" in notes[1]
    assert "not at all white space" in notes[2]


def changed(value: dict, path: str, new: object) -> dict:
    value = copy.deepcopy(value)
    *way, last = path.split(".")
    inner = value
    for key in way:
        inner = inner[key]
    inner[last] = new
    return value


LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}
AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False}


@pytest.mark.parametrize(
    ("path", "new", "says"),
    [
        ("model.continuing_subword_prefix", "##", "continuing_subword_prefix '##' has no counter"),
        ("model.dropout", 0.1, "dropout 0.1 has no counterpart"),
        ("model.fuse_unk", True, "fuse_unk True"),
        ("model.byte_fallback", True, "byte_fallback True"),
        ("model.ignore_merges", True, "ignore_merges True"),
        ("model.type", "WordLevel", "the model WordLevel"),
        ("model.type", "Unigram", "the model Unigram, .* has no counterpart"),
        ("model.unk_token", None, "that characters without a token vanish"),
        ("model.unk_token", "ab", "the unknown token in the merge 'a' 'b'"),
        ("model.vocab", {"a": 0, "b": 0, "ab": 1, "<unk>": 2}, "one id for several tokens"),
        ("model.vocab", {"a": 0, "b": 1, "<unk>": 2}, "'ab' of a merge is not in the vocabulary"),
        ("model.merges", [["ab", "b"], ["a", "b"]], "stands before"),
        ("model.merges", [["a", "</w>"]], "makes the end-of-word suffix '</w>' of text"),
        ("model.merges", ["a b c"], "is not a tokenizer.json"),
        ("normalizer", {"type": "NFC"}, "the normalizer NFC has no counterpart"),
        ("pre_tokenizer", None, "text that is not split into words"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": []}, "not split into words"),
        ("pre_tokenizer", {"type": "Whitespace"}, "the pre_tokenizer Whitespace has no"),
        (
            "pre_tokenizer",
            AT_SPACES | {"pattern": {"Regex": r"\w+"}},
            r"the pre_tokenizer Split \{'Regex': '\\\\w\+'\}",
        ),
        ("pre_tokenizer", AT_SPACES | {"behavior": "Isolated"}, "the pre_tokenizer Split"),
        ("pre_tokenizer", LEVEL, "the pre_tokenizer ByteLevel"),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [AT_SPACES, LEVEL | {"use_regex": True}]},
            "the regular expression of the pre_tokenizer ByteLevel",
        ),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [AT_SPACES, LEVEL | {"add_prefix_space": True}]},
            "add_prefix_space of the pre_tokenizer ByteLevel",
        ),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [AT_SPACES, {"type": "Digits"}]},
            "the pre_tokenizer Digits",
        ),
        ("added_tokens", [{"content": "XY", "special": False}], "the added token 'XY'"),
        ("model", 7, "is not a tokenizer.json"),
    ],
)
def test_bpe_without_a_counterpart_is_refused(path, new, says):
    vocab = {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "abb": 4, "</w>": 5, "a</w>": 6}
    value = huggingface.from_bpe([], importing.vocabulary_of([]), False)
    value["model"] |= {"vocab": vocab, "merges": [["a", "b"]]}
    importing.of_huggingface(json.dumps(value), "t.json")
    with pytest.raises(RarewordError, match=says) as caught:
        importing.of_huggingface(json.dumps(changed(value, path, new)), "t.json")
    assert "t.json" in str(caught.value)


def test_wordpiece_of_tokenizers_gives_its_parts():
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=7))
    made.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=["[UNK]", "[SEP]"], show_progress=False
    )
    made.train_from_iterator(made_up(3), trainer)
    parts, notes = from_huggingface.read(json.loads(made.to_str()), "t.json")
    again = Tokenizer.from_str(json.dumps(huggingface.from_wordpiece(*parts)))
    assert parts.max_characters == 7
    for text in made_up(4):
        expected = ["<unk>" if t == "[UNK]" else t for t in made.encode(text).tokens]
        assert again.encode(text).tokens == expected
    assert "only its unknown characters are" in notes[-1]
    value = json.loads(made.to_str())
    for path, new, says in [
        ("model.continuing_subword_prefix", "", "an empty continuing_subword_prefix"),
        ("normalizer", {"type": "BertNormalizer"}, "the normalizer BertNormalizer"),
        ("pre_tokenizer", {"type": "BertPreTokenizer"}, "the pre_tokenizer BertPreTokenizer"),
    ]:
        with pytest.raises(RarewordError, match=says):
            from_huggingface.read(changed(value, path, new), "t.json")


def test_wordpiece_of_tokenizers_has_the_same_pieces_of_known_words():
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
    made.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=["[UNK]"], show_progress=False
    )
    made.train_from_iterator(made_up(3), trainer)
    imported = importing.of_huggingface(made.to_str(), "t.json")
    assert imported.kind == "wordpiece"
    known = 0
    for word in " ".join(made_up(4)).split():
        theirs = made.encode(word).tokens
        if theirs != ["[UNK]"]:
            known += 1
            assert pieces_of(imported, [word]) == [[t.removeprefix("##") for t in theirs]]
    assert known > 100


# ---- merges as lines, vocabularies ----


def learnt(lines: list[str], limit: int) -> list[Merge]:
    pairs = oracles.learn_bpe(oracles.count_words(lines), limit, 1)
    return [Merge(Symbol(*a), Symbol(*b), count) for (a, b), count in pairs]


@pytest.mark.parametrize("form", ["auto", "subword-nmt"])
def test_codes_of_subword_nmt_have_its_pieces(tmp_path, form):
    codes = merge_files.to_codes(learnt(made_up(7)[:100], 60))
    imported = importing.read(write(tmp_path, codes), form)
    peer = BPE(io.StringIO(codes))
    for text in made_up(7):
        ids = ids_of(imported, [text])[0]
        if UNK not in ids:
            assert imported.vocabulary.display(ids) == peer.process_line(text).split()


@pytest.mark.parametrize("form", ["auto", "fastbpe"])
def test_codes_of_fastbpe_keep_their_counts(tmp_path, form):
    merges = learnt(made_up(7)[:100], 60)
    lines = merge_files.to_codes(merges).splitlines()[1:]
    text = "".join(f"{line} {m.count}\n" for line, m in zip(lines, merges, strict=True))
    imported = importing.read(write(tmp_path, text), form)
    assert imported.segmenter.merges == merges
    assert imported.kind == "bpe"


@pytest.mark.parametrize(
    ("text", "form", "says"),
    [
        ("a b\nb </w>\n", "auto", "`rareword subword-nmt apply-bpe` applies them"),
        ("a b\nab c</w>\n", "subword-nmt", "put `#version: 0.2` before the others"),
        ("#version: 0.2\na b\n", "fastbpe", "use --format subword-nmt"),
        ("#version: 0.2 byte\na b\n", "auto", "codes version '0.2 byte' is not known"),
        ("#version: 0.2\na b c\n", "auto", "line 2: expected two symbols"),
        ("{", "auto", "is not JSON"),
        ("[1]", "huggingface", "is not a tokenizer.json"),
    ],
)
def test_files_that_cannot_be_read_are_refused(tmp_path, text, form, says):
    with pytest.raises(RarewordError, match=says) as caught:
        importing.read(write(tmp_path, text), form)
    assert "file" in str(caught.value)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"a \xff\n")
    for read in (lambda url: importing.read(url, "auto"), importing.read_vocabulary):
        with pytest.raises(RarewordError, match="byte 2 is not UTF-8"):
            read(str(tmp_path / "file"))


def test_vocabulary_files_say_which_pieces_end_a_word(tmp_path):
    url = write(tmp_path, "low@@ 5\nest 3\n@@ 2\n\u2028 1\r\n")
    found = importing.read_vocabulary(url)
    assert list(zip(found.pieces, found.final, found.source_counts, strict=True))[3:] == [
        ("low", False, 5),
        ("est", True, 3),
        ("@@", True, 2),
        ("\u2028", True, 1),
    ]
    for text, says in [
        ("a 1\na 2\n", "line 2: the piece 'a' is there twice"),
        ("a 1\n\nb 1\n", "line 2: expected `piece count`, found ''"),
        ("a b\n", "line 1: expected `piece count`"),
    ]:
        with pytest.raises(RarewordError, match=says):
            importing.read_vocabulary(write(tmp_path, text))


# ---- sentencepiece ----


def sentencepiece_model(lines: list[str], **options: object) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    plain = {
        "vocab_size": 500,
        "hard_vocab_limit": False,
        "character_coverage": 1.0,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in lines if line]),
        model_writer=model,
        **(plain | options),
    )
    return model.getvalue()


@pytest.mark.parametrize("form", ["auto", "sentencepiece"])
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_models_of_sentencepiece_have_its_pieces(tmp_path, model_type, form):
    import sentencepiece

    data = sentencepiece_model(made_up(8), model_type=model_type)
    (tmp_path / "file").write_bytes(data)
    imported = importing.read(str(tmp_path / "file"), form)
    assert imported.kind == "sentencepiece"
    peer = sentencepiece.SentencePieceProcessor(model_proto=data)
    lines = [*made_up(8), *made_up(9), "a  b ", "日本 <unk>"]
    for text, ids in zip(lines, ids_of(imported, lines), strict=True):
        theirs = peer.encode(text, out_type=str)
        ours = [
            f"<0x{ord(imported.vocabulary.pieces[i]):02X}>"
            if imported.vocabulary.is_bytes[i]
            else imported.vocabulary.pieces[i].replace(" ", "▁")
            for i in ids
        ]
        assert ours == theirs
        assert imported.vocabulary.words(ids) == text


DEFAULTS = {
    "normalization_rule_name": "nmt_nfkc",
    "add_dummy_prefix": True,
    "remove_extra_whitespaces": True,
    "byte_fallback": False,
    "character_coverage": 0.9995,
}
"""The settings that the library has if one says nothing."""
ODD = [
    "", " ", "   ", "a", "  a   b ", "\u2581a\u2581", "\uff46\uff55ll \ufb01", "e\u0301",
    "a\tb\u00a0c", "\u65e5\u672c\u8a9e \u65e5", "x\x00y", "\x01", "<unk> <s> </s> <0x41>",
    "\U0001f600\U0001f600", "\u200b", "\U0010ff00a",
]  # fmt: skip


def check_against_the_library(data: bytes, lines: list[str]) -> None:
    """The pieces are the library's, unknown characters apart, and give its normalised text."""
    import sentencepiece

    peer = sentencepiece.SentencePieceProcessor(model_proto=data)
    imported = importing.of_sentencepiece(data, "file")
    assert imported.kind == "sentencepiece"
    vocabulary = imported.vocabulary
    texts = pa.array(lines, pa.string())
    encoded = imported.segmenter.encoder(vocabulary).encode(texts)
    assert encoded.words.tolist() == [len(oracles.split_words(line)) for line in lines]
    unknown, _ = check_joins(encoded, texts, measured(vocabulary), "file")
    found = ids_of(imported, lines)
    assert unknown == sum(ids.count(UNK) for ids in found)
    for line, ids in zip(lines, found, strict=True):
        theirs: list[str] = []
        for piece, i in zip(peer.encode(line, out_type=str), peer.encode(line), strict=True):
            theirs += [piece] if i != peer.unk_id() else ["<unk>"] * len(piece)
        assert [
            f"<0x{ord(vocabulary.pieces[i]):02X}>"
            if vocabulary.has_bytes and vocabulary.is_bytes[i]
            else vocabulary.pieces[i].replace(" ", "\u2581")
            for i in ids
        ] == theirs
        if UNK not in ids:
            if "\u2581" not in line:  # which decoding takes for a space of the library's own
                assert vocabulary.words(ids) == peer.decode(peer.encode(line))
            assert vocabulary.words(ids) == (
                peer.normalize(line)
                .replace("\u2581", " ")
                .removeprefix(" " * vocabulary.adds_space)
            )


@pytest.mark.parametrize("model_type", ["bpe", "unigram", "char"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"byte_fallback": True},
        {"normalization_rule_name": "identity"},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True},
        {"user_defined_symbols": ["<sep>", "ab"]},
    ],
)
def test_models_with_the_librarys_settings_have_its_pieces(model_type, changes):
    options = {**DEFAULTS, **changes, "model_type": model_type}
    check_against_the_library(
        sentencepiece_model(made_up(8), **options), [*made_up(8), *made_up(9), *ODD, "a<sep> ab"]
    )


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_models_with_the_librarys_settings_have_its_pieces_on_real_text(shared_data, model_type):
    german = (shared_data / "catalog/ende.dev.de").read_text("utf-8").split("\n")
    russian = (shared_data / "catalog/enru.dev.ru").read_text("utf-8").split("\n")[:200]
    messy = (shared_data / "messy/messy_lines.lf.txt").read_text("utf-8").split("\n")
    data = sentencepiece_model(german, **DEFAULTS, model_type=model_type, vocab_size=2000)
    check_against_the_library(data, [*german, *russian, *messy])


def test_a_model_without_bytes_that_keeps_text_makes_single_characters_unknown():
    data = sentencepiece_model(made_up(8), byte_fallback=False)
    imported = importing.of_sentencepiece(data, "file")
    lines = ["  a  b ", "a\u65e5\u672cb", "a\x00\x00 b", "\u2581"]
    assert [ids.count(UNK) for ids in ids_of(imported, lines)] == [0, 2, 2, 1]
    assert imported.vocabulary.words(ids_of(imported, lines)[0]) == "  a  b "
    assert imported.notes == [
        "the model has no pieces for bytes (byte_fallback): unknown characters are <unk>"
    ]


def test_what_a_model_changes_is_said_and_recorded(tmp_path):
    imported = importing.of_sentencepiece(sentencepiece_model(made_up(8), **DEFAULTS), "file")
    assert [note.split("(")[0] for note in imported.notes] == [
        "the model normalises text ",
        "the model leaves one of several spaces in a row, and none at the ends of a line",
        "the model has no pieces for bytes ",
    ]
    assert imported.segmenter.settings() == {
        "normalisation": "nmt_nfkc",
        "adds_space": True,
        "removes_spaces": True,
        "lacks_bytes": True,
    }
    imported.vocabulary.write(str(tmp_path), "vocabulary.parquet")
    read = vocabularies.read(str(tmp_path / "vocabulary.parquet"))
    assert read == imported.vocabulary
    without = dataclasses.replace(read, adds_space=False)
    assert read.hash != without.hash
    ids = ids_of(imported, ["a b"])[0]
    assert (read.words(ids), without.words(ids)) == ("a b", " a b")


def test_a_unigram_model_of_words_has_its_pieces():
    import sentencepiece

    words = [f"{word}\t2" for text in made_up(8) for word in text.split()]
    data = sentencepiece_model(words, input_format="tsv", byte_fallback=False)
    imported = importing.of_sentencepiece(data, "file")
    assert imported.kind == "unigram"
    peer = sentencepiece.SentencePieceProcessor(model_proto=data)
    for text, found in zip(made_up(9), pieces_of(imported, made_up(9)), strict=True):
        assert found == [p for word in text.split() for p in peer.encode(word, out_type=str)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix has no counterpart"),
        ({"model_type": "word"}, "a model of type word has no counterpart"),
    ],
)
def test_models_of_sentencepiece_without_a_counterpart_are_refused(options, says):
    data = sentencepiece_model(made_up(8), **options)
    assert importing.guess(data) == "sentencepiece"
    with pytest.raises(RarewordError, match=says):
        importing.of_sentencepiece(data, "file")


def test_what_is_no_model_of_sentencepiece_is_refused():
    data = sentencepiece_model(made_up(8))
    for wrong in (b"\n\xff\xff\xff\0", b"", b"\x0f", data[:-1], b"a b\nab c\n"):
        with pytest.raises(RarewordError, match="file is no sentencepiece model"):
            importing.of_sentencepiece(wrong, "file")
