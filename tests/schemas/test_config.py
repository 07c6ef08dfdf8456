"""Config files: plain values mean what they look like, errors name file and line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import config
from rareword.schemas.errors import RarewordError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abйß .#:-'\"\\\n"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc_", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_json_means_the_same_in_yaml(value: Any) -> None:
    assert config.parse(json.dumps(value), "c.yaml") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("1e-3", 0.001),
        ("-.5", -0.5),
        ("3", 3),
        ("3.0", 3.0),
        ("007", "007"),
        ("12:30", "12:30"),
        ("2026-01-05", "2026-01-05"),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ("a.b*", "a.b*"),
        (".inf", float("inf")),
    ],
)
def test_plain_values_are_those_of_version_1_2(text: str, value: Any) -> None:
    found = config.parse(text, "c.yaml")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\nb: ]\nc: 2\n", "c.yaml, line 2: "),
        ("a: 1\n\tb: 2\n", "c.yaml, line 2: "),
        ("a: 1\nb: 2\na: 3\n", "c.yaml, line 3: the key 'a' is given twice"),
        ("a: !!python/object:os.system x\n", "c.yaml, line 1: could not determine a constructor"),
        ("a: \x00\n", "c.yaml: "),
    ],
)
def test_a_syntax_error_names_file_and_line(text: str, sentence: str) -> None:
    with pytest.raises(RarewordError) as error:
        config.parse(text, "c.yaml")
    assert str(error.value).startswith(sentence)


def test_a_file_is_read_as_utf8(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes("a: Öl\n".encode())
    assert config.read(str(path)) == {"a": "Öl"}
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(RarewordError, match=r"c\.yaml: byte 3 is not UTF-8"):
        config.read(str(path))
