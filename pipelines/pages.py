"""HTML pages: one file each, without scripts and without other files."""

import importlib.resources
from collections.abc import Callable, Mapping
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
