"""How well pieces agree with the morphs of words: boundary precision, recall and F1 against gold
segmentations.

A gold segmentation is, of each word, a list of alternatives; an alternative is the set of positions
inside the word (numbers of characters before them) where a morph ends. `read_gold` reads the files
of Morpho Challenge, SIGMORPHON 2022, MorphyNet and lists of compounds (GermaNet's). Where they give
parts in their dictionary form, `locate` finds the parts in the word.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.transforms.compounds import fold
from rareword.transforms.segmenters import Segmenter, pieces_of_words

Layout = Literal["morpho-challenge", "sigmorphon", "morphynet", "compounds"]
Boundaries = frozenset[int]


@dataclasses.dataclass(frozen=True)
class Gold:
    """Gold segmentations: the distinct alternatives of each word, and what was left out."""

    words: dict[str, list[Boundaries]]
    rows: int
    """Rows of the file, without headings and blank lines."""
    skipped: dict[str, int]
    """Why rows were left out, and how many."""

    def sample(self, size: int) -> "Gold":
        """So many words, evenly spaced in the sorted list; all if there are no more."""
        names = sorted(self.words)
        if size < 1:
            raise RarewordError(f"a sample has 1 or more words, not {size}")
        chosen = (
            [names[i * len(names) // size] for i in range(size)] if size < len(names) else names
        )
        return Gold({name: self.words[name] for name in chosen}, self.rows, self.skipped)


@dataclasses.dataclass(frozen=True)
class BoundaryScores:
    """Boundary precision, recall and F1, each between 0 and 1.

    Micro: sums over all words. Of a word's alternatives the one with the highest F1 counts (the
    first of equal ones, by fewest boundaries).
    Macro: the mean over words, as the Morpho Challenge measure BPR takes it (Virpioja and others
    2011, "Empirical comparison of evaluation methods for unsupervised learning of morphology"): of
    a word's alternatives the best one for precision, and the best one for recall; without any
    boundary in the pieces a word's precision is 1, without any in the gold its recall. Words of one
    character count nowhere.
    """

    words: int
    gold: int
    """Boundaries of the alternatives that count."""
    found: int
    """Boundaries of the pieces."""
    hits: int
    """Boundaries of both."""
    precision: float
    recall: float
    f1: float
    macro_precision: float
    macro_recall: float
    macro_f1: float


def evaluate(segmenter: Segmenter, gold: Gold) -> BoundaryScores:
    """The scores of a segmenter on the words of a gold segmentation."""
    words = list(gold.words)
    return score(gold, dict(zip(words, pieces_of_words(segmenter, words), strict=True)))


def score(gold: Gold, pieces: Mapping[str, Sequence[str]]) -> BoundaryScores:
    """The scores of pieces, which joined give their word. All words of `gold` are needed."""
    gold_sum = found_sum = hits = words = 0
    precisions = recalls = 0.0
    for word, alternatives in gold.words.items():
        if len(word) < 2:
            continue
        words += 1
        found = positions(pieces[word])
        best = max(
            sorted(alternatives, key=lambda one: (len(one), sorted(one))),
            key=lambda one: _f1(len(one & found), len(found), len(one)),
        )
        gold_sum, found_sum, hits = (
            gold_sum + len(best),
            found_sum + len(found),
            hits + len(best & found),
        )
        precisions += max(_ratio(len(one & found), len(found)) for one in alternatives)
        recalls += max(_ratio(len(one & found), len(one)) for one in alternatives)
    if not words:
        raise RarewordError("there are no words of two or more characters to measure")
    precision, recall = precisions / words, recalls / words
    return BoundaryScores(
        words,
        gold_sum,
        found_sum,
        hits,
        _ratio(hits, found_sum),
        _ratio(hits, gold_sum),
        _f1(hits, found_sum, gold_sum),
        precision,
        recall,
        2 * precision * recall / (precision + recall) if precision + recall else 0.0,
    )


def positions(pieces: Sequence[str]) -> Boundaries:
    """Where pieces end inside their word."""
    ends = list(itertools.accumulate(map(len, pieces)))
    return frozenset(ends) - {0, ends[-1]}


def _ratio(hits: int, of: int) -> float:
    return hits / of if of else 1.0


def _f1(hits: int, found: int, gold: int) -> float:
    """The harmonic mean of hits / found and hits / gold."""
    return _ratio(2 * hits, found + gold)


# ---- where parts are in a word ----


def locate(word: str, parts: Sequence[str]) -> Boundaries | None:
    """The positions where the parts of a word end, in a word that may spell them otherwise
    (Gans + Leber in Gänseleber, subsidise + ed in subsidised); None if they cannot be told.

    Of all ways to cut the word, into as many chunks as there are parts, that counts which changes
    (characters put in, left out or replaced, upper and lower case being the same) turn the parts
    into their chunks with. The cheapest way is taken; of equal ones that which leaves the last part
    most alike, then the last but one, and so on: an ending stays, the stem before it changes, and a
    filler belongs to the part before it. A chunk may be empty: then its part gives no boundary of
    its own. The parts cannot be told if ways of the same changes have other boundaries, or if the
    cheapest way changes more than a third of the parts' characters.
    """
    text = fold(word)
    rest = [fold(part) for part in parts if part]
    if not rest:
        return None
    limit = sum(map(len, rest)) // 3
    found = set()
    # A last part that is as it stands at the end of the word lies there: to place it elsewhere
    # costs as much as can be saved before it.
    while len(rest) > 1 and text.endswith(rest[-1]):
        text = text[: len(text) - len(rest.pop())]
        found.add(len(text))
    if rest != [text]:
        chunks = _chunks(text, rest, limit)
        if chunks is None:
            return None
        found |= chunks
    return frozenset(found - {0, len(word)})


class _Way(NamedTuple):
    """A way to cut the end of a text into the last parts."""

    cost: int
    costs: tuple[int, ...]
    """Of each part, the last one first."""
    bounds: Boundaries
    """Where the chunks begin."""
    unclear: bool
    """Whether another way with the same costs has other bounds."""


def _chunks(text: str, parts: Sequence[str], limit: int) -> Boundaries | None:
    """Where the parts begin and end in a text, by `locate`'s rule, with at most `limit` changes."""
    size = len(text)
    ways: dict[int, _Way] = {size: _Way(0, (), frozenset(), False)}
    for number in range(len(parts) - 1, -1, -1):
        part = parts[number]
        before: dict[int, _Way] = {}
        for begin in range(size + 1) if number else (0,):
            costs = edit_distances(part, text[begin : begin + len(part) + limit])
            best: _Way | None = None
            for length, cost in enumerate(costs):
                after = ways.get(begin + length)
                if after is None or after.cost + cost > limit:
                    continue
                bounds = after.bounds | {begin}
                way = _Way(after.cost + cost, (*after.costs, cost), bounds, after.unclear)
                if best is None or way[:2] < best[:2]:
                    best = way
                elif way[:2] == best[:2]:
                    unclear = best.unclear or way.unclear or way.bounds != best.bounds
                    best = best._replace(unclear=unclear)
            if best is not None:
                before[begin] = best
        ways = before
    chosen = ways.get(0)
    return None if chosen is None or chosen.unclear else chosen.bounds


