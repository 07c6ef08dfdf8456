"""`rareword subword-nmt COMMAND`: the commands of subword-nmt, with its options and its bytes.

Text streams through in blocks of whole lines; nothing grows but the table of distinct words. What
differs from subword-nmt on purpose is listed in docs/subword-nmt.md.
"""

import argparse
import os
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rareword.pipelines import streams
from rareword.pipelines.streams import STANDARD, note, pass_on
from rareword.schemas.errors import RarewordError

if TYPE_CHECKING:
    from rareword.schemas.merges import Merge
    from rareword.transforms.plain_text import WordCounts

PROGRAM = "rareword subword-nmt"


def run(argv: Sequence[str]) -> int:
    """Runs a command. Returns the exit code; errors are RarewordError."""
    options = argument_parser().parse_args([_as_utf8(argument) for argument in argv])
    problem = _problem(options)
    if problem:
        options.parser.error(problem)
    return streams.run(lambda: options.command(options))


# ---- options ----


def argument_parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="The commands of subword-nmt 0.3.8: the same options and the same output.",
        epilog=f"`{PROGRAM} COMMAND --help` shows a command's options. PATH is a file, a URL, "
        "or - for standard input or output; inputs that end in .gz, .xz or .zst are decompressed.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], None], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(command=run, parser=added)
        return added

    _learn_options(command("learn-bpe", _learn_bpe, "learn merge operations from text"))
    _apply_options(command("apply-bpe", _apply_bpe, "cut the words of a text into pieces"))
    added = command("get-vocab", _get_vocab, "count the words or pieces of a text")
    _input(added)
    _output(added, "word counts")
    _workers(added)
    _joint_options(
        command(
            "learn-joint-bpe-and-vocab",
            _learn_joint,
            "learn merge operations from several texts, and count the pieces of each",
        )
    )
    _ngram_options(
        command("segment-char-ngrams", _segment_ngrams, "cut rare words into character n-grams")
    )
    return parser


def _input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", "-i", metavar="PATH", default=STANDARD, help="text (default: standard input)"
    )


def _output(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--output",
        "-o",
        metavar="PATH",
        default=STANDARD,
        help=f"{what} (default: standard output)",
    )


def _workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-workers",
        type=int,
        default=1,
        metavar="INT",
        help="threads; 0 or less: all cores. The output is the same (default: %(default)s)",
    )


def _separator(parser: argparse.ArgumentParser, *flags: str) -> None:
    parser.add_argument(
        "--separator",
        *flags,
        default="@@",
        metavar="STR",
        help="stands after every piece that does not end its word (default: %(default)s)",
    )


def _learner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--symbols",
        "-s",
        type=int,
        default=10000,
        metavar="INT",
        help="merge operations to learn (default: %(default)s)",
    )
    parser.add_argument(
        "--min-frequency",
        type=int,
        default=2,
        metavar="FREQ",
        help="stop when no pair of symbols occurs so often (default: %(default)s)",
    )
    parser.add_argument(
        "--total-symbols",
        "-t",
        action="store_true",
        help="learn fewer merges by the number of characters, so that --symbols is about the "
        "number of symbols that text will need",
    )
    _workers(parser)
    parser.add_argument(
        "--verbose", "-v", action="store_true", help="print every merge on standard error"
    )


def _learn_options(parser: argparse.ArgumentParser) -> None:
    _input(parser)
    _output(parser, "codes file")
    parser.add_argument(
        "--dict-input",
        action="store_true",
        help="the input is a dictionary: a word, a space and its count on each line",
    )
    _learner(parser)


def _joint_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", "-i", nargs="+", required=True, metavar="PATH", help="texts")
    parser.add_argument("--output", "-o", required=True, metavar="PATH", help="codes file")
    parser.add_argument(
        "--write-vocabulary",
        dest="vocabularies",
        nargs="+",
        required=True,
        metavar="PATH",
        help="vocabulary files, one an input, for apply-bpe --vocabulary",
    )
    _separator(parser)
    _learner(parser)


