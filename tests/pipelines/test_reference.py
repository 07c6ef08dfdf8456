"""The guide to training says what the code does: tables of options, commands, the manifest."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import yaml

from rareword.pipelines import reference
from rareword.pipelines.train import TrainOptions
from rareword.schemas import options
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import option
from rareword.trainer.config import TrainConfig

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "training.md"
MODULE = "rareword.pipelines.train"


@dataclasses.dataclass(frozen=True)
class BoatOptions:
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"new": {}, "old": {"drive": "sail"}}

    preset: Literal["new", "old"] = option("new", help="defaults of the others")
    name: str = option(help="what is painted on it")
    is_red: bool = option(False, help="paint it red")
    drive: Literal["motor", "sail"] = option("motor", help="what moves it", heading="the drive")
    power: float = option(1.5, help="kW | at most, <unk> if unknown", at_least=0, at_most=9)
    crew: int | None = option(None, help="how many (default: as many as fit)", heading="the rest")


def test_tables_of_options_and_presets() -> None:
    assert reference.options_table(BoatOptions) == (
        "| option | values | default | |\n"
        "|---|---|---|---|\n"
        "| `--preset` | `new`, `old` | new | defaults of the others |\n"
        "| `--name` | text | required | what is painted on it |\n"
        "| `--is-red`, `--no-is-red` | | off | paint it red |\n"
        "\n"
        "**The drive**\n"
        "\n"
        "| option | values | default | |\n"
        "|---|---|---|---|\n"
        "| `--drive` | `motor`, `sail` | motor; old: sail | what moves it |\n"
        "| `--power` | number, 0 to 9 | 1.5 | kW \\| at most, &lt;unk> if unknown |\n"
        "\n"
        "**The rest**\n"
        "\n"
        "| option | values | default | |\n"
        "|---|---|---|---|\n"
        "| `--crew` | integer | | how many (default: as many as fit) |\n"
    )
    assert reference.preset_table(BoatOptions) == (
        "| option | new | old | |\n"
        "|---|---|---|---|\n"
        "| `--drive` | motor | sail | what moves it |\n"
    )


def guide() -> str:
    return GUIDE.read_text("utf-8")


@pytest.mark.parametrize("name", ["training.md", "decode.md"])
def test_the_tables_of_the_pages_are_those_of_the_code(name: str) -> None:
    page = GUIDE.with_name(name).read_text("utf-8")
    assert page == reference.filled_in(page, name), "run `make reference`"
    assert "<unk>" not in re.sub("`.*?`", "", page)  # it would be taken for HTML


def test_every_option_and_every_default_of_a_preset_is_in_a_table() -> None:
    """Read back from the page, with the words of the dataclass."""
    presets, table = re.findall(r"<!-- \w+ of train -->\n(.*?)<!-- end -->", guide(), re.S)
    rows = dict(re.findall(r"^\| `(--[\w-]+)`.*?\| (.*) \|$", table, re.M))
    assert set(rows) == set(options.flags(TrainOptions))
    changed = dict(re.findall(r"^\| `(--[\w-]+)` \| \S+ \| (\S+) \|", presets, re.M))
    paper = TrainConfig.of("paper")
    for field in dataclasses.fields(TrainConfig):
        value, flag = getattr(paper, field.name), options.flag(field.name)
        assert field.metadata["help"].replace("|", "\\|") in rows.get(flag, "")
        if value != field.default and field.name != "preset":
            assert changed.pop(flag) == {"True": "on", "False": "off"}.get(str(value), str(value))
    assert changed == {}


def test_a_page_is_filled_in_where_it_says_so(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n<!-- options of segment -->\nold\n<!-- end -->\n\nmore\n")
    assert reference.main([str(page)]) == 0
    once = page.read_text()
    assert once.startswith("# A\n\n<!-- options of segment -->\n\n| option | values |")
    assert once.endswith("|\n\n<!-- end -->\n\nmore\n")
    assert "| `--corpus` | text | required |" in once
    assert "old" not in once
    assert reference.main([str(page)]) == 0
    assert page.read_text() == once


def test_a_page_without_a_place_for_tables_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n")
    with pytest.raises(RarewordError, match=r"page\.md has no place for a table"):
        reference.main([str(page)])
    assert page.read_text() == "# A\n"


def check_launch(command: list[str]) -> None:
    """A command that starts workers under torchrun: both parts have the options they are given."""
    from torch.distributed.run import get_args_parser

    assert command[0] == "torchrun"
    launch = get_args_parser().parse_args(command[1:])
    assert launch.module
    assert launch.training_script == MODULE
    found, rest = options.parse(TrainOptions, "train", "", launch.training_script_args)
    assert rest == []
    found.check()
    assert found.processes == 1, "the launcher starts the processes"


def test_commands_for_several_machines_have_their_options() -> None:
    blocks = re.findall(r"^```\n(.*?)^```", guide(), re.S | re.M)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    launches = [shlex.split(line) for line in lines if line.startswith("torchrun ")]
    assert len(launches) == 2
    for launch in launches:
        check_launch(launch)


def test_the_manifest_for_kubernetes_holds_together() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", guide(), re.S | re.M)
    (block,) = [text for text in blocks if "apiVersion" in text]
    service, job = yaml.safe_load_all(block)
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = container["command"]
    check_launch(command)
    given = dict(word.removeprefix("--").split("=", 1) for word in command if "=" in word)
    # Pods of an indexed job are called JOB-0, JOB-1, ... below the service that names them.
    name = job["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert given["rdzv-endpoint"].startswith(f"{name}-0.{service['metadata']['name']}:")
    pods = str(job["spec"]["completions"])
    assert given["nnodes"] == pods == str(job["spec"]["parallelism"])
    assert given["nproc-per-node"] == str(container["resources"]["limits"]["nvidia.com/gpu"])
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }


def test_the_options_that_may_change_when_a_run_goes_on() -> None:
    (text,) = re.findall(r"Those\nthat do not may change: (.*?)\.\n", guide(), re.S)
    named = re.findall(r"`(--[\w-]+)`", text)
    shaping = {
        field.name: field.metadata["shapes_result"] for field in dataclasses.fields(TrainOptions)
    }
    free = {options.flag(name) for name, shapes in shaping.items() if not shapes}
    where = {"--preset", "--output", "--segmented", "--dev", "--init-from"}
    assert set(named) == free - where - {"--overwrite", "--dry-run"}
