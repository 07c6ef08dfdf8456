"""Segmenters as `tokenizer.json` of Hugging Face's tokenizers library (0.20 or later).

Everything here is plain data: a segmenter's parts in, a JSON object out. `from_huggingface.py` is
the way back.
Words are split at U+0020 and nowhere else. Special pieces are not listed among the added tokens:
the library would cut their names out of ordinary text.

BPE keeps its piece ids. The library marks the last piece of a word by a suffix of its text, where
we have a flag; the suffix of characters is `</w>`. Bytes are written in the alphabet of GPT-2, in
which U+0020 is `Ġ`; no word holds that byte, so `Ġ` is the suffix of bytes, and decoding gives the
space between two words.

What the library's BPE does otherwise than ours is refused, on both ways:

* Ours merges a pair in all its places before it looks for the next one, theirs one place at a time.
  Both come to the same if no merge uses a symbol that a later merge makes.
* Every symbol that merges make needs an id of its own.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import END_OF_WORD, Merge, Symbol
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary

UNKNOWN = SPECIALS[UNK].text
SPACE_BYTE = "Ġ"
PREFIX = "##"
LOW_SCORE = 1000.0
"""How far a special piece's score lies below all others in a unigram model, times the longest."""


# ---- the alphabet of bytes ----


def _byte_letters() -> list[str]:
    """The character of each byte in GPT-2's alphabet: printable Latin-1 characters are themselves,
    the others are U+0100 and onwards."""
    letters, others = [], 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            letters.append(chr(byte))
        else:
            letters.append(chr(others))
            others += 1
    return letters


BYTE_LETTERS = _byte_letters()
BYTE_OF_LETTER = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}


def to_letters(text: str) -> str:
    """A text whose characters stand for bytes, in GPT-2's alphabet."""
    return "".join(BYTE_LETTERS[ord(character)] for character in text)


def from_letters(text: str) -> str | None:
    """The reverse of `to_letters`; None if a character is none of the alphabet."""
    if not BYTE_OF_LETTER.keys() >= set(text):
        return None
    return "".join(chr(BYTE_OF_LETTER[letter]) for letter in text)


# ---- what both ways need to know of merges ----


def applicable(merges: Iterable[Merge], is_bytes: bool) -> list[Merge]:
    """The merges that can ever apply, in their order; of two for one pair, the first.

    No word holds U+0020, nothing stands behind the end of a word, and bytes are below 256.
    """
    first: dict[tuple[Symbol, Symbol], Merge] = {}
    for merge in merges:
        first.setdefault((merge.left, merge.right), merge)
    made: set[Symbol] = set()

    def appears(symbol: Symbol) -> bool:
        if len(symbol.text) == 1:
            return symbol.text != " " and (ord(symbol.text) < 256 or not is_bytes)
        return symbol in made

    while True:  # twice, for merges in the order in which they were learnt
        found = [
            merge
            for merge in first.values()
            if not merge.left.final and appears(merge.left) and appears(merge.right)
        ]
        if made >= {merge.result for merge in found}:
            return found
        made |= {merge.result for merge in found}


def check_order(merges: Sequence[Merge], where: str) -> None:
    """Raises RarewordError naming a merge whose part a later merge makes."""
    used_by: dict[Symbol, Merge] = {}
    for merge in merges:
        user = used_by.get(merge.result)
        if user is not None:
            raise RarewordError(
                f"{where}: the merge {shown(user)} stands before {shown(merge)}, which makes a "
                "part of it; tokenizers applies such merges in another order than rareword. Merges "
                "as they were learnt are never so; learn one list instead of joining two"
            )
        used_by.setdefault(merge.left, merge)
        used_by.setdefault(merge.right, merge)


def shown(merge: Merge) -> str:
    """A merge as an error names it."""
    return " + ".join(
        repr(symbol.text) + " (final)" * symbol.final for symbol in (merge.left, merge.right)
    )


# ---- to tokenizer.json ----


def _tokenizer(
    model: dict[str, Any],
    decoder: dict[str, Any],
    pre_tokenizers: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    at_spaces = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "Removed",
        "invert": False,
    }
    pre_tokenizer: dict[str, Any] = at_spaces
    if pre_tokenizers:
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [at_spaces, *pre_tokenizers]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }


