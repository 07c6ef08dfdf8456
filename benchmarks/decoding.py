"""Decoding beside JoeyNMT with the models that benchmarks/training.py left in its work folder.

    python benchmarks/decoding.py --work DIR [--source FILE --target FILE]

docs/benchmarks.md says what is measured. Contestants are processes of their own (contestants.py);
those of one beam are ready at the same time and take turns.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contestants import Contestant, Row, compete, prepare_peers
from decoding_report import show
from training import (
    PEER,
    PEER_PINS,
    add_run_options,
    bleu_of_pieces,
    describe_machine_and_versions,
    numbers,
    piece_names,
    prepare_more,
    read_ids,
    read_joint,
)

from rareword.schemas import manifest, storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.tables import SIDES
from rareword.schemas.vocabulary import SPECIALS

TABLE = "decoding"
SEARCH = {
    "length_form": "gnmt", "length_penalty": 1.0, "max_length_ratio": 1.5, "min_length": 1,
}  # fmt: skip
"""What JoeyNMT does with alpha = 1 and otherwise by itself."""
PEER_BATCHES = {"cpu": [16, 32, 64], "cuda": [64, 200, 500]}
"""Sentences. On a CPU smaller and larger ones than these were slower."""


class Test(NamedTuple):
    """The sentences that everyone translates, the longest source first."""

    sources: list[list[int]]
    references: list[str]
    lines: list[str]
    """The sources in JoeyNMT's pieces."""
    unknown: int


def read_test(segmented: str, pieces: Path, most: int | None) -> Test:
    """pieces: the folder with the vocabulary that JoeyNMT was trained with. most: of the first
    sentences, all if None."""
    vocabulary = read_joint(segmented)
    names = piece_names(vocabulary)
    if (pieces / "vocabulary.txt").read_text("utf-8").split("\n")[:-1] != names[len(SPECIALS) :]:
        raise SystemExit(f"{segmented} has another vocabulary than JoeyNMT has in {pieces}")
    pairs = list(read_ids(segmented))[:most]
    if not pairs:
        raise SystemExit(f"{segmented} has no sentences")
    if not all(source and target for source, target in pairs):
        raise SystemExit(f"a pair of {segmented} has an empty side")
    pairs.sort(key=lambda pair: -len(pair[0]))
    sources = [source for source, _ in pairs]
    return Test(
        sources,
        [vocabulary.words(target) for _, target in pairs],
        [" ".join(names[i] for i in source) for source in sources],
        sum(source.count(vocabularies.UNK) for source in sources),
    )


def contestants(
    options: argparse.Namespace, model: Path, test: Test, data: Path, beam: int
) -> list[Contestant]:
    """JoeyNMT with each size of batch, then rareword with each precision and size."""
    trained = manifest.read(str(model), "train", "--model")
    updates = trained.figures["steps"]
    machine = {"device": options.device, "threads": options.threads}
    sizes = {name: trained.options[name] for name in ("embedding", "hidden", "encoder_hidden")}
    found = [
        Contestant(
            f"{PEER}, {batch} sentences", "translate",
            {
                "data": str(data), "vocabulary": str(options.work / "pieces" / "vocabulary.txt"),
                "output": str(options.work / "joeynmt"), "updates": updates, "beam": beam,
                "batch": batch, "warm": 1, "max_length": len(test.sources[0]) + 1, **sizes,
                **machine,
            }, 0.0, peer=True, script="joeynmt_decoding.py",
        )
        for batch in options.joeynmt_batches
    ]  # fmt: skip
    found += [
        Contestant(
            f"rareword, {precision}, {tokens:,} pieces", "translate",
            {
                "model": str(model), "sources": test.sources, "warm": min(options.joeynmt_batches),
                "options": {**SEARCH, "beam": beam, "batch_tokens": tokens},
                "precision": precision, **machine,
            }, 0.0, script="decoding_tasks.py",
        )
        for precision in options.precisions
        for tokens in options.batch_tokens
    ]  # fmt: skip
    return found


