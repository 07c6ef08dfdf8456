"""The parts of a segmenter from a `tokenizer.json` of Hugging Face's tokenizers library.

What the pieces depend on and rareword does not have is refused, feature by feature; what only
surrounds them (special tokens, post-processor) is left out and said. See `huggingface.py` for what
the two implementations of BPE have in common.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.vocabulary import SPECIALS
from rareword.transforms.huggingface import (
    applicable,
    check_order,
    from_letters,
)


class BpeParts(NamedTuple):
    """Merges in their order, and the pieces in the order of their ids."""

    merges: list[Merge]
    pieces: list[Symbol]
    is_bytes: bool


class WordPieceParts(NamedTuple):
    """Pieces that begin a word, those that go on in it, in the order of their ids; and the most
    characters of a word."""

    initial: list[str]
    continuing: list[str]
    max_characters: int


class _File:
    """A tokenizer.json: what every kind of model needs of it."""

    def __init__(self, value: Mapping[str, Any], name: str) -> None:
        self.value, self.name = value, name
        self.model: Mapping[str, Any] = value["model"]
        self.notes: list[str] = []
        for token in value.get("added_tokens") or []:
            if not token.get("special", False):
                raise self.refused(f"the added token {token['content']!r}")
        self.special = {token["content"] for token in value.get("added_tokens") or []}
        if self.special:
            self.notes.append(
                "the special tokens " + ", ".join(sorted(self.special)) + " are left out; where "
                "text holds these names they are ordinary text"
            )
        for part in ("post_processor", "truncation"):
            if value.get(part) is not None:
                self.notes.append(f"the {part} is left out")

    def refused(self, feature: str, instead: str = "") -> RarewordError:
        hint = f"; {instead}" if instead else ""
        return RarewordError(f"{self.name}: {feature} has no counterpart in rareword{hint}")

    def refuse_normalizer(self) -> None:
        normalizer = self.value.get("normalizer")
        if normalizer is not None and normalizer.get("normalizers") != []:
            raise self.refused(
                f"the normalizer {normalizer['type']}",
                "rareword changes text before it is segmented, in `prepare`",
            )

    def refuse_set(self, **plain: Any) -> None:
        """Refuses features of the model that are set to another than the plain value."""
        for feature, value in plain.items():
            found = self.model.get(feature)
            if found not in (None, value):
                raise self.refused(f"{feature} {found!r}")

    def after_words(self) -> list[Mapping[str, Any]]:
        """The pre-tokenizers behind the one that splits words at spaces, which must be there."""
        first = self.value.get("pre_tokenizer")
        if first is None:
            raise self.refused("text that is not split into words (pre_tokenizer null)")
        steps = list(first["pretokenizers"]) if first["type"] == "Sequence" else [first]
        if not steps:
            raise self.refused("text that is not split into words (an empty pre_tokenizer)")
        if steps[0]["type"] == "WhitespaceSplit":
            self.notes.append(
                "words are split at U+0020 alone, not at all white space; in a corpus that "
                "`prepare` wrote it is the same"
            )
        elif not (
            steps[0]["type"] == "Split"
            and steps[0]["pattern"] in ({"String": " "}, {"Regex": " "}, {"Regex": " +"})
            and steps[0]["behavior"] == "Removed"
            and not steps[0].get("invert", False)
        ):
            raise self.refused(
                f"the pre_tokenizer {steps[0]['type']}{_pattern(steps[0])}",
                "words must be split at U+0020 only, or at all white space",
            )
        return steps[1:]

    def refuse_steps(self, steps: Sequence[Mapping[str, Any]]) -> None:
        if steps:
            raise self.refused(f"the pre_tokenizer {steps[0]['type']}{_pattern(steps[0])}")


def _pattern(step: Mapping[str, Any]) -> str:
    return f" {step['pattern']}" if "pattern" in step else ""


def read(value: Any, name: str) -> tuple[BpeParts | WordPieceParts, list[str]]:
    """The parts of a tokenizer.json, and sentences on what was left out; `name` is for errors.

    Raises RarewordError naming the feature that has no counterpart.
    """
    try:
        file = _File(value, name)
        return _parts(file), file.notes
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RarewordError(f"{name} is not a tokenizer.json ({error!r})") from error


def _parts(file: _File) -> BpeParts | WordPieceParts:
    kind = file.model.get("type", "without a type")
    if kind == "BPE":
        return _to_bpe(file)
    if kind == "WordPiece":
        return _to_wordpiece(file)
    if kind == "Unigram":
        raise file.refused(
            "the model Unigram, with one <unk> for neighbouring unknown characters,",
            "import the sentencepiece model that it was made of",
        )
    raise file.refused(f"the model {kind}")


def _to_bpe(file: _File) -> BpeParts:
    file.refuse_normalizer()
    file.refuse_set(
        continuing_subword_prefix="",
        dropout=0.0,
        fuse_unk=False,
        byte_fallback=False,
        ignore_merges=False,
    )
    steps = file.after_words()
    is_bytes = bool(steps) and steps[0]["type"] == "ByteLevel"
    if is_bytes:
        if steps[0].get("add_prefix_space", True):
            raise file.refused("add_prefix_space of the pre_tokenizer ByteLevel")
        if steps[0].get("use_regex", True):
            raise file.refused("the regular expression of the pre_tokenizer ByteLevel (use_regex)")
        steps = steps[1:]
    file.refuse_steps(steps)
    if len(set(file.model["vocab"].values())) < len(file.model["vocab"]):
        raise file.refused("one id for several tokens")
    names = _Names(file.model.get("end_of_word_suffix") or "", is_bytes)
    merges = applicable(_merges(file, names), is_bytes)
    check_order(merges, file.name)
    pieces = _pieces(file, names, {merge.result for merge in merges})
    if file.model.get("unk_token") is None:
        needed = {Symbol(chr(b), final) for b in range(256) if b != 32 for final in (False, True)}
        if not is_bytes or not needed <= set(pieces):
            raise file.refused(
                "that characters without a token vanish (unk_token null)", "set an unk_token"
            )
    return BpeParts(merges, pieces, is_bytes)


class _Names(NamedTuple):
    """How a BPE model writes its symbols."""

    suffix: str
    """Of what ends a word. Empty: whether a symbol ends a word makes no difference, so each symbol
    and each merge there is two of ours."""
    is_bytes: bool

    def symbol(self, token: str) -> Symbol | None:
        """None for what no text gives."""
        final = self.suffix != "" and token.endswith(self.suffix) and token != self.suffix
        text: str | None = token.removesuffix(self.suffix) if final else token
        if self.is_bytes and text is not None:
            text = from_letters(text)
        return None if text is None else Symbol(text, final)

    def forms(self, symbol: Symbol) -> list[Symbol]:
        """Our symbols for one of the model's."""
        return [symbol] if self.suffix else [symbol, Symbol(symbol.text, True)]


