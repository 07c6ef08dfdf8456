"""`rareword export-segmenter`: the segmenter of one side -> tokenizer.json of Hugging Face."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rareword.pipelines import segmenter_directory
from rareword.pipelines.job import refuse_arguments
from rareword.schemas import options as typed_options
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import option
from rareword.schemas.vocabulary import Vocabulary

if TYPE_CHECKING:
    from rareword.transforms.segmenters import Segmenter


@dataclass(frozen=True)
class ExportSegmenterOptions:
    segmenter: str = option(help="directory that `learn-segmenter` or `segment` wrote")
    side: Literal["source", "target"] = option(help="the side whose segmenter it is")
    output: str = option(help="file to write, usually tokenizer.json")
    overwrite: bool = option(False, help="replace the file")
    quiet: bool = option(False, help="print no summary")


def run(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit code; errors are RarewordError."""
    options, rest = typed_options.parse(
        ExportSegmenterOptions,
        "rareword export-segmenter",
        "Writes the segmenter of one side as tokenizer.json of Hugging Face's tokenizers library.\n"
        "What that format cannot express is refused.",
        argv,
    )
    if rest:
        refuse_arguments(rest, typed_options.flags(ExportSegmenterOptions))
    export(options)
    return 0


def export(options: ExportSegmenterOptions) -> None:
    """Writes the file."""
    from rareword.transforms import segmenters

    manifest = segmenter_directory.read_any(options.segmenter)
    if storage.exists(options.output) and not options.overwrite:
        raise RarewordError(f"--output: {options.output} is there already; add --overwrite")
    rules = manifest.rules["segmenter"]
    both = segmenters.load(options.segmenter, rules["kind"], rules["settings"])
    vocabulary = getattr(vocabularies.read_both(options.segmenter), options.side)
    value = tokenizer(rules["kind"], both[options.side], vocabulary)
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    storage.write_bytes(options.output, text.encode())
    if not options.quiet:
        size = len(value["model"]["vocab"])
        print(f"export-segmenter: {size:,} pieces -> {options.output}", file=sys.stderr)


def tokenizer(kind: str, segmenter: "Segmenter", vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of tokenizer.json. RarewordError for what it cannot express."""
    from rareword.transforms import huggingface
    from rareword.transforms.bpe import BpeSegmenter

    if isinstance(segmenter, BpeSegmenter):
        for name, value in segmenter.settings().items():
            if name != "units" and value:
                raise RarewordError(
                    f"the segmenter's {name.replace('_', ' ')} has no counterpart in "
                    "tokenizer.json; export one without it"
                )
        return huggingface.from_bpe(segmenter.merges, vocabulary, segmenter.units == "bytes")
    found: Any = segmenter
    if kind == "wordpiece":
        return huggingface.from_wordpiece(found.initial, found.inside, found.max_word_length)
    if kind == "unigram":
        return huggingface.from_unigram(list(found.log_probabilities.items()))
    raise RarewordError(f"a segmenter of kind {kind!r} has no counterpart in tokenizer.json")
