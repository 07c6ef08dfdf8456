"""Training beside JoeyNMT on real text, beside a plain loop on random batches, and its memory.

    python benchmarks/training.py --source FILE --target FILE --dev-source FILE --dev-target FILE
    python benchmarks/training.py --table [--device cuda]
    python benchmarks/training.py --memory

docs/benchmarks.md says what is measured. Contestants are processes of their own (contestants.py).
On real text each trains from the start to the end, one after the other, and with --repeats in turn
again; on random batches all are ready and take turns.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from contestants import (
    HERE,
    Contestant,
    Row,
    compete,
    describe_machine,
    prepare_peers,
    read_pins,
)
from training_report import show
from training_tasks import LOG_EVERY, run_job

from rareword.schemas import manifest, storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.tables import SEGMENTED, SIDES, read_table
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary
from rareword.trainer.config import TrainConfig, model_config
from rareword.transforms import metrics

PEER_PINS = "peers-training.txt"
PEER = "JoeyNMT"
MERGES = 8_000
MAX_LENGTH = 100
"""Pieces; the few pairs with a longer side are left out for everyone."""
BEAMS = (1, 5)
SIZES: dict[str, dict[str, Any]] = {
    "translation": {"embedding": 256, "hidden": 512, "encoder_hidden": 256, "batches": [80]},
    "steps": {
        "embedding": 620, "hidden": 1000, "encoder_hidden": 1000, "batches": [80, 640],
        "vocabulary": 60_000, "length": 32,
    },
    "memory": {
        "embedding": 620, "hidden": 1000, "encoder_hidden": 1000, "batches": [80],
        "vocabulary": 90_000, "length": 50,
    },
}  # fmt: skip
"""What the options of that name are in each mode, if they are not given."""
PRODUCT = {"cuda": (8192, 20), "cpu": (1024, 10)}
"""Rows of the square matrices whose product tells what the machine gives; products a repeat."""


# ---- the data ----


def prepare_data(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Segments the corpora with rareword's own jobs, and writes the same pieces for JoeyNMT.

    Returns where they are, the references, and what JoeyNMT must read.
    """
    corpus = work / "corpus"
    languages = dict(zip(("source_language", "target_language"), options.languages, strict=True))
    run_job(
        "prepare", source=options.source, target=options.target, output=corpus,
        tokenise="moses", truecase="none", **languages,
    )  # fmt: skip
    words, merges, segmenter = work / "words", work / "merges", work / "segmenter"
    run_job("count-words", corpus=corpus, output=words)
    run_job("learn-merges", words=words, output=merges, side="joint", merges=options.merges)
    run_job("learn-segmenter", segmenter="bpe", words=words, merges=merges, output=segmenter)
    segmented = str(work / "segmented")
    run_job("segment", corpus=corpus, segmenter=segmenter, output=segmented)
    dev = prepare_more(work, options.dev_source, options.dev_target, work, "dev")
    return {
        "segmented": segmented,
        "dev": dev,
        **write_pieces(segmented, dev, work / "pieces"),
    }


def prepare_more(work: Path, source: str, target: str, folder: Path, name: str) -> str:
    """Prepares and segments other text as the training data of `work`; returns where it is."""
    corpus, segmented = folder / f"corpus-{name}", folder / f"segmented-{name}"
    run_job(
        "prepare", source=source, target=target, output=corpus, rules_from=work / "corpus",
        shuffle=False,
    )  # fmt: skip
    run_job("segment", corpus=corpus, segmenter=work / "segmenter", output=segmented)
    return str(segmented)


