"""The demo's corpus: real names, each English name once, none of the test's in training."""

import importlib.util
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "names.py"
SPEC = importlib.util.spec_from_file_location("names", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
names = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(names)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("names")
    subprocess.run(
        [sys.executable, SCRIPT, "--target", "ru", "--output", output], check=True, timeout=60
    )
    return output


def read(written: Path, split: str) -> list[tuple[str, str]]:
    sides = [
        (written / f"{split}.{language}").read_text("utf-8").split("\n")
        for language in ("en", "ru")
    ]
    assert [side.pop() for side in sides] == ["", ""]
    return list(zip(*sides, strict=True))


def test_there_are_thousands_of_real_names(written: Path) -> None:
    counts = {split: len(read(written, split)) for split in ("train", "dev", "test")}
    assert counts["train"] > 3000
    assert 250 < counts["dev"] < 600
    assert 250 < counts["test"] < 600
    pairs = {pair for split in counts for pair in read(written, split)}
    assert {("Germany", "Германия"), ("Alabama", "Алабама"), ("Latvian", "латышский")} <= pairs


def test_no_test_name_is_in_training_in_any_spelling(written: Path) -> None:
    def letters(name: str) -> str:
        plain = unicodedata.normalize("NFKD", name.casefold())
        return "".join(character for character in plain if character.isalnum())

    train = {letters(english) for english, _ in read(written, "train")}
    for split in ("dev", "test"):
        assert not train & {letters(english) for english, _ in read(written, split)}


def test_every_english_name_stands_once_and_text_is_clean(written: Path) -> None:
    pairs = [pair for split in ("train", "dev", "test") for pair in read(written, split)]
    english = [name.casefold() for name, _ in pairs]
    assert len(set(english)) == len(english)
    for text in (text for pair in pairs for text in pair):
        assert text == unicodedata.normalize("NFC", " ".join(text.split()))
        assert text


def test_the_split_of_a_name_depends_on_nothing_but_its_words() -> None:
    assert names.split("Curaçao") == names.split("curacao")
    assert names.split("Korea, Republic of") == names.split("Republic of Korea")
    splits = [names.split(f"name {number}") for number in range(10_000)]
    assert 900 < splits.count("test") < 1100
    assert 900 < splits.count("dev") < 1100


def test_german_names_come_too() -> None:
    found = names.names("de")
    assert len(found["train"]) > 8000
    assert ("Germany", "Deutschland") in {pair for pairs in found.values() for pair in pairs}
