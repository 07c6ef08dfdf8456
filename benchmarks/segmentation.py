"""Count, learn and segment beside their peers, and the jobs beside the kernels.

    python benchmarks/segmentation.py TABLE --text FILE [--json FILE]

TABLE is count, learn, segment, threads, jobs, memory, scale or all; `show` prints the tables of an
earlier run from its JSON file. docs/benchmarks.md says what each table measures.

Every contestant is a process of its own (see peers.py) that prepares itself and then waits; the
driver lets one after the other do its work once, and goes round again. So all of them see the same
load, and medians are of interleaved repeats. Ratios count, since timings differ by machine.
"""

import argparse
import contextlib
import dataclasses
import datetime
import functools
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import peers
from peers import Repeat, Task

HERE = Path(__file__).resolve().parent
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
SAMPLE_MB = 5.0
"""What subword-nmt segments, and rareword beside it: its speed does not grow with more."""
TEXTBOOK_MB = 20.0
"""What the textbook pipeline counts."""
LEARN_TYPES, LEARN_MERGES = 65_000, 10_000
"""What subword-nmt learns; it takes half a minute."""
CORPUS_SHARDS = 8


# ---- the text ----


@dataclasses.dataclass(frozen=True)
class Text:
    """A file of clean lines: words between single spaces, no empty line."""

    path: str
    megabytes: float
    lines: int
    passes: int
    """How often the given text was read to get there."""


def cut_text(source: str, megabytes: float, target: Path, repeat: bool = False) -> Text:
    """The beginning of a text; over and over with `repeat`, if it is too short."""
    limit, size, number = int(megabytes * 1e6), 0, 0
    with open(target, "w", encoding="utf-8", newline="\n") as out:
        for passes in itertools.count(1):
            before = size
            with open(source, encoding="utf-8", errors="replace", newline="\n") as stream:
                for line in stream:
                    if size >= limit:
                        break
                    clean = " ".join(line.split())
                    if clean:
                        size += len(clean.encode()) + 1
                        number += 1
                        out.write(clean + "\n")
            if size >= limit or size == before or not repeat:
                break
    if not number:
        raise SystemExit(f"{source} holds no words")
    return Text(str(target), size / 1e6, number, passes)


