"""HTML pages: one file each, without scripts and without other files; and tables in Markdown."""

import importlib.resources
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2


def render(
    name: str, filters: Mapping[str, Callable[..., Any]] | None = None, **values: Any
) -> str:
    """The page of a template beside this module; templates include each other by name."""
    folder = importlib.resources.files("rareword.pipelines")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda found: folder.joinpath(found).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters or {}
    return environment.get_template(name).render(**values)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; the first column stands left, the others right."""
    rule = "|---|" + "---:|" * (len(heads) - 1)
    return [_markdown_row(heads), rule, *map(_markdown_row, rows)]


def markdown_text(text: str) -> str:
    """Without what Markdown would take for a column's end or for HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown_text, cells)) + " |"