def write_pieces(segmented: str, dev: str, directory: Path) -> dict[str, Any]:
    """JoeyNMT's files: pieces between single spaces, a pair a line, and the vocabulary."""
    directory.mkdir(exist_ok=True)
    vocabulary = read_joint(segmented)
    names = piece_names(vocabulary)
    (directory / "vocabulary.txt").write_text("\n".join(names[len(SPECIALS) :]) + "\n", "utf-8")
    counts = {"pairs": 0, "pieces": 0, "unknown": 0}
    references = []
    for name, where in (("train", segmented), ("dev", dev)):
        with (
            open(directory / f"{name}.source", "w", encoding="utf-8", newline="\n") as source,
            open(directory / f"{name}.target", "w", encoding="utf-8", newline="\n") as target,
        ):
            for ids in read_ids(where):
                lengths = [len(side) for side in ids]
                if name == "dev":
                    if not min(lengths):
                        raise SystemExit("a pair of the development data has an empty side")
                    references.append(vocabulary.words(ids[1]))
                elif not min(lengths) or max(lengths) > MAX_LENGTH:
                    continue
                else:
                    counts["pairs"] += 1
                    counts["pieces"] += sum(lengths)
                    counts["unknown"] += sum(side.count(UNK) for side in ids)
                for side, out in zip(ids, (source, target), strict=True):
                    out.write(" ".join(names[i] for i in side) + "\n")
    return {"pieces": str(directory), "references": references, "expected": counts}


def read_joint(segmented: str) -> Vocabulary:
    """The one vocabulary of both sides."""
    both = vocabularies.read_both(segmented)
    if not both.joint:
        raise SystemExit("the benchmark needs one vocabulary for both sides")
    return both.source


def piece_names(vocabulary: Vocabulary) -> list[str]:
    """What JoeyNMT's files call each id. Its vocabulary file leaves the special ones out."""
    n = len(SPECIALS)
    names = [piece.rstrip(" ") for piece in vocabulary.display(range(n, len(vocabulary)))]
    if any(len(name.split()) != 1 for name in names) or len({*names}) != len(names):
        raise SystemExit("pieces that look alike or hold white space are beyond JoeyNMT's files")
    return [*vocabulary.pieces[:n], *names]


def read_ids(segmented: str) -> Iterator[tuple[list[int], list[int]]]:
    """The pairs of a `segmented` directory, in the order of its shards."""
    for url in manifest.read(segmented, "segment", "--segmented").urls:
        table = read_table(url, SEGMENTED)
        yield from zip(*(table[side].to_pylist() for side in SIDES), strict=True)


# ---- real text ----


def translation_table(options: argparse.Namespace, work: Path, python: Path | None) -> list[Row]:
    """One row a contestant: medians of the repeats' speeds, the rest from the first."""
    data = prepare_data(options, work)
    (batch,) = options.batches
    sizes = {name: getattr(options, name) for name in ("embedding", "hidden", "encoder_hidden")}
    same = {"device": options.device, "threads": options.threads, **sizes}
    ours = {
        **same, "tied": "all", "dropout": 0, "label_smoothing": 0, "optimiser": "adam",
        "learning_rate": 1e-3, "clip": 1, "batch": batch, "batch_unit": "sentences",
        "max_length": MAX_LENGTH,
    }  # fmt: skip
    contestants = [
        Contestant(
            f"rareword, {precision}", "train",
            {
                "segmented": data["segmented"], "dev": data["dev"], "updates": options.updates,
                "output": str(work / f"model-{precision}"),
                "options": {**ours, "precision": precision},
            }, 0.0, script="training_tasks.py",
        )
        for precision in options.precisions
    ]  # fmt: skip
    contestants.insert(
        0,
        Contestant(
            PEER, "train",
            {
                **same, "data": data["pieces"], "output": str(work / "joeynmt"), "batch": batch,
                "updates": options.updates, "max_length": MAX_LENGTH,
            }, 0.0, peer=True, script="joeynmt_training.py",
        ),
    )  # fmt: skip
    rows: dict[str, Row] = {}
    for number in range(options.repeats):
        for one in contestants:
            if "error" in rows.get(one.name, {}):
                continue
            print(f"  {one.name}, {number + 1} of {options.repeats}", file=sys.stderr)
            shutil.rmtree(str(one.arguments["output"]), ignore_errors=True)
            beams = BEAMS if options.bleu and number == 0 else ()
            arguments = {**one.arguments, "beams": beams}
            (found,) = compete(
                [Contestant(one.name, one.task, arguments, 0.0, peer=one.peer, script=one.script)],
                python,
                repeats=1,
            )
            rows[one.name] = add_run(rows.get(one.name), found, data)
    return list(rows.values())


