"""count-words, learn-merges and segment on files, against subword-nmt and plain Python."""

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import oracles
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from babel import Locale
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from rareword.pipelines import count_words, job, learn_merges, learn_segmenter, prepare, segment
from rareword.schemas import manifest as manifests
from rareword.schemas import merges as merge_files
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest
from rareword.schemas.tables import CORPUS, REJECTED, SEGMENTED, WORDS, iterate_row_groups
from rareword.transforms.text import restore


def names(code: str) -> list[str]:
    """Real text that a dependency ships: names of places and languages, spaces normalised."""
    locale = Locale(code)
    found = [*locale.territories.values(), *locale.languages.values(), *locale.scripts.values()]
    return [" ".join(name.split()) for name in found]


ENGLISH, GERMAN = names("en")[:600], names("de")[:600]


def count(corpus: str, output: str, **options) -> Manifest:
    return job.execute(
        count_words.JOB,
        count_words.CountWordsOptions(corpus=corpus, output=output, quiet=True, **options),
    )


def learn(words: str, output: str, **options) -> Manifest:
    options = {"merges": 300, **options}
    return job.execute(
        learn_merges.JOB,
        learn_merges.LearnMergesOptions(words=words, output=output, quiet=True, **options),
    )


def make_segmenter(**options) -> Manifest:
    options = {"segmenter": "bpe", **options}
    return job.execute(
        learn_segmenter.JOB, learn_segmenter.LearnSegmenterOptions(quiet=True, **options)
    )


def cut(**options) -> Manifest:
    return job.execute(segment.JOB, segment.SegmentOptions(quiet=True, **options))


def peers_codes(text: list[str], merges: int, min_frequency: int = 2) -> str:
    out = io.StringIO()
    learn_bpe(io.StringIO("\n".join(text) + "\n"), out, merges, min_frequency)
    return out.getvalue()


