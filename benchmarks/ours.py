"""rareword's side: its texts and corpora, and its tasks, served as peers.py serves the peers'."""

import dataclasses
import functools
import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import peers
from peers import Repeat, Task

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
        passes = 0
        while size < limit:
            passes += 1
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
            if size == before or not repeat:
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


# ---- the tasks ----


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
    import pyarrow as pa

    from rareword.schemas import manifest
    from rareword.schemas.tables import CORPUS, read_table
    from rareword.transforms import words

    urls = manifest.read(corpus, "prepare", "").urls
    table = pa.concat_tables([read_table(url, CORPUS) for url in urls])
    sides = [words.one_chunk(table[side]) for side in ("source", "target")]
    while True:
        yield Repeat(lambda: words.count_words(*sides), _words_digest)


def _words_digest(table: Any) -> dict[str, Any]:
    import pyarrow.compute as pc

    sums = pc.add(table["source_count"], table["target_count"]).to_pylist()
    return peers.counts_digest(zip(table["word"].to_pylist(), sums, strict=True))


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
        return {**_output_digest(name, typed.output), **done.figures, "largest_element": largest}

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
    figures = manifest.read(output, name, "").figures
    return {"pieces": figures["source_pieces"] + figures["target_pieces"]}


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


if __name__ == "__main__":
    peers.serve(TASKS, sys.argv[1])