def edit_distances(part: str, text: str) -> list[int]:
    """The edit distance (Levenshtein's) of a part to each start of a text, the empty one first."""
    row = list(range(len(text) + 1))
    for done, character in enumerate(part, 1):
        diagonal, row[0] = row[0], done
        for j, other in enumerate(text, 1):
            replaced = diagonal + (character != other)
            diagonal = row[j]
            row[j] = min(replaced, diagonal + 1, row[j - 1] + 1)
    return row


# ---- files ----


class _Row(NamedTuple):
    """A word with alternative ways to take it apart; None: this one gives no parts of the text."""

    word: str
    alternatives: list[list[str] | None]


NO_PARTS = "the parts cannot be found in the word"
NO_WORD = "not one word with a text"
UNEVEN = "another number of words than of segmentations"


def read_gold(url: str, layout: Layout | None = None, encoding: str = "utf-8") -> Gold:
    """Reads gold segmentations, plain or compressed. layout: None finds out by the first lines.

    * morpho-challenge: `word<TAB>morph:label morph:label, morph:label`, alternatives after commas;
      `~` is a morph without a text. A file of labels alone (`blatt_N er +2PL`) is read as far as
      the labels are text.
    * sigmorphon: `word<TAB>morph @@morph`, morphs as they stand in the word or in their dictionary
      form, with or without a third column; whole sentences too.
    * morphynet: `base<TAB>derived<TAB>class<TAB>class<TAB>affix<TAB>prefix|suffix`.
    * compounds: `compound<TAB>modifier|modifier<TAB>head`, alternative modifiers with `|`.

    In the last two a part may be taken apart by its own row; then its boundaries count as well,
    as far as the part stands unchanged in the word. What is left out is counted by its reason.
    Raises RarewordError naming file and line for what is not of the layout.
    """
    lines = list(_lines(url, encoding))
    if layout is None:
        layout = _layout([line for _, line in lines[:200]], url)
    parse, takes_apart = _PARSERS[layout]
    skipped: collections.Counter[str] = collections.Counter()
    located: dict[str, list[tuple[list[str], Boundaries]]] = {}
    rows = 0
    for number, line in lines:
        if layout == "compounds" and (
            line.startswith("compound\tmodifier") or not line.strip("*\t")
        ):
            continue  # headings
        rows += 1
        fields = line.split("\t")
        try:
            parsed = parse(fields)
        except ValueError as error:
            raise RarewordError(f"{url}: line {number}: {error}") from error
        if parsed is None:
            skipped[UNEVEN] += 1
            continue
        for word, alternatives in parsed:
            if not word or " " in word:
                skipped[NO_WORD] += 1
                continue
            found = [(parts, locate(word, parts)) for parts in alternatives if parts is not None]
            clear = [(parts, bounds) for parts, bounds in found if bounds is not None]
            if clear:
                located.setdefault(word, []).extend(clear)
            else:
                skipped[NO_PARTS] += 1
    if not located:
        raise RarewordError(
            f"{url}: no line of {rows} gives a word and its parts in the layout {layout!r}"
        )
    words = (
        _taken_apart(located)
        if takes_apart
        else {word: [bounds for _, bounds in found] for word, found in located.items()}
    )
    distinct = {word: sorted(set(found), key=sorted) for word, found in words.items()}
    return Gold(distinct, rows, dict(skipped))