def rows(manifest: Manifest, schema) -> list[dict]:
    return [
        row for url in manifest.urls for group in iterate_row_groups(url, schema)
        for row in group.to_pylist()
    ]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A corpus, its words, joint merges, the segmenter and the segmented corpus."""
    path = tmp_path_factory.mktemp("run")
    n = min(len(ENGLISH), len(GERMAN))
    oracles.write_corpus(f"{path}/corpus", ENGLISH[:n], GERMAN[:n], shards=3, rows=70)
    count(f"{path}/corpus", f"{path}/words")
    learn(f"{path}/words", f"{path}/merges")
    make_segmenter(words=f"{path}/words", merges=f"{path}/merges", output=f"{path}/segmenter")
    cut(corpus=f"{path}/corpus", segmenter=f"{path}/segmenter", output=f"{path}/segmented")
    return path


def test_words_are_counted_once_each_on_both_sides(run):
    manifest = count(f"{run}/corpus", f"{run}/words")  # finished: read, not made again
    table = rows(manifest, WORDS)
    source, target = oracles.count_words(ENGLISH), oracles.count_words(GERMAN)
    assert {r["word"]: (r["source_count"], r["target_count"]) for r in table} == {
        word: (source[word], target[word]) for word in source | target
    }
    assert len(table) == len(source | target)
    assert manifest.figures["symbols"] == sum(len(word) for word in source | target)


def test_words_are_the_same_bytes_for_any_cut_of_the_corpus(run, tmp_path):
    oracles.write_corpus(f"{tmp_path}/corpus", ENGLISH, GERMAN, shards=1)
    again = count(f"{tmp_path}/corpus", f"{tmp_path}/words", kernel_threads=2)
    first = count(f"{run}/corpus", f"{run}/words")
    assert [s.checksum for s in again.shards] == [s.checksum for s in first.shards]


def test_new_data_added_to_old_counts_gives_the_words_of_both(run, tmp_path):
    half = len(ENGLISH) // 2
    oracles.write_corpus(f"{tmp_path}/old", ENGLISH[:half], GERMAN[:half])
    oracles.write_corpus(f"{tmp_path}/new", ENGLISH[half:], GERMAN[half:])
    count(f"{tmp_path}/old", f"{tmp_path}/old-words", shards=3)
    both = count(f"{tmp_path}/new", f"{tmp_path}/words", previous=f"{tmp_path}/old-words")
    first = count(f"{run}/corpus", f"{run}/words")
    assert [s.checksum for s in both.shards] == [s.checksum for s in first.shards]
    assert both.figures == first.figures


def test_old_counts_of_text_under_other_rules_are_refused(run, tmp_path):
    words = count(f"{run}/corpus", f"{run}/words")
    shutil.copytree(f"{run}/words", f"{tmp_path}/other")
    dataclasses.replace(words, rules={"text": {"truecase": "moses"}}).write(f"{tmp_path}/other")
    with pytest.raises(RarewordError, match=r"--previous: .*other rules .*--rules-from"):
        count(f"{run}/corpus", f"{tmp_path}/words", previous=f"{tmp_path}/other")


@pytest.mark.parametrize(
    ("shards", "divide", "parts", "limit"),
    [(1, 0, 1, 10**9), (3, 3, 4, 10**9), (16, 8, 2, 10**9), (4, 8, 2, 4000)],
)
def test_codes_are_those_of_subword_nmt_for_any_shards_and_rounds(
    run, tmp_path, shards, divide, parts, limit
):
    learn(f"{run}/words", f"{tmp_path}/merges", shards=shards, divide=divide, parts=parts,
          max_chunk_symbols=limit, max_rounds=6 if divide else 0)  # fmt: skip
    codes = (tmp_path / "merges" / "codes.txt").read_text(encoding="utf-8")
    assert codes == peers_codes([*ENGLISH, *GERMAN], 300)


@pytest.mark.parametrize(("shards", "divide"), [(1, 0), (1, 8), (3, 4), (16, 0), (16, 4)])
def test_the_golden_codes_of_subword_nmt_come_out_byte_for_byte(
    shared_data, tmp_path, shards, divide
):
    golden = shared_data / "subword-nmt-tests"
    text = (golden / "corpus.en").read_text(encoding="utf-8").split("\n")[:-1]
    oracles.write_corpus(f"{tmp_path}/corpus", text, [""] * len(text))
    count(f"{tmp_path}/corpus", f"{tmp_path}/words")
    learn(f"{tmp_path}/words", f"{tmp_path}/merges", merges=1000, shards=shards, divide=divide,
          max_rounds=5 if divide else 0)  # fmt: skip
    codes = (tmp_path / "merges" / "codes.txt").read_bytes()
    assert codes == (golden / "bpe.ref").read_bytes()


@pytest.mark.parametrize(("side", "text"), [("source", ENGLISH), ("target", GERMAN)])
def test_one_side_is_learnt_from_its_own_counts(run, tmp_path, side, text):
    learn(f"{run}/words", f"{tmp_path}/merges", side=side, merges=100, min_frequency=5)
    codes = (tmp_path / "merges" / "codes.txt").read_text(encoding="utf-8")
    assert codes == peers_codes(text, 100, 5)


@pytest.mark.parametrize(
    ("merges", "rounds"), [(400, {}), (260, {"divide": 4, "shards": 5}), (30, {})]
)
def test_total_symbols_is_what_subword_nmt_makes_of_it(run, tmp_path, merges, rounds):
    out = io.StringIO()
    learn_bpe(io.StringIO("\n".join(ENGLISH + GERMAN)), out, merges, total_symbols=True)
    found = learn(f"{run}/words", f"{tmp_path}/m", merges=merges, total_symbols=True, **rounds)
    assert Path(f"{tmp_path}/m/codes.txt").read_text() == out.getvalue()
    words = oracles.count_words(ENGLISH + GERMAN)
    inside, last = {c for word in words for c in word[:-1]}, {word[-1] for word in words}
    assert found.figures["base_symbols"] == len(inside) + len(last)
    assert found.figures["merges"] == max(merges - len(inside) - len(last), 0)


def test_total_symbols_counts_words_of_one_character(tmp_path):
    oracles.write_corpus(f"{tmp_path}/corpus", ["a b c ab ab abc abc"], [""])
    count(f"{tmp_path}/corpus", f"{tmp_path}/words")
    found = learn(f"{tmp_path}/words", f"{tmp_path}/m", merges=7, total_symbols=True)
    assert found.figures["base_symbols"] == 5  # a b inside, a b c at the end
    assert found.figures["merges"] == 2


def test_merges_of_bytes_are_those_of_algorithm_1_on_the_bytes(run, tmp_path):
    words = oracles.count_words(ENGLISH + GERMAN)
    as_bytes = {word.encode().decode("latin-1"): n for word, n in words.items()}
    expected = oracles.learn_bpe(as_bytes, 60)
    done = learn(f"{run}/words", f"{tmp_path}/m", merges=60, units="bytes", divide=8, shards=3)
    assert "of bytes" in done.figures["codes"]
    assert not Path(f"{tmp_path}/m/codes.txt").exists()
    found = merge_files.read(f"{tmp_path}/m/part-00000-of-00001.parquet")
    assert [((tuple(m.left), tuple(m.right)), m.count) for m in found] == expected

    strange = ["Ω 😀 \u0301", *ENGLISH[:5]]
    oracles.write_corpus(f"{tmp_path}/test", strange, strange)
    make_segmenter(words=f"{run}/words", segmenter="bytes", merges=f"{tmp_path}/m",
                   output=f"{tmp_path}/bytes")  # fmt: skip
    test = cut(corpus=f"{tmp_path}/test", segmenter=f"{tmp_path}/bytes", output=f"{tmp_path}/s")
    assert test.figures["source_unknown"] == test.figures["target_unknown"] == 0
    vocabulary = vocabularies.read_both(f"{tmp_path}/s").source
    assert sorted(vocabulary.words(row["source"]) for row in rows(test, SEGMENTED)) == sorted(
        strange
    )


def test_merges_of_bytes_and_of_characters_are_not_taken_for_each_other(run, tmp_path):
    learn(f"{run}/words", f"{tmp_path}/m", merges=5, units="bytes")
    with pytest.raises(
        RarewordError, match=r"--merges: .* was learnt on bytes; use --segmenter bytes"
    ):
        make_segmenter(words=f"{run}/words", merges=f"{tmp_path}/m", output=f"{tmp_path}/s")
    with pytest.raises(RarewordError, match="learnt on characters; use --segmenter bpe"):
        make_segmenter(words=f"{run}/words", segmenter="bytes", merges=f"{run}/merges",
                       output=f"{tmp_path}/s")  # fmt: skip
    with pytest.raises(RarewordError, match=r"--continue-from: .* learnt on bytes, not characters"):
        learn(f"{run}/words", f"{tmp_path}/more", continue_from=f"{tmp_path}/m")
    with pytest.raises(RarewordError, match="--transliterate works on characters"):
        learn(f"{run}/words", f"{tmp_path}/more", units="bytes", transliterate="iso9")


def test_going_on_from_fewer_merges_gives_the_same_as_learning_at_once(run, tmp_path):
    learn(f"{run}/words", f"{tmp_path}/few", merges=40)
    more = learn(f"{run}/words", f"{tmp_path}/more", continue_from=f"{tmp_path}/few")
    assert merge_files.read(more.urls[0]) == merge_files.read(
        f"{run}/merges/part-00000-of-00001.parquet"
    )


def test_rounds_that_do_not_suffice_keep_their_merges_for_the_next_call(run, tmp_path):
    options = {"shards": 3, "divide": 4, "max_rounds": 2}
    with pytest.raises(RarewordError, match=r"2 rounds were not enough: .* run the same command"):
        learn(f"{run}/words", f"{tmp_path}/merges", **options)
    kept = list((tmp_path / "merges" / "rounds").glob("checkpoint-*.parquet"))
    assert len(kept) == 2
    # A file that a kill left half written does not count.
    (tmp_path / "merges" / "rounds" / "checkpoint-0000299.parquet").write_bytes(b"PAR1 torn")
    learn(f"{run}/words", f"{tmp_path}/merges", **(options | {"max_rounds": 4}))
    files = {path.name for path in (tmp_path / "merges").iterdir()}
    assert files == {"manifest.json", "codes.txt", "part-00000-of-00001.parquet", "rounds.json"}
    for name in ("codes.txt", "part-00000-of-00001.parquet", "manifest.json"):
        assert (tmp_path / "merges" / name).read_bytes() == (run / "merges" / name).read_bytes()


def test_a_killed_learner_goes_on_and_ends_with_the_same_files(run, tmp_path):
    command = [sys.executable, "-m", "rareword.pipelines.cli", "learn-merges", "--quiet",
               "--words", f"{run}/words", "--output", f"{tmp_path}/merges", "--merges", "300",
               "--shards", "3", "--divide", "3", "--max-rounds", "6"]  # fmt: skip
    process = subprocess.Popen(command)
    rounds = tmp_path / "merges" / "rounds"
    deadline = time.monotonic() + 60
    while not list(rounds.glob("checkpoint-*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert list(rounds.glob("checkpoint-*.parquet")), "the kill came before the first checkpoint"
    assert subprocess.run(command, check=False).returncode == 0
    for name in ("codes.txt", "part-00000-of-00001.parquet", "manifest.json"):
        assert (tmp_path / "merges" / name).read_bytes() == (run / "merges" / name).read_bytes()


def test_a_corpus_without_pairs_gives_no_merges(tmp_path):
    oracles.write_corpus(f"{tmp_path}/corpus", ["a b c", ""], ["d", ""])
    count(f"{tmp_path}/corpus", f"{tmp_path}/words")
    manifest = learn(f"{tmp_path}/words", f"{tmp_path}/merges")
    assert manifest.figures["merges"] == 0
    assert (tmp_path / "merges" / "codes.txt").read_text() == "#version: 0.2\n"


def test_text_that_codes_cannot_hold_is_learnt_all_the_same(tmp_path):
    oracles.write_corpus(f"{tmp_path}/corpus", ["</w>a </w>b </w>c"] * 2, ["x"] * 2)
    count(f"{tmp_path}/corpus", f"{tmp_path}/words")
    manifest = learn(f"{tmp_path}/words", f"{tmp_path}/merges", merges=9)
    expected = oracles.learn_bpe({"</w>a": 2, "</w>b": 2, "</w>c": 2, "x": 2}, 9)
    found = [((tuple(m.left), tuple(m.right)), m.count) for m in merge_files.read(manifest.urls[0])]
    assert found == expected
    assert "literal </w>" in manifest.figures["codes"]
    assert not (tmp_path / "merges" / "codes.txt").exists()


def test_segmented_text_is_that_of_subword_nmt(run):
    manifest = cut(corpus=f"{run}/corpus", segmenter=f"{run}/segmenter",
                   output=f"{run}/segmented")  # fmt: skip
    both = vocabularies.read_both(f"{run}/segmented")
    peer = BPE(io.StringIO((run / "merges" / "codes.txt").read_text(encoding="utf-8")))
    found = {row["id"]: row for row in rows(manifest, SEGMENTED)}
    assert sorted(found) == list(range(len(ENGLISH)))
    for side, text in (("source", ENGLISH), ("target", GERMAN)):
        for number, line in enumerate(text):
            ids = found[number][side]
            assert " ".join(both.source.display(ids)) == peer.process_line(line)
            assert both.source.words(ids) == line
    assert both.joint
    assert manifest.figures["source_unknown"] == manifest.figures["target_unknown"] == 0
    pieces = [p for row in found.values() for p in row["source"]]
    assert manifest.figures["source_types"] == len(set(pieces))
    assert manifest.figures["source_pieces"] == len(pieces)


def test_messy_lines_come_back_equal_or_are_rejected_with_a_reason(shared_data, tmp_path):
    records = []
    for kind in sorted((shared_data / "messy").glob("*.jsonl")):
        lines = kind.read_text(encoding="utf-8").rstrip("\n").split("\n")
        records += [json.loads(line) for line in lines]
    table = pa.Table.from_pylist(records).select(["source", "target"])
    pq.write_table(table, tmp_path / "messy.parquet")
    corpus = job.execute(
        prepare.JOB,
        prepare.PrepareOptions(
            input=(f"{tmp_path}/messy.parquet",), output=f"{tmp_path}/corpus", tokenise="none",
            truecase="none", source_language="en", target_language="ru", quiet=True,
        ),
    )  # fmt: skip
    count(f"{tmp_path}/corpus", f"{tmp_path}/words")
    learn(f"{tmp_path}/words", f"{tmp_path}/merges", merges=500)
    make_segmenter(words=f"{tmp_path}/words", merges=f"{tmp_path}/merges",
                   output=f"{tmp_path}/segmenter")  # fmt: skip
    manifest = cut(corpus=f"{tmp_path}/corpus", segmenter=f"{tmp_path}/segmenter",
                   output=f"{tmp_path}/segmented")  # fmt: skip
    rejected = [
        row
        for record in corpus.files
        for group in iterate_row_groups(f"{tmp_path}/corpus/{record.name}", REJECTED)
        for row in group.to_pylist()
    ]
    assert manifest.rows + len(rejected) == len(records)
    assert all(row["reason"] for row in rejected)
    both = vocabularies.read_both(manifest.directory)
    texts = {row["id"]: row for row in rows(corpus, CORPUS)}
    for row in rows(manifest, SEGMENTED):
        assert both.source.words(row["source"]) == texts[row["id"]]["source"]
        target = both.target.words(row["target"])
        assert target == texts[row["id"]]["target"]
        assert restore(corpus.rules["text"], [target]) == [target]


def test_a_test_set_is_cut_by_the_segmenter_and_the_vocabulary_of_training(run, tmp_path):
    oracles.write_corpus(f"{tmp_path}/test", ["Unseen ☃ names", ""], ["Neue Namen", "x"], shards=1)
    manifest = cut(corpus=f"{tmp_path}/test", segmenter=f"{run}/segmenter",
                   output=f"{tmp_path}/segmented")  # fmt: skip
    both = vocabularies.read_both(f"{tmp_path}/segmented")
    assert both.hash == vocabularies.read_both(f"{run}/segmented").hash
    first, second = rows(manifest, SEGMENTED)
    assert both.source.words(first["source"]) == "Unseen <unk> names"
    assert both.target.words(first["target"]) == "Neue Namen"
    assert second["source"] == []
    assert manifest.figures["source_unknown"] == 1


@pytest.mark.parametrize("joint", ["auto", "yes"])
def test_word_level_and_separate_merges(run, tmp_path, joint):
    make_segmenter(words=f"{run}/words", output=f"{tmp_path}/by-words", segmenter="words",
                   joint_vocabulary=joint, max_vocabulary_size=50)  # fmt: skip
    words = cut(corpus=f"{run}/corpus", segmenter=f"{tmp_path}/by-words",
                output=f"{tmp_path}/words")  # fmt: skip
    both = vocabularies.read_both(f"{tmp_path}/words")
    assert both.joint == (joint == "yes")
    assert len(both.source) == len(both.target) == 50
    tokens = [w for line in ENGLISH for w in line.split(" ")]
    known = set(both.source.pieces[3:])
    assert words.figures["source_unknown"] == sum(token not in known for token in tokens)
    for side in ("source", "target"):
        learn(f"{run}/words", f"{tmp_path}/{side}", side=side, merges=60)
    make_segmenter(words=f"{run}/words", joint_vocabulary=joint,
                   source_merges=f"{tmp_path}/source", target_merges=f"{tmp_path}/target",
                   output=f"{tmp_path}/by-merges")  # fmt: skip
    separate = cut(corpus=f"{run}/corpus", segmenter=f"{tmp_path}/by-merges",
                   output=f"{tmp_path}/separate")  # fmt: skip
    peer = BPE(io.StringIO(peers_codes(GERMAN, 60)))
    target = vocabularies.read_both(f"{tmp_path}/separate").target
    for row in rows(separate, SEGMENTED):
        assert " ".join(target.display(row["target"])) == peer.process_line(GERMAN[row["id"]])


def test_iso9_merges_cut_names_alike_and_latin_words_as_in_english(tmp_path):
    english, russian = names("en")[:300], names("ru")[:300]
    n = min(len(english), len(russian))
    oracles.write_corpus(f"{tmp_path}/corpus", english[:n], russian[:n])
    count(f"{tmp_path}/corpus", f"{tmp_path}/words")
    manifest = learn(f"{tmp_path}/words", f"{tmp_path}/merges", transliterate="iso9", merges=200)
    from rareword.transforms.transliteration import to_latin

    learnt = merge_files.read(f"{tmp_path}/merges/learnt.parquet")
    expected = peers_codes([*english[:n], *map(to_latin, russian[:n])], 200)
    assert merge_files.to_codes(learnt) == expected
    pairs = [(tuple(m.left), tuple(m.right)) for m in merge_files.read(manifest.urls[0])]
    latin_only = [(tuple(m.left), tuple(m.right)) for m in learnt]
    for line in english[:n]:
        for word in line.split(" "):
            assert oracles.segment_word(word, pairs) == oracles.segment_word(word, latin_only)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"segmenter": "nowhere"}, "--segmenter: nowhere does not exist"),
        (
            {"segmenter": "{run}/words"},
            "--segmenter: .* was written by `count-words`, expected `learn-segmenter`",
        ),
        (
            {"segmenter": "{run}/segmented"},
            "--segmenter: .* was written by `segment`, expected `learn-segmenter`",
        ),
        (
            {"corpus": "{run}/words"},
            "--corpus: .* was written by `count-words`, expected `prepare`",
        ),
    ],
)
def test_wrong_inputs_of_segment_are_sentences(run, tmp_path, change, sentence):
    options = {"corpus": f"{run}/corpus", "segmenter": f"{run}/segmenter"}
    options |= {k: v.format(run=run) for k, v in change.items()}
    with pytest.raises(RarewordError, match=sentence):
        cut(output=f"{tmp_path}/out", **options)
    assert not (tmp_path / "out").exists()


def test_a_corpus_of_other_text_rules_is_not_segmented(run, tmp_path):
    shutil.copytree(f"{run}/corpus", f"{tmp_path}/corpus")
    other = manifests.read(f"{tmp_path}/corpus", "prepare", "--corpus")
    dataclasses.replace(other, rules={"text": {"truecase": "moses"}}).write(f"{tmp_path}/corpus")
    with pytest.raises(RarewordError, match=r"--segmenter: .* other rules .* --rules-from"):
        cut(corpus=f"{tmp_path}/corpus", segmenter=f"{run}/segmenter", output=f"{tmp_path}/out")


def test_segmented_data_hold_the_segmenter_and_its_fingerprint(run):
    made = manifests.read(f"{run}/segmenter", "learn-segmenter", "")
    data = manifests.read(f"{run}/segmented", "segment", "")
    assert data.rules["segmenter"] == {**made.rules["segmenter"], "fingerprint": made.content}
    assert data.rules["vocabulary"] == made.rules["vocabulary"]
    assert data.files == made.files
    for record in made.files:
        copy = (run / "segmented" / record.name).read_bytes()
        assert copy == (run / "segmenter" / record.name).read_bytes()


def test_a_segmenter_that_was_changed_on_disk_is_not_copied(run, tmp_path):
    shutil.copytree(f"{run}/segmenter", f"{tmp_path}/segmenter")
    merges = tmp_path / "segmenter" / "merges-both.parquet"
    table = pq.read_table(merges)
    flipped = pa.array([1 - 2 * (i % 2) + i for i in range(table.num_rows)], pa.int32())
    pq.write_table(table.set_column(0, "rank", flipped), merges)
    manifest = tmp_path / "segmenter" / "manifest.json"
    size = next(f["bytes"] for f in json.loads(manifest.read_text())["files"]
                if f["name"] == merges.name)  # fmt: skip
    manifest.write_text(
        manifest.read_text().replace(f'"bytes": {size}', f'"bytes": {merges.stat().st_size}')
    )
    with pytest.raises(RarewordError, match=r"merges-both\.parquet is not the file that its"):
        cut(corpus=f"{run}/corpus", segmenter=f"{tmp_path}/segmenter", output=f"{tmp_path}/out")
    assert not (tmp_path / "out").exists()


def test_jobs_run_on_memory_urls():
    oracles.write_corpus("memory://jobs/corpus", ENGLISH[:50], GERMAN[:50])
    count("memory://jobs/corpus", "memory://jobs/words")
    learn("memory://jobs/words", "memory://jobs/merges", merges=20)
    make_segmenter(words="memory://jobs/words", merges="memory://jobs/merges",
                   output="memory://jobs/segmenter")  # fmt: skip
    manifest = cut(corpus="memory://jobs/corpus", segmenter="memory://jobs/segmenter",
                   output="memory://jobs/segmented")  # fmt: skip
    assert manifest.rows == 50