def write_corpus(text: Text, directory: Path) -> str:
    """A finished `corpus` directory; even lines are its source side, odd ones its target side."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from rareword.schemas.manifest import Plan, finish
    from rareword.schemas.tables import CORPUS, shard_name, write_shard

    rows = -(-text.lines // 2)
    shards = min(CORPUS_SHARDS, rows)
    step = -(-rows // shards)
    records = []
    with open(text.path, encoding="utf-8", newline="\n") as stream:

        def tables(first: int, tokens: dict[str, int]) -> Iterator[pa.Table]:
            for start in range(first, min(first + step, rows), 10_000):
                number = min(10_000, first + step - start, rows - start)
                lines = [line[:-1] for line in itertools.islice(stream, 2 * number)]
                lines += [""] * (2 * number - len(lines))
                sides = {"source": pa.array(lines[::2]), "target": pa.array(lines[1::2])}
                for side, column in sides.items():
                    spaces = pc.sum(pc.count_substring(column, " ")).as_py()
                    words = number - lines.count("") * (side == "target") + spaces
                    tokens[f"{side}_tokens"] += words
                yield pa.table({"id": range(start, start + number), **sides})

        for shard in range(shards):
            tokens = {"source_tokens": 0, "target_tokens": 0}
            name = shard_name(shard, shards)
            rows_of_shard = tables(shard * step, tokens)
            records.append(write_shard(str(directory), name, CORPUS, rows_of_shard, tokens))
    finish(Plan("prepare", {}, {}), str(directory), CORPUS, records, rules={"text": {}})
    return str(directory)


# ---- rareword's side: tasks for peers.serve ----


def arrow_lines(path: str) -> Any:
    """The lines as an Arrow column, each with a space for its line break: no copy of the text."""
    import numpy as np
    import pyarrow as pa

    data = np.fromfile(path, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    data[ends] = ord(" ")
    offsets = np.concatenate([[0], ends + 1]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(ends), buffers)


def word_counts(lines: Any, threads: int = 1) -> tuple[Any, Any]:
    """The words of a column as a column, and their counts."""
    import pyarrow as pa

    from rareword.transforms import words

    table = words.count_words(lines, pa.array([], lines.type), threads)
    return words.one_chunk(table["word"]), table["source_count"].to_numpy()


def count_words(text: str, threads: int = 1) -> Iterator[Repeat]:
    import pyarrow as pa

    lines = pa.array(peers.read_lines(text), pa.string())
    while True:
        yield Repeat(
            lambda: word_counts(lines, threads),
            lambda table: peers.counts_digest(
                zip(table[0].to_pylist(), table[1].tolist(), strict=True)
            ),
        )


def learn_pairs(words: Any, counts: Any, merges: int) -> Any:
    import numpy as np

    from rareword.transforms import _kernels
    from rareword.transforms.rounds import PairCounts

    none = np.empty(0, np.int32)
    base = _kernels.base_symbols(words, counts)
    return PairCounts(*_kernels.learn_merges(*base, none, none, merges, 2))


def count_and_learn(text: str, merges: int, codes: str) -> Iterator[Repeat]:
    """From the file to the merges; writes them as a codes file, untimed."""
    from rareword.schemas import merges as merge_files
    from rareword.transforms import rounds

    def digest(pairs: Any) -> dict[str, Any]:
        found = merge_files.to_codes(rounds.to_merges(pairs))
        Path(codes).write_text(found, "utf-8", newline="\n")
        return {"merges": len(pairs), "codes": peers.text_digest(found)}

    while True:
        yield Repeat(lambda: learn_pairs(*word_counts(arrow_lines(text)), merges), digest)


def learn(words: str, merges: int) -> Iterator[Repeat]:
    """words: a file of lines `word count`."""
    import numpy as np
    import pyarrow as pa

    from rareword.schemas import merges as merge_files
    from rareword.transforms import rounds

    columns = list(zip(*(line.split(" ") for line in peers.read_lines(words)), strict=True))
    column, counts = pa.array(columns[0], pa.large_string()), np.array(columns[1], np.int64)
    while True:
        yield Repeat(
            lambda: learn_pairs(column, counts, merges),
            lambda pairs: {
                "codes": peers.text_digest(merge_files.to_codes(rounds.to_merges(pairs)))
            },
        )


def segment(
    text: str, codes: str, warm: bool = False, pieces: bool = False, threads: int = 1
) -> Iterator[Repeat]:
    """Lines to ids. The vocabulary is that of the text. warm: its words are in the cache already.
    pieces: the digest is of the lines of pieces and not of their number alone."""
    import numpy as np
    import pyarrow as pa

    from rareword.schemas import merges as merge_files
    from rareword.transforms import segmenters, segmenting

    lines = pa.array(peers.read_lines(text), pa.string())
    bpe = segmenters.BpeSegmenter(merge_files.read_codes(codes))
    words, counts = word_counts(lines)
    sides = {"source": counts, "target": np.zeros_like(counts)}
    found = segmenting.count_pieces(words.cast(pa.string()), sides, dict.fromkeys(sides, bpe))
    rules = segmenters.VocabularyRules(joint=True)
    vocabulary = segmenters.build_vocabularies(found, rules).source

    def digest(encoded: Any) -> dict[str, Any]:
        if not pieces:
            return {"pieces": len(encoded.ids)}
        shown, bounds = vocabulary.display(encoded.ids.tolist()), encoded.offsets.tolist()
        return peers.lines_digest([" ".join(shown[a:b]) for a, b in itertools.pairwise(bounds)])

    encoder = bpe.encoder(vocabulary)
    if warm:
        encoder.encode(lines, threads)
    while True:
        if not warm:
            encoder = bpe.encoder(vocabulary)
        yield Repeat(functools.partial(encoder.encode, lines, threads), digest)


def kernel(text: str, name: str, merges: int, threads: int) -> Iterator[Repeat]:
    """The kernels of a round of merge learning, on the word table of the text."""
    from rareword.transforms import _kernels

    words, counts = word_counts(arrow_lines(text))
    base = _kernels.base_symbols(words, counts)
    work: Callable[[], Any]
    if name == "pairs":
        work = functools.partial(_kernels.count_pairs, *base, threads)
    elif name == "chunks":
        left, right, sums, _ = _kernels.count_pairs(*base, threads)
        active = sums >= sums.max() // 8
        work = functools.partial(_kernels.cut_chunks, *base, left[active], right[active], threads)
    else:
        pairs = learn_pairs(words, counts, merges)
        work = functools.partial(_kernels.apply_merges, *base, pairs.left, pairs.right, threads)
    while True:
        yield Repeat(work, lambda result: {"rows": len(result[2])})


def count_both_sides(corpus: str) -> Iterator[Repeat]:
    """The kernel on the two columns of a corpus in memory."""
    from rareword.schemas import manifest
    from rareword.schemas.tables import CORPUS, read_table
    from rareword.transforms import words

    tables = [read_table(url, CORPUS) for url in manifest.read(corpus, "prepare", "").urls]
    sides = [
        words.one_chunk(column) for column in (_joined(tables, "source"), _joined(tables, "target"))
    ]
    while True:
        yield Repeat(lambda: words.count_words(*sides), _words_digest)


def _joined(tables: Sequence[Any], name: str) -> Any:
    import pyarrow as pa

    return pa.chunked_array([chunk for table in tables for chunk in table[name].chunks])


def _words_digest(table: Any) -> dict[str, Any]:
    counts = [table[f"{side}_count"].to_pylist() for side in ("source", "target")]
    return peers.counts_digest(zip(table["word"].to_pylist(), map(sum, zip(*counts)), strict=True))


def run_job(name: str, options: dict[str, Any], ready: bool = True) -> Iterator[Repeat]:
    """A job in this process on Beam's local runner, imports done; its output is kept.

    ready: a first, untimed run has loaded what loads late. The digest has the manifest's figures
    and the size of the largest table that was encoded as an element.
    """
    from rareword.pipelines import job
    from rareword.schemas.options import from_mapping
    from rareword.transforms.elements import TableCoder

    module = import_module(f"rareword.pipelines.{name.replace('-', '_')}")
    typed = from_mapping(module.JOB.options, {**options, "quiet": True}, name)
    largest, encode = 0, TableCoder.encode

    def measured(coder: Any, table: Any) -> bytes:
        nonlocal largest
        encoded = encode(coder, table)
        largest = max(largest, len(encoded))
        return encoded

    TableCoder.encode = measured  # type: ignore[method-assign]

    def digest(done: Any) -> dict[str, Any]:
        return {**done.figures, "largest_element": largest, **_output_digest(name, typed.output)}

    for repeat in itertools.count():
        shutil.rmtree(typed.output, ignore_errors=True)
        if ready and not repeat:
            job.execute(module.JOB, typed)
            shutil.rmtree(typed.output)
        yield Repeat(lambda: job.execute(module.JOB, typed), digest)


def _output_digest(name: str, output: str) -> dict[str, Any]:
    from rareword.schemas import manifest, storage
    from rareword.schemas.tables import WORDS, read_table

    if name == "count-words":
        import pyarrow as pa

        urls = manifest.read(output, name, "").urls
        return _words_digest(pa.concat_tables([read_table(url, WORDS) for url in urls]))
    if name == "learn-merges":
        return {"rounds": storage.read_json(storage.join(output, "rounds.json"))}
    return {}


def run_command(name: str, options: Mapping[str, Any]) -> Iterator[Repeat]:
    """The same as a command: with the interpreter's start and the imports."""
    output = str(options["output"])
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    command = [sys.executable, "-m", "rareword.pipelines.cli", name, *flags, "--quiet"]
    while True:
        shutil.rmtree(output, ignore_errors=True)
        yield Repeat(
            functools.partial(subprocess.run, command, check=True),
            lambda _: _output_digest(name, output),
        )


