"""All figures of an evaluation, as the JSON values of metrics.json.

V: distinct words of references and translations; K: distinct words of each reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.pipelines.systems import References, System
from rareword.schemas import manifest as manifests
from rareword.schemas import vocabulary as vocabularies
from rareword.transforms import metrics, outputs, significance, unigrams, unseen
from rareword.transforms.compounds import CompoundSegmenter
from rareword.transforms.metrics import Counts
from rareword.transforms.outputs import Share
from rareword.transforms.unigrams import (
    ALL,
    BANDS,
    UNKNOWN,
    UNSEEN,
    Bag,
    Band,
    Frequencies,
    Ints,
    Lexicon,
    Mask,
    Matches,
    Text,
    Unigrams,
)

if TYPE_CHECKING:
    from rareword.pipelines.evaluate import EvaluateOptions


def measure(
    test: References, systems: Sequence[System], options: "EvaluateOptions"
) -> tuple[dict[str, Any], dict[str, int]]:
    """What goes to metrics.json, and how often training had each word of the test set.

    systems: the last one is the copied source.
    """
    lexicon = Lexicon()
    expected = lexicon.encode(test.target_words)
    texts = {system.name: lexicon.encode(system.words) for system in systems}
    measured = look_up(test, expected, lexicon.words, options)
    counts = {
        system.name: metrics.count_all(system.texts, test.targets, options.bleu_tokenizer)
        for system in systems
    }
    names = [system.name for system in systems]
    copy = unigrams.match(texts[names[-1]], measured.expected)
    figures = {
        system.name: measure_system(
            system, counts[system.name], texts[system.name], copy, measured, options
        )
        for system in systems
    }
    prepared = manifests.read(options.references, "prepare", "--references")
    found = {
        "sentences": len(test.ids),
        "rejected_references": prepared.figures["rejected"],
        "references": "raw" if test.raw else "restored",
        "rare_rank": options.rare_rank if options.rare_threshold is None else None,
        "rare_threshold": measured.rarest,
        "rare_from_rank": measured.frequencies.first_rank(measured.rarest),
        "training_types": measured.frequencies.types,
        "reference_words": count_reference_words(measured, measured.classes),
        "reference_words_by_training_frequency": count_reference_words(measured, _BANDS),
        "reference_unseen_by_class": count_classes(measured),
        "reference_outputs": measure_outputs(test.targets, expected, measured),
        "f1_by_training_rank": rank_rows(measured, figures),
        "systems": figures,
        "significance": test_systems({name: counts[name] for name in names[:-1]}, options),
    }
    found["warnings"] = warnings(found, names[:-1])
    return found, dict(zip(measured.words, measured.training_V.tolist(), strict=True))


_BANDS = {str(band): band for band in BANDS}


@dataclass(frozen=True)
class Measured:
    """What all systems are measured with. V: distinct words of references and translations."""

    test: References
    words: Sequence[str]
    """By number."""
    training_V: Ints
    """How often training had each word."""
    is_word_V: Mask
    """False at `<unk>`."""
    expected: Bag
    """The words of the references."""
    classes_K: NDArray[np.int8]
    """The class of each expected word that is unseen, -1 for the others."""
    rarest: int
    """How often a rare word occurred in training at most."""
    frequencies: Frequencies

    def mask(self, band: Band) -> Mask:
        """The words of a band; `<unk>` is a wrong word among all words, and in no other band."""
        inside = band.holds(self.training_V)
        return inside if band == ALL else inside & self.is_word_V

    def bands(self, by: Mapping[str, Band], matches: Matches) -> dict[str, Any]:
        """The unigrams of each band."""
        counts = matches.by_word(len(self.words))
        return {name: _figures(counts.within(self.mask(band))) for name, band in by.items()}

    @property
    def classes(self) -> dict[str, Band]:
        """All, rare and unseen words."""
        return unigrams.classes(self.rarest)

    @property
    def ranks(self) -> dict[str, Band]:
        """The bins of training rank by their first rank; unseen words after the last."""
        bins = {str(found.low): found.band for found in self.frequencies.bins()}
        return bins | {str(self.frequencies.types + 1): UNSEEN}


def look_up(
    test: References, expected: Text, words: Sequence[str], options: "EvaluateOptions"
) -> Measured:
    """Looks up the words in the training data, and finds out what the unseen ones are."""
    urls = manifests.read(options.words, "count-words", "--words").urls
    training_V, frequencies = unigrams.read_training(urls, words)
    is_word_V = np.array([word != UNKNOWN for word in words], np.bool_)
    bag = unigrams.bag(expected)
    unseen_V = (training_V == 0) & is_word_V
    missing = {words[number] for number in bag.words_K[unseen_V[bag.words_K]]}
    parts = unseen.candidate_parts(missing, options.part_length)
    known = unseen.read_known(urls, parts) if missing else {}
    origins = unseen.Origins(
        known.keys(),
        CompoundSegmenter.learn(
            pa.array(list(known), pa.string()),
            np.array(list(known.values()), np.int64),
            language=test.target_language,
            min_length=options.part_length,
        ),
        options.cognate_distance,
    )
    return Measured(
        test,
        words,
        training_V,
        is_word_V,
        bag,
        unseen.classify(bag, unseen_V, words, test.source_words, origins),
        options.rare_threshold or frequencies.highest_beyond(options.rare_rank),
        frequencies,
    )


def measure_system(
    system: System,
    counts: Mapping[str, Counts],
    text: Text,
    copy: Matches,
    measured: Measured,
    options: "EvaluateOptions",
) -> dict[str, Any]:
    """All figures of a system, as JSON values; shares and F1 from 0 to 1, BLEU and chrF to 100.

    counts: what sacrebleu counts in each sentence. text: the system's words. copy: the matches of
    the copied source.
    """
    test = measured.test
    exact = metrics.exact_matches(system.texts, test.targets)
    matches = unigrams.match(text, measured.expected)
    unseen_V = measured.mask(UNSEEN)
    scores = metrics.scores(counts, options.bleu_tokenizer)
    empty = sum(not output.strip() for output in system.texts)
    return {
        **{name: score._asdict() for name, score in scores.items()},
        "exact_matches": {"count": exact, "share": exact / len(test.ids)},
        "empty_outputs": empty,
        "unknown_pieces": sum(
            piece.removesuffix(vocabularies.SEPARATOR) == UNKNOWN
            for shown in system.pieces
            for piece in shown
        ),
        "unigrams": measured.bands(measured.classes, matches),
        "unigrams_by_training_frequency": measured.bands(_BANDS, matches),
        "unigrams_by_training_rank": measured.bands(measured.ranks, matches),
        "unseen_by_class": {
            name: {"matched": matched, "recall": matched / expected if expected else None}
            for name, (matched, expected) in unseen.recalled(matches, measured.classes_K).items()
        },
        "unseen_by_threshold": None
        if system.scores is None
        else unseen.fallback(matches, copy, system.scores, unseen_V),
        "outputs": measure_outputs(system.texts, text, measured)
        | {
            "length_ratio": len(text.words_N) / max(int(measured.expected.counts_K.sum()), 1),
            "empty": empty / len(test.ids),
            "at_limit": None if system.at_limit is None else system.at_limit / len(test.ids),
        },
    }


def measure_outputs(texts: Sequence[str], text: Text, measured: Measured) -> dict[str, Any]:
    """Loops and marks of pieces, of translations as of references."""
    return {
        "repeats": {
            str(n): _share(outputs.repeats(text, n)) for n in range(1, outputs.LONGEST_REPEAT + 1)
        },
        "loops": _share(outputs.loops(text, measured.words)),
        "marks": outputs.marked(texts),
        "detached_stops": _share(outputs.detached(texts)),
    }


def _share(found: Share) -> dict[str, int | float]:
    return {"count": found.found, "of": found.total, "share": found.share}


def _figures(unigrams: Unigrams) -> dict[str, int | float | None]:
    return {
        "matched": unigrams.matched,
        "produced": unigrams.produced,
        "expected": unigrams.expected,
        "precision": unigrams.precision,
        "recall": unigrams.recall,
        "f1": unigrams.f1,
    }


def count_reference_words(
    measured: Measured, bands: Mapping[str, Band]
) -> dict[str, dict[str, int]]:
    """How many words of each band the references have: types and tokens."""
    expected_V = measured.expected.by_word(len(measured.words))
    found = {}
    for name, band in bands.items():
        inside = expected_V[measured.mask(band)]
        found[name] = {"types": int((inside > 0).sum()), "tokens": int(inside.sum())}
    return found


def rank_rows(measured: Measured, systems: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The paper's Figures 2 and 3 as rows: F1 by rank of training frequency, unseen words last."""
    words = count_reference_words(measured, measured.ranks)
    highs = [(found.high, found.types) for found in measured.frequencies.bins()]
    rows = []
    for (low, band), (high, types) in zip(
        measured.ranks.items(), [*highs, (None, None)], strict=True
    ):
        rows.append(
            {
                "from": int(low),
                "to": high,
                "training_types": types,
                "occurrences": None if band.high == 0 and band.low else [band.low, band.high],
                **words[low],
                "f1": {
                    name: figures["unigrams_by_training_rank"][low]["f1"]
                    for name, figures in systems.items()
                },
            }
        )
    return rows