def from_bpe(merges: Sequence[Merge], vocabulary: Vocabulary, is_bytes: bool) -> dict[str, Any]:
    """BPE of characters or of bytes, with the vocabulary's ids.

    Raises RarewordError naming the merge or piece that the format cannot express.
    """
    if any(flag != is_bytes for flag in vocabulary.is_bytes[len(SPECIALS) :]) or (
        is_bytes and len(vocabulary) > len(SPECIALS) and not vocabulary.is_bytes
    ):
        raise RarewordError(
            "the vocabulary has pieces of bytes beside pieces of characters (byte fallback); "
            "tokenizers would take the mark of a word's end for bytes too. Export a segmenter "
            "without byte fallback, or one of bytes alone"
        )
    suffix = SPACE_BYTE if is_bytes else END_OF_WORD

    def name(symbol: Symbol) -> str:
        text = to_letters(symbol.text) if is_bytes else symbol.text
        return text + suffix * symbol.final

    ids = {special.text: i for i, special in enumerate(SPECIALS)}
    known: set[Symbol] = set()
    for i in range(len(SPECIALS), len(vocabulary)):
        piece = Symbol(vocabulary.pieces[i], vocabulary.final[i])
        key = name(piece)
        if not is_bytes and END_OF_WORD in piece.text:
            raise RarewordError(
                f"the piece {piece.text!r} holds the text {END_OF_WORD}, with which tokenizers "
                "marks the end of a word; it cannot be exported. BPE of bytes can"
            )
        if key in ids:
            raise RarewordError(
                f"the piece {piece.text!r} would have the name {key!r} of piece {ids[key]} in "
                "tokenizer.json; it cannot be exported"
            )
        ids[key] = i
        known.add(piece)
    used = applicable(merges, is_bytes)
    check_order(used, "export")
    for merge in used:
        if merge.result not in known:
            raise RarewordError(
                f"the merge {shown(merge)} makes a piece without an id (it is <unk>), and "
                "tokenizers must have one for it; segment with the whole vocabulary "
                "(--max-vocabulary-size 0 --min-piece-count 0), and with a joint one if both "
                "sides have the same merges"
            )
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": suffix,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": ids,
        "merges": [[name(merge.left), name(merge.right)] for merge in used],
    }
    if not is_bytes:
        return _tokenizer(model, {"type": "BPEDecoder", "suffix": suffix})
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    # (A Strip decoder panics on an empty text.)
    last_space = {"type": "Replace", "pattern": {"Regex": r" \z"}, "content": ""}
    decoder = {"type": "Sequence", "decoders": [byte_level, last_space]}
    return _tokenizer(model, decoder, [byte_level])


def from_wordpiece(
    initial: Sequence[str], continuing: Sequence[str], max_characters: int
) -> dict[str, Any]:
    """WordPiece of pieces that begin a word and of those that go on in it (`##`), ids in this order
    after the special pieces. Words of more than `max_characters` are `<unk>`.

    The library makes a whole word `<unk>` if a part of it is unknown. At the start of a word it
    reads the name of a special piece, or `##` and a piece that goes on, as that piece. Otherwise
    the pieces are ours.
    Raises RarewordError naming a piece that would be taken for another.
    """
    ids = {special.text: i for i, special in enumerate(SPECIALS)}
    for piece in initial:
        if piece.startswith(PREFIX):
            raise RarewordError(
                f"the piece {piece!r} begins a word with {PREFIX}, the mark of pieces that do not; "
                "it cannot be exported"
            )
    for name in (*initial, *(PREFIX + piece for piece in continuing)):
        if name in ids:
            raise RarewordError(
                f"the piece {name!r} is there twice, or has the name of a special piece; it cannot "
                "be exported"
            )
        ids[name] = len(ids)
    model = {
        "type": "WordPiece",
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": PREFIX,
        "max_input_chars_per_word": max_characters,
        "vocab": ids,
    }
    return _tokenizer(model, {"type": "WordPiece", "prefix": PREFIX, "cleanup": False})


def from_unigram(pieces: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """A unigram language model of pieces with their log-probabilities, ids in this order after the
    special pieces.

    The library makes one `<unk>` of neighbouring unknown characters, and one special piece of its
    literal name if the pieces lack a character of it; otherwise the pieces are ours.
    Raises RarewordError naming a piece that the format cannot express.
    """
    texts = {text for text, _ in pieces}
    seen = {special.text for special in SPECIALS}
    for text, _ in pieces:
        if text in seen:
            raise RarewordError(
                f"the piece {text!r} is there twice, or has the name of a special piece; it cannot "
                "be exported"
            )
        seen.add(text)
        missing = next((character for character in text if character not in texts), None)
        if missing is not None:
            raise RarewordError(
                f"the piece {text!r} holds {missing!r}, which is no piece itself; tokenizers and "
                "sentencepiece weigh an unknown character differently then. Learn with all "
                "characters (character coverage 1)"
            )
    longest = max(len(special.text) for special in SPECIALS)
    low = min((score for _, score in pieces), default=0.0) * longest - LOW_SCORE
    model = {
        "type": "Unigram",
        "unk_id": UNK,
        "byte_fallback": False,
        "vocab": [*([special.text, low] for special in SPECIALS), *map(list, pieces)],
    }
    return _tokenizer(model, {"type": "Fuse"})