def _apply_options(parser: argparse.ArgumentParser) -> None:
    _input(parser)
    _output(parser, "text in pieces")
    parser.add_argument("--codes", "-c", required=True, metavar="PATH", help="from learn-bpe")
    parser.add_argument(
        "--merges",
        "-m",
        type=int,
        default=-1,
        metavar="INT",
        help="use the first so many merge operations; 0 leaves characters (default: -1, all)",
    )
    _separator(parser, "-s")
    parser.add_argument(
        "--vocabulary",
        metavar="PATH",
        help="from get-vocab: merges that make a piece which is not in it are undone",
    )
    parser.add_argument(
        "--vocabulary-threshold",
        type=int,
        metavar="INT",
        help="take pieces that occur less often for missing from the vocabulary",
    )
    parser.add_argument(
        "--dropout",
        type=float,
        default=0.0,
        metavar="P",
        help="leave out merges with this probability, 0 to 1 (BPE-dropout, for training data only; "
        "default: 0)",
    )
    parser.add_argument(
        "--glossaries",
        nargs="+",
        default=[],
        metavar="STR",
        help="words or regular expressions; what they match stays whole",
    )
    parser.add_argument(
        "--glossaries-file", metavar="PATH", help="more of them, one a line (not in subword-nmt)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="S",
        help="of the dropout's random numbers (default: another one each time, printed)",
    )
    _workers(parser)


def _ngram_options(parser: argparse.ArgumentParser) -> None:
    _input(parser)
    _output(parser, "text in pieces")
    parser.add_argument("--vocab", required=True, metavar="PATH", help="from get-vocab")
    parser.add_argument(
        "--shortlist",
        type=int,
        default=0,
        metavar="INT",
        help="leave the INT most frequent words of the vocabulary whole (default: %(default)s)",
    )
    parser.add_argument(
        "-n", type=int, default=2, metavar="INT", help="characters a piece (default: %(default)s)"
    )
    _separator(parser, "-s")


def _problem(options: argparse.Namespace) -> str | None:
    """What is wrong with options that the parser takes."""
    given = vars(options)
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value]
        if not all(_is_utf8(text) for text in texts if isinstance(text, str)):
            return f"--{name.replace('_', '-')} is not UTF-8"
    dropout, merges, n = given.get("dropout", 0), given.get("merges", -1), given.get("n", 1)
    inputs, outputs = (len(given.get(name, "-")) for name in ("input", "vocabularies"))
    problems = {
        "--separator must not hold a line break": "\n" in given.get("separator", ""),
        f"--dropout is a probability, 0 to 1, not {dropout}": not 0 <= dropout <= 1,
        f"--merges is 0 or more, or -1 for all, not {merges}": merges < -1,
        "--vocabulary-threshold needs --vocabulary": given.get("vocabulary_threshold") is not None
        and given.get("vocabulary") is None,
        f"-n is 1 or more, not {n}": n < 1,
        f"--write-vocabulary names {outputs} files and --input {inputs}; each input has its "
        "vocabulary": "vocabularies" in given and inputs != outputs,
    }
    return next((text for text, found in problems.items() if found), None)


def _as_utf8(argument: str) -> str:
    """An argument as UTF-8, whatever the locale says; as it is if it is something else."""
    try:
        return os.fsencode(argument).decode()
    except UnicodeError:
        return argument


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _threads(options: argparse.Namespace) -> int:
    if options.num_workers > 0:
        return int(options.num_workers)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- commands ----


def _learn_bpe(options: argparse.Namespace) -> None:
    from rareword.transforms import plain_text

    with streams.read(options.input) as blocks:
        if options.dict_input:
            table = plain_text.read_dictionary(blocks)
        else:
            table = plain_text.count_words(blocks, _threads(options))
    _learn(options, [table])


