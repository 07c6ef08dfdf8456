"""Typed options: one frozen dataclass a job serves command line, YAML config and manifest.

    @dataclass(frozen=True)
    class CountWordsOptions(JobOptions):
        corpus: str = option(help="directory that `prepare` wrote")
        shards: int = option(8, help="output shards", at_least=1)

A field without a default is required. Field names become `--kebab-case` flags. Supported types:
str, int, float, bool, tuple[X, ...] of these, Literal[...] and `X | None`. A class may have a
field `preset` and `PRESETS`: values that stand for the fields' own defaults if it is chosen.
"""

import argparse
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rareword.schemas.errors import RarewordError

T = TypeVar("T")


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    shapes_result: bool = True,
    at_least: float | None = None,
    at_most: float | None = None,
    heading: str | None = None,
) -> Any:
    """A dataclass field for an option.

    help: one sentence with the unit. shapes_result: False for paths, threads, verbosity and all
    else that leaves the output's bytes alone; such options stay out of the plan's fingerprint.
    at_least, at_most: inclusive bounds for numbers. heading: what this field and those after it in
    its class stand under in help and documents.
    """
    metadata = {
        "help": help,
        "shapes_result": shapes_result,
        "at_least": at_least,
        "at_most": at_most,
        "heading": heading,
    }
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """Options that every job has."""

    output: str = option(help="directory to write, local or a gs:// URL", shapes_result=False)
    overwrite: bool = option(
        False, help="replace another run in the output directory", shapes_result=False
    )
    dry_run: bool = option(
        False, help="check inputs and options, print the plan, write nothing", shapes_result=False
    )
    quiet: bool = option(False, help="print no progress and no summary", shapes_result=False)


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a field's annotation allows."""

    kind: type
    many: bool = False
    optional: bool = False
    choices: tuple[Any, ...] | None = None


def _shape(annotation: Any) -> Shape:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return dataclasses.replace(_shape(inner[0]), optional=True)
    if origin is tuple:
        return dataclasses.replace(_shape(arguments[0]), many=True)
    if origin is typing.Literal:
        return Shape(type(arguments[0]), choices=arguments)
    if annotation in (str, int, float, bool):
        return Shape(annotation)
    raise TypeError(f"options cannot have the type {annotation}")


def shapes_of(cls: type) -> dict[str, Shape]:
    """How each field is read, by name."""
    hints = typing.get_type_hints(cls)
    return {field.name: _shape(hints[field.name]) for field in dataclasses.fields(cls)}


def flag(name: str) -> str:
    """`kernel_threads` is `--kernel-threads`."""
    return "--" + name.replace("_", "-")


def flags(cls: type) -> list[str]:
    """The flags of all fields."""
    return [flag(field.name) for field in dataclasses.fields(cls)]


def grouped(cls: type) -> dict[str, list["dataclasses.Field[Any]"]]:
    """The fields by heading, in order; "" for those without one."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    groups: dict[str, list[dataclasses.Field[Any]]] = {"": []}
    for base in reversed(cls.__mro__):
        heading = ""
        for name in vars(base).get("__annotations__", {}):
            if name in fields:
                heading = fields[name].metadata["heading"] or heading
                groups.setdefault(heading, []).append(fields[name])
    return groups


def add_arguments(parser: argparse.ArgumentParser, cls: type) -> None:
    """Adds one argument per field of the dataclass, with help, unit and default, by heading."""
    shapes = shapes_of(cls)
    for heading, fields in grouped(cls).items():
        group = parser.add_argument_group(heading) if heading else parser
        for field in fields:
            _add_argument(group, cls, field, shapes[field.name])


def _add_argument(
    group: "argparse._ActionsContainer", cls: type, field: "dataclasses.Field[Any]", shape: Shape
) -> None:
    text, default = field.metadata["help"].replace("%", "%%"), default_text(cls, field)
    if default:
        text += f" (default: {default})"
    if shape.kind is bool and not shape.many:
        group.add_argument(
            flag(field.name),
            action=argparse.BooleanOptionalAction,
            default=argparse.SUPPRESS,
            help=text,
        )
        return
    group.add_argument(
        flag(field.name),
        action="extend" if shape.many else "store",
        type=shape.kind,
        nargs=_arguments(field) if shape.many else None,
        choices=shape.choices,
        required=field.default is dataclasses.MISSING,
        default=argparse.SUPPRESS,
        metavar=None if shape.choices else shape.kind.__name__.upper(),
        help=text,
    )


def _arguments(field: "dataclasses.Field[Any]") -> str:
    """How many words an option of many takes: none, too, where that is not the default."""
    return "*" if isinstance(field.default, tuple) and field.default else "+"


def default_text(cls: type, field: "dataclasses.Field[Any]") -> str:
    """A field's default, and what presets make of it: `cudnn; paper: groundhog`. Empty if there is
    none, or if the field's help has to say it."""
    if field.default in (dataclasses.MISSING, None, (), ""):
        return ""
    changed = [
        f"{name}: {value_text(values[field.name])}"
        for name, values in getattr(cls, "PRESETS", {}).items()
        if field.name in values
    ]
    return "; ".join([value_text(field.default), *changed])