def textbook(corpus: str, output: str) -> Iterator[Repeat]:
    """Beam's word count example on the same files: an element for every word."""
    import apache_beam as beam
    import pyarrow as pa
    import pyarrow.parquet as pq
    from apache_beam.io.parquetio import ReadFromParquet, WriteToParquet
    from apache_beam.options.pipeline_options import PipelineOptions

    schema = pa.schema([("word", pa.string()), ("count", pa.int64())])

    def work() -> None:
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            _ = (
                pipeline
                | "Read" >> ReadFromParquet(f"{corpus}/part-*", columns=["source", "target"])
                | "Split"
                >> beam.FlatMap(
                    lambda row: row["source"].split() + row["target"].split()
                ).with_output_types(str)
                | "Count" >> beam.combiners.Count.PerElement()
                | "Row" >> beam.Map(lambda pair: {"word": pair[0], "count": pair[1]})
                | "Write" >> WriteToParquet(f"{output}/part", schema, file_name_suffix=".parquet")
            )

    def digest(_: None) -> dict[str, Any]:
        found = pq.read_table(output)
        return peers.counts_digest(
            zip(found["word"].to_pylist(), found["count"].to_pylist(), strict=True)
        )

    for repeat in itertools.count():
        shutil.rmtree(output, ignore_errors=True)
        if not repeat:
            work()
            shutil.rmtree(output)
        yield Repeat(work, digest)