def _learn_joint(options: argparse.Namespace) -> None:
    from rareword.schemas.merges import Codes
    from rareword.transforms import plain_text
    from rareword.transforms.rendering import BpeRenderer

    tables = []
    for path in options.input:
        with streams.read(path) as blocks:
            tables.append(plain_text.count_words(blocks, _threads(options)))
    merges = _learn(options, tables)
    renderer = BpeRenderer(Codes((0, 2), merges), options.separator)
    for table, path in zip(tables, options.vocabularies, strict=True):
        with streams.write(path) as out:
            out.writelines(plain_text.count_pieces(renderer, table).lines())


def _learn(options: argparse.Namespace, tables: "list[WordCounts]") -> "list[Merge]":
    """Learns merges and writes the codes file, with subword-nmt's messages."""
    from rareword.schemas.merges import END_OF_WORD, to_codes
    from rareword.transforms import plain_text

    limit = options.symbols
    if options.total_symbols:
        inside, final = plain_text.count_characters(tables)
        note(f"Number of word-internal characters: {inside}")
        note(f"Number of word-final characters: {final}")
        note(f"Reducing number of merge operations by {inside + final}")
        limit -= inside + final
    merges = plain_text.learn_merges(tables, limit, options.min_frequency)
    if options.verbose:
        for rank, merge in enumerate(merges):
            left, right = (s.text + END_OF_WORD * s.final for s in (merge.left, merge.right))
            note(f"pair {rank}: {left} {right} -> {left}{right} (frequency {merge.count})")
    if len(merges) < limit:
        least = max(options.min_frequency, 1)
        note(f"no pair has frequency >= {least}. Stopping after {len(merges)} merges")
    with streams.write(options.output) as out:
        out.write(to_codes(merges).encode())
    return merges


def _apply_bpe(options: argparse.Namespace) -> None:
    from rareword.schemas.merges import Codes, from_codes
    from rareword.transforms import plain_text
    from rareword.transforms.rendering import BpeRenderer

    with streams.read(options.codes) as blocks:
        text = "".join(block.decode() for block in blocks)
    if not text:
        raise RarewordError(
            f"--codes: {options.codes} is empty; a codes file has a header at least"
        )
    version, merges = from_codes(text, options.codes)
    vocabulary = None
    if options.vocabulary is not None:
        with streams.read(options.vocabulary) as blocks:
            vocabulary = plain_text.read_vocabulary(blocks, options.vocabulary_threshold)
    glossaries = list(options.glossaries)
    if options.glossaries_file is not None:
        with streams.read(options.glossaries_file) as blocks:
            glossaries += plain_text.read_words(blocks)
    renderer = BpeRenderer(
        Codes(version, merges if options.merges == -1 else merges[: options.merges]),
        options.separator,
        vocabulary,
        glossaries,
    )
    seed = options.seed
    if options.dropout and seed is None:
        seed = random.SystemRandom().getrandbits(32)
        note(f"dropout: --seed {seed}")
    with streams.read(options.input) as blocks, streams.write(options.output) as out:
        for block in blocks:
            try:
                parts = renderer.render(
                    block.text,
                    block.first_line,
                    _threads(options),
                    options.dropout,
                    (seed or 0) % 2**64,
                )
            except ValueError as error:
                raise block.not_utf8(error) from error
            pass_on(parts, out, block)


def _get_vocab(options: argparse.Namespace) -> None:
    from rareword.transforms import plain_text

    with streams.read(options.input) as blocks:
        table = plain_text.count_words(blocks, _threads(options))
    with streams.write(options.output) as out:
        out.writelines(table.lines())


def _segment_ngrams(options: argparse.Namespace) -> None:
    from rareword.transforms import plain_text
    from rareword.transforms.rendering import NgramRenderer

    with streams.read(options.vocab) as blocks:
        words, skipped = plain_text.read_shortlist(blocks, options.shortlist)
    if skipped:
        note(f"{options.vocab}: {skipped} lines that are not a word and its count were skipped")
    renderer = NgramRenderer(words, options.n, options.separator)
    with streams.read(options.input) as blocks, streams.write(options.output) as out:
        for block in blocks:
            pass_on([renderer.render(block.decode()).encode()], out, block)
