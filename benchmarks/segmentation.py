"""Count, learn and segment beside their peers, and the jobs beside the kernels.

    python benchmarks/segmentation.py TABLE --text FILE [--json FILE]

TABLE is count, learn, segment, threads, jobs, kinds, memory, scale or all; `show` prints the tables
of an earlier run from its JSON file. docs/benchmarks.md says what each table measures.

Every contestant is a process of its own that prepares itself and then waits (contestants.py); the
driver lets one after the other do its work once, and goes round again. So all of them see the same
load, and medians are of interleaved repeats. Ratios count, since timings differ by machine.
"""

import argparse
import collections
import contextlib
import dataclasses
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contestants import (
    HERE,
    Contestant,
    Row,
    compete,
    describe_machine,
    prepare_peers,
    read_pins,
)
from report import differing, show
from texts import Text, cut_text, rest_of, write_corpus

from rareword.schemas import manifest, storage
from rareword.schemas.tables import SIDES

SAMPLE_MB = 5.0
"""What subword-nmt segments, and rareword beside it: its speed does not grow with more."""
TEXTBOOK_MB = 20.0
"""What the textbook pipeline counts."""
SHORT_TIMES = 7
"""The kernels of a round are repeated so many times as often: they take a tenth of a second."""
KIND_PIECES = 8_000
"""Merges, or pieces, of a side in the table of kinds."""
KIND_MIN_COUNT = 5
"""Rarer words are left out when Morfessor learns, which is slow."""
LEARN_TYPES, LEARN_MERGES = 65_000, 10_000
"""What subword-nmt learns; it takes half a minute."""


# ---- the tables ----


@dataclasses.dataclass
class Bench:
    """One run: its options, its folder, its peers."""

    options: argparse.Namespace
    work: Path
    python: Path | None
    learnt: float = 0.0
    """Megabytes of text that the models in the folder were learnt from."""

    def text(self, megabytes: float, repeat: bool = False) -> Text:
        """The beginning of the given text."""
        name = self.file(f"{megabytes:g}.txt")
        return cut_text(self.options.text, megabytes, Path(name), repeat)

    def corpus(self, text: Text) -> str:
        directory = Path(text.path).with_suffix(".corpus")
        shutil.rmtree(directory, ignore_errors=True)
        return write_corpus(text, directory)

    def compete(self, contestants: Sequence[Contestant], times: int = 1) -> list[Row]:
        """times: how many times the usual number of repeats, for what is done in milliseconds."""
        return compete(contestants, self.python, self.options.repeats * times)

    def once(self, contestant: Contestant) -> Row:
        """One repeat: to prepare others, or where a run is long."""
        return compete([contestant], self.python, 1)[0]

    def file(self, name: str) -> str:
        return str(self.work / name)


def count_table(bench: Bench) -> list[Row]:
    text = bench.text(bench.options.megabytes or 150)

    def row(name: str, task: str, peer: bool = True, **arguments: Any) -> Contestant:
        arguments["text"] = text.path
        return Contestant(name, task, arguments, text.megabytes, same="sha256", peer=peer)

    return bench.compete(
        [
            row("rareword", "count_words", peer=False),
            row("pyarrow, space", "pyarrow_words", split="split_pattern"),
            row("pyarrow, ASCII white space", "pyarrow_words", split="ascii_split_whitespace"),
            row("pyarrow, Unicode white space", "pyarrow_words", split="utf8_split_whitespace"),
            row("polars", "polars_words"),
            row("Counter + split", "counter_words"),
        ]
    )


def _learners(bench: Bench, text: Text) -> list[Contestant]:
    """Each leaves its model in a file of its own, for segmenting."""
    arguments = {"text": text.path, "merges": bench.options.merges}

    def row(name: str, task: str, **more: Any) -> Contestant:
        return Contestant(name, task, {**arguments, **more}, text.megabytes, peer="model" in more)

    return [
        row("rareword", "count_and_learn", codes=bench.file("codes.txt")),
        row("HF tokenizers", "tokenizers_train", model=bench.file("tokenizers.json")),
        row("sentencepiece", "sentencepiece_train", model=bench.file("sentencepiece")),
        row("YouTokenToMe", "youtokentome_train", model=bench.file("youtokentome")),
    ]


