"""The evaluate job on a test set small enough to count by hand."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from evaluation_inputs import (
    CORPUS_ROWS,
    MODEL_ROWS,
    RAW_ROWS,
    RULES,
    WORD_ROWS,
    content,
    evaluate,
    finish,
    write_references,
    write_segmented,
    write_translations,
    write_words,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from rareword.pipelines import cli
from rareword.pipelines.systems import System
from rareword.schemas import manifest as manifests
from rareword.schemas.tables import CORPUS
from rareword.schemas.vocabulary import Vocabulary


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    segmented = write_segmented(tmp_path / "segmented")
    model = write_translations(tmp_path / "model", MODEL_ROWS, content(segmented))
    return [
        f"--translations={model}",
        f"--references={write_references(tmp_path / 'references')}",
        f"--words={write_words(tmp_path / 'words')}",
        f"--segmented={segmented}",
        f"--baseline=words={write_translations(tmp_path / 'word-level', WORD_ROWS)}",
        "--rare-threshold=5",
    ]


def test_every_figure_is_what_counting_by_hand_gives(tmp_path: Path, inputs: list[str]) -> None:
    found, _ = evaluate(inputs, tmp_path / "report")
    systems = found["systems"]
    assert (found["sentences"], found["rejected_references"]) == (4, 3)
    assert found["references"] == "raw"
    assert found["warnings"] == [
        # `Hund Hund` among 16 words, and one of four outputs
        "6.2 % of the 1-grams of words follow upon themselves in outputs of model, 0.0 % in "
        "references: the system loops.",
        "25.0 % of the outputs of words are empty.",
    ]

    exact = {name: figures["exact_matches"] for name, figures in systems.items()}
    assert exact == {
        "model": {"count": 1, "share": 0.25},
        "words": {"count": 1, "share": 0.25},
        "copy": {"count": 1, "share": 0.25},
    }
    assert {name: figures["empty_outputs"] for name, figures in systems.items()} == {
        "model": 0,
        "words": 1,
        "copy": 0,
    }
    assert {name: figures["unknown_pieces"] for name, figures in systems.items()} == {
        "model": 0,
        "words": 3,
        "copy": 0,
    }

    # Unseen in training: schläft, Zebra, Gnu, <b>, &, co. Rare (1 to 5 times): Kater, bellt.
    assert found["reference_words"] == {
        "all": {"types": 13, "tokens": 17},
        "rare": {"types": 2, "tokens": 2},
        "unseen": {"types": 6, "tokens": 6},
    }
    # The model: schläft, Zebra, <b> of schläft, Zebra, <b>, Zoo; and Kater.
    model = systems["model"]["unigrams"]
    assert counts(model["unseen"]) == (3, 4, 6)
    assert counts(model["rare"]) == (1, 1, 2)
    # Sentence 10 has Hund twice against once, sentence 20 has it for Gnu.
    assert counts(model["all"]) == (4 + 3 + 5 + 1, 4 + 4 + 6 + 2, 17)
    assert model["unseen"]["precision"] == 3 / 4
    assert model["unseen"]["recall"] == 3 / 6
    assert model["unseen"]["f1"] == pytest.approx(2 / (4 / 3 + 6 / 3))
    words = systems["words"]["unigrams"]
    assert counts(words["unseen"]) == (0, 0, 6)
    assert words["unseen"]["precision"] is None
    assert counts(words["rare"]) == (2, 2, 2)
    assert counts(words["all"]) == (3 + 4 + 4, 4 + 4 + 6, 17)
    assert counts(systems["copy"]["unigrams"]["unseen"]) == (3, 13, 6)


def counts(figures: Mapping[str, Any]) -> tuple[int, int, int]:
    return figures["matched"], figures["produced"], figures["expected"]


def test_bleu_and_chrf_are_sacrebleus_on_the_untouched_text(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found, page = evaluate(inputs, tmp_path / "report")
    references = [target for _, _, target in RAW_ROWS]
    texts = {id_: text for id_, text, _ in MODEL_ROWS}
    hypotheses = [texts[id_] for id_, _, _ in RAW_ROWS]
    bleu = sacrebleu.corpus_bleu(hypotheses, [references])
    figures = found["systems"]["model"]
    assert figures["bleu"]["value"] == pytest.approx(bleu.score)
    assert figures["bleu"]["length_ratio"] == pytest.approx(bleu.sys_len / bleu.ref_len)
    for name, options in {"chrf2": {}, "chrf3": {"beta": 3}, "chrf++": {"word_order": 2}}.items():
        chrf = sacrebleu.corpus_chrf(hypotheses, [references], **options)
        assert figures[name]["value"] == pytest.approx(chrf.score)
    copied = sacrebleu.corpus_bleu([source for _, source, _ in RAW_ROWS], [references])
    assert found["systems"]["copy"]["bleu"]["value"] == pytest.approx(copied.score)

    printed = capsys.readouterr().out
    tables = (tmp_path / "report" / "metrics.md").read_text("utf-8")
    for metric in ("bleu", "chrf2", "chrf3", "chrf++"):
        assert figures[metric]["signature"] in tables
    for metric in ("bleu", "chrf2"):
        assert figures[metric]["signature"] in printed
        assert figures[metric]["signature"] in page


def test_frequency_bands_divide_the_words(tmp_path: Path, inputs: list[str]) -> None:
    found, _ = evaluate(inputs, tmp_path / "report")
    bands = found["reference_words_by_training_frequency"]
    assert {band: n["tokens"] for band, n in bands.items()} == {
        "0": 6,
        "1": 1,
        "2 to 4": 1,
        "5 to 9": 1,
        "10 to 99": 2,
        "100 to 999": 2 + 1 + 3,
        "1,000 and more": 0,
    }
    for figures in found["systems"].values():
        parts = figures["unigrams_by_training_frequency"].values()
        assert sum(part["matched"] for part in parts) == figures["unigrams"]["all"]["matched"]


def test_without_untouched_text_the_corpus_is_restored_and_that_is_said(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    restored = write_references(tmp_path / "restored", raw=None)
    arguments = [a for a in inputs if "--references" not in a] + [f"--references={restored}"]
    found, page = evaluate(arguments, tmp_path / "report")
    assert found["references"] == "restored"
    assert found["systems"]["model"]["exact_matches"]["count"] == 1
    assert "--keep-raw" in found["warnings"][0]
    assert found["warnings"][0] in capsys.readouterr().err
    assert "Prepare the test set with --keep-raw" in page


def test_piece_marks_in_the_text_are_reported(tmp_path: Path, inputs: list[str]) -> None:
    marked = [(i, text.replace("Zebra", "Ze@@ bra"), pieces) for i, text, pieces in MODEL_ROWS]
    directory = write_translations(tmp_path / "marked", marked)
    found, _ = evaluate([*inputs, f"--baseline=marked={directory}"], tmp_path / "report")
    assert sorted(found["systems"]) == ["copy", "marked", "model", "words"]
    assert (
        "The piece mark @@ stands in 1 of the outputs of marked and in 0 of the references: the "
        "outputs look segmented, and their scores mean nothing."
    ) in found["warnings"]
    assert found["systems"]["marked"]["outputs"]["marks"] == {"@@": 1, "##": 0, "▁": 0}


def test_short_references_are_called_too_short_for_bleu(tmp_path: Path, inputs: list[str]) -> None:
    short = [(id_, source, "der") for id_, source, _ in CORPUS_ROWS]
    references = write_references(tmp_path / "short", short)
    arguments = [a for a in inputs if "--references" not in a] + [f"--references={references}"]
    found, _ = evaluate(arguments, tmp_path / "report")
    assert found["warnings"][0].startswith("References have 1.0 words on average")


# ---- rare and unseen words ----


def test_rare_words_are_those_beyond_a_rank_of_training(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    by_rank = [a for a in inputs if "--rare-threshold" not in a]
    # By falling count: . der , ein Hund bellt Kater
    found, page = evaluate([*by_rank, "--rare-rank=4"], tmp_path / "four")
    assert (found["rare_rank"], found["rare_threshold"], found["training_types"]) == (4, 7, 7)
    assert found["reference_words"]["rare"] == {"types": 3, "tokens": 3}
    # The model has Hund once right of three times, and Kater.
    assert counts(found["systems"]["model"]["unigrams"]["rare"]) == (2, 4, 3)
    assert "occurred 1 to 7 times" in page

    capsys.readouterr()
    found, page = evaluate(by_rank, tmp_path / "default")
    assert (found["rare_rank"], found["rare_threshold"]) == (50_000, 0)
    assert found["reference_words"]["rare"] == {"types": 0, "tokens": 0}
    assert found["systems"]["model"]["unigrams"]["rare"]["f1"] is None
    warning = "Training has 7 word types and rare words begin after 50,000: no word is rare."
    assert found["warnings"][0].startswith(warning)
    assert warning in capsys.readouterr().err
    assert "No word is rare" in page


def test_f1_by_rank_of_training_frequency(tmp_path: Path, inputs: list[str]) -> None:
    found, _ = evaluate(inputs, tmp_path / "report")
    rows = found["f1_by_training_rank"]
    assert [(row["from"], row["to"], row["occurrences"], row["tokens"]) for row in rows] == [
        (1, 1, [900, 900], 3),  # .
        (2, 2, [500, 500], 2),  # der
        (3, 5, [7, 300], 1 + 2 + 1),  # , ein Hund
        (6, 7, [1, 2], 2),  # bellt Kater
        (8, None, [0, 0], 6),
    ]
    assert [row["training_types"] for row in rows] == [1, 1, 3, 2, None]
    # The model produced both `ein`, the comma, and Hund three times where one was right.
    assert rows[2]["f1"]["model"] == pytest.approx(2 * 4 / (4 + 6))
    assert rows[3]["f1"] == {"model": pytest.approx(2 / 3), "words": 1.0, "copy": 0.0}
    for name, figures in found["systems"].items():
        assert rows[-1]["f1"][name] == figures["unigrams"]["unseen"]["f1"]
        parts = figures["unigrams_by_training_rank"].values()
        assert sum(part["matched"] for part in parts) == figures["unigrams"]["all"]["matched"]


def test_unseen_words_by_class(tmp_path: Path, inputs: list[str]) -> None:
    found, _ = evaluate(inputs, tmp_path / "report")
    tokens = {name: counts["tokens"] for name, counts in found["reference_unseen_by_class"].items()}
    # <b> & co are copied; Zebra and Gnu are zebra and gnu; schläft is far from sleeps.
    assert tokens == {
        "copied": 3,
        "cased": 2,
        "number": 0,
        "transliterated": 0,
        "cognate": 0,
        "compound": 0,
        "other": 1,
    }
    recall = {
        name: {kind: part["recall"] for kind, part in figures["unseen_by_class"].items()}
        for name, figures in found["systems"].items()
    }
    assert [recall["model"][kind] for kind in ("copied", "cased", "other")] == [1 / 3, 1 / 2, 1]
    assert [recall["copy"][kind] for kind in ("copied", "cased", "other")] == [1, 0, 0]
    assert recall["model"]["number"] is None


def test_compounds_are_of_words_of_training_in_any_case(tmp_path: Path, inputs: list[str]) -> None:
    other = [
        (id_, source, target.replace("Zebra", "Hundein")) for id_, source, target in CORPUS_ROWS
    ]
    references = write_references(tmp_path / "compound", other)
    arguments = [a for a in inputs if "--references" not in a] + [f"--references={references}"]
    for length, expected in ((3, 1), (4, 0)):
        found, _ = evaluate([*arguments, f"--part-length={length}"], tmp_path / f"of-{length}")
        assert found["reference_unseen_by_class"]["compound"]["tokens"] == expected


def test_sentences_of_low_score_fall_back_to_the_source(tmp_path: Path, inputs: list[str]) -> None:
    scores = {10: -0.5, 20: -0.25, 30: -1.0, 40: -2.0}
    directory = write_translations(tmp_path / "scored", MODEL_ROWS, scores=scores)
    found, _ = evaluate([*inputs, f"--baseline=scored={directory}"], tmp_path / "report")
    rows = found["systems"]["scored"]["unseen_by_threshold"]
    own, copy = (found["systems"][name]["unigrams"]["unseen"] for name in ("scored", "copy"))
    assert counts(rows[0]) == counts(own)
    assert counts(rows[-1]) == counts(copy)
    assert [(row["threshold"], row["copied"]) for row in rows] == [
        (None, 0),
        (-1.0, 1),
        (-0.5, 2),
        (-0.25, 3),
        (None, 4),
    ]
    # Sentence 40 copied: <b> & co instead of <b> Zoo.
    assert counts(rows[1]) == (3 + 2, 4 + 1, 6)
    assert found["systems"]["copy"]["unseen_by_threshold"] is None


# ---- outputs ----


def test_length_empty_outputs_repeats_and_the_limit(tmp_path: Path, inputs: list[str]) -> None:
    cut = write_translations(
        tmp_path / "cut", MODEL_ROWS, figures={"sentences": 4, "at_limit_outputs": 2}
    )
    found, _ = evaluate([*inputs, f"--baseline=cut={cut}"], tmp_path / "report")
    outputs = {name: figures["outputs"] for name, figures in found["systems"].items()}
    assert outputs["model"]["length_ratio"] == 16 / 17
    assert outputs["words"]["length_ratio"] == 14 / 17
    assert (outputs["words"]["empty"], outputs["model"]["empty"]) == (0.25, 0)
    assert (outputs["cut"]["at_limit"], outputs["model"]["at_limit"]) == (0.5, None)
    assert "50.0 % of the outputs of cut were cut off at the length limit." in found["warnings"]
    assert outputs["model"]["repeats"]["1"] == {"count": 1, "of": 16, "share": 1 / 16}
    assert found["reference_outputs"]["repeats"]["1"] == {"count": 0, "of": 17, "share": 0}


def test_outputs_that_trail_off_in_full_stops_are_reported(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    endless = [
        (id_, text.replace("Hund.", "......"), pieces if id_ != 10 else ["der", "Hund", "......"])
        for id_, text, pieces in MODEL_ROWS
    ]
    directory = write_translations(tmp_path / "endless", endless)
    found, _ = evaluate([*inputs, f"--baseline=endless={directory}"], tmp_path / "report")
    assert found["systems"]["endless"]["outputs"]["loops"] == {
        "count": 1,
        "of": 15,
        "share": 1 / 15,
    }
    warning = (
        "6.7 % of the words have characters four times in a row in outputs of endless, 0.0 % in "
        "references: the system loops."
    )
    assert warning in found["warnings"]
    assert warning in capsys.readouterr().err


def test_tokenised_outputs_and_references_are_reported(tmp_path: Path, inputs: list[str]) -> None:
    spaced = [(id_, text.replace(".", " ."), pieces) for id_, text, pieces in MODEL_ROWS]
    directory = write_translations(tmp_path / "spaced", spaced)
    found, _ = evaluate([*inputs, f"--baseline=spaced={directory}"], tmp_path / "report")
    warning = (
        "100.0 % of the full stops at the end of outputs of spaced have a space before them, "
        "0.0 % of the references': the outputs look tokenised, and BLEU and chrF are not those of "
        "readable text."
    )
    assert warning in found["warnings"]
    assert warning in (tmp_path / "report" / "metrics.md").read_text("utf-8")
    assert not any("outputs of model have" in text for text in found["warnings"])

    references = write_references(tmp_path / "tokenised", raw=CORPUS_ROWS)
    arguments = [a for a in inputs if "--references" not in a] + [f"--references={references}"]
    found, _ = evaluate(arguments, tmp_path / "tokenised-report")
    assert any("the references look tokenised" in text for text in found["warnings"])


# ---- significance ----


@pytest.mark.parametrize("test", ["bootstrap", "randomisation"])
def test_every_two_systems_are_tested(tmp_path: Path, inputs: list[str], test: str) -> None:
    arguments = [*inputs, f"--baseline=again={tmp_path / 'model'}", f"--significance={test}"]
    found, _ = evaluate([*arguments, "--trials=20", "--seed=3"], tmp_path / "report")
    result = found["significance"]
    assert (result["test"], result["trials"], result["seed"]) == (test, 20, 3)
    bleu = {
        (row["system"], row["other"]): row
        for row in result["comparisons"]
        if row["metric"] == "bleu"
    }
    assert set(bleu) == {("model", "words"), ("model", "again"), ("words", "again")}
    scores = {name: figures["bleu"]["value"] for name, figures in found["systems"].items()}
    for (one, other), row in bleu.items():
        assert row["difference"] == pytest.approx(scores[one] - scores[other])
        assert 0 < row["p_value"] <= 1
        assert "seed:3" in row["signature"]
    assert "## Significance" in (tmp_path / "report" / "metrics.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--significance=bootstrap", "--seed=0"], "--seed: 0 cannot be the seed"),
        (["--significance=bootstrap", "--trials=100000000"], "30 GiB, more than 8"),
        (["--trials=0"], "--trials: 0 is below 1"),
    ],
)
def test_a_significance_test_that_cannot_be_done_is_refused(
    tmp_path: Path,
    inputs: list[str],
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    assert sentence in refused(capsys, tmp_path / "report", [*inputs, *options])


def test_one_system_alone_cannot_be_tested(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    alone = [a for a in inputs if "--baseline" not in a]
    error = refused(capsys, tmp_path / "report", [*alone, "--significance=bootstrap"])
    assert "there are no two systems; give --baseline NAME=DIR" in error


# ---- Markdown ----


def test_the_tables_have_every_system_and_are_whole(tmp_path: Path, inputs: list[str]) -> None:
    found, _ = evaluate([*inputs, "--name=a|b"], tmp_path / "report")
    tables = (tmp_path / "report" / "metrics.md").read_text("utf-8")
    blocks = re.findall(r"(?:^\|.*\n)+", tables, re.MULTILINE)
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1
    figures = found["systems"]["words"]
    cells = [f"{figures[key]['value']:.1f}" for key in ("bleu", "chrf2", "chrf3", "chrf++")]
    assert f"| words | {' | '.join(cells)} | 25.0 % | " in blocks[0]
    assert "| a\\|b |" in blocks[0]
    assert "| unseen | 0 | – | 6 | 60.0 % | 0.0 % | 31.6 % |" in tables
    assert "| cased | 2 | 50.0 % | 0.0 % | 0.0 % |" in tables


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, inputs: list[str]) -> None:
    for name in ("a", "b"):
        evaluate(inputs, tmp_path / name)
    for file in ("metrics.json", "metrics.md", "index.html", "manifest.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


# ---- refusals ----


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: rows[1:], "1 missing (id 30)"),
        (lambda rows: [*rows, rows[0]], "1 doubled (id 30)"),
        (lambda rows: [*rows, (7, "x", ["x"])], "1 not in the references (id 7)"),
    ],
    ids=["missing", "doubled", "foreign"],
)
@pytest.mark.parametrize("option", ["translations", "baseline"])
def test_translations_that_do_not_fit_the_references_are_refused(
    tmp_path: Path,
    inputs: list[str],
    capsys: pytest.CaptureFixture[str],
    change: Any,
    sentence: str,
    option: str,
) -> None:
    wrong = write_translations(tmp_path / "wrong", change(MODEL_ROWS))
    if option == "translations":
        inputs = [a for a in inputs if not a.startswith(("--translations", "--segmented"))]
        inputs.append(f"--translations={wrong}")
    else:
        inputs.append(f"--baseline=wrong={wrong}")
    error = refused(capsys, tmp_path / "report", inputs)
    assert f"--{option}: {wrong}" in error
    assert sentence in error


def refused(capsys: pytest.CaptureFixture[str], output: Path, arguments: Sequence[str]) -> str:
    """Runs the job, which must fail with one sentence and write nothing; the sentence."""
    assert cli.main(["evaluate", *arguments, f"--output={output}"]) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert not output.exists()
    return error


@pytest.mark.parametrize(
    ("baseline", "sentence"),
    [
        ("no-directory", "expected NAME=DIR, found 'no-directory'"),
        ("=there", "expected NAME=DIR, found '=there'"),
        ("copy={}", "the name 'copy' is taken"),
        ("model={}", "the name 'model' is taken"),
        ("other={}/nowhere", "nowhere does not exist"),
    ],
)
def test_a_bad_baseline_is_refused(
    tmp_path: Path,
    inputs: list[str],
    capsys: pytest.CaptureFixture[str],
    baseline: str,
    sentence: str,
) -> None:
    arguments = [*inputs, f"--baseline={baseline.format(tmp_path / 'word-level')}"]
    error = refused(capsys, tmp_path / "report", arguments)
    assert "--baseline: " in error
    assert sentence in error


def test_the_name_of_the_copied_source_is_refused(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--name: 'copy'" in refused(capsys, tmp_path / "report", [*inputs, "--name=copy"])


def test_pieces_of_another_test_set_are_refused(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_translations(tmp_path / "other", MODEL_ROWS, "another content")
    arguments = [a for a in inputs if "--translations" not in a] + [f"--translations={other}"]
    error = refused(capsys, tmp_path / "report", arguments)
    assert f"is not what {other} was decoded from, nor any --baseline" in error


def test_pieces_of_a_baseline_are_welcome(tmp_path: Path, inputs: list[str]) -> None:
    whole = write_segmented(tmp_path / "whole", cuts={})
    words = write_translations(tmp_path / "again", WORD_ROWS, content(whole))
    place = next(i for i, a in enumerate(inputs) if a.startswith("--segmented"))
    arguments = [*inputs[:place], "--segmented", inputs[place].partition("=")[2], str(whole)]
    evaluate([*arguments, *inputs[place + 1 :], f"--baseline=again={words}"], tmp_path / "report")
    recorded = manifests.read(str(tmp_path / "report"), "evaluate", "--report").inputs
    assert recorded["segmented again"] == content(whole)
    assert recorded["segmented"] != content(whole)


def test_an_empty_test_set_is_refused(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    empty = finish(
        "prepare", tmp_path / "empty", CORPUS, CORPUS.fields.empty_table(), rules={"text": RULES}
    )
    arguments = [a for a in inputs if "--references" not in a] + [f"--references={empty}"]
    assert "nothing to evaluate" in refused(capsys, tmp_path / "report", arguments)


def test_beam_options_are_refused(
    tmp_path: Path, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, tmp_path / "report", [*inputs, "--runner=PrismRunner"])
    assert "unknown argument --runner" in error


@given(st.lists(st.integers(3, 11), max_size=7))
@settings(deadline=None)
def test_words_of_raw_text_are_what_stands_between_its_spaces(ids: list[int]) -> None:
    pieces = ["<pad>", "<unk>", "</s>", " a", "b", " ", "@@", " @@", "a@@", "  ", " c d", "<unk>"]
    none = [0] * len(pieces)
    raw = Vocabulary(pieces, [True] * 3 + [False] * 9, none, none)
    text = raw.words(ids)
    (found,) = System("model", [text], [raw.display(ids)]).words
    assert found == [word for word in text.split(" ") if word]