TASKS: dict[str, Task] = {
    task.__name__: task
    for task in (
        count_words, count_and_learn, learn, segment, kernel, count_both_sides, run_job,
        run_command, textbook,
    )
}  # fmt: skip


# ---- contestants ----


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A row of a table."""

    name: str
    task: str
    arguments: Mapping[str, Any]
    megabytes: float
    base: str = ""
    """The row that this one's speed is divided by ("": the first)."""
    same: str = ""
    """The key of the digest that must be equal to the base's; "" if the work is not identical."""
    peer: bool = False


class Process:
    """A contestant's process, ready when made. Raises RuntimeError saying what went wrong."""

    def __init__(self, contestant: Contestant, python: Path | None) -> None:
        environment = {**os.environ, **ONE_THREAD}
        command = [sys.executable, __file__, "serve", contestant.task]
        if contestant.peer:
            if python is None:
                raise RuntimeError("left out by --no-peers")
            environment.pop("PYTHONPATH", None)
            command = [str(python), str(HERE / "peers.py"), contestant.task]
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self._ask(json.dumps(contestant.arguments))

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            last = (self._log.read().strip() or "no word").rsplit("\n", 1)[-1]
            raise RuntimeError(f"ended with code {self._process.wait()}: {last}")
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise RuntimeError(found["error"].split("\n")[0])
        return found

    def repeat(self) -> dict[str, Any]:
        return self._ask("again")

    def close(self) -> None:
        self._process.communicate()  # the end of its input is the end of it
        self._log.close()


Row = dict[str, Any]