def learn_table(bench: Bench) -> list[Row]:
    text = bench.text(bench.options.megabytes or 50)
    with open(text.path, encoding="utf-8", newline="\n") as lines:
        counts = collections.Counter(word for line in lines for word in line.split())
    table = Path(bench.file("words.txt"))
    with open(table, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(f"{word} {count}\n" for word, count in counts.most_common(LEARN_TYPES))
    arguments = {"words": str(table), "merges": min(LEARN_MERGES, bench.options.merges)}
    size, base = table.stat().st_size / 1e6, "rareword, word table"
    alone = [
        Contestant(base, "learn", arguments, size, base, "codes"),
        Contestant(
            "subword-nmt, word table", "subword_nmt_learn", arguments, size, base, "codes", True
        ),
    ]
    rows = bench.compete(_learners(bench, text))
    bench.learnt = text.megabytes
    return rows + bench.compete(alone)


def segment_table(bench: Bench) -> list[Row]:
    text = bench.text(bench.options.megabytes or 50)
    few = cut_text(text.path, min(SAMPLE_MB, text.megabytes), Path(bench.file("sample.txt")))
    if bench.learnt != text.megabytes:
        for learner in _learners(bench, text):
            bench.once(learner)  # a peer that fails here fails below too, and is told there
    codes = bench.file("codes.txt")

    def ours(name: str, text: Text, **more: Any) -> Contestant:
        arguments = {"text": text.path, "codes": codes, **more}
        return Contestant(name, "segment", arguments, text.megabytes, name)

    def peer(name: str, task: str, **more: Any) -> Contestant:
        return Contestant(
            name, task, {"text": text.path, **more}, text.megabytes, "rareword, cold", peer=True
        )

    return bench.compete(
        [
            ours("rareword, cold", text, pieces=True),
            ours("rareword, warm", text, warm=True),
            peer("HF tokenizers", "tokenizers_encode", model=bench.file("tokenizers.json")),
            peer("sentencepiece", "sentencepiece_encode", model=bench.file("sentencepiece")),
            peer("YouTokenToMe", "youtokentome_encode", model=bench.file("youtokentome")),
            dataclasses.replace(peer("fastBPE", "fastbpe_apply", codes=codes), same="sha256"),
            ours("rareword, cold, sample", few, pieces=True),
            Contestant(
                "subword-nmt, sample", "subword_nmt_apply", {"text": few.path, "codes": codes},
                few.megabytes, "rareword, cold, sample", "sha256", True,
            ),
        ]
    )  # fmt: skip


def threads_table(bench: Bench) -> list[Row]:
    text = bench.text(bench.options.megabytes or 450)
    merges, codes = bench.options.merges, bench.file("codes-threads.txt")
    bench.once(
        Contestant(
            "learn",
            "count_and_learn",
            {"text": text.path, "merges": merges, "codes": codes},
            text.megabytes,
        )
    )
    kernels: dict[str, tuple[str, dict[str, Any], str]] = {
        "count": ("count_words", {}, "sha256"),
        **{
            name: ("kernel", {"name": name, "merges": merges}, "rows")
            for name in ("pairs", "chunks", "apply")
        },
        "segment": ("segment", {"codes": codes}, "pieces"),
    }
    rows = []
    for name, (task, more, same) in kernels.items():
        base = f"{name}, 1 thread"
        rows += bench.compete(
            [
                Contestant(
                    label, task, {"text": text.path, **more, "threads": threads}, text.megabytes,
                    base, same,
                )
                for label, threads in ((base, 1), (f"{name}, 2 threads", 2))
            ],
            times=SHORT_TIMES if task == "kernel" else 1,
        )  # fmt: skip
    return rows


def jobs_table(bench: Bench) -> list[Row]:
    """A job is timed in a process that has run it once (job), and as a command with the imports.
    The same on one line of text tells what graph and runner cost."""
    text = bench.text(bench.options.megabytes or 400)
    few = cut_text(text.path, min(TEXTBOOK_MB, text.megabytes), Path(bench.file("few.txt")))
    line = cut_text(text.path, 0, Path(bench.file("line.txt")))
    corpus, corpus_few, corpus_line = map(bench.corpus, (text, few, line))
    words, merges, segmenter = map(bench.file, ("words", "merges", "segmenter"))

    def job(
        row: str, name: str, task: str = "run_job", base: str = "", **options: Any
    ) -> Contestant:
        size = line if row.endswith("one line") else text
        same = {"count-words": "sha256", "segment": "pieces"}[name] if base else ""
        options["output"] = bench.file(row)
        arguments = {"name": name, "options": options}
        return Contestant(row, task, arguments, size.megabytes, base or row, same)

    base, base_few, book = "count kernel", "count kernel, sample", "textbook pipeline"
    rows = bench.compete(
        [
            Contestant(base, "count_both_sides", {"corpus": corpus}, text.megabytes),
            job("count-words job", "count-words", base=base, corpus=corpus),
            job("count-words job, one line", "count-words", corpus=corpus_line),
            job("count-words command", "count-words", "run_command", base, corpus=corpus),
            Contestant(
                base_few, "count_both_sides", {"corpus": corpus_few}, few.megabytes, base_few
            ),
            Contestant(
                f"{book}, sample", "textbook",
                {"corpus": corpus_few, "output": bench.file("textbook")},
                few.megabytes, base_few, "sha256",
            ),
            Contestant(
                f"{book}, one line", "textbook",
                {"corpus": corpus_line, "output": bench.file("textbook-line")},
                line.megabytes, f"{book}, one line",
            ),
        ]
    )  # fmt: skip
    _one_job(bench, text, "count-words", corpus=corpus, output=words)
    _one_job(bench, text, "learn-merges", words=words, output=merges, merges=bench.options.merges)
    learning = {"segmenter": "bpe", "words": words, "merges": merges}
    _one_job(bench, text, "learn-segmenter", **learning, output=segmenter)
    base, cutting = "segment kernel, cold", {"corpus": corpus, "segmenter": segmenter}
    arguments = {"text": text.path, "codes": f"{merges}/codes.txt"}
    return rows + bench.compete(
        [
            Contestant(base, "segment", arguments, text.megabytes, base),
            job("segment job", "segment", base=base, **cutting),
            job("segment job, one line", "segment", corpus=corpus_line, segmenter=segmenter),
            job("segment command", "segment", "run_command", base, **cutting),
            job("learn-segmenter job", "learn-segmenter", **learning),
        ]
    )


class Kind(NamedTuple):
    """A kind of segmenter, with the library that does its cutting, if one does."""

    name: str
    kind: str
    options: Mapping[str, Any] = {}
    merges: Mapping[str, Mapping[str, Any]] = {}
    """Options of learn-merges, by the option of learn-segmenter that takes what it learns."""
    library: str = ""
    """What stands alone beside the job: the library and what it is given."""


def _kinds(pieces: int, languages: Sequence[str]) -> list[Kind]:
    of_sides = dict(zip(("source_language", "target_language"), languages, strict=True))
    separate = {f"{side}_merges": {"side": side} for side in SIDES}
    size = {"pieces": pieces}
    return [
        Kind("bpe, separate", "bpe", merges=separate),
        Kind("bpe, joint", "bpe", merges={"merges": {}}),
        Kind("bpe, joint, ISO 9", "bpe", merges={"merges": {"transliterate": "iso9"}}),
        Kind("bpe, byte fallback", "bpe", {"byte_fallback": True}, separate),
        Kind("bytes, joint", "bytes", merges={"merges": {"units": "bytes"}}),
        Kind("wordpiece", "wordpiece", size),
        Kind("unigram", "unigram", size, library="sentencepiece, different words"),
        Kind("sentencepiece", "sentencepiece", size, library="sentencepiece, lines"),
        Kind("words", "words"),
        Kind("char-ngram, n = 2", "char-ngram", {"ngram": 2}),
        Kind("compound", "compound", of_sides),
        Kind(
            f"morfessor, words of {KIND_MIN_COUNT} occurrences", "morfessor",
            {"min_count": KIND_MIN_COUNT}, library="morfessor, different words",
        ),
        Kind("hyphenation", "hyphenation", of_sides, library="pyphen, different words"),
    ]  # fmt: skip


def kinds_table(bench: Bench) -> list[Row]:
    """Every kind learnt by its jobs, once, and `segment` by it; beside it its library alone. The
    last tenth of the text is held out, and tells what is unknown."""
    whole = bench.text(bench.options.megabytes or 10)
    text = cut_text(whole.path, 0.9 * whole.megabytes, Path(bench.file("most.txt")))
    rest = rest_of(whole, text, Path(bench.file("rest.txt")))
    corpus, held_out, words = bench.corpus(text), bench.corpus(rest), bench.file("words")
    pieces = min(KIND_PIECES, bench.options.merges)
    _one_job(bench, text, "count-words", corpus=corpus, output=words)
    rows = []
    for number, one in enumerate(_kinds(pieces, bench.options.languages)):
        print(f"  {one.name}", file=sys.stderr)
        given, learnt = dict(one.options), []
        for option, options in one.merges.items():
            given[option] = bench.file(f"{option}-{number}")
            learnt.append(
                _one_job(bench, text, "learn-merges", words=words, output=given[option],
                         merges=pieces, **options)
            )  # fmt: skip
        given |= {"corpus": corpus} if one.kind == "sentencepiece" else {"words": words}
        segmenter = bench.file(f"segmenter-{number}")
        learnt.append(
            _one_job(bench, text, "learn-segmenter", segmenter=one.kind, output=segmenter, **given)
        )
        options = {"corpus": corpus, "segmenter": segmenter, "output": bench.file("segmented")}
        job = Contestant(one.name, "run_job", {"name": "segment", "options": options},
                         text.megabytes, one.name)  # fmt: skip
        alone = Contestant(one.library, "cut_alone", {"corpus": corpus, "segmenter": segmenter},
                           text.megabytes, one.name, "pieces")  # fmt: skip
        found = bench.compete([job, alone] if one.library else [job])
        unseen = _one_job(
            bench,
            rest,
            "segment",
            **{**options, "corpus": held_out, "output": bench.file("unseen")},
        )
        found[0] |= {"learning": learnt, "size": pieces, "held_out": unseen["digest"]}
        rows += found
    return rows


def _one_job(bench: Bench, text: Text, name: str, **options: Any) -> Row:
    """A job in a fresh process."""
    shutil.rmtree(options["output"], ignore_errors=True)
    arguments = {"name": name, "options": options, "ready": False}
    return bench.once(Contestant(name, "run_job", arguments, text.megabytes))


def memory_table(bench: Bench) -> list[Row]:
    text = bench.text(bench.options.megabytes or 1000, repeat=True)
    corpus = bench.corpus(text)
    Path(text.path).unlink()
    row = _one_job(bench, text, "count-words", corpus=corpus, output=bench.file("words"))
    shutil.rmtree(corpus)
    return [{**row, "passes": text.passes}]


def scale_table(bench: Bench) -> list[Row]:
    rows = []
    for megabytes in bench.options.sizes:
        text = bench.text(megabytes, repeat=True)
        corpus, words, merges = bench.corpus(text), bench.file("words"), bench.file("merges")
        Path(text.path).unlink()
        counted = _one_job(bench, text, "count-words", corpus=corpus, output=words)
        learnt = _one_job(
            bench, text, "learn-merges", words=words, output=merges,
            merges=bench.options.scale_merges, divide=8,
        )  # fmt: skip
        shutil.rmtree(corpus)
        rounds = learnt["digest"]["rounds"]
        row: Row = {
            "name": f"{megabytes:g} MB",
            "megabytes": text.megabytes,
            "passes": text.passes,
            "count-words": counted,
            "learn-merges": learnt,
            "types": counted["digest"]["types"],
            "merges": learnt["digest"]["merges"],
            "rounds": len(rounds),
            "chunk_share": max(found["chunk_symbols"] for found in rounds)
            / counted["digest"]["symbols"],
        }
        rows.append(row)
    return rows


TABLES: dict[str, Callable[[Bench], list[Row]]] = {
    "count": count_table,
    "learn": learn_table,
    "segment": segment_table,
    "threads": threads_table,
    "jobs": jobs_table,
    "kinds": kinds_table,
    "memory": memory_table,
    "scale": scale_table,
}


# ---- the run ----


def describe_run(
    name: str, bench: Bench, missing: Mapping[str, str], load: float
) -> dict[str, Any]:
    versions = {
        "Python": platform.python_version(),
        **manifest.versions("apache-beam", "numpy", "pyarrow"),
    }
    if name == "kinds":
        versions |= manifest.versions("sentencepiece", "morfessor", "pyphen")
    if bench.python is not None:
        tools = ("cython", "pyarrow", "pybind11", "setuptools", "wheel")
        versions |= {
            name: version
            for name, version in (
                pin.split("==") for pin in read_pins("peers.txt") if pin not in missing
            )
            if name not in tools
        }
    options = bench.options
    return {
        **describe_machine(load),
        "versions": versions,
        "missing": dict(missing),
        "text": Path(options.text).name,
        "repeats": options.repeats,
        "merges": options.merges,
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("table", choices=[*TABLES, "all", "show"])
    parser.add_argument("--text", help="UTF-8 text, one sentence a line")
    parser.add_argument(
        "--megabytes", type=float, help="text to use, instead of each table's own size"
    )
    parser.add_argument(
        "--sizes", type=lambda sizes: [float(size) for size in sizes.split(",")],
        default=[10.0, 50.0, 200.0, 500.0], help="megabytes of the scale series (10,50,200,500)",
    )  # fmt: skip
    parser.add_argument("--merges", type=int, default=32_000, help="merges to learn (32000)")
    parser.add_argument(
        "--scale-merges", type=int, default=59_500, help="those of the scale series (59500)"
    )
    parser.add_argument(
        "--languages", type=lambda codes: codes.split(","), default=["en", "ru"],
        help="of the even and the odd lines, for the table of kinds (en,ru)",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, default=3, help="repeats for medians (3)")
    parser.add_argument("--json", type=Path, help="keep the figures here, beside other tables'")
    parser.add_argument(
        "--peers", type=Path, default=HERE / ".peers",
        help="virtual environment of the peers, made if need be (benchmarks/.peers)",
    )  # fmt: skip
    parser.add_argument("--no-peers", action="store_true", help="rareword alone")
    parser.add_argument(
        "--work", type=Path, help="folder for texts and outputs, kept (a temporary one)"
    )
    options = parser.parse_args(arguments)
    if options.table == "show" and options.json is None:
        parser.error("show needs --json")
    if options.table != "show" and options.text is None:
        parser.error(f"{options.table} needs --text")
    if options.text is not None and not Path(options.text).is_file():
        parser.error(f"--text: there is no file {options.text}")
    if len(options.languages) != len(SIDES):
        parser.error("--languages: two codes with a comma between them")
    if options.repeats < 1:
        parser.error("--repeats: at least 1")
    return options


def main() -> None:
    options = parse()
    results: dict[str, Any] = {"tables": {}}
    if options.json is not None and options.json.exists():
        results = storage.read_json(str(options.json))
    if options.table == "show":
        print(show(results))
        return
    names = list(TABLES) if options.table == "all" else [options.table]
    python: Path | None = None
    missing: dict[str, str] = {}
    if not options.no_peers and {"count", "learn", "segment"} & {*names}:
        python, missing = prepare_peers(options.peers)
    new: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(options, work, python)
        for name in names:
            print(f"{name} ...", file=sys.stderr)
            load = os.getloadavg()[0]
            rows = TABLES[name](bench)
            new[name] = {"run": describe_run(name, bench, missing, load), "rows": rows}
            results["tables"][name] = new[name]
            if options.json is not None:
                storage.write_json(str(options.json), results)
    print(show({"tables": new}))
    wrong = [row for table in new.values() for row in differing(table["rows"])]
    if wrong:
        raise SystemExit(f"these results must be equal to rareword's and are not: {wrong}")


if __name__ == "__main__":
    main()