def _lines(url: str, encoding: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1."""
    with storage.open_text_stream(url) as stream:
        for number, line in enumerate(stream, 1):
            try:
                text = line.decode(encoding).rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise RarewordError(
                    f"{url}: line {number} is not {encoding} ({error.reason}); "
                    "name the file's encoding, for example latin-1"
                ) from error
            except LookupError as error:
                raise RarewordError(f"there is no encoding {encoding!r}") from error
            if text.strip():
                yield number, text.removeprefix("\ufeff") if number == 1 else text


def _layout(lines: Sequence[str], url: str) -> Layout:
    if not lines:
        raise RarewordError(f"{url} is empty")
    sizes = collections.Counter(line.count("\t") + 1 for line in lines)
    columns = sizes.most_common(1)[0][0]
    if columns == 6:
        return "morphynet"
    if any(re.search(r"[\t ]@@", line) for line in lines) and columns in (2, 3):
        return "sigmorphon"
    if columns == 3:
        return "compounds"
    if columns == 2:
        return "morpho-challenge"
    raise RarewordError(
        f"{url}: lines of {columns} columns between tabs are of no layout that is known here "
        "(morpho-challenge and sigmorphon have 2, compounds 3, morphynet 6)"
    )


def _check(fields: Sequence[str], sizes: tuple[int, ...], layout: str) -> None:
    if len(fields) not in sizes:
        wanted = " or ".join(map(str, sizes))
        raise ValueError(
            f"{len(fields)} columns between tabs, where the layout {layout} has {wanted}"
        )


def _morpho_challenge(fields: list[str]) -> list[_Row]:
    _check(fields, (2,), "morpho-challenge")
    word, text = fields
    alternatives: list[list[str] | None] = []
    for alternative in text.split(", "):
        morphs = alternative.split()
        found = [re.match(r"(.[^:]*):", morph) for morph in morphs]
        if any(found):
            surface = [
                match[1] if match else morph for match, morph in zip(found, morphs, strict=True)
            ]
            parts: list[str] | None = [part for part in surface if part != "~"]
            # These are pieces of the word itself.
            alternatives.append(parts if parts and "".join(parts) == word else None)
        else:
            labels = [morph.split("_")[0] for morph in morphs]
            alternatives.append(None if any(m[0] == "+" for m in morphs) else labels)
    return [_Row(word, alternatives)]


def _sigmorphon(fields: list[str]) -> list[_Row] | None:
    _check(fields, (2, 3), "sigmorphon")
    words = fields[0].split(" ")
    taken: list[list[str]] = []
    for morph in fields[1].split(" "):
        if morph.startswith("@@") and len(morph) > 2 and taken:
            taken[-1].append(morph[2:])
        else:
            taken.append([morph])
    if len(words) != len(taken):
        return None
    return [_Row(word, [parts]) for word, parts in zip(words, taken, strict=True)]


def _morphynet(fields: list[str]) -> list[_Row]:
    _check(fields, (6,), "morphynet")
    base, word, _, _, affix, kind = fields
    if kind not in ("prefix", "suffix"):
        raise ValueError(f"column 6 is {kind!r}, neither prefix nor suffix")
    return [_Row(word, [[affix, base] if kind == "prefix" else [base, affix]])]


def _compounds(fields: list[str]) -> list[_Row]:
    _check(fields, (3,), "compounds")
    word, modifiers, head = fields
    return [_Row(word, [[*modifier.split(" "), head] for modifier in modifiers.split("|")])]


_Parser = Callable[[list[str]], list[_Row] | None]
_PARSERS: dict[Layout, tuple[_Parser, bool]] = {
    "morpho-challenge": (_morpho_challenge, False),
    "sigmorphon": (_sigmorphon, False),
    "morphynet": (_morphynet, True),
    "compounds": (_compounds, True),
}
"""How a line is read, and whether parts have rows of their own."""


def _taken_apart(
    located: Mapping[str, list[tuple[list[str], Boundaries]]],
) -> dict[str, list[Boundaries]]:
    """The alternatives of each word with those of its parts put in."""
    finished: dict[str, list[Boundaries]] = {}

    def alternatives(word: str, above: frozenset[str]) -> list[Boundaries]:
        if word in finished:
            return finished[word]
        found: dict[Boundaries, None] = {}
        above |= {word}
        for parts, bounds in located.get(word, ()):
            options = [bounds]
            inner = sorted(bounds)
            if len(inner) == len(parts) - 1:
                chunks = itertools.pairwise([0, *inner, len(word)])
                for part, (begin, end) in zip(parts, chunks, strict=True):
                    below = alternatives(part, above) if part not in above else []
                    carried = {_carried(word[begin:end], part, one, begin) for one in below}
                    if carried:
                        options = [a | b for a in options for b in sorted(carried, key=sorted)]
            found |= dict.fromkeys(options)
        if len(above) == 1:  # below others a circle may have been cut
            finished[word] = list(found)
        return list(found)

    for word in located:
        alternatives(word, frozenset())
    return finished


def _carried(chunk: str, part: str, bounds: Boundaries, begin: int) -> Boundaries:
    """The boundaries of a part at their places in the word, as far as the chunk has the part's
    characters up to there, from its start or from its end."""
    text, form = fold(chunk), fold(part)
    same = [a == b for a, b in zip(text, form, strict=False)]
    head = same.index(False) if False in same else len(same)
    same = [a == b for a, b in zip(text[::-1], form[::-1], strict=False)]
    tail = same.index(False) if False in same else len(same)
    moved = {
        x if x <= head else len(text) - (len(form) - x)
        for x in bounds
        if x <= head or len(form) - x <= tail
    }
    return frozenset(begin + x for x in moved if 0 < x < len(text))