def value_text(value: Any) -> str:
    """An option's value for people."""
    if isinstance(value, tuple):
        return " ".join(map(value_text, value))
    return {True: "on", False: "off"}[value] if type(value) is bool else str(value)


def _with_preset(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, and those of the chosen preset for the fields that are not given."""
    presets = getattr(cls, "PRESETS", {})
    return {**presets.get(values.get("preset"), {}), **values}


def parse(cls: type[T], prog: str, description: str, argv: Sequence[str]) -> tuple[T, list[str]]:
    """The options that `argv` gives, and the arguments that are not ours (for Beam)."""
    required = [f for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING]  # type: ignore[arg-type]
    words = [f"{flag(field.name)} {field.name.upper()}" for field in required]
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=" ".join([prog, *words, "[options]"]),
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser, cls)
    known, rest = parser.parse_known_args(argv)
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in vars(known).items()}
    return checked(cls(**_with_preset(cls, values)), flag), rest


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """The options that a YAML mapping gives; keys are field names.

    Raises RarewordError for an unknown key (with the nearest known one), a missing key or a value
    of another type, naming `where`.key.
    """
    if not isinstance(values, Mapping):
        raise RarewordError(f"{where}: expected keys and values, found {values!r}")
    shapes = shapes_of(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    refuse_unknown(values, fields, where)
    converted: dict[str, Any] = {}
    for name, value in values.items():
        shape, label = shapes[name], f"{where}.{name}"
        if value is None and shape.optional:
            converted[name] = None
        elif shape.many:
            items = [value] if not isinstance(value, list) else value
            converted[name] = tuple(_convert(item, shape, label) for item in items)
        else:
            converted[name] = _convert(value, shape, label)
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in converted:
            raise RarewordError(f"{where}: the key {name!r} is missing ({field.metadata['help']})")
    return checked(cls(**_with_preset(cls, converted)), lambda name: f"{where}.{name}")


def _convert(value: Any, shape: Shape, label: str) -> Any:
    if shape.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not shape.kind:
        raise RarewordError(f"{label}: expected {shape.kind.__name__}, found {value!r}")
    if shape.choices and value not in shape.choices:
        raise RarewordError(
            f"{label}: {value!r} is not one of {', '.join(map(str, shape.choices))}"
        )
    return value


def refuse_unknown(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raises RarewordError for the first key that is not known, with the nearest known one."""
    known = list(known)
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise RarewordError(f"{where}: unknown key {key!r}; {hint}")


def checked(options: T, label: Any) -> T:
    """Checks the numeric bounds; `label(name)` names the option in the error."""
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        value, low, high = (
            getattr(options, field.name),
            field.metadata.get("at_least"),
            field.metadata.get("at_most"),
        )
        for number in value if isinstance(value, tuple) else (value,):
            if number is None or isinstance(number, (str, bool)):
                continue
            if math.isnan(number):  # it would pass both comparisons below
                raise RarewordError(f"{label(field.name)}: {number} is not a number")
            if low is not None and number < low:
                raise RarewordError(f"{label(field.name)}: {number} is below {low}")
            if high is not None and number > high:
                raise RarewordError(f"{label(field.name)}: {number} is above {high}")
    return options


def shaping(options: Any) -> dict[str, Any]:
    """The options that shape the result, as JSON values for the plan."""
    return {
        field.name: list(value) if isinstance(value, tuple) else value
        for field in dataclasses.fields(options)
        if field.metadata["shapes_result"]
        for value in (getattr(options, field.name),)
    }