def compete(contestants: Sequence[Contestant], python: Path | None, repeats: int) -> list[Row]:
    """Interleaved repeats of all contestants; one row each, with medians or an error."""
    running: dict[str, Process] = {}
    found: dict[str, list[dict[str, Any]]] = {one.name: [] for one in contestants}
    errors: dict[str, str] = {}

    def attempt(name: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except RuntimeError as error:
            errors[name] = str(error)
            print(f"{name}: skipped, {error}", file=sys.stderr)
            if name in running:
                running.pop(name).close()
            return None

    try:
        for one in contestants:
            made = attempt(one.name, functools.partial(Process, one, python))
            if made is not None:
                running[one.name] = made
        for _ in range(repeats):
            for name in list(running):
                answer = attempt(name, running[name].repeat)
                if answer is not None:
                    found[name].append(answer)
    finally:
        for process in running.values():
            process.close()
    return [_row(one, found[one.name], errors.get(one.name)) for one in contestants]


def _row(one: Contestant, repeats: Sequence[Mapping[str, Any]], error: str | None) -> Row:
    row: Row = {"name": one.name, "megabytes": one.megabytes, "base": one.base, "same": one.same}
    if error is not None:
        return {**row, "error": error}
    times = {key: [round(repeat[key], 4) for repeat in repeats] for key in ("cpu", "wall")}
    return {
        **row,
        **{key: statistics.median(values) for key, values in times.items()},
        "repeats": times,
        "peak": max(repeat["peak"] for repeat in repeats),
        "digest": repeats[0]["digest"],
    }


def prepare_peers(directory: Path) -> tuple[Path, dict[str, str]]:
    """Installs peers.txt with uv; returns the environment's Python and what could not be had.

    What needs building is built one by one, so that the rest is there if it cannot be built.
    """
    wanted = (HERE / "peers.txt").read_text("utf-8")
    ready, built = wanted.split("# built here\n")
    python, stamp = directory / "bin" / "python", directory / "installed.json"
    with contextlib.suppress(OSError, ValueError):
        state = json.loads(stamp.read_text("utf-8"))
        if state["wanted"] == wanted:
            return python, state["missing"]
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if uv is None:
        raise SystemExit("the peers are installed with uv, which is not here: pip install uv")
    pins = [line for line in ready.splitlines() if line and not line.startswith("#")]
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    missing = {}
    print(f"installing the peers into {directory}", file=sys.stderr)
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, directory],
                   check=True)  # fmt: skip
    subprocess.run([*install, *pins], check=True)
    for pin in built.split():
        done = subprocess.run(
            [*install, "--no-build-isolation", "--no-deps", pin],
            env={**os.environ, "CYTHON_FORCE_REGEN": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower()]
            missing[pin] = (said or ["cannot be installed"])[-1]
            print(f"{pin} is left out: {missing[pin]}", file=sys.stderr)
    stamp.write_text(json.dumps({"wanted": wanted, "missing": missing}), "utf-8")
    return python, missing


# ---- the tables ----


@dataclasses.dataclass
class Bench:
    """One run: its options, its folder, its peers."""

    options: argparse.Namespace
    work: Path
    python: Path | None

    def text(self, megabytes: float, repeat: bool = False) -> Text:
        """The beginning of the given text."""
        name = self.file(f"{megabytes:g}.txt")
        return cut_text(self.options.text, megabytes, Path(name), repeat)

    def corpus(self, text: Text) -> str:
        directory = Path(text.path).with_suffix(".corpus")
        shutil.rmtree(directory, ignore_errors=True)
        return write_corpus(text, directory)

    def compete(self, contestants: Sequence[Contestant]) -> list[Row]:
        return compete(contestants, self.python, self.options.repeats)

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
    import numpy as np

    text = bench.text(bench.options.megabytes or 50)
    words, counts = word_counts(arrow_lines(text.path))
    order = np.argsort(-counts, kind="stable")[:LEARN_TYPES]
    table = Path(bench.file("words.txt"))
    with open(table, "w", encoding="utf-8", newline="\n") as out:
        for word, count in zip(words.take(order).to_pylist(), counts[order].tolist(), strict=True):
            out.write(f"{word} {count}\n")
    arguments = {"words": str(table), "merges": min(LEARN_MERGES, bench.options.merges)}
    size, base = table.stat().st_size / 1e6, "rareword, word table"
    alone = [
        Contestant(base, "learn", arguments, size, base, "codes"),
        Contestant(
            "subword-nmt, word table", "subword_nmt_learn", arguments, size, base, "codes", True
        ),
    ]
    return [*bench.compete(_learners(bench, text)), *bench.compete(alone)]


def segment_table(bench: Bench) -> list[Row]:
    text = bench.text(bench.options.megabytes or 50)
    few = cut_text(text.path, min(SAMPLE_MB, text.megabytes), Path(bench.file("sample.txt")))
    for learner in _learners(bench, text):
        bench.once(learner)  # what fails here fails below too, and is told there
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
            peer("sentencepiece", "sentencepiece_encode", model=bench.file("sentencepiece.model")),
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
    text = bench.text(bench.options.megabytes or 150)
    merges, codes = bench.options.merges, bench.file("codes.txt")
    learner = _learners(bench, text)[0]
    bench.once(learner)
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
            ]
        )  # fmt: skip
    return rows


