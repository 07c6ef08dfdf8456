"""What is measured on translations: BLEU, chrF, exact matches, unigram F1 by training frequency.

BLEU and chrF are sacrebleu's, on text as people read it. Unigram F1 is the paper's: words as the
model saw them (tokenised, truecased), counts clipped sentence by sentence as in BLEU, precision and
recall over the whole test set, for words by how often they occurred in training.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from rareword.schemas.tables import WORDS, iterate_row_groups

UNKNOWN = "<unk>"
"""How an unknown piece is shown: a produced token that is no word of any class."""


class Score(NamedTuple):
    """A corpus score of sacrebleu (0 to 100) with the signature that makes it comparable."""

    value: float
    signature: str


class Bleu(NamedTuple):
    """BLEU, and the length of the hypotheses over that of the references in its tokens."""

    value: float
    signature: str
    length_ratio: float


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str) -> Bleu:
    """Corpus BLEU of text; `tokenizer` is one of sacrebleu's, such as 13a."""
    # `force` silences a guess about tokenised input; the report has a warning of its own.
    metric = BLEU(tokenize=tokenizer, force=True)
    found = metric.corpus_score(hypotheses, [references])
    return Bleu(found.score, str(metric.get_signature()), found.sys_len / max(found.ref_len, 1))


def chrf(hypotheses: Sequence[str], references: Sequence[str], beta: int) -> Score:
    """Corpus chrF of text; recall weighs `beta` times as much as precision (the paper: 3)."""
    metric = CHRF(beta=beta)
    found = metric.corpus_score(hypotheses, [references])
    return Score(found.score, f"{found.name}|{metric.get_signature()}")


def comparable(text: str) -> str:
    """Text without what nobody sees: normal form C, single spaces, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def exact_matches(hypotheses: Sequence[str], references: Sequence[str]) -> int:
    """Sentences that equal their reference, both made `comparable`."""
    return sum(
        comparable(hypothesis) == comparable(reference)
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )


# ---- words by their frequency in training ----


def training_counts(urls: Iterable[str], words: Collection[str]) -> dict[str, int]:
    """How often each of `words` occurs on the target side of the training data.

    urls: the shards of a `words` table, of which memory holds one row group at a time.
    """
    counts = dict.fromkeys(words, 0)
    wanted = pa.array(sorted(words), pa.string())
    for url in urls:
        for table in iterate_row_groups(url, WORDS, ["word", "target_count"]):
            found = table.filter(pc.is_in(table["word"], wanted))
            for word, count in zip(*(column.to_pylist() for column in found.columns), strict=True):
                counts[word] += count
    return counts


class Band(NamedTuple):
    """Words by their number of occurrences in training, bounds included."""

    low: int
    high: int | None

    def holds(self, count: int) -> bool:
        return self.low <= count and (self.high is None or count <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low:,} and more"
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"


BANDS = (
    Band(0, 0),
    Band(1, 1),
    Band(2, 4),
    Band(5, 9),
    Band(10, 99),
    Band(100, 999),
    Band(1000, None),
)
"""From words never seen in training to frequent ones."""


ALL, UNSEEN = Band(0, None), BANDS[0]


def classes(rare_threshold: int) -> dict[str, Band]:
    """The paper's three: all words, rare ones (seen, but seldom) and those never seen."""
    return {"all": ALL, "rare": Band(1, rare_threshold), "unseen": UNSEEN}


@dataclass(frozen=True)
class Unigrams:
    """Words matched, produced and expected over a test set; matches clipped per sentence."""

    matched: int
    produced: int
    expected: int

    @property
    def precision(self) -> float | None:
        """Share of the produced words that their references hold; None if none was produced."""
        return self.matched / self.produced if self.produced else None

    @property
    def recall(self) -> float | None:
        """Share of the references' words that were produced; None if there are none."""
        return self.matched / self.expected if self.expected else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None if there is nothing to find or to count."""
        total = self.produced + self.expected
        return 2 * self.matched / total if total else None


@dataclass(frozen=True)
class WordMatches:
    """For each word of a test set: how often it was matched, produced and expected."""

    matched: Mapping[str, int]
    produced: Mapping[str, int]
    expected: Mapping[str, int]

    def within(self, band: Band, training: Mapping[str, int]) -> Unigrams:
        """The sums over the words of a band; training: how often each word occurred there.

        `<unk>` is a wrong word among all words, and in no other band.
        """

        def inside(word: str) -> bool:
            return band == ALL or (word != UNKNOWN and band.holds(training[word]))

        return Unigrams(
            *(
                sum(count for word, count in counts.items() if inside(word))
                for counts in (self.matched, self.produced, self.expected)
            )
        )


def match_words(
    hypotheses: Iterable[Sequence[str]], references: Iterable[Sequence[str]]
) -> WordMatches:
    """Compares words sentence by sentence; a match counts as often as both sides have the word."""
    matched, produced, expected = Counter[str](), Counter[str](), Counter[str]()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = Counter(hypothesis), Counter(reference)
        produced.update(ours)
        expected.update(theirs)
        matched.update(ours & theirs)
    return WordMatches(matched, produced, expected)


# ---- samples ----


def choose(ids: Iterable[int], preferred: Collection[int], number: int, seed: int) -> list[int]:
    """`number` of the ids at random, three quarters of them from `preferred` if it has as many.

    The choice depends on nothing but the arguments; the result is sorted.
    """

    def order(id_: int) -> bytes:
        return hashlib.sha256(f"{seed} {id_}".encode()).digest()

    ordered = sorted(ids, key=order)
    first = [id_ for id_ in ordered if id_ in preferred]
    rest = [id_ for id_ in ordered if id_ not in preferred]
    others = min(len(rest), number - min(len(first), number - number // 4))
    return sorted(first[: number - others] + rest[:others])
