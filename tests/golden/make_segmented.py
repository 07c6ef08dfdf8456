"""Writes segmented.json: digests of what subword-nmt makes of all lines of the development corpora.

    cd tests && python -m golden.make_segmented ../../shared/data golden/segmented.json

It runs the installed `subword-nmt apply-bpe` on the text of make_codes.py, with the codes that have
the digests of codes.json, once for each set of options. It takes ten minutes.
"""

import argparse
import importlib.metadata
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from golden.make_codes import CORPORA, digests, sha256

from rareword.pipelines import subword_nmt

VARIANTS = {
    "plain": [],
    "separator, fewer merges": ["--separator", "\uffed", "--merges", "1000"],
    "vocabulary": ["--vocabulary", "VOCABULARY", "--vocabulary-threshold", "50"],
    "glossaries": ["--glossaries", "USA", "[0-9]+", "Wi-?Fi"],
}


def learn_codes(text: Path, merges: int, codes: Path, expected: dict[str, str]) -> None:
    """Learns with rareword, which is quick, and checks that the codes are subword-nmt's."""
    subword_nmt.run(["learn-bpe", "-s", str(merges), "-i", str(text), "-o", str(codes)])
    if digests(codes.read_bytes().decode(), merges) != expected:
        raise SystemExit(f"{codes}: these are not the codes of subword-nmt")


def options_of(variant: str, directory: Path) -> list[str]:
    vocabulary = str(directory / "vocabulary")
    return [vocabulary if option == "VOCABULARY" else option for option in VARIANTS[variant]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="the development corpora")
    parser.add_argument("output", type=Path, help="the JSON file to write")
    arguments = parser.parse_args()
    golden = json.loads((Path(__file__).parent / "codes.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {
        "variants": VARIANTS,
        "versions": {
            "subword-nmt": importlib.metadata.version("subword-nmt"),
            "python": platform.python_version(),
        },
        "corpora": {},
    }
    for name, corpus in CORPORA.items():
        with tempfile.TemporaryDirectory() as work:
            directory = Path(work)
            text, codes, out = (directory / part for part in ("text", "codes", "out"))
            lines = [line for column in corpus.lines(arguments.data) for line in column]
            text.write_bytes("".join(f"{line}\n" for line in lines).encode())
            learn_codes(text, corpus.merges, codes, golden["corpora"][name]["codes_sha256"])
            digest = {}
            for variant in VARIANTS:
                print(f"{name}: {variant}", file=sys.stderr, flush=True)
                subprocess.run(
                    ["subword-nmt", "apply-bpe", "-c", str(codes), "-i", str(text),
                     "-o", str(out), *options_of(variant, directory)],
                    check=True,
                )  # fmt: skip
                digest[variant] = sha256(out.read_bytes().decode())
                if variant == "plain":
                    vocabulary = directory / "vocabulary"
                    subprocess.run(
                        ["subword-nmt", "get-vocab", "-i", str(out), "-o", str(vocabulary)],
                        check=True,
                    )
                    digest["get-vocab"] = sha256(vocabulary.read_bytes().decode())
            found["corpora"][name] = digest
    arguments.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