def jobs_table(bench: Bench) -> list[Row]:
    text = bench.text(bench.options.megabytes or 100)
    few = cut_text(text.path, min(TEXTBOOK_MB, text.megabytes), Path(bench.file("few.txt")))
    line = cut_text(text.path, 1e-6, Path(bench.file("line.txt")))
    corpora = {text: bench.corpus(text), few: bench.corpus(few), line: bench.corpus(line)}
    sizes = {text: "", few: ", sample", line: ", one line"}
    words, merges, segmented = map(bench.file, ("words", "merges", "segmented"))

    def row(name: str, task: str, text: Text, base: str, same: str, **more: Any) -> Contestant:
        return Contestant(name + sizes[text], task, more, text.megabytes, base, same)

    def kernel_row(text: Text) -> Contestant:
        name = "count kernel" + sizes[text]
        return row("count kernel", "count_both_sides", text, name, "sha256", corpus=corpora[text])

    def job_row(name: str, label: str, text: Text, base: str, same: str, **more: Any) -> Contestant:
        if text is line:
            base, same = label + sizes[text], ""
        options = {"corpus": corpora[text], "output": bench.file(label + sizes[text]), **more}
        task = "run_command" if label.endswith("command") else "run_job"
        return row(label, task, text, base, same, name=name, options=options)

    def textbook_row(text: Text, same: str) -> Contestant:
        label = "textbook pipeline"
        base = "count kernel, sample" if same else label + sizes[text]
        output = bench.file(label + sizes[text])
        return row(label, "textbook", text, base, same, corpus=corpora[text], output=output)

    kernel_name, job_name, command = "count kernel", "count-words job", "count-words command"
    rows = bench.compete(
        [
            kernel_row(text),
            job_row("count-words", job_name, text, kernel_name, "sha256"),
            job_row("count-words", job_name, line, "", ""),
            job_row("count-words", command, text, kernel_name, "sha256"),
            kernel_row(few),
            textbook_row(few, "sha256"),
            textbook_row(line, ""),
        ]
    )
    options = {"corpus": corpora[text], "output": words}
    bench.once(row("words", "run_job", text, "", "", name="count-words", options=options))
    options = {"words": words, "output": merges, "merges": bench.options.merges}
    bench.once(row("merges", "run_job", text, "", "", name="learn-merges", options=options))
    options = {"corpus": corpora[text], "words": words, "merges": merges, "output": segmented}
    bench.once(row("segmented", "run_job", text, "", "", name="segment", options=options))
    base, codes = "segment kernel, cold", f"{merges}/codes.txt"
    new, old = {"words": words, "merges": merges}, {"vocabulary": segmented}
    rows += bench.compete(
        [
            row(base, "segment", text, base, "pieces", text=text.path, codes=codes),
            job_row("segment", "segment job", text, base, "pieces", **old),
            job_row("segment", "segment job", line, "", "", **old),
            job_row("segment", "segment job, new vocabulary", text, base, "pieces", **new),
            job_row("segment", "segment command", text, base, "", **old),
        ]
    )
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
        row: Row = {
            "name": f"{megabytes:g} MB", "megabytes": text.megabytes, "passes": text.passes,
            "count-words": counted, "learn-merges": learnt,
        }  # fmt: skip
        if "error" not in counted and "error" not in learnt:
            rounds = learnt["digest"]["rounds"]
            largest = max(found["chunk_symbols"] for found in rounds)
            row |= {
                "types": counted["digest"]["types"],
                "merges": learnt["digest"]["merges"],
                "rounds": len(rounds),
                "chunk_share": largest / counted["digest"]["symbols"],
            }
        rows.append(row)
    return rows


TABLES: dict[str, tuple[str, Callable[[Bench], list[Row]]]] = {
    "count": ("Count words", count_table),
    "learn": ("Learn merges", learn_table),
    "segment": ("Segment", segment_table),
    "threads": ("Two threads", threads_table),
    "jobs": ("Beam jobs, Parquet in to Parquet out, local runner, one process", jobs_table),
    "memory": ("Memory of count-words", memory_table),
    "scale": ("Growth, learn-merges in rounds of best / 8", scale_table),
}


# ---- printing ----


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def differing(rows: Sequence[Row]) -> list[str]:
    """The rows whose result must be that of their base and is not."""
    found = {row["name"]: row.get("digest", {}) for row in rows}
    return [
        row["name"]
        for row in rows
        if (key := row.get("same")) and row.get("digest") and found.get(base_name(row, rows))
        and row["digest"].get(key) != found[base_name(row, rows)].get(key)
    ]  # fmt: skip


def base_name(row: Row, rows: Sequence[Row]) -> str:
    return str(row["base"] or rows[0]["name"])


def speed(rows: Sequence[Row], name: str, clock: str = "cpu", start: str = "") -> float | None:
    """MB/s of a row; less the seconds of the row `start`. None if the row was skipped."""
    by_name = {row["name"]: row for row in rows if clock in row}
    if name not in by_name or (start and start not in by_name):
        return None
    seconds = by_name[name][clock] - (by_name[start][clock] if start else 0.0)
    return float(by_name[name]["megabytes"] / max(seconds, 1e-9))


def show_speeds(table: str, rows: Sequence[Row]) -> str:
    clock, wrong, lines = "wall" if table == "threads" else "cpu", differing(rows), []
    for row in rows:
        if "error" in row:
            lines.append([row["name"], *["-"] * 5, f"skipped: {row['error']}"])
            continue
        ours, base = speed(rows, row["name"], clock), speed(rows, base_name(row, rows), clock)
        figures = {k: v for k, v in row["digest"].items() if isinstance(v, int)}
        number = next((f"{v:,} {k}" for k, v in figures.items() if k != "largest_element"), "")
        same = "**differs**" if row["name"] in wrong else "equal" if row["same"] else "own result"
        if row["name"] == base_name(row, rows):
            same = "1"
        lines.append(
            [
                row["name"], f"{row['megabytes']:.1f}", f"{row['cpu']:.3f}", f"{row['wall']:.3f}",
                f"{row['megabytes'] / row[clock]:.1f}",
                f"{ours / base:.3f}" if ours and base else "-",
                ", ".join(filter(None, (same if same != "1" else "", number))),
            ]
        )  # fmt: skip
    return markdown(["", "MB", "CPU s", "wall s", "MB/s", "of the first", "result"], lines)


