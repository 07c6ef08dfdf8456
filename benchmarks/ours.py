"""rareword's side: its tasks, served as peers.py serves the peers'."""

import functools
import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import peers
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.io.parquetio import ReadFromParquet, WriteToParquet
from apache_beam.options.pipeline_options import PipelineOptions
from numpy.typing import NDArray
from peers import Repeat, Task

from rareword.pipelines import job
from rareword.schemas import manifest, storage
from rareword.schemas import merges as merge_files
from rareword.schemas.options import from_mapping
from rareword.schemas.tables import CORPUS, SIDES, WORDS, Side, read_table
from rareword.transforms import _kernels, bpe, rounds, segmenters, segmenting, words
from rareword.transforms.elements import TableCoder
from rareword.transforms.rounds import PairCounts


def arrow_lines(path: str) -> pa.Array:
    """The lines as an Arrow column, each with a space for its line break: no copy of the text."""
    data = np.fromfile(path, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    data[ends] = ord(" ")
    offsets = np.concatenate([[0], ends + 1]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(ends), buffers)


def word_counts(lines: pa.Array, threads: int = 1) -> tuple[pa.Array, NDArray[np.int64]]:
    """The words of a column as a column, and their counts."""
    table = words.count_words(lines, pa.array([], lines.type), threads)
    return words.one_chunk(table["word"]), table["source_count"].to_numpy()


def count_words(text: str, threads: int = 1) -> Iterator[Repeat]:
    lines = pa.array(peers.read_lines(text), pa.string())
    while True:
        yield Repeat(
            lambda: word_counts(lines, threads),
            lambda table: peers.counts_digest(
                zip(table[0].to_pylist(), table[1].tolist(), strict=True)
            ),
        )


def learn_pairs(words: pa.Array, counts: NDArray[np.int64], merges: int) -> PairCounts:
    none = np.empty(0, np.int32)
    base = _kernels.base_symbols(words, counts)
    return PairCounts(*_kernels.learn_merges(*base, none, none, merges, 2))


def count_and_learn(text: str, merges: int, codes: str) -> Iterator[Repeat]:
    """From the file to the merges; writes them as a codes file, untimed."""

    def digest(pairs: PairCounts) -> dict[str, Any]:
        found = merge_files.to_codes(rounds.to_merges(pairs))
        Path(codes).write_text(found, "utf-8", newline="\n")
        return {"merges": len(pairs), "codes": peers.text_digest(found)}

    while True:
        yield Repeat(lambda: learn_pairs(*word_counts(arrow_lines(text)), merges), digest)


def learn(words: str, merges: int) -> Iterator[Repeat]:
    """words: a file of lines `word count`."""
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
    """Lines to ids, with the vocabulary of the text.

    warm: the words are in the cache already. pieces: the digest is of the lines of pieces and not
    of their number alone.
    """
    lines = pa.array(peers.read_lines(text), pa.string())
    _, merges = merge_files.read_codes(codes)
    segmenter = bpe.BpeSegmenter(merges)
    words, counts = word_counts(lines)
    sides = {"source": counts, "target": np.zeros_like(counts)}
    found = segmenting.count_pieces(words.cast(pa.string()), sides, dict.fromkeys(sides, segmenter))
    rules = segmenters.VocabularyRules(joint=True)
    vocabulary = segmenters.build_vocabularies(found, rules).source

    def digest(encoded: segmenters.Encoded) -> dict[str, Any]:
        if not pieces:
            return {"pieces": len(encoded.ids)}
        shown, bounds = vocabulary.display(encoded.ids.tolist()), encoded.offsets.tolist()
        return peers.lines_digest([" ".join(shown[a:b]) for a, b in itertools.pairwise(bounds)])

    encoder = segmenter.encoder(vocabulary)
    if warm:
        encoder.encode(lines, threads)
    while True:
        if not warm:
            encoder = bpe.BpeSegmenter(merges).encoder(vocabulary)
            encoder.encode(lines.slice(0, 0))  # whatever is made late is made
        yield Repeat(functools.partial(encoder.encode, lines, threads), digest)


def kernel(text: str, name: str, merges: int, threads: int) -> Iterator[Repeat]:
    """The kernels of a round of merge learning, on the word table of the text."""
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
        work()  # not timed: a worker at work does not wake up cold, and this takes milliseconds
        yield Repeat(work, lambda result: {"rows": len(result[2])})


def count_both_sides(corpus: str) -> Iterator[Repeat]:
    """The kernel on the two columns of a corpus in memory."""
    urls = manifest.read(corpus, "prepare", "").urls
    table = pa.concat_tables([read_table(url, CORPUS) for url in urls])
    sides = [words.one_chunk(table[side]) for side in ("source", "target")]
    while True:
        yield Repeat(lambda: words.count_words(*sides), _words_digest)


def _words_digest(table: pa.Table) -> dict[str, Any]:
    sums = pc.add(table["source_count"], table["target_count"]).to_pylist()
    return peers.counts_digest(zip(table["word"].to_pylist(), sums, strict=True))


def run_job(name: str, options: dict[str, Any], ready: bool = True) -> Iterator[Repeat]:
    """A job in this process on Beam's local runner, imports done; its output is kept.

    ready: a first, untimed run has loaded what loads late; nothing that it read is kept. The digest
    has the manifest's figures and the size of the largest table that was encoded as an element.
    """
    module = import_module(f"rareword.pipelines.{name.replace('-', '_')}")
    typed = from_mapping(module.JOB.options, {**options, "quiet": True}, name)
    largest, encode = 0, TableCoder.encode

    def measured(self: TableCoder, value: pa.Table) -> bytes:
        nonlocal largest
        encoded = encode(self, value)
        largest = max(largest, len(encoded))
        return encoded

    TableCoder.encode = measured  # type: ignore[method-assign]

    def digest(done: manifest.Manifest) -> dict[str, Any]:
        return {**_output_digest(name, typed.output), **done.figures, "largest_element": largest}

    for repeat in itertools.count():
        shutil.rmtree(typed.output, ignore_errors=True)
        if ready and not repeat:
            job.execute(module.JOB, typed)
            shutil.rmtree(typed.output)
        forget()
        yield Repeat(lambda: job.execute(module.JOB, typed), digest)


def forget() -> None:
    """Clears what rareword's functions remember, such as segmenters with their cached words."""
    for name, module in list(sys.modules.items()):
        if name.startswith("rareword."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _output_digest(name: str, output: str) -> dict[str, Any]:
    if name == "count-words":
        urls = manifest.read(output, name, "").urls
        return _words_digest(pa.concat_tables([read_table(url, WORDS) for url in urls]))
    if name == "learn-merges":
        return {"rounds": storage.read_json(storage.join(output, "rounds.json"))}
    figures = manifest.read(output, name, "").figures
    if name == "learn-segmenter":
        return dict(figures)
    return {"pieces": figures["source_pieces"] + figures["target_pieces"]}


def cut_alone(corpus: str, segmenter: str) -> Iterator[Repeat]:
    """The library behind a saved segmenter on what the segment job gives it: the different words
    of each side, or its lines; they and the model are in memory. Nothing looks ids up, and nothing
    is read, written or put together. The digest has the pieces that the corpus has by these cuts.
    """
    made = manifest.read(segmenter, "learn-segmenter", "")
    rules = made.rules["segmenter"]
    both = segmenters.load(segmenter, rules["kind"], rules["settings"])
    table = pa.concat_tables(
        [read_table(url, CORPUS) for url in manifest.read(corpus, "prepare", "").urls]
    )
    texts: dict[Side, list[str]] = {}
    counts: dict[Side, NDArray[np.int64]] = {}
    for side in SIDES:
        lines = words.one_chunk(table[side])
        if rules["kind"] == "sentencepiece":
            texts[side], counts[side] = lines.to_pylist(), np.ones(len(lines), np.int64)
        else:
            column, counts[side] = word_counts(lines)
            texts[side] = column.to_pylist()
    work = {side: _library_cut(both[side], texts[side]) for side in SIDES}

    def digest(sizes: dict[Side, list[int]]) -> dict[str, Any]:
        return {"pieces": sum(int(np.dot(sizes[side], counts[side])) for side in SIDES)}

    while True:
        yield Repeat(lambda: {side: work[side]() for side in SIDES}, digest)


def _library_cut(segmenter: segmenters.Segmenter, texts: list[str]) -> Callable[[], list[int]]:
    """What cuts the texts by the library alone; it gives the number of pieces of each."""
    from rareword.transforms.morphology import HyphenationSegmenter, MorfessorSegmenter
    from rareword.transforms.sentencepieces import SentencePieceSegmenter
    from rareword.transforms.unigram import UnigramSegmenter

    if isinstance(segmenter, HyphenationSegmenter):
        import pyphen

        patterns = pyphen.Pyphen(lang=segmenter.language, cache=False)

        def hyphenate() -> list[int]:
            found = [1 + len(patterns.positions(text)) for text in texts]
            patterns.hd.cache.clear()
            return found

        return hyphenate
    if isinstance(segmenter, MorfessorSegmenter):
        model = segmenter._model
        return lambda: [len(model.viterbi_segment(text)[0]) for text in texts]
    from rareword.transforms.sentencepiece_models import protect

    assert isinstance(segmenter, UnigramSegmenter | SentencePieceSegmenter)
    processor = segmenter.processor
    given = [protect(text) for text in texts]
    return lambda: [
        len(ids)
        for batch in peers.batches(given)
        for ids in processor.encode(batch, out_type=int, num_threads=1)
    ]


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
        cut_alone, run_command, textbook,
    )
}  # fmt: skip


if __name__ == "__main__":
    peers.serve(TASKS, sys.argv[1])
