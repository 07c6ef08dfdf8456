"""The config of `rareword compare-segmenters`, checked: texts, segmenters, and what is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rareword.schemas import config
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import from_mapping, option, refuse_unknown
from rareword.schemas.tables import SIDES, Side


@dataclass(frozen=True)
class TextOptions:
    """Where a text is: one of four forms."""

    words: str | None = option(None, help="`count-words` directory", shapes_result=False)
    corpus: str | None = option(None, help="`prepare` directory", shapes_result=False)
    parquet: tuple[str, ...] = option((), help="Parquet files or patterns", shapes_result=False)
    source: tuple[str, ...] = option(
        (), help="text files or patterns, a sentence a line", shapes_result=False
    )
    target: tuple[str, ...] = option(
        (), help="text files or patterns, a sentence a line", shapes_result=False
    )
    source_column: str = option("source", help="column of `parquet`")
    target_column: str = option("target", help="column of `parquet`")


@dataclass(frozen=True)
class NamesOptions:
    """Names in both languages."""

    file: str = option(
        help="TSV (no header) or Parquet, a pair of names a row", shapes_result=False
    )
    source_column: str | None = option(
        None, help="name of a Parquet column, or number of a TSV column from 1"
    )
    target_column: str | None = option(
        None, help="name of a Parquet column, or number of a TSV column from 1"
    )
    max_distance: float = option(
        0.5,
        help="pairs whose letters differ more, as a share of the longer name, are no "
        "transliterations and left out",
        at_least=0,
        at_most=1,
    )


@dataclass(frozen=True)
class GoldOptions:
    """A gold segmentation, such as morphemes."""

    file: str = option(help="words with their parts", shapes_result=False)
    layout: Literal["auto", "morpho-challenge", "sigmorphon", "morphynet", "compounds"] = option(
        "auto", help="layout of the file; auto: by its first lines"
    )
    encoding: str = option("utf-8", help="encoding of the file")
    words: int = option(
        0, help="words that are taken, evenly spaced in the sorted list (0: all)", at_least=0
    )


@dataclass(frozen=True)
class SweepOptions:
    """Numbers of merges, from one learning run."""

    merges: tuple[int, ...] = option(
        (1000, 2000, 4000, 8000, 16000, 32000, 64000), help="numbers of merges"
    )
    units: Literal["characters", "bytes"] = option("characters", help="what merges are learnt on")
    joint: bool = option(False, help="merges of both sides together")
    transliterate: Literal["none", "iso9"] = option(
        "none", help="learn Cyrillic words in Latin letters, and write the merges back"
    )
    min_frequency: int = option(2, help="learning stops when no pair is so frequent", at_least=1)
    rare: tuple[int, ...] = option(
        (10, 100), help="shares of the pieces that occur less often are shown"
    )


@dataclass(frozen=True)
class SuggestionOptions:
    """The rule: the largest size at which `share` of the pieces occur `occurrences` times."""

    share: float = option(0.95, help="share of the pieces", at_least=0, at_most=1)
    occurrences: int = option(100, help="how often they occur at least", at_least=1)
    pieces: Literal["all", "merged"] = option(
        "all", help="which pieces count; merged: not the single characters, which every size has"
    )


@dataclass(frozen=True)
class StressOptions:
    """Perturbed words of the held-out text."""

    words: int = option(1000, help="held-out words that are perturbed, one a line", at_least=1)
    seed: int = option(1, help="seed for the choice of words and of what happens to them")


@dataclass(frozen=True)
class SegmenterOptions:
    """A row of the table."""

    label: str
    kind: str
    where: str
    """Its place in the config, for errors."""
    joint: bool = False
    """Learnt from the words of both sides."""
    transliterate: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """The kind's own."""

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "kind": self.kind,
            "joint": self.joint,
            "transliterate": self.transliterate,
            "options": dict(self.options),
        }


@dataclass(frozen=True)
class Comparison:
    """A whole config."""

    side: Side
    training: TextOptions
    held_out: TextOptions
    segmenters: tuple[SegmenterOptions, ...]
    gold: GoldOptions | None
    names: NamesOptions | None
    sweep: SweepOptions | None
    suggestion: SuggestionOptions
    stress: StressOptions


SECTIONS = {
    "training": TextOptions,
    "held_out": TextOptions,
    "gold": GoldOptions,
    "names": NamesOptions,
    "sweep": SweepOptions,
    "suggestion": SuggestionOptions,
    "stress": StressOptions,
}
KEYS = ("output", "side", "segmenters", *SECTIONS)

ALIASES: dict[str, tuple[str, dict[str, Any]]] = {
    "characters": ("bpe", {"merges": 0}),
    "bpe-joint": ("bpe", {"joint": True}),
    "bpe-joint-iso9": ("bpe", {"joint": True, "transliterate": "iso9"}),
}
"""Kinds that are another one with some of its keys: no merges leave characters."""