def show_memory(rows: Sequence[Row]) -> str:
    lines = [
        [
            f"{row['megabytes']:.0f} MB, the text {row['passes']} times",
            *(
                [row["error"], "-", "-", "-", "-"]
                if "error" in row
                else [
                    f"{row['digest']['types']:,}", f"{row['cpu']:.1f}", f"{row['wall']:.1f}",
                    f"{row['peak'] / 1e6:.0f}", f"{row['digest']['largest_element'] / 1e6:.1f}",
                ]
            ),
        ]
        for row in rows
    ]  # fmt: skip
    head = ["", "types", "CPU s", "wall s", "peak MB", "largest element MB"]
    return markdown(head, lines)


def show_scale(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        jobs = [row["count-words"], row["learn-merges"]]
        name = row["name"] + (f", the text {row['passes']} times" if row["passes"] > 1 else "")
        errors = [job["error"] for job in jobs if "error" in job]
        if errors:
            lines.append([name, errors[0], *["-"] * 7])
            continue
        times = [figure for job in jobs for figure in (f"{job['cpu']:.1f}", f"{job['wall']:.1f}")]
        peaks = [f"{job['peak'] / 1e6:.0f}" for job in jobs]
        lines.append(
            [
                name, f"{row['types']:,}", *times[:2], peaks[0], *times[2:], peaks[1],
                f"{row['merges']:,}", str(row["rounds"]), f"{row['chunk_share']:.1%}",
            ]
        )  # fmt: skip
    head = [
        "", "types", "count CPU s", "wall s", "peak MB", "learn CPU s", "wall s", "peak MB",
        "merges", "rounds", "largest chunk table",
    ]  # fmt: skip
    return markdown(head, lines)


def ratios(tables: Mapping[str, Sequence[Row]]) -> list[tuple[str, str, float]]:
    """What the project promises: (what, bound, measured), as far as the rows are there."""
    found: list[tuple[str, str, float]] = []

    def ratio(
        what: str, bound: float, table: str, ours: str, theirs: Sequence[str],
        clock: str = "cpu", start: tuple[str, str] = ("", ""),
    ) -> None:  # fmt: skip
        rows = tables.get(table, ())
        mine = speed(rows, ours, clock, start[0])
        others = [s for name in theirs if (s := speed(rows, name, clock, start[1])) is not None]
        if mine is not None and others:
            found.append((what, f">= {bound:g} x", mine / max(others)))

    arrow = [row["name"] for row in tables.get("count", ()) if row["name"].startswith("pyarrow")]
    ratio("count words / pyarrow's fastest", 1.7, "count", "rareword", arrow)
    ratio("count words / Counter + split", 6, "count", "rareword", ["Counter + split"])
    for peer, bound in (("HF tokenizers", 9), ("sentencepiece", 5), ("YouTokenToMe", 5)):
        ratio(f"count + learn / {peer}", bound, "learn", "rareword", [peer])
    ratio("learn, same word table / subword-nmt", 200, "learn", "rareword, word table",
          ["subword-nmt, word table"])  # fmt: skip
    for temper, peer, bound in (
        ("cold", "HF tokenizers", 9), ("cold", "YouTokenToMe", 3.5), ("warm", "HF tokenizers", 25),
    ):  # fmt: skip
        ratio(f"segment, {temper} / {peer}", bound, "segment", f"rareword, {temper}", [peer])
    for kernel_name in ("count", "pairs", "chunks", "apply", "segment"):
        ratio(f"{kernel_name}, two threads / one", 1.7, "threads", f"{kernel_name}, 2 threads",
              [f"{kernel_name}, 1 thread"], "wall")  # fmt: skip
    job, book = "count-words job", "textbook pipeline"
    lines = (f"{job}, one line", f"{book}, one line")
    ratio(f"{job} / {book}", 8, "jobs", job, [f"{book}, sample"])
    ratio(f"{job} / {book}, both without start", 8, "jobs", job, [f"{book}, sample"], start=lines)
    for name, base in (("count-words", "count kernel"), ("segment", "segment kernel, cold")):
        own = f"{name} job"
        ratio(f"{own} / kernel", 0.5, "jobs", own, [base])
        ratio(f"{own} without start / kernel", 0.5, "jobs", own, [base],
              start=(f"{own}, one line", ""))  # fmt: skip
        ratio(f"{name} command / kernel", 0.5, "jobs", f"{name} command", [base])
    for row in tables.get("memory", ()):
        if "error" not in row:
            name = f"count-words of {row['megabytes']:.0f} MB"
            found.append((f"{name}, peak MB", "< 1500", row["peak"] / 1e6))
            element = row["digest"]["largest_element"] / (1 << 20)
            found.append((f"{name}, largest element MiB", "<= 64", element))
    for row in tables.get("scale", ()):
        if "rounds" in row:
            name = f"{row['name']}, {row['merges']:,} merges"
            found.append((f"{name}, rounds", "<= 5", row["rounds"]))
            found.append((f"{name}, largest chunk table %", "< 10", 100 * row["chunk_share"]))
    return found


def show(results: Mapping[str, Any]) -> str:
    """All tables as Markdown, as they stand in docs/benchmarks.md."""
    parts, tables = [], {}
    for name, (title, _) in TABLES.items():
        if name not in results["tables"]:
            continue
        table = results["tables"][name]
        tables[name] = rows = table["rows"]
        special = {"memory": show_memory, "scale": show_scale}
        body = special[name](rows) if name in special else show_speeds(name, rows)
        parts.append(f"### {title}\n\n{describe(table['run'])}\n\n{body}")
    lines = [[what, bound, f"{value:.3g}"] for what, bound, value in ratios(tables)]
    if lines:
        parts.append("### Ratios\n\n" + markdown(["", "wanted", "measured"], lines))
    return "\n".join(parts)


def describe(run: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    missing = "".join(f" Not to be had: {pin} ({why})." for pin, why in run["missing"].items())
    return (
        f"{run['date']}, {run['cpu']}, {run['cores']} cores, load {run['load'][0]:.1f} at the "
        f"start and {run['load'][1]:.1f} at the end; medians of {run['repeats']} (memory and "
        f"growth: one run); {run['merges']:,} merges. {versions}.{missing}"
    )


# ---- the run ----


def describe_run(bench: Bench, missing: Mapping[str, str], load: float) -> dict[str, Any]:
    from rareword.schemas import manifest

    versions = {
        "Python": platform.python_version(),
        **manifest.versions("apache-beam", "numpy", "pyarrow"),
    }
    if bench.python is not None:
        listing = "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
        command = [str(bench.python), "-c", listing]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        printed = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
        installed = json.loads(printed)
        wanted = [line.split("==")[0] for line in (HERE / "peers.txt").read_text().splitlines()]
        tools = ("cython", "pybind11", "setuptools", "wheel")
        versions |= {n: installed[n] for n in wanted if n in installed and n not in tools}
    model = platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as stream:
        models = [line.split(":")[1].strip() for line in stream if line.startswith("model name")]
        model = models[0] if models else model
    options = bench.options
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": model,
        "cores": os.cpu_count(),
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
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
    return options


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        peers.serve(TASKS, sys.argv[2])
        return
    options = parse()
    results: dict[str, Any] = {"tables": {}}
    if options.json is not None and options.json.exists():
        results = json.loads(options.json.read_text("utf-8"))
    if options.table == "show":
        print(show(results))
        return
    names = list(TABLES) if options.table == "all" else [options.table]
    python, missing = None, {}
    if not options.no_peers and {"count", "learn", "segment"} & {*names}:
        python, missing = prepare_peers(options.peers)
    new = {}
    with contextlib.ExitStack() as stack:
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(options, work, python)
        for name in names:
            print(f"{name} ...", file=sys.stderr)
            load = os.getloadavg()[0]
            rows = TABLES[name][1](bench)
            new[name] = {"run": describe_run(bench, missing, load), "rows": rows}
            results["tables"][name] = new[name]
            if options.json is not None:
                options.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(show({"tables": new}))
    wrong = [row for table in new.values() for row in differing(table["rows"])]
    if wrong:
        raise SystemExit(f"these results must be equal to rareword's and are not: {wrong}")


if __name__ == "__main__":
    main()
