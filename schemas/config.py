"""Config files: YAML with the plain values of version 1.2, and errors that name file and line.

PyYAML reads version 1.1, where `no` is false, `1e-3` is text, `12:30` is 750 and a key given twice
silently wins the second time. None of that is what someone who writes a config means.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError


class _Loader(yaml.SafeLoader):
    """The core schema of YAML 1.2; keys must be unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), _first
    )


def read(url: str) -> Any:
    """The value of a YAML file. Raises RarewordError with file and line for a syntax error."""
    return parse(storage.read_text(url), url)


def parse(text: str, name: str) -> Any:
    """The value of a YAML text; `name` is for errors."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}" if mark else ""
        raise RarewordError(f"{name}{place}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise RarewordError(f"{name}: {error}") from error
