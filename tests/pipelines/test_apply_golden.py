"""Byte for byte what subword-nmt makes of all lines of real corpora.

`golden/segmented.json` holds the digests of its output; `golden/make_segmented.py` writes it.
"""

import json
from pathlib import Path

import pytest
from golden import make_segmented
from golden.make_codes import CORPORA, sha256
from golden.make_segmented import VARIANTS

from rareword.pipelines import subword_nmt

FOLDER = Path(make_segmented.__file__).parent
CODES = json.loads((FOLDER / "codes.json").read_text(encoding="utf-8"))
SEGMENTED = json.loads((FOLDER / "segmented.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CORPORA)
def test_all_lines_are_segmented_as_by_subword_nmt(shared_data, tmp_path, name):
    corpus = CORPORA[name]
    text, codes, out = (tmp_path / part for part in ("text", "codes", "out"))
    lines = [line for column in corpus.lines(shared_data) for line in column]
    text.write_bytes("".join(f"{line}\n" for line in lines).encode())
    expected = CODES["corpora"][name]["codes_sha256"]
    make_segmented.learn_codes(text, corpus.merges, codes, expected)
    digests = {}
    for workers, variant in enumerate(VARIANTS, 1):
        options = make_segmented.options_of(variant, tmp_path)
        subword_nmt.run(["apply-bpe", "-c", str(codes), "-i", str(text), "-o", str(out),
                         "--num-workers", str(workers), *options])  # fmt: skip
        digests[variant] = sha256(out.read_bytes().decode())
        if variant == "plain":
            subword_nmt.run(["get-vocab", "-i", str(out), "-o", str(tmp_path / "vocabulary")])
            digests["get-vocab"] = sha256((tmp_path / "vocabulary").read_bytes().decode())
    assert digests == SEGMENTED["corpora"][name]
