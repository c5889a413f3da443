"""The page on elasticity agrees with the code: settings, commands, pictures."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app
from penstock.scaling.record import Outcome
from penstock.scaling.settings import ElasticSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "elasticity.md").read_text()
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^\./run elastic .*--title.*$", PAGE, re.M)]


def test_the_table_of_settings_agrees_with_the_code() -> None:
    documented = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", PAGE, re.M)
    actual = []
    for one in fields(ElasticSettings):
        default = str(one.default).lower() if isinstance(one.default, bool) else format(one.default, "g")
        actual.append((one.name, default, one.metadata["unit"], one.metadata["meaning"]))
    assert [tuple(cell.strip() for cell in row) for row in documented] == actual


def test_every_outcome_is_explained() -> None:
    table = PAGE.split("| outcome | meaning |\n|---|---|\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| ([\w ]+) \| .+ \|$", table, re.M) == [str(one) for one in Outcome]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: Path(command[-1]).stem)
def test_each_picture_is_what_its_command_draws(command: list[str], tmp_path: Path) -> None:
    committed = (ROOT / command[-1]).read_text()
    result = CliRunner().invoke(app, [*command[:-1], str(tmp_path / "drawn.svg")])
    assert result.exit_code == 0, result.output
    marks = re.compile(r"<title>(.*?)</title>")
    assert marks.findall((tmp_path / "drawn.svg").read_text()) == marks.findall(committed)


def test_every_picture_has_its_command() -> None:
    shown = set(re.findall(r"\]\((pictures/elastic-.*?\.svg)\)", PAGE))
    assert shown == {f"pictures/{file.name}" for file in (ROOT / "docs" / "pictures").glob("elastic-*.svg")}
    assert shown == {Path(command[-1]).relative_to("docs").as_posix() for command in COMMANDS}
