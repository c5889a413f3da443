"""Every demo has a name, runs on its generated log, and has a paragraph in the README."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import penstock.demos
from penstock.catalogue.jobs_app import JobsApp
from penstock.cli.demo import Name, application
from penstock.cli.load_app import load
from penstock.errors import UserError
from penstock.logs.contract import Span
from penstock.query.compile import compile_app
from penstock.query.logical import App
from penstock.query.physical import ScanPlan

DEMOS = Path(penstock.demos.__file__).parent


def scans(app: App | JobsApp, state: Path) -> Mapping[str, ScanPlan]:
    """Return the streams that an application reads."""
    if isinstance(app, App):
        return compile_app(app).scans
    jobs = app.on(state)
    return jobs.epochs.plan(jobs.commands).scans


@pytest.mark.parametrize("name", Name)
def test_a_demo_can_decode_its_generated_log(name: Name, tmp_path: Path) -> None:
    app, _ = application(name, tmp_path / "results")
    assert app.name == name.value
    for scan in scans(app, tmp_path).values():
        log, decoder = scan.stream.log, scan.stream.decoder
        partition = log.partitions({})[0].id
        chunk = next(log.read(Span(partition, 0, 50)))
        decoded = decoder.decode(chunk, list(decoder.schema()))
        assert decoded.good.height >= 49  # the first line may be a header
        assert decoded.bad.height == 0
    assert f"## {name.value}\n" in (DEMOS / "README.md").read_text()


@pytest.mark.parametrize("name", Name)
def test_the_file_of_a_demo_can_be_run_by_itself(name: Name) -> None:
    assert load(DEMOS / f"{name.value}.py").name == name.value


def test_only_click_demos_take_a_cookie() -> None:
    with pytest.raises(UserError) as refusal:
        application(Name.taxi, Path("out"), cookie="session")
    assert refusal.value.condition == "BAD_OPTION"
