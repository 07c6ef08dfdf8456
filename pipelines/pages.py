"""HTML pages, one file each that needs no other; and tables, in Markdown or plain."""

import base64
import hashlib
import importlib.resources
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2

_FOLDER = importlib.resources.files("rareword.pipelines")


def render(
    name: str, filters: Mapping[str, Callable[..., Any]] | None = None, **values: Any
) -> str:
    """The page of a template beside this module; templates include and import each other by name.

    Values are escaped; `value | tojson` is safe inside a <script> of data.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda found: _FOLDER.joinpath(found).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters |= filters or {}
    return environment.get_template(name).render(**values)


def script(name: str) -> tuple[str, str]:
    """The text of a script beside this module, and the source by which a content security policy
    allows it and no other."""
    text = _FOLDER.joinpath(name).read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"'sha256-{digest}'"


# ---- tables ----

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Heads and rows of text."""


def number(value: float | None, digits: int = 0) -> str:
    """`1,234` or `1.23`; a dash for what is not known."""
    return "–" if value is None else f"{value:,.{digits}f}"


def share(value: float | None, digits: int = 1) -> str:
    """`12.3 %`; a dash where there is nothing to divide by."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text columns: the first one left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; the first column stands left, the others right."""
    rule = "|---|" + "---:|" * (len(heads) - 1)
    return [_markdown_row(heads), rule, *map(_markdown_row, rows)]


def markdown_text(text: str) -> str:
    """Without what Markdown would take for a column's end or for HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown_text, cells)) + " |"
