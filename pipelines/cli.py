"""The command line `rareword`: finds the job's module and hands it the arguments.

Job modules are imported only when they are called, so `rareword --help` is immediate.
"""

import difflib
import importlib
import importlib.metadata
import logging
import sys
import warnings
from collections.abc import Sequence

from rareword.schemas.errors import RarewordError

JOBS = {
    "prepare": "text files, TSV or Parquet -> corpus: cleaned, tokenised, truecased sentence pairs",
    "count-words": "corpus -> words: each word with its counts on both sides",
    "learn-merges": "words -> merges: byte-pair merges, exact, in shards",
    "learn-segmenter": "words, merges -> segmenter: what cuts words into pieces, and vocabularies",
    "import-segmenter": "codes of subword-nmt or fastBPE, models of others -> segmenter",
    "export-segmenter": "segmenter of one side -> tokenizer.json of Hugging Face",
    "segment": "corpus and segmenter -> segmented: piece ids, statistics",
    "align": "corpus -> dictionary: translations of single words with probabilities",
    "train": "segmented -> model: attentional encoder-decoder, on one or many devices",
    "train-ensemble": "segmented -> models: the paper's protocol, for an ensemble",
    "decode": "corpus and model or ensemble -> translations: beam search",
    "evaluate": "translations and references -> report: BLEU, chrF, rare and unseen words",
    "segment-text": "lines of text to pieces by a segmenter, and back",
    "compare-segmenters": "CONFIG.yaml -> report: segmenters and sizes side by side on a text",
    "subword-nmt": "learn-bpe, apply-bpe, get-vocab ...: drop-in for the commands of subword-nmt",
    "experiment": "CONFIG.yaml -> systems, seeds and ensembles compared, as in the paper's tables",
    "run": "CONFIG.yaml -> all of the above in one directory, finished stages skipped",
}


def _usage() -> str:
    width = max(map(len, JOBS))
    lines = ["usage: rareword JOB [options]", "", "jobs:"]
    lines += [f"  {name:<{width}}  {text}" for name, text in JOBS.items()]
    lines += [
        "",
        "`rareword JOB --help` shows a job's options. Beam's own pipeline options may follow them.",
    ]
    return "\n".join(lines)


def _set_up_logging() -> None:
    """Warnings go to standard error, one line each.

    Left out are notes of Beam and of Google's libraries on what nobody misses here, and the
    traceback that a local runner logs for an error which `main` is about to print as a sentence.
    """
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
    unwanted = (
        "apitools not found",
        "Resource module is not available",
        "Really starting",
        "Really destroying",
        RarewordError.__name__,
    )

    def worth_reading(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            text += record.exc_info[0].__name__
        return not any(words in text for words in unwanted)

    handler = logging.StreamHandler()
    handler.addFilter(worth_reading)
    logging.basicConfig(
        level=logging.WARNING, format="%(levelname)s: %(message)s", handlers=[handler]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a job. Exit code 0 if it finished, 1 for an error, 2 for a wrong call."""
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] == "--version":
        print(f"rareword {importlib.metadata.version('rareword')}")
        return 0
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if argv else 2
    name, rest = argv[0], argv[1:]
    if name not in JOBS:
        near = difflib.get_close_matches(name, JOBS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"jobs: {', '.join(JOBS)}"
        print(f"rareword: no job {name!r}; {hint}", file=sys.stderr)
        return 2
    _set_up_logging()
    module = importlib.import_module(f"rareword.pipelines.{name.replace('-', '_')}")
    try:
        return int(module.run(rest))
    except RarewordError as error:
        print(f"rareword {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"rareword {name}: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
