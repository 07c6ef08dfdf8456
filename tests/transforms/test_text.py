"""Text rules: normalisation, tokenisation and the way back."""

import sys
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from rareword.schemas.errors import RarewordError
from rareword.transforms.text import (
    Form,
    TextRules,
    find_control_character,
    normalise,
    restore,
    tokenise,
)

RULES = TextRules(source_language="en", target_language="de")
FORMS: tuple[Form, ...] = ("NFC", "NFKC", "none")

SPACES_AND_CONTROLS = [
    c
    for c in map(chr, range(sys.maxunicode + 1))
    if c != " " and (c.isspace() or unicodedata.category(c) == "Cc")
]

texts = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from([*SPACES_AND_CONTROLS, *" .,'-|<>&@\u0301\u200d\u00ad\u3099"]),
    ),
    max_size=40,
)


# ---- normalisation ----


@given(texts, st.sampled_from(FORMS))
def test_normalise_is_idempotent_and_leaves_only_single_inner_spaces(text: str, form: Form) -> None:
    result = normalise(text, form)
    assert normalise(result, form) == result
    assert result.split() == [word for word in result.split(" ") if word]
    assert "  " not in result
    assert result == result.strip(" ")
    assert not any(unicodedata.category(c) == "Cc" for c in result)
    assert form == "none" or unicodedata.is_normalized(form, result)


def test_every_control_character_and_white_space_becomes_one_space_and_nothing_else_does() -> None:
    changed = [
        c
        for c in map(chr, range(sys.maxunicode + 1))
        if c != " " and normalise(f"a{c}{c}b", "none") != f"a{c}{c}b"
    ]
    assert changed == SPACES_AND_CONTROLS
    assert all(normalise(f"a{c} {c}b", "none") == "a b" for c in changed)
    assert all(find_control_character(f"a {c}") for c in changed)
    assert find_control_character("zero\u200bwidth, so\u00adft \ufeff\u200c\u200d") is None


def test_normal_forms_compose_and_fold_as_unicode_says() -> None:
    assert normalise("e\u0301 ﬁ") == "é ﬁ"
    assert normalise("e\u0301 ﬁ\u00a0½", "NFKC") == "é fi 1⁄2"
    assert normalise("e\u0301", "none") == "e\u0301"


# ---- tokenisation ----

SENTENCES = {
    "en": "Mr. O'Neill's well-known (no. 5) test -- it cost $5,300.50... didn't it?! <b>A & B</b>",
    "de": "Er sagte: \"Das kostet z. B. 3.000,50 €\", nicht wahr ... 'so' [bzw. | etwa] usw.",
    "fr": "L'été, c'est-à-dire « aujourd'hui », vaut 5,5 % de l'an. N'est-ce pas?",
    "ru": "Г-н Иванов, т. е. «директор», сказал: «Нет!»",
    "zh": "他说：“你好，world 3.14！”",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_tokens_are_those_of_sacremoses(language: str) -> None:
    expected = MosesTokenizer(language).tokenize(SENTENCES[language], escape=False)
    assert tokenise(SENTENCES[language], language).split(" ") == expected


@settings(max_examples=100)
@given(texts, st.sampled_from(["en", "fr", "ru", "zh"]))
def test_tokenising_only_adds_single_spaces(text: str, language: str) -> None:
    text = normalise(text)
    tokens = tokenise(text, language)
    assert tokens.replace(" ", "") == text.replace(" ", "")
    assert normalise(tokens, "none") == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("x\u0301t q\u0323", "x\u0301t q\u0323"),  # no composed form exists
        ("ක්\u200dෂ co\u00adop", "ක්\u200dෂ co\u00adop"),
        ("ok\u2764\ufe0fok", "ok \u2764\ufe0f ok"),
        ("DOTMULTI and DOTDOTMULTI", "DOTMULTI and DOTDOTMULTI"),
        ("&amp; &lt;b&gt;", "& amp ; & lt ; b & gt ;"),
    ],
)
def test_marks_joiners_and_literal_markers_stay_as_they_are(text: str, tokens: str) -> None:
    assert tokenise(normalise(text), "en") == tokens


# ---- the way back ----


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "He didn't say \"no\", he said (for $5.50): it's Mr. Smith's!"),
        ("de", 'Das ist, wie gesagt, ein Test (der zweite): "gut"!'),
    ],
)
def test_restore_undoes_tokenising(language: str, text: str) -> None:
    rules = replace(RULES, target_language=language, truecase="none")
    assert restore(rules.to_json(), [rules.apply(text, "target"), ""]) == [text, ""]


def test_restore_gives_sentences_their_capitals() -> None:
    rules = RULES.to_json()
    assert restore(rules, ["das ist gut . so ist es !"]) == ["Das ist gut. So ist es!"]
    none = replace(RULES, tokenise="none", truecase="none").to_json()
    assert restore(none, ["das bleibt , wie es ist ."]) == ["das bleibt , wie es ist ."]


def test_restore_leaves_entities_in_the_text() -> None:
    assert restore(RULES.to_json(), ["A &amp; b &lt; c ."]) == ["A &amp; b &lt; c."]


def test_restore_uses_the_rules_of_the_side() -> None:
    rules = TextRules("en", "fr").to_json()
    assert restore(rules, ["it 's l' air ?"], "source") == ["It's l' air?"]
    assert restore(rules, ["it 's l' air ?"], "target") == ["It 's l'air ?"]


# ---- the record ----


def test_rules_survive_the_manifest() -> None:
    rules = TextRules("en", "", "NFKC", "reject", "none", "moses")
    assert TextRules.from_json(rules.to_json()) == rules


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "source_language is missing"),
        ({"source_language": "en"}, "target_language is missing"),
        ({"source_language": "english"}, "two or three small letters"),
        ({"tokenise": "mosses"}, "tokenise is 'mosses', expected one of moses, none"),
        ({"stem": "yes"}, "written by another release"),
    ],
)
def test_rules_that_cannot_be_applied_are_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(RarewordError, match=message):
        TextRules.from_json(fields)
