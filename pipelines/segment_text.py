"""`rareword segment-text`: lines of text to pieces and back, from standard input to output."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from rareword.pipelines import segmenter_directory, streams
from rareword.pipelines.job import refuse_arguments
from rareword.schemas import options as typed_options
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import option

if TYPE_CHECKING:
    from rareword.schemas.vocabulary import Vocabulary
    from rareword.transforms.plain_text import Block
    from rareword.transforms.segmenters import Sampler, SamplingSegmenter, Segmenter
    from rareword.transforms.unigram import UnigramSegmenter

DEFAULT_SEED = 1
_APART = (
    ("sample", "restore"),
    ("n_best", "restore"),
    ("n_best", "ids"),
    ("n_best", "sample"),
)
"""Options that do not go together."""


@dataclass(frozen=True)
class SegmentTextOptions:
    segmenter: str = option(help="directory that `learn-segmenter` or `segment` wrote")
    side: Literal["source", "target"] = option(help="the side whose segmenter cuts the text")
    restore: bool = option(False, help="the other way: pieces, or ids with --ids, to text")
    ids: bool = option(False, help="piece ids instead of pieces")
    sample: float | None = option(
        None,
        help="draw a segmentation of each line: with this probability of BPE-dropout (bpe, bytes), "
        "or with this alpha (unigram)",
    )
    seed: int | None = option(
        None, help="of --sample; the default is 1", at_least=0, at_most=2**64 - 1
    )
    n_best: int | None = option(
        None,
        help="each line is a word: its so many most probable segmentations (unigram)",
        at_least=1,
        at_most=512,  # unigram.MOST_SEGMENTATIONS
    )
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
    from rareword.transforms import segment_text as texts
    from rareword.transforms import segmenters

    _check(options)
    manifest = segmenter_directory.read_any(options.segmenter)
    vocabulary = getattr(vocabularies.read_both(options.segmenter), options.side)
    cutter = None
    work: Callable[[Block], bytes]
    if options.restore:
        restore = texts.restore_ids if options.ids else texts.restore_pieces
        work = functools.partial(restore, vocabulary)
    else:
        rules = manifest.rules["segmenter"]
        kind = rules["kind"]
        segmenter = segmenters.load(options.segmenter, kind, rules["settings"])[options.side]
        if options.n_best is not None:
            if not hasattr(segmenter, "n_best"):
                raise RarewordError(
                    f"--n-best: a segmenter of kind {kind!r} gives one segmentation of a word; "
                    "those of kind unigram list others"
                )
            unigram = cast("UnigramSegmenter", segmenter)
            work = functools.partial(texts.list_segmentations, unigram, options.n_best)
        else:
            sampler = _sampler(options, kind, segmenter, vocabulary)
            threads = options.kernel_threads
            cutter = texts.TextSegmenter(segmenter, vocabulary, options.ids, threads, sampler)
            work = cutter.segment
    with streams.read(streams.STANDARD) as blocks, streams.write(streams.STANDARD) as out:
        for block in blocks:
            streams.pass_on([work(block)], out, block)
    if cutter and cutter.unknown:
        streams.note(
            f"segment-text: {cutter.unknown:,} of {cutter.pieces:,} pieces are <unk>, for the "
            "vocabulary has nothing for their text"
        )


def _check(options: SegmentTextOptions) -> None:
    """Raises RarewordError for options that do not go together."""
    for one, other in _APART:
        if all(
            given is not None and given is not False  # 0.0 is given, too
            for given in (getattr(options, one), getattr(options, other))
        ):
            raise RarewordError(
                f"{typed_options.flag(one)} and {typed_options.flag(other)} do not go together; "
                "leave one of them out"
            )
    if options.seed is not None and options.sample is None:
        raise RarewordError("--seed is of --sample; give both, or leave --seed out")


def _sampler(
    options: SegmentTextOptions, kind: str, segmenter: "Segmenter", vocabulary: "Vocabulary"
) -> "Sampler | None":
    """What draws segmentations, if they shall be drawn."""
    if options.sample is None:
        return None
    if not hasattr(segmenter, "sampler"):
        raise RarewordError(
            f"--sample: a segmenter of kind {kind!r} gives one segmentation of a text; those of "
            "kind bpe, bytes and unigram draw others"
        )
    seed = DEFAULT_SEED if options.seed is None else options.seed
    try:
        return cast("SamplingSegmenter", segmenter).sampler(vocabulary, options.sample, seed)
    except RarewordError as error:
        raise RarewordError(f"--sample: {error}") from error