def add_run(row: Row | None, found: Row, data: dict[str, Any]) -> Row:
    """The row with one more run of its contestant."""
    if "error" in found:
        return {"name": found["name"], "error": found["error"]}
    digest = found["digest"]
    wanted = {name: n for name, n in data["expected"].items() if digest.get(name, n) != n}
    if wanted:
        raise SystemExit(f"{found['name']} trained on other data: {digest} instead of {wanted}")
    if row is None:
        bleu = {
            beam: bleu_of_pieces(found, data["references"])
            for beam, found in digest.pop("hypotheses").items()
        }
        kept = ("parameters", "dev_loss", "gpu_peak")
        row = {"name": found["name"], "runs": [], "peak": 0, "bleu": bleu}
        row |= {name: digest[name] for name in kept} | {"unknown": data["expected"]["unknown"]}
    # The first window has what happens once: memory is touched, kernels are chosen or compiled.
    runs = [*row["runs"], statistics.harmonic_mean(digest["windows"][1:])]
    return {**row, "runs": runs, "speed": statistics.median(runs),
            "peak": max(row["peak"], found["peak"])}  # fmt: skip


def bleu_of_pieces(hypotheses: Sequence[Sequence[str]], references: Sequence[str]) -> float:
    """BLEU of the tokens that displayed pieces make."""
    return metrics.bleu(
        [vocabularies.joined(pieces) for pieces in hypotheses], references, "none"
    ).value


# ---- random batches ----


def multiply_adds(options: argparse.Namespace, source: int, target: int) -> int:
    """Multiply-adds of the matrix products for one pair, forward. (Backward is twice as much.)"""
    V, E, H, R = options.vocabulary, options.embedding, options.hidden, options.encoder_hidden
    Z = 2 * R
    encoder = 2 * (3 * E * R + 3 * R * R) + Z * H  # both directions; keys
    attention = H * H + source * (H + Z)  # query; energies and context
    gru = 3 * E * H + 3 * Z * H + 3 * H * H
    output = (H + E + Z) * H + H // 2 * E + E * V
    return source * encoder + R * H + target * (attention + gru + output)


def steps_table(options: argparse.Namespace) -> list[Row]:
    """A row a contestant, all of them ready and taking turns."""
    V = options.vocabulary
    sizes = {name: getattr(options, name) for name in ("embedding", "hidden", "encoder_hidden")}
    size, times = PRODUCT[options.device]
    machine = {"device": options.device, "threads": options.threads}
    script = "training_tasks.py"
    contestants = [
        Contestant(
            "bf16 matrix product", "matrix_product", {"size": size, "times": times, **machine},
            0.0, script=script,
        )
    ]  # fmt: skip
    same = {
        "source": options.length, "target": options.length, "updates": options.updates,
        "warm": options.warm, **machine,
    }  # fmt: skip
    model = {"source_vocabulary": V, "target_vocabulary": V, **sizes, "gru": "groundhog"}
    config = {"preset": "modern", "dropout": 0.0, "label_smoothing": 0.0}
    for batch in options.batches:
        for precision in options.precisions:
            label = f"{precision}, batch {batch}"
            arguments = {**same, "batch": batch, "precision": precision}
            plain = {**arguments, "sizes": {"vocabulary": V, **sizes}}
            ours = {**arguments, "model": model, "config": config}
            contestants += [
                Contestant(f"plain loop, {label}", "plain_steps", plain, 0.0, script=script),
                Contestant(f"rareword, {label}", "rareword_steps", ours, 0.0, script=script),
            ]
    rows = compete(contestants, None, options.repeats)
    peak = 2 * size**3 * times / rows[0]["wall"]
    rows[0] |= {"flops": peak, "mfu": 1.0}
    tokens, flops = options.length, 6 * multiply_adds(options, options.length, options.length)
    for one, row in zip(contestants[1:], rows[1:], strict=True):
        pairs = one.arguments["batch"] * options.updates / row["wall"]
        kept = {name: one.arguments[name] for name in ("batch", "precision")}
        figures = {"speed": pairs * tokens, "flops": pairs * flops, "mfu": pairs * flops / peak}
        row.update(kept | figures | row.pop("digest"))
    return rows


