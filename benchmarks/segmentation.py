"""Count, learn and segment beside their peers, in one run on one text.

    python benchmarks/segmentation.py --text FILE [--megabytes 30] [--json OUT]

CPU seconds of one thread, medians of three; printed as ratios, since timings differ by machine.
The peers are what the dev extra installs: pyarrow, Python's Counter and subword-nmt 0.3.8. All of
them see the same lines, and the merges and the pieces must be equal before a figure is printed.
"""

import argparse
import collections
import contextlib
import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from rareword.schemas import merges as merge_files
from rareword.schemas.vocabulary import Vocabulary
from rareword.transforms import _kernels, rounds, segmenters, segmenting, words

REPEATS = 3
SLOW_PEER_LINES = 40_000
"""Lines that subword-nmt segments; its speed is per line, its cache is its own."""


def read_lines(path: str, megabytes: float) -> pa.Array:
    """Whole lines of about so many megabytes; white space that Python splits at becomes a space."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as stream:
        text = stream.read(int(megabytes * 1e6))
    lines = text[: text.rfind("\n")].split("\n")
    return pa.array([" ".join(line.split()) for line in lines], pa.string())


def cpu_seconds(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """Median CPU time of this process, and the last result."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return statistics.median(times), result


def count(lines: pa.Array) -> tuple[dict[str, float], pa.Table]:
    none, texts = pa.array([], pa.string()), lines.to_pylist()
    ours, table = cpu_seconds(lambda: words.count_words(lines, none))
    arrow, found = cpu_seconds(lambda: pc.value_counts(pc.split_pattern(lines, " ").flatten()))
    plain, counter = cpu_seconds(
        lambda: collections.Counter(word for line in texts for word in line.split())
    )
    expected = {word: n for word, n in counter.items() if word}
    assert dict(zip(table["word"].to_pylist(), table["source_count"].to_pylist(), strict=True)) == (
        expected
    )
    assert len(found) - 1 <= len(expected) <= len(found)
    return {
        "rareword": ours,
        "pyarrow split + value_counts": arrow,
        "Counter + split": plain,
    }, table


def learn(table: pa.Table, merges: int) -> tuple[dict[str, float], list[merge_files.Merge]]:
    column, counts = words.one_chunk(table["word"]), table["source_count"].to_numpy()
    none = np.empty(0, np.int32)

    def ours() -> rounds.PairCounts:
        base = _kernels.base_symbols(column, counts)
        return rounds.PairCounts(*_kernels.learn_merges(*base, none, none, merges, 2))

    dictionary = "".join(
        f"{word} {n}\n" for word, n in zip(column.to_pylist(), counts.tolist(), strict=True)
    )

    def peer() -> str:
        out = io.StringIO()
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
            learn_bpe(io.StringIO(dictionary), out, merges, is_dict=True)
        return out.getvalue()

    fast, pairs = cpu_seconds(ours)
    slow, codes = cpu_seconds(peer, 1)
    learnt = rounds.to_merges(pairs)
    assert merge_files.to_codes(learnt) == codes, "the merges differ from subword-nmt's"
    return {"rareword": fast, "subword-nmt": slow}, learnt


def segment(lines: pa.Array, table: pa.Table, merges: list[merge_files.Merge]) -> dict[str, float]:
    """Seconds for the lines that subword-nmt takes too; the warm figure has every word cached."""
    few = lines.slice(0, SLOW_PEER_LINES)
    bpe = segmenters.BpeSegmenter(merges)
    column, counts = words.one_chunk(table["word"]), table["source_count"].to_numpy()
    zeros = np.zeros(len(counts), np.int64)
    pieces = segmenting.count_pieces(
        column.cast(pa.string()), {"source": counts, "target": zeros},
        {"source": bpe, "target": bpe},
    )  # fmt: skip
    vocabulary: Vocabulary = segmenters.build_vocabularies(
        pieces, segmenters.VocabularyRules(joint=True)
    ).source
    peer = BPE(io.StringIO(merge_files.to_codes(merges)))
    texts = few.to_pylist()
    cold, encoded = cpu_seconds(lambda: bpe.encoder(vocabulary).encode(few))
    setup, encoder = cpu_seconds(lambda: bpe.encoder(vocabulary))
    encoder.encode(few)
    warm, _ = cpu_seconds(lambda: encoder.encode(few))
    slow, expected = cpu_seconds(lambda: [peer.process_line(line) for line in texts], 1)
    bounds = encoded.offsets.tolist()
    shown = vocabulary.display(encoded.ids.tolist())
    assert all(
        " ".join(shown[a:b]) == line
        for a, b, line in zip(bounds, bounds[1:], expected, strict=False)
    ), "the pieces differ from subword-nmt's"
    return {"rareword, cold": cold - setup, "rareword, warm": warm, "subword-nmt": slow}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--text", required=True, help="UTF-8 text, one sentence a line")
    parser.add_argument("--megabytes", type=float, default=30, help="read so much (default: 30)")
    parser.add_argument("--merges", type=int, default=4000, help="merges to learn (default: 4000)")
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    lines = read_lines(options.text, options.megabytes)
    counting, table = count(lines)
    learning, merges = learn(table, options.merges)
    figures = {
        "count words": counting,
        f"learn {options.merges} merges": learning,
        f"segment {min(len(lines), SLOW_PEER_LINES)} lines": segment(lines, table, merges),
    }
    print(f"{lines.nbytes / 1e6:.0f} MB, {len(lines)} lines, {table.num_rows} types")
    for name, seconds in figures.items():
        base = next(iter(seconds.values()))
        print(name)
        for who, value in seconds.items():
            print(f"  {who:<30} {value:9.3f} s  {value / base:8.1f} x")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump(figures, stream, indent=2)


if __name__ == "__main__":
    main()
