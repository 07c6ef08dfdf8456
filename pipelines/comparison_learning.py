"""Learns the segmenters of a comparison, of any kind, from word tables in memory.

A kind's class learns by `learn(words, counts, ...)`, by `learn_text(lines, ...)`, from merges, or
not at all; the keywords of whichever it has are the kind's keys in the config.
"""

import collections.abc
import dataclasses
import difflib
import inspect
import typing
from collections.abc import Collection, Mapping
from typing import Any

from rareword.pipelines.comparison_config import ALIASES, SegmenterOptions
from rareword.pipelines.comparison_texts import Text
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import from_mapping, option
from rareword.schemas.tables import Side
from rareword.transforms import segmenters
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.comparison import BpeRules, bpe_segmenter, learn_pairs
from rareword.transforms.segmenters import Segmenter


@dataclasses.dataclass(frozen=True)
class MergeOptions:
    """The keys of kinds that are learnt as merges."""

    merges: int = option(help="merges to learn", at_least=0)
    min_frequency: int = option(2, help="learning stops when no pair is so frequent", at_least=1)


def _is_bpe(kind: str) -> bool:
    return kind in ("bpe", "bytes")


def check(segmenter: SegmenterOptions) -> Any:
    """The kind's own options, typed. Raises RarewordError for a kind or key that there is not."""
    kind = segmenter.kind
    known = [*segmenters.KINDS, *ALIASES]
    if kind not in segmenters.KINDS:
        near = difflib.get_close_matches(kind, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise RarewordError(f"{segmenter.where}.kind: there is no segmenter {kind!r}; {hint}")
    if _is_bpe(kind):
        more = _options_of(BpeSegmenter, leave_out=("merge_limit",))
        both = dataclasses.make_dataclass("BpeOptions", [], bases=(MergeOptions, more), frozen=True)
        return from_mapping(both, segmenter.options, segmenter.where)
    return from_mapping(_options_of(_learner(kind)), segmenter.options, segmenter.where)


def learns_from_lines(segmenter: SegmenterOptions) -> bool:
    """Whether the kind needs raw text."""
    return not _is_bpe(segmenter.kind) and _learner(segmenter.kind).__name__ == "learn_text"


def learn(segmenter: SegmenterOptions, text: Text, side: Side) -> Segmenter:
    """Learns a segmenter for a side, from the words of this side, or of both if it is joint."""
    try:
        return _learn(segmenter, text, None if segmenter.joint else side)
    except RarewordError as error:
        raise RarewordError(f"{segmenter.where} ({segmenter.label}): {error}") from error


def _learn(segmenter: SegmenterOptions, text: Text, side: Side | None) -> Segmenter:
    options = check(segmenter)
    if _is_bpe(segmenter.kind):
        rules = BpeRules(
            "bytes" if segmenter.kind == "bytes" else "characters",
            segmenter.transliterate,
            options.min_frequency,
        )
        pairs = learn_pairs(text.words(side), options.merges, rules)
        ours = {field.name for field in dataclasses.fields(MergeOptions)}
        return bpe_segmenter(pairs, rules, **_values(options, leave_out=ours))
    learner, keywords = _learner(segmenter.kind), _values(options)
    learnt: Segmenter
    if learner.__name__ == "learn":
        words = text.words(side)
        learnt = learner(words.words, words.counts, **keywords)
    elif learner.__name__ == "learn_text":
        learnt = learner(text.lines(side), **keywords)
    else:
        learnt = learner(**keywords)
    return learnt


def _learner(kind: str) -> Any:
    made: Any = segmenters.class_of(kind, "segmenters")
    return getattr(made, "learn", None) or getattr(made, "learn_text", None) or made


def _values(options: Any, leave_out: Collection[str] = ()) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(options)]
    return {name: getattr(options, name) for name in names if name not in leave_out}


def _options_of(learner: Any, leave_out: Collection[str] = ()) -> type:
    """A dataclass of the keywords of a learner, for `from_mapping`."""
    function = learner.__init__ if inspect.isclass(learner) else learner
    if function is object.__init__:
        return dataclasses.make_dataclass("Options", [], frozen=True)
    hints = typing.get_type_hints(function)
    fields: list[Any] = []
    for name, parameter in inspect.signature(learner).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or name in leave_out:
            continue
        more: Mapping[str, Any] = (
            {} if parameter.default is inspect.Parameter.empty else {"default": parameter.default}
        )
        fields.append((name, _hint(hints[name]), option(help="an option of the kind", **more)))
    return dataclasses.make_dataclass("Options", fields, frozen=True)


def _hint(hint: Any) -> Any:
    """Lists come as tuples, and a keyword that may be several things is the first of them."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (
        collections.abc.Iterable,
        collections.abc.Sequence,
        collections.abc.Collection,
    ):
        return tuple[arguments[0], ...]  # type: ignore[valid-type]
    if type(None) in arguments:
        (inner, *_) = (_hint(one) for one in arguments if one is not type(None))
        return inner | None
    return hint
