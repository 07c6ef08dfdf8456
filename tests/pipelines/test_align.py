"""The job `align`: the true translations, the same bytes from any corpus shards, balances."""

import collections
import json
import random
import re
from pathlib import Path

import oracles
import pyarrow.parquet as pq
import pytest

from rareword.pipelines import align, cli, job
from rareword.schemas.dictionary import read_dictionary
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest
from rareword.schemas.tables import SIDES
from rareword.transforms import alignment

MODELS = ("eflomal", "fast-align")


def run(directory: Path, name: str, corpus: str = "corpus", **options) -> Manifest:
    return job.execute(
        align.JOB,
        align.AlignOptions(
            corpus=f"{directory}/{corpus}", output=f"{directory}/{name}", quiet=True, **options
        ),
    )


def made_corpus(pairs: int, words: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Sentences of words whose frequencies fall as 1 / rank; `w7` is always `W7x`.

    In the target two neighbours have changed places.
    """
    rng = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(words)]
    source, target = [], []
    for _ in range(pairs):
        chosen = rng.choices(range(words), weights, k=rng.randint(3, 8))
        order = list(range(len(chosen)))
        at = rng.randrange(1, len(chosen))
        order[at - 1], order[at] = at, at - 1
        source.append(" ".join(f"w{word}" for word in chosen))
        target.append(" ".join(f"W{chosen[place]}x" for place in order))
    return source, target


def shard_bytes(directory: Path, manifest: Manifest) -> list[bytes]:
    return [(directory / shard.name).read_bytes() for shard in manifest.shards]


@pytest.mark.parametrize("model", MODELS)
def test_the_most_probable_translation_is_the_true_one(tmp_path: Path, model: str) -> None:
    source, target = made_corpus(400, 100)
    oracles.write_corpus(f"{tmp_path}/corpus", source, target)
    manifest = run(tmp_path, "dictionary", model=model, keep=0)
    read = read_dictionary(f"{tmp_path}/dictionary")
    seen = [word for word, count in oracles.count_words(source).items() if count >= 5]
    assert len(seen) > 60
    right = [read.best(word)[:1] and read.best(word)[0][0] == f"W{word[1:]}x" for word in seen]
    assert sum(map(bool, right)) >= 0.95 * len(seen)

    sums: collections.Counter[str] = collections.Counter()
    for row in read.table.to_pylist():
        sums[row["source"]] += row["probability"]
    assert list(sums.values()) == pytest.approx([1.0] * len(read))
    assert manifest.figures["aligned_pairs"] == 400
    assert manifest.figures["source_words"] == len(read)
    assert manifest.figures["links"] == sum(read.table["count"].to_pylist())
    assert manifest.figures["pruned"] == 0
    assert manifest.versions.keys() == {"rareword", "apache-beam", "pyarrow", "sil-thot"}


@pytest.mark.parametrize("model", MODELS)
def test_shards_row_groups_and_blocks_leave_the_bytes_alone(tmp_path: Path, model: str) -> None:
    source, target = made_corpus(150, 30)
    found = []
    for name, shards, rows in (("one", 1, 10**9), ("three", 3, 10**9), ("seven", 7, 4)):
        oracles.write_corpus(f"{tmp_path}/{name}", source, target, shards=shards, rows=rows)
        out = f"dictionary-{name}"
        # 3 blocks, so that what is added comes from several
        manifest = run(tmp_path, out, corpus=name, model=model, block_pairs=60, shards=2)
        assert manifest.figures["aligned_pairs"] == 150
        found.append(shard_bytes(tmp_path / out, manifest))
    assert found[0] == found[1] == found[2]
    assert all(pq.ParquetFile(path).metadata.num_rows for path in tmp_path.glob("dict*/*.parquet"))
    again = run(tmp_path, "again", corpus="one", model=model, block_pairs=60, shards=2)
    assert shard_bytes(tmp_path / "again", again) == found[0]


def test_output_shards_hold_the_same_rows(tmp_path: Path) -> None:
    source, target = made_corpus(80, 20)
    oracles.write_corpus(f"{tmp_path}/corpus", source, target)
    rows = []
    for shards in (1, 3, 40):
        manifest = run(tmp_path, f"d{shards}", model="fast-align", shards=shards)
        assert len(manifest.shards) == shards, "a shard without words is there too"
        table = read_dictionary(f"{tmp_path}/d{shards}").table
        rows.append(sorted(map(tuple, map(dict.values, table.to_pylist()))))
    assert rows[0]
    assert rows[0] == rows[1] == rows[2]


def test_a_sample_is_the_same_pairs_however_they_are_cut(tmp_path: Path) -> None:
    source, target = made_corpus(300, 20)
    found = []
    for shards in (1, 4):
        oracles.write_corpus(f"{tmp_path}/{shards}", source, target, shards=shards)
        manifest = run(tmp_path, f"d{shards}", corpus=f"{shards}", sample_pairs=100,
                       model="fast-align")  # fmt: skip
        assert 60 < manifest.figures["aligned_pairs"] < 140
        assert manifest.figures["aligned_pairs"] + manifest.figures["left_out_pairs"] == 300
        found.append(shard_bytes(tmp_path / f"d{shards}", manifest))
    assert found[0] == found[1]


def test_pairs_that_are_not_aligned_are_counted_and_change_nothing(tmp_path: Path) -> None:
    source, target = made_corpus(60, 10)
    oracles.write_corpus(f"{tmp_path}/clean", source, target)
    long = " ".join(["w1"] * (alignment.MAX_WORDS + 1))
    more = [("", ""), ("w1", ""), ("", "W1x"), (long, "W1x"), ("w1", long)]
    oracles.write_corpus(
        f"{tmp_path}/dirty", source + [s for s, _ in more], target + [t for _, t in more]
    )
    clean, dirty = (run(tmp_path, f"d-{n}", corpus=n, model="fast-align")
                    for n in ("clean", "dirty"))  # fmt: skip
    assert dirty.figures == {**clean.figures, "empty_pairs": 3, "too_long_pairs": 2}
    assert shard_bytes(tmp_path / "d-dirty", dirty) == shard_bytes(tmp_path / "d-clean", clean)


def test_an_empty_corpus_gives_an_empty_dictionary(tmp_path: Path) -> None:
    oracles.write_corpus(f"{tmp_path}/corpus", [], [])
    manifest = run(tmp_path, "dictionary", shards=2)
    assert (manifest.rows, len(manifest.shards)) == (0, 2)
    assert len(read_dictionary(f"{tmp_path}/dictionary")) == 0


def test_the_case_of_words_is_kept(tmp_path: Path) -> None:
    oracles.write_corpus(f"{tmp_path}/corpus", ["May", "may"] * 20, ["Mai", "darf"] * 20)
    run(tmp_path, "dictionary", model="fast-align")
    read = read_dictionary(f"{tmp_path}/dictionary")
    assert read.first() == {"May": "Mai", "may": "darf"}


def test_lost_pairs_fail_the_run(tmp_path: Path) -> None:
    source, target = made_corpus(20, 5)
    oracles.write_corpus(f"{tmp_path}/corpus", source, target)
    path = tmp_path / "corpus" / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    manifest["shards"][0]["rows"] += 1
    path.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(RarewordError, match="pairs aligned or not: 21 against 20"):
        run(tmp_path, "dictionary", model="fast-align")
    assert not (tmp_path / "dictionary").exists()


def test_lost_links_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = made_corpus(20, 5)
    oracles.write_corpus(f"{tmp_path}/corpus", source, target)
    whole = alignment.split_links
    monkeypatch.setattr(
        alignment, "split_links", lambda links, shards: whole(links.slice(1), shards)
    )
    with pytest.raises(RarewordError, match="links of the blocks and of the dictionary"):
        run(tmp_path, "dictionary", model="fast-align")


def test_wrong_calls_end_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    oracles.write_corpus(f"{tmp_path}/corpus", ["a"], ["x"])
    good = {"--corpus": f"{tmp_path}/corpus", "--output": f"{tmp_path}/dictionary"}

    def error(**options: str) -> str:
        given = {**good, **{f"--{name.replace('_', '-')}": v for name, v in options.items()}}
        arguments = [word for pair in given.items() for word in pair]
        assert cli.main(["align", "--quiet", *arguments]) == 1
        return capsys.readouterr().err

    assert "--corpus: " in error(corpus=f"{tmp_path}/nothing")
    assert "run `rareword prepare` first" in error(corpus=f"{tmp_path}/nothing")
    assert "--block-pairs: 0 is below 1" in error(block_pairs="0")
    assert "--sample-pairs: 0 is below 1" in error(sample_pairs="0")
    assert "--min-probability: 1.5 is above 1.0" in error(min_probability="1.5")
    assert "--seed: -1 is below 0" in error(seed="-1")
    assert "did you mean --seed?" in error(sed="1")

    def missing() -> None:
        raise RarewordError("align needs the library sil-thot: pip install 'rareword[align]'")

    monkeypatch.setattr(alignment, "aligner_library", missing)
    assert "pip install 'rareword[align]'" in error()
    assert not (tmp_path / "dictionary").exists(), "nothing was begun"


OBVIOUS = {
    "dog": "Hund", "man": "Mann", "woman": "Frau", "girl": "Mädchen", "boy": "Junge",
    "water": "Wasser", "street": "Straße", "and": "und", "with": "mit", "not": "nicht",
    "two": "zwei", "three": "drei", "people": "Personen", "beach": "Strand", "guitar": "Gitarre",
    "ball": "Ball", "group": "Gruppe", "child": "Kind", "grass": "Gras", "children": "Kinder",
    "snow": "Schnee", "camera": "Kamera", "table": "Tisch", "bicycle": "Fahrrad",
}  # fmt: skip


def test_obvious_translations_come_first_on_real_text(tmp_path: Path, shared_data: Path) -> None:
    table = pq.read_table(shared_data / "multi30k" / "train.en-de.parquet").slice(0, 4000)
    source, target = (
        [" ".join(re.findall(r"\w+|[^\w\s]", text)) for text in table[column].to_pylist()]
        for column in SIDES
    )
    oracles.write_corpus(f"{tmp_path}/corpus", source, target)
    run(tmp_path, "dictionary", model="fast-align")
    first = read_dictionary(f"{tmp_path}/dictionary").first()
    wrong = {word: first.get(word) for word, right in OBVIOUS.items() if first.get(word) != right}
    assert len(wrong) <= 2, wrong