def memory_table(options: argparse.Namespace) -> list[Row]:
    """Two updates of each preset from the start, each in a fresh process."""
    (batch,) = options.batches
    rows = []
    for preset in ("paper", "modern"):
        config = {
            "preset": preset, "embedding": options.embedding, "hidden": options.hidden,
            "encoder_hidden": options.encoder_hidden,
        }  # fmt: skip
        V = options.vocabulary
        model = model_config(TrainConfig.of(**config), V, V, joint=False).to_json()
        arguments = {
            "model": model, "config": config, "batch": batch, "source": options.length,
            "target": options.length, "updates": 1, "warm": 1, "device": options.device,
            "precision": "float32", "threads": options.threads,
        }  # fmt: skip
        one = Contestant(
            f"{preset}, {TrainConfig.of(**config).optimiser}", "rareword_steps", arguments, 0.0,
            script="training_tasks.py",
        )  # fmt: skip
        (row,) = compete([one], None, 1)
        rows.append({**row, **row.pop("digest")})
    return rows


# ---- the run ----


def describe_machine_and_versions(
    device: str, load: float, beside_peer: bool, missing: dict[str, str]
) -> Row:
    """missing: why a peer's pins could not be installed."""
    import torch

    versions = {
        "torch": str(torch.__version__),
        **manifest.versions("rareword", "sacrebleu"),
    }
    if beside_peer and not missing:
        versions |= {"JoeyNMT": dict(pin.split("==") for pin in read_pins(PEER_PINS))["joeynmt"]}
    machine = describe_machine(load)
    if device == "cuda":
        machine["gpu"] = torch.cuda.get_device_name()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as stream:
        flags = next((line.split() for line in stream if line.startswith("flags")), [])
        machine["bf16"] = bool({"avx512_bf16", "amx_bf16"} & {*flags})
    return {**machine, "device": device, "versions": versions, "missing": missing}


