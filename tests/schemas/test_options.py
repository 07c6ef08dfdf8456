"""Options: one dataclass for the command line, for YAML and for the plan."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import options
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import JobOptions, option


@dataclass(frozen=True)
class Options(JobOptions):
    corpus: str = option(help="directory of the corpus", shapes_result=False)
    shards: int = option(8, help="output shards", at_least=1, at_most=100)
    rate: float = option(0.5, help="share of rows, 100 % is 1", at_least=0, at_most=1)
    side: Literal["joint", "source"] = option("joint", help="which words")
    columns: tuple[str, ...] = option((), help="columns")
    limit: int | None = option(None, help="rows, all if not given", at_least=0)
    shuffle: bool = option(True, help="shuffle the rows")


REQUIRED = {"output": "o", "corpus": "c"}
ARGUMENTS = ["--output", "o", "--corpus", "c"]


def parse(*argv: str) -> Options:
    found, rest = options.parse(Options, "rareword toy", "A toy.", [*ARGUMENTS, *argv])
    assert rest == []
    return found


def from_yaml(**values: Any) -> Options:
    return options.from_mapping(Options, {**REQUIRED, **values}, "my.yaml: toy")


WORDS = st.text("abcöж.*/", min_size=1, max_size=8)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "shards": st.integers(1, 100),
        "rate": st.floats(0, 1) | st.sampled_from([0, 1]),
        "side": st.sampled_from(["joint", "source"]),
        "columns": st.lists(WORDS, min_size=1, max_size=3),
        "limit": st.integers(0, 10**12),
        "shuffle": st.booleans(),
        "quiet": st.booleans(),
    },
)


@given(VALUES)
def test_command_line_and_yaml_give_the_same_options(values: dict[str, Any]) -> None:
    argv = []
    for name, value in values.items():
        if isinstance(value, bool):
            argv.append(f"--{'' if value else 'no-'}{name}")
        else:
            argv += [f"--{name}", *(value if isinstance(value, list) else [repr_of(value)])]
    assert parse(*argv) == from_yaml(**values)


def repr_of(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def test_defaults_are_those_of_the_dataclass() -> None:
    assert parse() == from_yaml() == Options(output="o", corpus="c")


def test_one_word_is_a_list_of_one() -> None:
    assert from_yaml(columns="a").columns == ("a",)


def test_a_list_may_be_given_in_parts() -> None:
    assert parse("--columns", "a", "b", "--columns=c").columns == ("a", "b", "c")


@dataclass(frozen=True)
class Numbers:
    clips: tuple[float, ...] = option((1.0, 5.0), help="norms", at_least=0)


def test_a_list_of_numbers_has_bounds_and_may_be_empty_if_that_is_not_its_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def parse(*argv: str) -> tuple[float, ...]:
        return options.parse(Numbers, "toy", "A toy.", argv)[0].clips

    assert parse() == (1.0, 5.0)
    assert parse("--clips", "2", "0.5") == (2.0, 0.5)
    assert parse("--clips") == ()
    assert options.from_mapping(Numbers, {"clips": [2, 0.5]}, "y").clips == (2.0, 0.5)
    with pytest.raises(RarewordError, match=r"--clips: -1\.0 is below 0"):
        parse("--clips", "1", "-1")
    with pytest.raises(RarewordError, match=r"y\.clips: nan is not a number"):
        options.from_mapping(Numbers, {"clips": [float("nan")]}, "y")
    with pytest.raises(RarewordError, match=r"y\.clips: expected float, found 'a'"):
        options.from_mapping(Numbers, {"clips": ["a"]}, "y")
    with pytest.raises(SystemExit):
        parse("--help")
    assert "(default: 1.0 5.0)" in capsys.readouterr().out


def test_what_is_not_ours_is_left_for_beam() -> None:
    _, rest = options.parse(Options, "p", "d", [*ARGUMENTS, "--runner=X", "--shards", "3", "--yes"])
    assert rest == ["--runner=X", "--yes"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"shard": 3}, "my.yaml: toy: unknown key 'shard'; did you mean 'shards'?"),
        ({"kernel_thread": 3}, "my.yaml: toy: unknown key 'kernel_thread'; known: output,"),
        ({"shards": "3"}, "my.yaml: toy.shards: expected int, found '3'"),
        ({"shards": True}, "my.yaml: toy.shards: expected int, found True"),
        ({"shards": 3.0}, "my.yaml: toy.shards: expected int, found 3.0"),
        ({"shards": None}, "my.yaml: toy.shards: expected int, found None"),
        ({"shuffle": 1}, "my.yaml: toy.shuffle: expected bool, found 1"),
        ({"rate": True}, "my.yaml: toy.rate: expected float, found True"),
        ({"columns": ["a", 1]}, "my.yaml: toy.columns: expected str, found 1"),
        ({"side": "target"}, "my.yaml: toy.side: 'target' is not one of joint, source"),
        ({"shards": 0}, "my.yaml: toy.shards: 0 is below 1"),
        ({"limit": -1}, "my.yaml: toy.limit: -1 is below 0"),
        ({"rate": 1.5}, "my.yaml: toy.rate: 1.5 is above 1"),
        ({"rate": float("nan")}, "my.yaml: toy.rate: nan is not a number"),
    ],
)
def test_a_bad_value_is_a_sentence_with_its_place(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RarewordError) as error:
        from_yaml(**values)
    assert str(error.value).startswith(sentence)


def test_a_missing_key_is_named_with_its_meaning() -> None:
    with pytest.raises(
        RarewordError, match=r"toy: the key 'corpus' is missing \(directory of the corpus\)"
    ):
        options.from_mapping(Options, {"output": "o"}, "my.yaml: toy")
    with pytest.raises(RarewordError, match=r"toy: expected keys and values, found 'text'"):
        options.from_mapping(Options, "text", "my.yaml: toy")  # type: ignore[arg-type]


def test_a_bound_on_the_command_line_names_the_flag() -> None:
    with pytest.raises(RarewordError, match=r"^--shards: 101 is above 100$"):
        parse("--shards", "101")


@pytest.mark.parametrize("argv", [["--shards", "x"], ["--side", "target"], ["--columns"]])
def test_a_wrong_call_ends_with_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parse(*argv)
    assert error.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_help_shows_every_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    text = " ".join(capsys.readouterr().out.split())
    for shown in (
        "--corpus STR directory of the corpus",
        "--shards INT output shards (default: 8)",
        "--rate FLOAT share of rows, 100 % is 1 (default: 0.5)",
        "--side {joint,source} which words (default: joint)",
        "--shuffle, --no-shuffle shuffle the rows (default: on)",
        "--limit INT rows, all if not given",
        "--dry-run",
        "--overwrite",
        "--quiet",
    ):
        assert shown in text


@dataclass(frozen=True)
class Machine:
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"modern": {}, "old": {"engine": "steam"}}

    preset: Literal["modern", "old"] = option("modern", help="defaults of the others")
    engine: Literal["electric", "steam"] = option(
        "electric", help="what moves it", heading="the engine"
    )
    power: float = option(1.5, help="kW | at most")
    wheels: int | None = option(None, help="how many (default: as many as fit)", heading="the rest")


@dataclass(frozen=True)
class MachineOptions(JobOptions, Machine):
    place: str = option(help="where to put it")


def test_help_stands_under_headings_after_a_short_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        options.parse(MachineOptions, "rareword toy", "A toy.", ["--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: rareword toy --output OUTPUT --place PLACE [options]\n")
    groups = {}
    for part in text.split("\n\n")[2:]:
        heading, *lines = part.splitlines()
        groups[heading] = [line.split()[0] for line in lines if line.startswith("  -")]
    assert groups == {
        "options:": [
            *("-h,", "--preset", "--output", "--overwrite,", "--dry-run,", "--quiet,", "--place")
        ],
        "the engine:": ["--engine", "--power"],
        "the rest:": ["--wheels"],
    }


def test_the_plan_holds_what_shapes_the_result_and_no_paths() -> None:
    assert options.shaping(from_yaml(columns=["a", "b"])) == {
        "shards": 8,
        "rate": 0.5,
        "side": "joint",
        "columns": ["a", "b"],
        "limit": None,
        "shuffle": True,
    }
