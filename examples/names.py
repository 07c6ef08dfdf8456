"""Makes a small real parallel corpus: English names and their Russian or German translations.

    python examples/names.py --target ru --output runs/names-enru-data

The names of countries, subdivisions, languages, scripts, currencies and time-zone cities come from
pycountry (the ISO code lists with their gettext translations) and Babel (the Unicode CLDR). The
directory gets `train.en`, `train.ru`, `dev.en`, ... with one name a line, in NFC, each English name
once. A name's split is a hash of its letters, so it stays where it is when names are added, and
spellings of one name (`Curaçao`, `Curacao`) never lie on both sides of the split.
"""

import argparse
import gettext
import hashlib
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pycountry
from babel import Locale

Pair = tuple[str, str]

ISO_LISTS = (
    ("iso3166-1", pycountry.countries),
    ("iso3166-3", pycountry.historic_countries),
    ("iso3166-2", pycountry.subdivisions),
    ("iso639-3", pycountry.languages),
    ("iso639-5", pycountry.language_families),
    ("iso15924", pycountry.scripts),
    ("iso4217", pycountry.currencies),
)


class Untranslated(gettext.NullTranslations):
    """Asked when a catalogue lacks a name; gettext alone would answer with the English name."""

    def gettext(self, message: str) -> str:
        return ""


def iso_names(target: str) -> Iterator[Pair]:
    """English and target names from pycountry's lists and their gettext catalogues."""
    for domain, entries in ISO_LISTS:
        catalogue = gettext.translation(domain, pycountry.LOCALES_DIR, languages=[target])
        catalogue.add_fallback(Untranslated())
        for entry in entries:
            for field in ("name", "common_name", "official_name", "inverted_name"):
                english = getattr(entry, field, None)
                if english:
                    yield english, catalogue.gettext(english)


def cldr_names(target: str) -> Iterator[Pair]:
    """English and target names from Babel: what has the same code in both languages."""
    english, other = Locale("en"), Locale(target)
    for kind in ("territories", "languages", "scripts", "currencies"):
        ours, theirs = getattr(english, kind), getattr(other, kind)
        for code in sorted(set(ours) & set(theirs)):
            yield ours[code], theirs[code]
    for zone in sorted(other.time_zones):
        # CLDR leaves out an English city that is the last part of the zone's own name.
        default = zone.rsplit("/", 1)[-1].replace("_", " ")
        city = english.time_zones.get(zone, {}).get("city", default)
        yield city, other.time_zones[zone].get("city", "")


def clean(text: str) -> str:
    """NFC, single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def key(english: str) -> str:
    """Equal for spellings of one name: its words in sorted order, case and accents ignored."""
    letters = unicodedata.normalize("NFKD", english.casefold())
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    return " ".join(sorted(re.findall(r"\w+", plain)))


def split(english: str) -> str:
    """`test` and `dev` get a tenth each, `train` the rest."""
    number = int.from_bytes(hashlib.sha256(key(english).encode()).digest()[:8], "big")
    return ("test", "dev", *["train"] * 8)[number % 10]


def names(target: str) -> dict[str, list[Pair]]:
    """The pairs of each split, sorted; of several translations of a name the first one counts."""
    chosen: dict[str, Pair] = {}
    for english, other in (*iso_names(target), *cldr_names(target)):
        pair = clean(english), clean(other)
        if all(pair):
            chosen.setdefault(pair[0].casefold(), pair)
    splits: dict[str, list[Pair]] = {"train": [], "dev": [], "test": []}
    for pair in sorted(chosen.values()):
        splits[split(pair[0])].append(pair)
    return splits


def main() -> None:
    parser = argparse.ArgumentParser(description="make a parallel corpus of names")
    parser.add_argument("--target", choices=["ru", "de"], required=True, help="target language")
    parser.add_argument("--output", type=Path, required=True, help="directory to write")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    splits = names(options.target)
    known = {key(english) for english, _ in splits["train"]}
    for name in ("dev", "test"):
        assert not known & {key(english) for english, _ in splits[name]}, f"{name} leaks into train"
    for name, pairs in splits.items():
        for language, texts in zip(("en", options.target), zip(*pairs, strict=True), strict=True):
            (options.output / f"{name}.{language}").write_text(
                "".join(f"{text}\n" for text in texts), encoding="utf-8", newline="\n"
            )
    counts = ", ".join(f"{len(pairs)} {name}" for name, pairs in splits.items())
    print(f"names: English to {options.target}: {counts} pairs -> {options.output}")


if __name__ == "__main__":
    main()
