"""The text that all contestants see, and the corpus directory that the jobs read."""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rareword.schemas.manifest import Plan, finish
from rareword.schemas.tables import CORPUS, shard_name, write_shard

CORPUS_SHARDS = 8


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
    limit, size, number, passes = max(1, int(megabytes * 1e6)), 0, 0, 0
    with open(target, "w", encoding="utf-8", newline="\n") as out:
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


def rest_of(whole: Text, begin: Text, target: Path) -> Text:
    """The lines of a text behind those of its beginning, from an even one on: a source line."""
    skip = begin.lines + begin.lines % 2
    with (
        open(whole.path, encoding="utf-8", newline="\n") as stream,
        open(target, "w", encoding="utf-8", newline="\n") as out,
    ):
        out.writelines(itertools.islice(stream, skip, None))
    if skip >= whole.lines:
        raise SystemExit(f"{whole.path} is too short: no line is left behind its beginning")
    return Text(str(target), target.stat().st_size / 1e6, whole.lines - skip, whole.passes)


def write_corpus(text: Text, directory: Path) -> str:
    """A finished `corpus` directory; even lines are its source side, odd ones its target side."""
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
