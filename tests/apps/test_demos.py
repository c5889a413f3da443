"""Every demo is there by its name, runs on the log it makes up, and has a paragraph."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.logs.contract import Span
from penstock.query.compile import compiled
from penstock.service.demo import Name, application
from penstock.words.errors import UserError

APPS = Path(__file__).parents[2] / "apps"


@pytest.mark.parametrize("name", Name)
def test_a_demo_reads_the_log_it_makes_up(name: Name, tmp_path: Path) -> None:
    app, _ = application(name, tmp_path / "results")
    assert app.name == name.value
    for scan in compiled(app).scans.values():
        log, decoder = scan.stream.log, scan.stream.decoder
        partition = log.partitions({})[0].id
        chunk = next(log.read(Span(partition, 0, 50)))
        decoded = decoder.decode(chunk, list(decoder.schema()))
        assert (decoded.good.height, decoded.bad.height) == (50, 0)
    assert f"## {name.value}\n" in (APPS / "README.md").read_text()


def test_a_cookie_is_for_clicks() -> None:
    with pytest.raises(UserError) as refusal:
        application(Name.taxi, Path("out"), cookie="session")
    assert refusal.value.condition == "BAD_OPTION"