def _merges(file: _File, names: _Names) -> list[Merge]:
    """The merges in their order. Of two forms the final one comes second: it is the last place of a
    word, and merging goes from left to right."""
    merges: list[Merge] = []
    for tokens in _last_of_each(file.model["merges"]):
        made = "".join(tokens)
        for token in (*tokens, made):
            if token not in file.model["vocab"]:
                raise ValueError(f"{token!r} of a merge is not in the vocabulary")
            if token == file.model.get("unk_token"):
                raise file.refused(f"the unknown token in the merge {tokens[0]!r} {tokens[1]!r}")
        left, right, result = map(names.symbol, (*tokens, made))
        if left is None or right is None or result is None:
            continue
        if result.final != right.final:
            raise RarewordError(
                f"{file.name}: the merge {tokens[0]!r} {tokens[1]!r} makes the end-of-word suffix "
                f"{names.suffix!r} of text; it would be taken for the end of a word"
            )
        merges += [Merge(left, form, 0) for form in names.forms(right)]
    return merges


def _pieces(file: _File, names: _Names, made: set[Symbol]) -> list[Symbol]:
    """The symbols that text can give, in the order of the ids."""
    ids: Mapping[str, int] = file.model["vocab"]
    found: list[Symbol] = []
    for token in sorted(ids, key=ids.__getitem__):
        symbol = names.symbol(token)
        if symbol is not None and token != file.model.get("unk_token"):
            forms = names.forms(symbol)
            found += [form for form in forms if form in made or len(form.text) == 1]
    return found


def _last_of_each(merges: Iterable[Any]) -> list[tuple[str, str]]:
    """Merges as pairs; of several for one pair the library keeps the last."""
    found: dict[tuple[str, str], None] = {}
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        found.pop((left, right), None)
        found[left, right] = None
    return list(found)


def _to_wordpiece(file: _File) -> WordPieceParts:
    file.refuse_normalizer()
    file.refuse_steps(file.after_words())
    prefix = file.model["continuing_subword_prefix"]
    if not prefix:
        raise file.refused("an empty continuing_subword_prefix")
    ids: Mapping[str, int] = file.model["vocab"]
    special = {file.model["unk_token"], *file.special, *(piece.text for piece in SPECIALS)}
    tokens = [token for token in sorted(ids, key=ids.__getitem__) if token not in special]
    file.notes.append(
        "a word with an unknown part is not <unk> as a whole, only its unknown characters are"
    )
    return WordPieceParts(
        [token for token in tokens if not token.startswith(prefix)],
        [token.removeprefix(prefix) for token in tokens if token.startswith(prefix)],
        file.model["max_input_chars_per_word"],
    )