def read(url: str) -> dict[str, Any]:
    """The config file's keys, of which none is unknown. Raises RarewordError."""
    value = config.read(url)
    if not isinstance(value, dict):
        raise RarewordError(f"{url}: expected keys and values, found {value!r}")
    refuse_unknown(value, KEYS, url)
    return value


def check(value: Mapping[str, Any], url: str) -> Comparison:
    """The config. Raises RarewordError naming the key for whatever is missing, unknown or wrong."""
    sections: dict[str, Any] = {
        name: from_mapping(cls, value[name] or {}, f"{url}: {name}")
        for name, cls in SECTIONS.items()
        if name in value
    }
    for name in ("training", "held_out"):
        if name not in sections:
            raise RarewordError(f"{url}: the key {name!r} is missing (where the text is)")
        _check_text(sections[name], f"{url}: {name}")
    side = value.get("side", "target")
    if side not in SIDES:
        raise RarewordError(f"{url}: side: {side!r} is not one of {', '.join(SIDES)}")
    sweep = sections.get("sweep")
    if sweep is not None:
        _check_numbers(sweep.merges, f"{url}: sweep.merges", 0)
        _check_numbers(sweep.rare, f"{url}: sweep.rare", 1)
    if "suggestion" in sections and sweep is None:
        raise RarewordError(
            f"{url}: suggestion: the numbers of merges to choose from are missing; add the key "
            "'sweep'"
        )
    return Comparison(
        side=side,
        training=sections["training"],
        held_out=sections["held_out"],
        segmenters=_segmenters(value.get("segmenters"), f"{url}: segmenters"),
        gold=sections.get("gold"),
        names=sections.get("names"),
        sweep=sweep,
        suggestion=sections.get("suggestion", SuggestionOptions()),
        stress=sections.get("stress", StressOptions()),
    )


def _check_text(text: TextOptions, where: str) -> None:
    forms = {
        "words": text.words is not None,
        "corpus": text.corpus is not None,
        "parquet": bool(text.parquet),
        "source and target": bool(text.source or text.target),
    }
    given = [name for name, is_given in forms.items() if is_given]
    if len(given) != 1:
        found = "none is given" if not given else f"{' and '.join(given)} are given"
        raise RarewordError(f"{where}: give one of {', '.join(forms)}; {found}")


def _check_numbers(numbers: Sequence[int], where: str, low: int) -> None:
    if not numbers:
        raise RarewordError(f"{where}: the list is empty")
    for number in numbers:
        if number < low:
            raise RarewordError(f"{where}: {number} is below {low}")


def _segmenters(value: Any, where: str) -> tuple[SegmenterOptions, ...]:
    if not isinstance(value, list) or not value:
        raise RarewordError(
            f"{where}: expected a list of segmenters such as {{kind: bpe, merges: 8000}}, found "
            f"{value!r}"
        )
    found: list[SegmenterOptions] = []
    for number, entry in enumerate(value, 1):
        one = _segmenter(entry, f"{where}, number {number}")
        if one.label in {other.label for other in found}:
            raise RarewordError(
                f"{one.where}: the label {one.label!r} is taken; give one of them another 'label'"
            )
        found.append(one)
    return tuple(found)


def _segmenter(entry: Any, where: str) -> SegmenterOptions:
    if not isinstance(entry, dict):
        raise RarewordError(f"{where}: expected keys and values, found {entry!r}")
    given = dict(entry)
    kind, label = given.pop("kind", None), given.pop("label", None)
    if not isinstance(kind, str):
        raise RarewordError(f"{where}: the key 'kind' is missing (such as words or bpe)")
    if label is not None and not isinstance(label, str):
        raise RarewordError(f"{where}.label: expected str, found {label!r}")
    label = label or _label(kind, given)
    if kind in ALIASES:
        kind, more = ALIASES[kind]
        for name in more:
            if name in given:
                raise RarewordError(
                    f"{where}.{name}: kind {entry['kind']!r} is kind {kind!r} with {name} "
                    f"{more[name]!r}; leave the key out"
                )
        given |= more
    joint, transliterate = given.pop("joint", False), given.pop("transliterate", "none")
    if not isinstance(joint, bool):
        raise RarewordError(f"{where}.joint: expected bool, found {joint!r}")
    if transliterate not in ("none", "iso9"):
        raise RarewordError(f"{where}.transliterate: {transliterate!r} is not one of none, iso9")
    if transliterate == "iso9" and kind != "bpe":
        raise RarewordError(f"{where}.transliterate: only kind bpe has it, not {kind}")
    return SegmenterOptions(label, kind, where, joint, transliterate == "iso9", given)


def _label(kind: str, given: Mapping[str, Any]) -> str:
    """`bpe, merges 8,000, joint`."""
    parts = [kind]
    for name, value in given.items():
        if value is True:
            parts.append(name.replace("_", " "))
        elif value is not False and value is not None:
            text = f"{value:,}" if isinstance(value, int) else str(value)
            text = " ".join(map(str, value)) if isinstance(value, list) else text
            parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts)
