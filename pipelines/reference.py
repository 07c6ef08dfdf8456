"""Fills in the tables of options in pages of the user guide, from the code:

    python -m rareword.pipelines.reference docs/training.md

A page says where: `<!-- options of train -->` or `<!-- presets of train -->`, and below the table
`<!-- end -->`.
"""

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rareword.schemas import options
from rareword.schemas.errors import RarewordError

_TABLE = re.compile(r"^<!-- (options|presets) of ([\w-]+) -->\n(.*?)^<!-- end -->$", re.S | re.M)


def filled_in(page: str, name: str) -> str:
    """The page with the tables as the code gives them now.

    name: of the page, for the RarewordError if it holds no place for a table.
    """

    def table(match: re.Match[str]) -> str:
        what, job = match[1], match[2]
        module = importlib.import_module(f"rareword.pipelines.{job.replace('-', '_')}")
        make = options.reference if what == "options" else options.preset_table
        return f"<!-- {what} of {job} -->\n\n{make(module.JOB.options)}\n<!-- end -->"

    text, count = _TABLE.subn(table, page)
    if not count:
        raise RarewordError(f"{name} has no place for a table, such as <!-- options of train -->")
    return text


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