def describe_run(options: argparse.Namespace, missing: dict[str, str], load: float) -> Row:
    beside_peer = options.mode == "translation" and not options.no_peers
    names = (
        "mode", "threads", "embedding", "hidden", "encoder_hidden", "batches",
        "vocabulary", "length", "updates", "repeats", "merges",
    )  # fmt: skip
    return {
        **describe_machine_and_versions(options.device, load, beside_peer, missing),
        **{name: getattr(options, name) for name in names},
        "text": [Path(name).name for name in (options.source, options.target) if name],
    }  # fmt: skip


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    modes = parser.add_mutually_exclusive_group()
    for mode, text in (
        ("steps", "random batches beside a plain loop, instead of real text"),
        ("memory", "the peak of memory of two updates, instead of real text"),
        ("show", "print the tables that the --json file has"),
    ):
        flag = "--table" if mode == "steps" else f"--{mode}"
        modes.add_argument(flag, dest="mode", action="store_const", const=mode, help=text)
    for split in ("", "dev-"):
        for side in SIDES:
            parser.add_argument(f"--{split}{side}", help="text, one sentence a line")
    parser.add_argument(
        "--languages", type=lambda codes: codes.split(","), default=["en", "de"],
        help="of source and target, for the tokeniser (en,de)",
    )  # fmt: skip
    parser.add_argument("--merges", type=int, default=MERGES, help=f"joint BPE merges ({MERGES})")
    add_run_options(parser)
    parser.add_argument(
        "--precisions", type=lambda names: names.split(","),
        help="of rareword: float32, tf32, bf16, auto (float32,bf16,auto; with --table bf16)",
    )  # fmt: skip
    parser.add_argument(
        "--updates", type=int, help="updates of a run (1050; with --table 20 a repeat)"
    )
    parser.add_argument("--warm", type=int, default=3, help="with --table: untimed updates (3)")
    parser.add_argument(
        "--no-bleu", dest="bleu", action="store_false", help="speed only, no translations"
    )
    parser.add_argument(
        "--repeats", type=int, help="in turn, for medians (1; without BLEU and with --table 3)"
    )
    for name in ("embedding", "hidden", "encoder-hidden", "vocabulary", "length"):
        found = (f"{sizes.get(name.replace('-', '_'), '-')}" for sizes in SIZES.values())
        parser.add_argument(
            f"--{name}", type=int, help=f"({', '.join(found)}: real text, table, memory)"
        )
    parser.add_argument("--batches", type=numbers, help="sentences (80; with --table 80,640)")
    parser.add_argument("--work", type=Path, help="folder for data and models, kept (temporary)")
    options = parser.parse_args(arguments)
    options.mode = options.mode or "translation"
    complete(options)
    files = [getattr(options, f"{split}{side}") for split in ("", "dev_") for side in SIDES]
    if options.mode == "show" and options.json is None:
        parser.error("--show needs --json")
    if options.mode == "translation":
        if None in files:
            parser.error("real text needs --source, --target, --dev-source and --dev-target")
        for name in files:
            if not Path(name).is_file():
                parser.error(f"there is no file {name}")
        if options.updates < 2 * LOG_EVERY:
            parser.error(f"--updates: at least {2 * LOG_EVERY}; the first {LOG_EVERY} do not count")
    if options.mode != "steps" and options.batches and len(options.batches) != 1:
        parser.error("--batches: one number, except with --table")
    if options.repeats < 1 or options.updates < 1:
        parser.error("--repeats and --updates: at least 1")
    return options


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What any run beside JoeyNMT can be told."""
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="of each contestant (2)")
    parser.add_argument("--json", type=Path, help="keep the figures here, beside other tables'")
    parser.add_argument(
        "--peers", type=Path, default=HERE / ".peers-training",
        help="JoeyNMT's virtual environment, made if need be (benchmarks/.peers-training)",
    )  # fmt: skip
    parser.add_argument("--no-peers", action="store_true", help="rareword alone")


def complete(options: argparse.Namespace) -> None:
    """Gives options that were left out what they are in the mode."""
    steps = options.mode == "steps"
    usual: dict[str, Any] = {
        "updates": 20 if steps else 1050,
        "repeats": 3 if steps or not options.bleu else 1,
        "precisions": ["bf16"] if steps else ["float32", "bf16", "auto"],
        **SIZES.get(options.mode, {}),
    }
    for name, value in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {"tables": {}}
    if options.json is not None and options.json.exists():
        results = storage.read_json(str(options.json))
    if options.mode == "show":
        print(show(results))
        return
    python: Path | None = None
    missing: dict[str, str] = {}
    if options.mode == "translation" and not options.no_peers:
        python, missing = prepare_peers(options.peers, PEER_PINS)
    load = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        if options.mode == "translation":
            work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            work.mkdir(parents=True, exist_ok=True)
            rows = translation_table(options, work, python)
        else:
            rows = {"steps": steps_table, "memory": memory_table}[options.mode](options)
    name = options.mode if options.device == "cpu" else f"{options.mode}, GPU"
    table = {"run": describe_run(options, missing, load), "rows": rows}
    results["tables"][name] = table
    if options.json is not None:
        storage.write_json(str(options.json), results)
    print(show({"tables": {name: table}}))


if __name__ == "__main__":
    main()
