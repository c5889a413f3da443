"""A unit whose jobs of Python come, change their code and go while its leaders are killed: each epoch runs the code
that its record names, on whichever engine, and the file is gone by then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.command import Reply
from penstock.engine.job_client import JobClient
from penstock.errors import ExternalError
from penstock.ha.schemes import Scheme
from tests.ha.test_jobs_unit import JobsKit, Row, cheap, everything, nothing
from tests.ha.test_unit import stands

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

FILE = """
import polars as pl
import penstock as ps

decoder = ps.Delimited(
    {{"time": pl.Datetime("us", "UTC"), "user": pl.String(), "page": pl.String(), "amount": pl.Float64()}},
    times={{"time": "%Y-%m-%dT%H:%M:%S%.f%:z"}},
)
events = ps.stream("events", ps.files({pattern!r}), decoder, time="time", lateness="5s", idle_after=None)


def chosen(rows):
    return rows.filter({chosen})


rows = events.map_batches(chosen).select("time", "user", "page", "amount")
query = ps.output("late", rows, ps.jsonl({out!r}))
"""


class PythonKit(JobsKit):
    """A unit whose late job is of Python."""

    def submits(self, request: str, chosen: str, row: Any) -> None:
        """Create or alter the job from a file that is removed once it is answered."""
        file = self.root.parent / "late.py"
        pattern, out = str(self.feeder.folders[0] / "*.log"), str(self.extra / "late")
        file.write_text(FILE.format(pattern=pattern, out=out, chosen=chosen))

        def answers() -> list[Reply] | None:
            try:
                with JobClient(self.root) as client:
                    return client.submit(request, file, name="late", attribute="query")
            except (ExternalError, OSError):  # nobody leads, or not any more
                return None

        (reply,) = self.until(f"{request} is answered", answers)
        self.holds.append((reply.command, row))
        file.unlink()


@pytest.fixture
def kits(tmp_path: Path) -> Iterator[list[PythonKit]]:
    made: list[PythonKit] = []
    yield made
    for kit in made:
        kit.close()


def dear(row: Row) -> bool:
    return not cheap(row)


@pytest.mark.parametrize(
    ("scheme", "every"),
    [(Scheme.passive_cold, 3), (Scheme.active_standby, 1), (Scheme.active_replication, 5)],
)
def test_every_engine_runs_the_code_that_an_epochs_record_names(
    scheme: Scheme, every: int, tmp_path: Path, kits: list[PythonKit]
) -> None:
    kit = PythonKit(tmp_path / "unit", scheme, checkpoint_every=every)
    kits.append(kit)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, scheme))
    # where the secondary runs no epochs, it would lose some
    kit.say("ALTER JOB sessions SET RECOVERY precise")
    kit.submits("create", "pl.lit(True)", everything)
    kit.flowing()
    kit.replaced()
    kit.submits("alter", 'pl.col("amount") < 1', cheap)
    kit.flowing()
    kit.until("the unit stands again", lambda: stands(kit, scheme))
    kit.submits("alter", 'pl.col("amount") >= 1', dear)
    kit.replaced()
    kit.flowing()
    assert kit.life("late") == "running"
    kit.tells("DROP JOB late", nothing)
    kit.flowing()
    kit.finish()
    kit.check("late")
    assert (kit.root / "code").is_dir()
