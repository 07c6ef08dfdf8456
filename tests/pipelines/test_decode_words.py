"""`decode` of whole words from the corpus on, with small random models that like `<unk>`: what
takes its place, and candidate lists."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rareword.pipelines import cli
from rareword.schemas import manifest as manifests
from rareword.schemas import tables
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.manifest import Plan
from rareword.schemas.tables import DICTIONARY, SEGMENTED
from rareword.schemas.vocabulary import EOS, UNK
from rareword.trainer import checkpoints, ensemble
from rareword.trainer.config import ModelConfig, TrainConfig
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.search import Candidates, SearchOptions, translate
from rareword.trainer.state import RunState

TRAIN = [("the red cat runs", "die rote Katze rennt"), ("the cat sees a dog", "die Katze sieht")]
TEST = ["the red Zebra runs", "Quux", "", "a cat sees the very big Gnu and a Yak", "Yak dog Yak"]
TEXT = {"tokenise": "none", "truecase": "none"}
TRANSLATIONS = {"the": "die", "a": "eine", "red": "rote", "Gnu": "Gnus", "and": "und"}


def call(*words: object) -> None:
    assert cli.main([*map(str, words), "--quiet"]) == 0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """corpus/{train,test}, segmented by words (as `segmented`), dictionary, model-1, model-2."""
    root = tmp_path_factory.mktemp("words")
    oracles.write_corpus(f"{root}/corpus/train", *zip(*TRAIN, strict=True), text=TEXT)
    oracles.write_corpus(f"{root}/corpus/test", TEST, TEST, shards=7, rows=2, text=TEXT)
    call("count-words", "--corpus", root / "corpus/train", "--output", root / "words")
    call("learn-segmenter", "--segmenter=words", "--words", root / "words", "--output",
         root / "segmenter")  # fmt: skip
    call("segment", "--corpus", root / "corpus/test", "--segmenter", root / "segmenter",
         "--output", root / "segmented")  # fmt: skip
    write_dictionary(root / "dictionary", TEXT)
    for number, seed in enumerate((21, 20), 1):  # these look at many different words
        write_model(root / f"model-{number}", root / "segmented", seed)
    return root


def write_dictionary(directory: Path, text: dict[str, str], **words: str) -> None:
    """A finished `align` directory: TRANSLATIONS, each with a worse one, and `words`."""
    rows = [
        row
        for source, target in sorted({**TRANSLATIONS, **words}.items())
        for row in ((source, target, 0.75, 3), (source, "falsch", 0.25, 1))
    ]
    table = pa.Table.from_pylist(
        [dict(zip(DICTIONARY.fields.names, row, strict=True)) for row in rows],
        schema=DICTIONARY.fields,
    )
    record = tables.write_shard(str(directory), "part-00000-of-00001.parquet", DICTIONARY, [table])
    manifests.finish(
        Plan("align", {}, words), str(directory), DICTIONARY, [record], rules={"text": text}
    )


def write_model(directory: Path, segmented: Path, seed: int, sharpness: float = 30.0) -> None:
    """A finished `train` directory: an untrained model that likes <unk> and looks at few words.

    sharpness: by which its attention energies are multiplied.
    """
    both = vocabularies.read_both(str(segmented))
    torch.manual_seed(seed)
    config = ModelConfig(len(both.source), len(both.target), 8, 12, 6, "none")
    network = EncoderDecoder(config)
    with torch.no_grad():
        network.output.weight.mul_(4)
        network.output.bias.normal_()
        network.output.bias[UNK] += 3
        network.energy.weight.mul_(sharpness)
        network.source_embedding.weight.mul_(30)
    checkpoints.save(
        str(directory),
        network,
        Optimiser(network, TrainConfig()),
        RunState(learning_rate=1.0),
        checkpoints.Identity("a run", both.hash, config),
        best=True,
        keep=1,
    )
    manifests.finish(
        Plan("train", {}, {"seed": str(seed)}),
        str(directory),
        None,
        [],
        files=vocabularies.write_both(both, str(directory)),
        rules={"vocabulary": both.hash},
    )


def decode(root: Path, output: Path, *more: object, models: tuple[int, ...] = (1,)) -> list[Any]:
    call("decode", "--segmented", root / "segmented", "--model",
         *(root / f"model-{number}" for number in models), "--output", output, "--threads=1",
         *more)  # fmt: skip
    found = manifests.read(str(output), "decode", "--output")
    return [row for url in found.urls for row in pq.read_table(url).to_pylist()]


def plainly_replaced(
    root: Path, models: tuple[int, ...], dictionary: dict[str, str], n_best: int
) -> tuple[list[list[str]], dict[str, int]]:
    """What the job should write, in plain Python on the hypotheses of search; and what occurred."""
    loaded = [checkpoints.load_model(str(root / f"model-{number}")) for number in models]
    manifest = manifests.read(str(root / "segmented"), "segment", "--segmented")
    table = pa.concat_tables([tables.read_table(url, SEGMENTED) for url in manifest.urls])
    options = SearchOptions(beam=3, n_best=n_best, alignments=True)
    sources = [np.array(ids) for ids in table["source"].to_pylist()]
    found = translate(ensemble.together(loaded), sources, options, "cpu")
    pieces = vocabularies.read_both(str(root / "segmented")).target.pieces
    lines = [TEST[id_] for id_ in table["id"].to_pylist()]
    seen = dict.fromkeys(("end", "dictionary", "copy", "unknown", "two"), 0)
    outputs = []
    for line, hypotheses in zip(lines, found, strict=True):
        words = line.split()
        for hypothesis in hypotheses:
            output = [pieces[id_] for id_ in hypothesis.ids]
            seen["two"] += hypothesis.ids.count(UNK) > 1
            for place, id_ in enumerate(hypothesis.ids):
                if id_ == UNK:
                    weights = hypothesis.alignment[place].tolist()
                    seen["end"] += weights.index(max(weights)) == len(words)
                    best = weights.index(max(weights[:-1]))
                    seen["dictionary" if words[best] in dictionary else "copy"] += 1
                    seen["unknown"] += words[best] in ("Zebra", "Quux", "Gnu", "Yak")
                    output[place] = dictionary.get(words[best], words[best])
            outputs.append(output)
    return outputs, seen


@pytest.mark.parametrize("models", [(1,), (1, 2)])
@pytest.mark.parametrize("rule", ["copy", "dictionary"])
def test_every_hypothesis_gets_the_words_that_attention_points_to(
    root: Path, tmp_path: Path, models: tuple[int, ...], rule: str
) -> None:
    more: tuple[object, ...] = ("--beam=3", "--n-best=2", f"--replace-unk={rule}",
                                "--corpus", root / "corpus/test")  # fmt: skip
    if rule == "dictionary":
        more += ("--dictionary", root / "dictionary")
    rows = decode(root, tmp_path / "out", *more, models=models)
    known = TRANSLATIONS if rule == "dictionary" else {}
    expected, seen = plainly_replaced(root, models, known, 2)
    assert [row["pieces"] for row in rows] == expected
    assert [row["text"] for row in rows] == list(map(" ".join, expected))
    assert all(row["alignment"] is None for row in rows)
    assert seen["copy"] > 0
    assert (seen["dictionary"] > 0) == (rule == "dictionary")
    assert seen["end"] > 0, "end-of-sentence had the highest attention of some"
    assert seen["unknown"] > 0, "a source word outside the vocabulary was pointed to"
    assert seen["two"] > 0

    best, counts = plainly_replaced(root, models, known, 1)
    figures = manifests.read(str(tmp_path / "out"), "decode", "--output").figures
    assert figures["replaced_by_dictionary"] == counts["dictionary"]
    assert figures["replaced_by_copy"] == counts["copy"]
    assert figures["target_pieces"] == sum(map(len, best))


def test_equal_weights_give_the_first_word_however_much_padding_there_is(
    root: Path, tmp_path: Path
) -> None:
    shutil.copytree(root, tmp_path / "root")
    shutil.rmtree(tmp_path / "root/model-1")
    write_model(tmp_path / "root/model-1", root / "segmented", 1, sharpness=0.0)
    plain = decode(tmp_path / "root", tmp_path / "plain")
    lines = [TEST[row["id"]] for row in plain]
    assert any("<unk>" in row["pieces"] for row in plain)
    for tokens in (1, 4000):
        rows = decode(tmp_path / "root", tmp_path / f"out-{tokens}", "--replace-unk=copy",
                      "--corpus", root / "corpus/test", f"--batch-tokens={tokens}")  # fmt: skip
        for line, row, before in zip(lines, rows, plain, strict=True):
            expected = [
                line.split()[0] if piece == "<unk>" else piece for piece in before["pieces"]
            ]
            assert row["pieces"] == expected


def test_alignments_scores_and_known_words_are_what_they_were(root: Path, tmp_path: Path) -> None:
    before = decode(root, tmp_path / "before", "--alignments")
    after = decode(root, tmp_path / "after", "--alignments", "--replace-unk=copy",
                   "--corpus", root / "corpus/test")  # fmt: skip
    for one, other in zip(before, after, strict=True):
        assert {**one, "text": "", "pieces": []} == {**other, "text": "", "pieces": []}
        for old, new in zip(one["pieces"], other["pieces"], strict=True):
            assert old in (new, "<unk>")
    assert any("<unk>" in row["pieces"] for row in before)


def test_a_run_without_replacement_is_the_same_work_as_ever(root: Path, tmp_path: Path) -> None:
    decode(root, tmp_path / "out")
    manifest = manifests.read(str(tmp_path / "out"), "decode", "--output")
    assert "replace_unk" not in manifest.options
    assert sorted(manifest.inputs) == ["model", "segmented"]
    assert "replaced_by_copy" not in manifest.figures


def test_rule_and_dictionary_are_part_of_the_work(root: Path, tmp_path: Path) -> None:
    corpus = ("--corpus", root / "corpus/test")
    decode(root, tmp_path / "out", *corpus, "--replace-unk=copy")
    arguments = ["decode", f"--segmented={root}/segmented", f"--model={root}/model-1",
                 f"--output={tmp_path}/out", *map(str, corpus)]  # fmt: skip
    assert cli.main(arguments) == 1
    rule = ["--replace-unk=dictionary", f"--dictionary={root}/dictionary"]
    assert cli.main([*arguments, *rule, "--overwrite", "--quiet"]) == 0
    write_dictionary(tmp_path / "other", TEXT, Quux="Quark")
    rule[1] = f"--dictionary={tmp_path}/other"
    assert cli.main([*arguments, *rule]) == 1


def test_what_does_not_go_together_is_a_sentence(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def error(*words: str, segmented: Path = root / "segmented") -> str:
        arguments = [f"--segmented={segmented}", f"--model={root}/model-1", *words]
        assert cli.main(["decode", "--quiet", f"--output={tmp_path}/out", *arguments]) == 1
        text = capsys.readouterr().err
        assert len(text.splitlines()) == 1
        assert not (tmp_path / "out").exists()
        return text

    corpus, dictionary = f"--corpus={root}/corpus/test", f"--dictionary={root}/dictionary"
    copy, looked_up = "--replace-unk=copy", "--replace-unk=dictionary"
    assert "--replace-unk needs --corpus" in error(copy)
    assert "--dictionary is for --replace-unk dictionary or" in error(copy, corpus, dictionary)
    assert "--replace-unk dictionary needs --dictionary" in error(looked_up, corpus)
    assert "--dictionary is for --replace-unk dictionary or" in error(dictionary)
    assert "--corpus is for --replace-unk" in error(corpus)
    assert "--forbid-unk leaves nothing to replace" in error(copy, corpus, "--forbid-unk")
    assert "--search forced has outputs already" in error(copy, corpus, "--search=forced")
    wrong = error(copy, f"--corpus={root}/corpus/train")
    assert f"{root}/segmented was not cut from {root}/corpus/train" in wrong
    write_dictionary(tmp_path / "cased", {"tokenise": "none", "truecase": "moses"})
    wrong = error(looked_up, corpus, f"--dictionary={tmp_path}/cased")
    assert "prepared by other rules" in wrong
    assert "was written by `count-words`, expected `align`" in error(
        looked_up, corpus, f"--dictionary={root}/words"
    )


def test_pieces_of_words_are_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("learn-merges", "--words", root / "words", "--merges=5", "--output", tmp_path / "merges")
    call("learn-segmenter", "--segmenter=bpe", "--words", root / "words", "--merges",
         tmp_path / "merges", "--output", tmp_path / "segmenter")  # fmt: skip
    call("segment", "--corpus", root / "corpus/test", "--segmenter", tmp_path / "segmenter",
         "--output", tmp_path / "segmented")  # fmt: skip
    write_model(tmp_path / "model", tmp_path / "segmented", 1)
    arguments = [f"--segmented={tmp_path}/segmented", f"--model={tmp_path}/model",
                 f"--corpus={root}/corpus/test", "--replace-unk=copy"]  # fmt: skip
    assert cli.main(["decode", f"--output={tmp_path}/out", *arguments]) == 1
    assert "was segmented by 'bpe', whose pieces are parts of words" in capsys.readouterr().err


def test_evaluation_counts_the_replaced_words(root: Path, tmp_path: Path) -> None:
    """`Quux` stands in the reference of its sentence, which is the copied source."""
    call("count-words", "--corpus", root / "corpus/train", "--output", tmp_path / "words")
    found = {}
    for rule in ("none", "copy"):
        more = () if rule == "none" else ("--replace-unk=copy", "--corpus", root / "corpus/test")
        decode(root, tmp_path / rule, *more)
        call("evaluate", "--translations", tmp_path / rule, "--references", root / "corpus/test",
             "--words", tmp_path / "words", "--output", tmp_path / f"report-{rule}")  # fmt: skip
        path = f"{tmp_path}/report-{rule}/metrics.json"
        found[rule] = tables.storage.read_json(path)["systems"]["model"]
    assert found["none"]["unknown_pieces"] > 0
    assert found["copy"]["unknown_pieces"] == 0
    assert found["none"]["unigrams"]["unseen"]["f1"] == 0
    assert found["copy"]["unigrams"]["unseen"]["f1"] > 0


# ---- candidate lists ----


def test_lists_that_hold_all_pieces_change_nothing(root: Path, tmp_path: Path) -> None:
    lists = ("--candidates", f"--dictionary={root}/dictionary")
    found = decode(root, tmp_path / "lists", *lists, "--n-best=2", models=(1, 2))
    plain = decode(root, tmp_path / "plain", "--n-best=2", models=(1, 2))
    for one, other in zip(found, plain, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
        assert {**one, "score": 0} == {**other, "score": 0}
    figures = manifests.read(str(tmp_path / "lists"), "decode", "--output").figures
    assert figures["searched_again"] == figures["at_limit_outputs"]


def test_outputs_are_made_of_the_lists_pieces(root: Path, tmp_path: Path) -> None:
    lists = ("--candidates", "--frequent-pieces=1", "--word-translations=1")
    found = decode(root, tmp_path / "out", *lists, f"--dictionary={root}/dictionary", "--beam=3")
    target = vocabularies.read_both(str(root / "segmented")).target
    # The most frequent word of the target side, and what all sentences have.
    shared = [0, UNK, EOS, target.pieces.index("die")]
    own = [
        sorted(
            {target.pieces.index(TRANSLATIONS[w]) for w in line.split()
             if TRANSLATIONS.get(w) in target.pieces}
            - set(shared)
        )
        for line in TEST
    ]  # fmt: skip
    sources = vocabularies.read_both(str(root / "segmented")).source
    network = checkpoints.load_model(str(root / "model-1")).model.network()
    ids = [[(sources.pieces.index(w) if w in sources.pieces else UNK) for w in line.split()]
           for line in TEST]  # fmt: skip
    options = SearchOptions(beam=3)
    candidates = Candidates(np.array(shared), [np.array(x, np.int64) for x in own])
    expected = translate(network, list(map(np.array, ids)), options, "cpu", candidates=candidates)
    limits = [3 * (len(line.split()) + 1) for line in TEST]
    again = [i for i, best in enumerate(expected) if len(best[0].ids) + 1 == limits[i]]
    assert 0 < len(again) < len(TEST), "the test should see both"
    for row in found:
        best = expected[row["id"]][0]
        if row["id"] not in again:
            assert row["pieces"] == target.display(best.ids)
            assert row["score"] == pytest.approx(best.score, abs=1e-5)
            assert set(best.ids) <= {*shared, *own[row["id"]]}
    figures = manifests.read(str(tmp_path / "out"), "decode", "--output").figures
    assert figures["searched_again"] == len(again)
    words = [word for line in TEST for word in line.split()]
    assert figures["reference_pieces"] == len(words)
    # The references are the sources: of German words only `<unk>` is there, which all have.
    known = [word for word in words if word in target.pieces and word != "die"]
    assert figures["reference_pieces_outside"] == len(known)


def test_what_lists_need_is_said(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["decode", f"--segmented={root}/segmented", f"--model={root}/model-1",
            f"--output={tmp_path}/out", "--candidates"]  # fmt: skip
    assert cli.main(base) == 1
    assert "--candidates needs --dictionary" in capsys.readouterr().err
    assert cli.main([*base, f"--dictionary={root}/dictionary", "--search=forced"]) == 1
    assert "--candidates: --search forced scores pieces" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
