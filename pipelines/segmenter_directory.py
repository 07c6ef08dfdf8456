"""A `segmenter` directory: what `learn-segmenter` and `import-segmenter` finish alike, and others
read."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rareword.schemas import manifest as manifests
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.tables import SIDES, ShardRecord, file_record

if TYPE_CHECKING:
    from rareword.transforms.segmenting import BuiltVocabulary

MAKERS = ("learn-segmenter", "import-segmenter")


def read_any(directory: str) -> Manifest:
    """The manifest of --segmenter; a `segmented` directory has copies of all files too."""
    return manifests.read(directory, (*MAKERS, "segment"), "--segmenter")


def check_words(words: Manifest, made: "BuiltVocabulary") -> None:
    """The pieces of a vocabulary end as many words as were counted."""
    manifests.check_balance(
        {
            "source words": (words.counter("source_tokens"), made.source_words),
            "target words": (words.counter("target_tokens"), made.target_words),
        }
    )


def finish(
    plan: Plan,
    output: str,
    files: Sequence[ShardRecord],
    segmenter: Mapping[str, Any],
    rules: Mapping[str, Any],
    figures: Mapping[str, Any] | None = None,
) -> None:
    """Writes the manifest; the vocabularies are there already.

    segmenter: its kind, settings and whether the vocabulary is joint. rules, figures: all others.
    """
    both = vocabularies.read_both(output)
    names = {"source": vocabularies.SOURCE_NAME, "target": vocabularies.TARGET_NAME}
    sizes = {side: len(getattr(both, side)) for side in SIDES}
    manifests.finish(
        plan,
        output,
        None,
        [],
        files=[*files, *(file_record(output, names[side], sizes[side]) for side in SIDES)],
        figures={**{f"{side}_vocabulary": size for side, size in sizes.items()}, **(figures or {})},
        rules={**rules, "segmenter": dict(segmenter), "vocabulary": both.hash},
    )
