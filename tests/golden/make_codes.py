"""Writes codes.json: digests of the codes that subword-nmt learns on the development corpora.

    python tests/golden/make_codes.py ../shared/data tests/golden/codes.json

It runs the installed `subword-nmt learn-bpe` on one prepared text file for each corpus: minutes for
a large one, so the tests keep only the digests. Preparation: every white space character other than
U+0020 becomes U+0020, because subword-nmt ends lines at some of them and merges wrongly around
others; then the lines of the named columns, one column after the other, each ended by one U+000A.
"""

import argparse
import hashlib
import importlib.metadata
import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

COMMAND = "subword-nmt learn-bpe --symbols {merges} --input TEXT --output CODES"
PREFIXES = (2000, 8000)
"""The codes cut to so many merges have digests of their own."""


class Corpus(NamedTuple):
    """A Parquet file of sentence pairs, the columns to learn from, the merges to learn."""

    file: str
    columns: tuple[str, ...]
    merges: int

    def lines(self, data: Path) -> list[list[str]]:
        """The prepared lines of each column."""
        table = pq.read_table(data / self.file, columns=list(self.columns))
        return [[prepare(line) for line in table[name].to_pylist()] for name in self.columns]


CORPORA = {
    "en-de": Corpus("catalog/ende.train.parquet", ("source", "target"), 32000),
    "en-ru": Corpus("catalog/enru.train.parquet", ("source", "target"), 32000),
    **{
        language: Corpus(f"catalog-other/en{language}.train.parquet", ("target",), 8000)
        for language in ("tr", "fi", "ja", "zh")
    },
}


def prepare(line: str) -> str:
    return re.sub(r"\s", " ", line)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digests(codes: str, merges: int) -> dict[str, str]:
    """Digests by number of merges: of all codes, and of their heads. The first line is a header."""
    lines = codes.split("\n")[:-1]
    wanted = [number for number in PREFIXES if number < merges] + [merges]
    return {str(n): sha256("".join(f"{line}\n" for line in lines[: n + 1])) for n in wanted}


def learn(text: str, merges: int) -> str:
    with tempfile.TemporaryDirectory() as directory:
        source, codes = Path(directory, "text"), Path(directory, "codes")
        source.write_bytes(text.encode())
        command = COMMAND.format(merges=merges).replace("TEXT", str(source))
        subprocess.run(command.replace("CODES", str(codes)).split(" "), check=True)
        return codes.read_bytes().decode()


def describe(corpus: Corpus, data: Path) -> dict[str, Any]:
    columns = corpus.lines(data)
    text = "".join(f"{line}\n" for lines in columns for line in lines)
    codes = learn(text, corpus.merges)
    return {
        "file": corpus.file,
        "columns": list(corpus.columns),
        "lines": sum(map(len, columns)),
        "text_sha256": sha256(text),
        "merges": codes.count("\n") - 1,
        "codes_sha256": digests(codes, corpus.merges),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="the development corpora")
    parser.add_argument("output", type=Path, help="the JSON file to write")
    arguments = parser.parse_args()
    found: dict[str, Any] = {
        "command": COMMAND,
        "versions": {
            "subword-nmt": importlib.metadata.version("subword-nmt"),
            "python": platform.python_version(),
        },
        "corpora": {},
    }
    for name, corpus in CORPORA.items():
        print(f"{name}: {corpus.merges} merges", file=sys.stderr)
        found["corpora"][name] = describe(corpus, arguments.data)
    arguments.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