def count_classes(measured: Measured) -> dict[str, dict[str, int]]:
    """How many unseen words of the references are of each class: types and tokens. A type may be of
    several classes, for what it is depends on the source sentence."""
    found = {}
    for number, name in enumerate(unseen.CLASSES):
        chosen = measured.classes_K == number
        found[name] = {
            "types": len(set(measured.expected.words_K[chosen].tolist())),
            "tokens": int(measured.expected.counts_K[chosen].sum()),
        }
    return found


def test_systems(
    counts: Mapping[str, Mapping[str, Counts]], options: "EvaluateOptions"
) -> dict[str, Any] | None:
    """The significance test of every two systems; None if none is wanted."""
    test: Any = options.significance
    if test == "none":
        return None
    trials = options.trials or significance.DEFAULT_TRIALS[test]
    found = significance.compare(counts, options.bleu_tokenizer, test, trials, options.seed)
    return {
        "test": test,
        "trials": trials,
        "seed": options.seed,
        "comparisons": [comparison._asdict() for comparison in found],
    }


# ---- warnings ----


def warnings(found: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """What a reader of the figures should know. names: the systems but the copied source."""
    texts = []
    if found["references"] != "raw":
        texts.append(
            "The references are the corpus with tokenisation and truecasing undone, not the "
            "original text: scores are comparable among these systems only. Prepare the test set "
            "with --keep-raw."
        )
    mean_length = found["reference_words"]["all"]["tokens"] / found["sentences"]
    if mean_length < 4:
        texts.append(
            f"References have {mean_length:.1f} words on average and BLEU counts sequences of up "
            "to four: it says little here, look at chrF and exact matches."
        )
    if not found["rare_threshold"]:
        texts.append(
            f"Training has {found['training_types']:,} word types and rare words begin after "
            f"{found['rare_rank']:,}: no word is rare. Lower --rare-rank, or set --rare-threshold."
        )
    references = found["reference_outputs"]
    if references["detached_stops"]["share"] > _LOOKS_TOKENISED:
        texts.append(
            f"{_percent(references['detached_stops'])} of the references' full stops have a space "
            "before them: the references look tokenised, and scores on them cannot be compared "
            "with others."
        )
    for name in names:
        texts += _suspicions(name, found["systems"][name]["outputs"], references, found)
    return texts


_LOOKS_TOKENISED = 0.1
"""Share of detached full stops."""
_MANY = 0.01
"""Share of empty outputs, of those at the limit, and of repeats beyond the references' own."""


def _suspicions(
    name: str, outputs: Mapping[str, Any], references: Mapping[str, Any], found: Mapping[str, Any]
) -> list[str]:
    """What looks wrong with a system's outputs."""
    texts = [
        f"The piece mark {mark} stands in {count:,} of the outputs of {name} and in "
        f"{references['marks'][mark]:,} of the references: the outputs look segmented, and their "
        "scores mean nothing."
        for mark, count in outputs["marks"].items()
        if count > references["marks"][mark]
    ]
    stops, own = outputs["detached_stops"], references["detached_stops"]
    if stops["share"] > own["share"] + _LOOKS_TOKENISED:
        texts.append(
            f"{_percent(stops)} of the full stops at the end of outputs of {name} have a space "
            f"before them, {_percent(own)} of the references': the outputs look tokenised, and "
            "BLEU and chrF are not those of readable text."
        )
    for key, what in (("empty", "are empty"), ("at_limit", "were cut off at the length limit")):
        if (outputs[key] or 0) > _MANY:
            texts.append(f"{100 * outputs[key]:.1f} % of the outputs of {name} {what}.")
    loops = [
        (f"{n}-grams of words follow upon themselves", repeated, references["repeats"][n])
        for n, repeated in outputs["repeats"].items()
    ]
    what = "words have characters four times in a row"
    loops.append((what, outputs["loops"], references["loops"]))
    what, ours, theirs = max(loops, key=lambda loop: loop[1]["share"] - loop[2]["share"])
    if ours["share"] > theirs["share"] + _MANY:
        texts.append(
            f"{_percent(ours)} of the {what} in outputs of {name}, {_percent(theirs)} in "
            "references: the system loops."
        )
    return texts


def _percent(found: Mapping[str, Any]) -> str:
    return f"{100 * found['share']:.1f} %"
