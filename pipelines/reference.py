"""Fills in the tables of options in pages of the user guide, from the code:

    python -m rareword.pipelines.reference docs/training.md

A page says where: `<!-- options of train -->` or `<!-- presets of train -->`, and below the table
`<!-- end -->`.
"""

import dataclasses
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rareword.schemas import options
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import Shape

_TABLE = re.compile(r"^<!-- (options|presets) of ([\w-]+) -->\n(.*?)^<!-- end -->$", re.S | re.M)


def filled_in(page: str, name: str) -> str:
    """The page with the tables as the code gives them now.

    name: of the page, for the RarewordError if it holds no place for a table.
    """

    def table(match: re.Match[str]) -> str:
        what, job = match[1], match[2]
        module = importlib.import_module(f"rareword.pipelines.{job.replace('-', '_')}")
        make = options_table if what == "options" else preset_table
        return f"<!-- {what} of {job} -->\n\n{make(module.JOB.options)}\n<!-- end -->"

    text, count = _TABLE.subn(table, page)
    if not count:
        raise RarewordError(f"{name} has no place for a table, such as <!-- options of train -->")
    return text


def options_table(cls: type) -> str:
    """All options as Markdown tables by heading, with bounds, for a page of the user guide."""
    shapes, parts = options.shapes_of(cls), []
    for heading, fields in options.grouped(cls).items():
        if not fields:
            continue
        rows = [("option", "values", "default", "")]
        for field in fields:
            name, shape = options.flag(field.name), shapes[field.name]
            is_switch = shape.kind is bool and not shape.many
            names = [name, name.replace("--", "--no-", 1)] if is_switch else [name]
            required = field.default is dataclasses.MISSING
            rows.append(
                (
                    ", ".join(f"`{name}`" for name in names),
                    "" if is_switch else _values_text(field, shape),
                    "required" if required else options.default_text(cls, field),
                    field.metadata["help"],
                )
            )
        title = f"**{heading[0].upper()}{heading[1:]}**\n\n" if heading else ""
        parts.append(title + _markdown(rows))
    return "\n".join(parts)


def preset_table(cls: type) -> str:
    """The options whose defaults a preset changes, as a Markdown table."""
    presets: Mapping[str, Mapping[str, Any]] = cls.PRESETS  # type: ignore[attr-defined]
    rows = [("option", *presets, "")]
    for field in dataclasses.fields(cls):
        if any(field.name in values for values in presets.values()):
            defaults = (values.get(field.name, field.default) for values in presets.values())
            texts = map(options.value_text, defaults)
            rows.append((f"`{options.flag(field.name)}`", *texts, field.metadata["help"]))
    return _markdown(rows)


def _values_text(field: "dataclasses.Field[Any]", shape: Shape) -> str:
    """What an option takes, for people: `integer, at least 1`."""
    if shape.choices:
        return ", ".join(f"`{choice}`" for choice in shape.choices)
    kind = {str: "text", int: "integer", float: "number"}[shape.kind]
    low, high = field.metadata["at_least"], field.metadata["at_most"]
    if low is not None and high is not None:
        return f"{kind}, {low} to {high}"
    bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    return ", ".join([kind + ("s" if shape.many else ""), *bounds])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head."""

    def line(cells: Sequence[str]) -> str:
        return "|".join(["", *(f" {cell} ".replace("  ", " ") for cell in cells), "\n"])

    first, *others = (
        [cell.replace("|", "\\|").replace("<", "&lt;") for cell in row] for row in rows
    )
    return "".join([line(first), "|" + "---|" * len(first) + "\n", *map(line, others)])


def main(argv: Sequence[str]) -> int:
    for name in argv:
        path = Path(name)
        path.write_text(filled_in(path.read_text("utf-8"), name), "utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RarewordError as error:
        sys.exit(str(error))