def decoding_table(
    options: argparse.Namespace, model: Path, test: Test, python: Path | None
) -> list[Row]:
    """A row for each beam and contestant: seconds of the whole test, medians of the repeats."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test.source").write_text("\n".join(test.lines) + "\n", "utf-8")
        for beam in options.beams:
            those = contestants(options, model, test, Path(folder), beam)
            rows += [
                finish_row({**row, "beam": beam}, test)
                for row in compete(those, python, options.repeats)
            ]
    return rows


def finish_row(row: Row, test: Test) -> Row:
    """The row with what its translations are worth, without them."""
    if "error" in row:
        return row
    digest = row.pop("digest")
    hypotheses = digest.pop("hypotheses")
    read = (digest.pop("source_pieces"), digest.pop("source_unknown"), len(hypotheses))
    wanted = (sum(map(len, test.sources)), test.unknown, len(test.sources))
    if read != wanted:
        raise SystemExit(
            f"{row['name']} translated other data: {read} pieces, unknown ones and sentences "
            f"instead of {wanted}"
        )
    pieces = statistics.mean(map(len, hypotheses))
    return {**row, **digest, "pieces": pieces, "bleu": bleu_of_pieces(hypotheses, test.references)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--work", type=Path, help="the folder that training.py --work has made")
    parser.add_argument(
        "--model", default="model-float32", help="rareword's in that folder (model-float32)"
    )
    for side in SIDES:
        parser.add_argument(f"--{side}", help="text, one sentence a line (the development data)")
    parser.add_argument("--sentences", type=int, help="translate so many, the first ones (all)")
    parser.add_argument("--beams", type=numbers, default=[1, 5, 12], help="1 is greedy (1,5,12)")
    parser.add_argument(
        "--joeynmt-batches", type=numbers,
        help="sentences of its batches (16,32,64; with --device cuda 64,200,500)",
    )  # fmt: skip
    parser.add_argument(
        "--batch-tokens", type=numbers, default=[512, 2048, 8192],
        help="source pieces of rareword's batches, padding included (512,2048,8192)",
    )  # fmt: skip
    parser.add_argument(
        "--precisions", type=lambda names: names.split(","), default=["float32", "bf16"],
        help="of rareword: float32, tf32, bf16, auto (float32,bf16)",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, default=3, help="in turn, for medians (3)")
    parser.add_argument("--show", action="store_true", help="print the table of the --json file")
    add_run_options(parser)
    options = parser.parse_args(arguments)
    if options.show:
        if options.json is None:
            parser.error("--show needs --json")
        return options
    if options.joeynmt_batches is None:
        options.joeynmt_batches = PEER_BATCHES[options.device]
    if options.work is None:
        parser.error("--work: name the folder that benchmarks/training.py --work has made")
    if not (options.work / options.model / "manifest.json").is_file():
        parser.error(f"--work: {options.work} has no finished {options.model}")
    if (options.source is None) != (options.target is None):
        parser.error("--source and --target: give both or none")
    for name in (options.source, options.target):
        if name is not None and not Path(name).is_file():
            parser.error(f"there is no file {name}")
    counts = [*options.beams, *options.joeynmt_batches, *options.batch_tokens, options.repeats]
    if min(counts) < 1 or (options.sentences is not None and options.sentences < 1):
        parser.error("beams, sizes of batches, sentences and repeats: at least 1")
    return options


def describe_run(
    options: argparse.Namespace, model: Path, test: Test, missing: dict[str, str], load: float
) -> Row:
    trained = manifest.read(str(model), "train", "--model")
    names = ("embedding", "hidden", "encoder_hidden")
    return {
        **describe_machine_and_versions(options.device, load, not options.no_peers, missing),
        **{name: trained.options[name] for name in names},
        "updates": trained.figures["steps"], "model": options.model, "threads": options.threads,
        "repeats": options.repeats, "sentences": len(test.sources),
        "text": Path(options.source).name if options.source else "development data",
        "source_pieces": sum(map(len, test.sources)),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {"tables": {}}
    if options.json is not None and options.json.exists():
        results = storage.read_json(str(options.json))
    if options.show:
        print(show(results))
        return
    python: Path | None = None
    missing: dict[str, str] = {}
    if not options.no_peers:
        python, missing = prepare_peers(options.peers, PEER_PINS)
    load = os.getloadavg()[0]
    work, model = options.work, options.work / options.model
    with tempfile.TemporaryDirectory() as folder:
        segmented = str(work / "segmented-dev")
        if options.source is not None:
            segmented = prepare_more(work, options.source, options.target, Path(folder), "test")
        test = read_test(segmented, work / "pieces", options.sentences)
    rows = decoding_table(options, model, test, python)
    name = TABLE if options.device == "cpu" else f"{TABLE}, GPU"
    table = {"run": describe_run(options, model, test, missing, load), "rows": rows}
    results["tables"][name] = table
    if options.json is not None:
        storage.write_json(str(options.json), results)
    print(show({"tables": {name: table}}))


if __name__ == "__main__":
    main()
