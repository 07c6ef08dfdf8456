"""`rareword segment-text`: lines of text to pieces and back, from standard input to output."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rareword.pipelines import streams
from rareword.pipelines.job import refuse_arguments
from rareword.schemas import manifest as manifests
from rareword.schemas import options as typed_options
from rareword.schemas.options import option

if TYPE_CHECKING:
    from rareword.transforms.plain_text import Block


@dataclass(frozen=True)
class SegmentTextOptions:
    segmenter: str = option(help="directory that `learn-segmenter` or `segment` wrote")
    side: Literal["source", "target"] = option(help="the side whose segmenter cuts the text")
    restore: bool = option(False, help="the other way: pieces, or ids with --ids, to text")
    ids: bool = option(False, help="piece ids instead of pieces")
    kernel_threads: int = option(1, help="threads", at_least=1)


def run(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit code; errors are RarewordError."""
    options, rest = typed_options.parse(
        SegmentTextOptions,
        "rareword segment-text",
        "Cuts lines of standard input into pieces, `lo@@ wer`, on standard output; with --restore\n"
        "makes text of them again. Words are split at spaces, so the text must be as in a corpus.",
        argv,
    )
    if rest:
        refuse_arguments(rest, typed_options.flags(SegmentTextOptions))
    return streams.run(lambda: segment_text(options))


def segment_text(options: SegmentTextOptions) -> None:
    """Standard input to standard output, in blocks of lines."""
    from rareword.schemas import vocabulary as vocabularies
    from rareword.transforms import segmenters
    from rareword.transforms.segment_text import TextSegmenter, restore_ids, restore_pieces

    jobs = ("learn-segmenter", "import-segmenter", "segment")
    manifest = manifests.read(options.segmenter, jobs, "--segmenter")
    vocabulary = getattr(vocabularies.read_both(options.segmenter), options.side)
    cutter = None
    work: Callable[[Block], bytes]
    if not options.restore:
        rules = manifest.rules["segmenter"]
        both = segmenters.load(options.segmenter, rules["kind"], rules["settings"])
        cutter = TextSegmenter(both[options.side], vocabulary, options.ids, options.kernel_threads)
        work = cutter.segment
    elif options.ids:
        work = functools.partial(restore_ids, vocabulary)
    else:
        work = functools.partial(restore_pieces, vocabulary)
    with streams.read(streams.STANDARD) as blocks, streams.write(streams.STANDARD) as out:
        for block in blocks:
            streams.pass_on([work(block)], out, block)
    if cutter and cutter.unknown:
        streams.note(
            f"segment-text: {cutter.unknown:,} of {cutter.pieces:,} pieces are <unk>, for the "
            "vocabulary has nothing for their text"
        )
