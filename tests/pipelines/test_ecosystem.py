"""Segmenters from other programs and for them, by the commands."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from subword_nmt.apply_bpe import BPE
from tokenizers import Tokenizer

from rareword.pipelines import cli, export_segmenter, import_segmenter, job
from rareword.schemas import manifest as manifests
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import UNK, Vocabulary
from rareword.transforms import segmenters
from rareword.transforms.segmenters import WordSegmenter

SOURCE = ["the low lower lowest", "newest and widest", "the the newer", "a lower and wider low"]
TARGET = ["das tief tiefer", "neueste und weiteste", "das neue", "tiefer und weiter 😀"]
CODES = "#version: 0.2\ne r</w>\nl o\nlo w</w>\ne s\nes t</w>\nlo w\nt h\nth e</w>\n"


def run(*arguments: object) -> None:
    assert cli.main([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """corpus, words, merges of characters and of bytes, and segmenters learnt from them."""
    path = tmp_path_factory.mktemp("made")
    oracles.write_corpus(f"{path}/corpus", SOURCE, TARGET, shards=2)
    run("count-words", "--quiet", "--corpus", path / "corpus", "--output", path / "words")
    for kind, units in (("bpe", "characters"), ("bytes", "bytes")):
        run("learn-merges", "--quiet", "--words", path / "words", "--units", units,
            "--merges", 30, "--min-frequency", 1, "--output", path / f"merges-{kind}")  # fmt: skip
        run("learn-segmenter", "--quiet", "--segmenter", kind, "--words", path / "words",
            "--merges", path / f"merges-{kind}", "--output", path / kind)  # fmt: skip
    (path / "codes").write_text(CODES, "utf-8")
    return path


def segmented(path: Path, corpus: Path, segmenter: Path) -> dict[str, list[list[int]]]:
    run("segment", "--quiet", "--corpus", corpus, "--segmenter", segmenter, "--output", path)
    shards = manifests.read(str(path), "segment", "").urls
    tables = [pq.read_table(url) for url in shards]
    return {s: [r for t in tables for r in t[s].to_pylist()] for s in ("source", "target")}


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_an_exported_segmenter_gives_the_ids_of_the_segment_job(made, tmp_path, kind):
    ids = segmented(tmp_path / "segmented", made / "corpus", made / kind)
    for side, lines in (("source", SOURCE), ("target", TARGET)):
        for directory in (made / kind, tmp_path / "segmented"):
            output = tmp_path / f"{side}-{directory.name}.json"
            run("export-segmenter", "--segmenter", directory, "--side", side, "--output", output)
            found = Tokenizer.from_file(str(output)).encode_batch(lines, add_special_tokens=False)
            assert sorted(f.ids for f in found) == sorted(ids[side])


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_what_was_exported_is_imported_as_it_was(made, tmp_path, kind):
    output = tmp_path / "tokenizer.json"
    run("export-segmenter", "--segmenter", made / kind, "--side", "source", "--output", output)
    run("import-segmenter", "--file", output, "--output", tmp_path / "back", "--quiet")
    there = manifests.read(str(made / kind), "learn-segmenter", "")
    back = manifests.read(str(tmp_path / "back"), "import-segmenter", "")
    assert back.rules["segmenter"] == there.rules["segmenter"]
    assert back.rules["vocabulary"] == there.rules["vocabulary"]
    assert segmented(tmp_path / "a", made / "corpus", made / kind) == segmented(
        tmp_path / "b", made / "corpus", tmp_path / "back"
    )
    run("import-segmenter", "--file", output, "--output", tmp_path / "words", "--quiet",
        "--words", made / "words", "--joint-vocabulary", "yes")  # fmt: skip
    assert vocabularies.read_both(str(tmp_path / "words")) == vocabularies.read_both(
        str(made / kind)
    )
    words = manifests.read(str(tmp_path / "words"), "import-segmenter", "")
    assert words.rules["text"] == there.rules["text"]


def test_codes_with_vocabulary_files_cut_as_subword_nmt(made, tmp_path):
    for side, pieces in (("source", "lo@@ 3\nwer 1\nlow 2\n"), ("target", "t@@ 4\ni@@ 4\n")):
        (tmp_path / side).write_text(pieces, "utf-8")
    run("import-segmenter", "--file", made / "codes", "--quiet", "--output", tmp_path / "s",
        "--source-vocabulary", tmp_path / "source",
        "--target-vocabulary", tmp_path / "target")  # fmt: skip
    both = vocabularies.read_both(str(tmp_path / "s"))
    assert both.source.pieces[3:] == ["lo", "wer", "low"]
    assert both.target.final[3:] == [False, False]
    manifest = manifests.read(str(tmp_path / "s"), "import-segmenter", "")
    assert not manifest.rules["segmenter"]["joint_vocabulary"]

    run("import-segmenter", "--file", made / "codes", "--quiet", "--output", tmp_path / "w",
        "--words", made / "words", "--min-piece-count", 1)  # fmt: skip
    ids = segmented(tmp_path / "segmented", made / "corpus", tmp_path / "w")
    words = vocabularies.read_both(str(tmp_path / "w")).source
    with (made / "codes").open(encoding="utf-8") as codes:
        peer = BPE(codes)
    shown = [words.display(row) for row in ids["source"]]
    assert sorted(shown) == sorted(peer.process_line(line).split() for line in SOURCE)


def test_each_side_may_have_a_file_of_its_own(made, tmp_path, capsys):
    (tmp_path / "fast").write_text("t i 5\nti e 4\n", "utf-8")
    run("import-segmenter", "--source-file", made / "codes", "--target-file", tmp_path / "fast",
        "--output", tmp_path / "s")  # fmt: skip
    both = vocabularies.read_both(str(tmp_path / "s"))
    assert "tie" in both.target.pieces
    assert "tie" not in both.source.pieces
    assert "import-segmenter" in capsys.readouterr().err
    run("segment", "--quiet", "--corpus", made / "corpus", "--segmenter", tmp_path / "s",
        "--output", tmp_path / "segmented")  # fmt: skip


def test_what_is_left_out_is_printed_and_kept(made, tmp_path, capsys):
    output = tmp_path / "tokenizer.json"
    run("export-segmenter", "--segmenter", made / "bpe", "--side", "source", "--output", output)
    value = json.loads(output.read_text("utf-8"))
    value["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    output.write_text(json.dumps(value), "utf-8")
    run("import-segmenter", "--file", output, "--output", tmp_path / "s")
    assert "words are split at U+0020 alone" in capsys.readouterr().err
    found = manifests.read(str(tmp_path / "s"), "import-segmenter", "")
    assert len(found.figures["notes"]) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "give --file for both sides, or both --source-file and --target-file"),
        ({"source_file": "codes"}, "give --file for both sides, or both --source-file"),
        ({"file": "codes", "target_file": "codes"}, "give --file for both sides, or both"),
        ({"file": "nothing"}, "--file: .*nothing does not exist"),
        ({"file": "codes", "vocabulary": "nothing"}, "--vocabulary: .*nothing does not exist"),
        ({"file": "codes", "source_vocabulary": "codes"}, "give --vocabulary for both sides"),
        ({"file": "codes", "vocabulary": "codes", "words": "words"}, "both make the vocabulary"),
        ({"file": "codes", "min_piece_count": 2}, "--min-piece-count goes with --words only"),
        ({"file": "codes", "joint_vocabulary": "no"}, "--joint-vocabulary goes with --words"),
        ({"file": "codes", "words": "corpus"}, "--words: .* was written by `prepare`"),
        ({"source_file": "codes", "target_file": "bytes.json"}, "both must be of one kind"),
        ({"file": "bytes.json", "vocabulary": "codes"}, "--vocabulary is for codes of"),
    ],
)
def test_options_of_import_that_do_not_go_together_are_refused(made, tmp_path, options, says):
    output = made / "bytes.json"
    run("export-segmenter", "--segmenter", made / "bytes", "--side", "source", "--overwrite",
        "--output", output)  # fmt: skip
    paths = {k: v if k.startswith(("min", "joint")) else f"{made}/{v}" for k, v in options.items()}
    with pytest.raises(RarewordError, match=says):
        job.execute(
            import_segmenter.JOB,
            import_segmenter.ImportSegmenterOptions(output=f"{tmp_path}/s", **paths),
        )
    assert not (tmp_path / "s").exists()


def test_what_cannot_be_exported_is_refused(made, tmp_path, capsys):
    output = tmp_path / "tokenizer.json"
    call = ["export-segmenter", "--segmenter", str(made / "bpe"), "--side", "source", "--output"]
    run(*call, output)
    assert cli.main([*call, str(output)]) == 1
    assert "is there already; add --overwrite" in capsys.readouterr().err
    assert cli.main([*call, str(output), "--overwrit"]) == 1
    assert "did you mean --overwrite?" in capsys.readouterr().err
    empty = Vocabulary([], [], [], [])
    with pytest.raises(RarewordError, match="a segmenter of kind 'words' has no counterpart"):
        export_segmenter.tokenizer("words", WordSegmenter(), empty)
    run("learn-segmenter", "--quiet", "--segmenter", "bpe", "--words", made / "words",
        "--merges", made / "merges-bpe", "--min-piece-count", 2,
        "--output", tmp_path / "cut")  # fmt: skip
    cut = ["export-segmenter", "--segmenter", str(tmp_path / "cut"), "--side", "target"]
    assert cli.main([*cut, "--output", str(tmp_path / "cut.json")]) == 1
    assert "makes a piece without an id" in capsys.readouterr().err
    assert not (tmp_path / "cut.json").exists()


def test_an_imported_segmenter_is_the_same_work_only_with_the_same_file(made, tmp_path):
    (tmp_path / "codes").write_text(CODES, "utf-8")
    options = import_segmenter.ImportSegmenterOptions(
        file=f"{tmp_path}/codes", output=f"{tmp_path}/s", quiet=True
    )
    first = job.execute(import_segmenter.JOB, options)
    assert job.perform(import_segmenter.JOB, options).seconds is None
    (tmp_path / "codes").write_text(CODES + "n e\n", "utf-8")
    with pytest.raises(RarewordError, match="input 'file' differs"):
        job.execute(import_segmenter.JOB, options)
    assert np.all([r.bytes > 0 for r in first.files])


@pytest.mark.parametrize(
    ("kind", "options"), [("wordpiece", {"min_frequency": 1}), ("unigram", {})]
)
def test_exported_wordpiece_and_unigram_models_have_the_pieces_of_the_segmenter(kind, options):
    if kind not in segmenters.KINDS:
        pytest.skip(f"this build has no segmenter of kind {kind}")
    draw = random.Random(3)
    stems = ["".join(draw.choices("abcdeiou", k=draw.randint(1, 6))) for _ in range(40)]
    words = [draw.choice(stems) + draw.choice(stems) for _ in range(400)]
    made: Any = segmenters.class_of(kind, "")
    segmenter = made.learn(pa.array(words[:300]), np.ones(300, np.int64), pieces=100, **options)
    value = export_segmenter.tokenizer(kind, segmenter, Vocabulary([], [], [], []))
    peer = Tokenizer.from_str(json.dumps(value))
    found = [piece.removeprefix("##") for piece in peer.encode(" ".join(words)).tokens]
    assert found == [piece for pieces in segmenter.cut(words) for piece in pieces]
    assert len(found) < sum(map(len, words))


def test_a_model_of_raw_text_is_not_counted_in_words(made, tmp_path, capsys):
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SOURCE), model_prefix=str(tmp_path / "raw"), vocab_size=300,
        byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False,
        remove_extra_whitespaces=False, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    call = ["import-segmenter", "--file", str(tmp_path / "raw.model"), "--output"]
    assert cli.main([*call, str(tmp_path / "s"), "--words", str(made / "words")]) == 1
    assert "cannot be counted in words" in capsys.readouterr().err
    run(*call, tmp_path / "s")
    both = vocabularies.read_both(str(tmp_path / "s"))
    assert both.joint
    assert both.source.is_raw
    assert both.source.has_bytes


def test_a_model_with_the_librarys_settings_goes_through_the_jobs(made, tmp_path, capsys):
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SOURCE), model_prefix=str(tmp_path / "raw"), vocab_size=120,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    peer = sentencepiece.SentencePieceProcessor(str(tmp_path / "raw.model"))
    call = ["import-segmenter", "--file", str(tmp_path / "raw.model"), "--output"]
    assert cli.main([*call, str(tmp_path / "s")]) == 0
    assert "the model normalises text (rule nmt_nfkc)" in capsys.readouterr().err
    rules = manifests.read(str(tmp_path / "s"), "import-segmenter", "").rules
    assert rules["segmenter"]["settings"]["both"]["normalisation"] == "nmt_nfkc"
    found = segmented(tmp_path / "segmented", made / "corpus", tmp_path / "s")["source"]
    vocabulary = vocabularies.read_both(str(tmp_path / "s")).source
    assert not any(UNK in ids for ids in found)
    restored = sorted(map(vocabulary.words, found))
    assert restored == sorted(peer.decode(peer.encode(line)) for line in SOURCE) == sorted(SOURCE)
