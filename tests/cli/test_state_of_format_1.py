"""`penstock state` on a directory of format 1: before an engine of today has taken it, and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import commands as cli
from penstock.state.directory import StateDirectory
from tests.golden import archive, case, lives
from tests.golden.case import Case
from tests.golden.cases import CASES
from tests.golden.test_golden import differences


def called(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["state", *(str(argument) for argument in arguments)])
    return caught.value.code if isinstance(caught.value.code, int) else 0


@pytest.fixture
def one(tmp_path: Path) -> Case:
    archive.unpack(archive.path_of("format-1", "time-windows"), tmp_path)
    return CASES["time-windows"]


def test_it_can_be_looked_at_and_checked(
    one: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "state"
    assert called("ls", place) == 0
    assert called("verify", place) == 0
    assert called("show", place) == 0
    assert "1-aggregation" in capsys.readouterr().out  # as it is on disk
    assert StateDirectory(place).read_existing_facts().format == 1


def test_an_upgraded_one_goes_back_to_what_the_older_penstock_wrote(
    one: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, place = case.given_of(tmp_path), tmp_path / "state"
    before = StateDirectory(place).manifests.epochs()[-1]
    lives.live(one.build(given), place, epochs=1, epoch_units=5)
    assert called("verify", place) == 0
    assert called("show", place) == 0
    assert "1-time-window-aggregate" in capsys.readouterr().out
    assert called("rollback", place, "--to", str(before)) == 0
    assert StateDirectory(place).manifests.epochs()[-1] == before
    one.rest(given, tmp_path)
    assert differences(archive.read_rows(tmp_path / "expected"), case.found(tmp_path)) == {}
