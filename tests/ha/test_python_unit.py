"""A unit whose Python jobs are created, altered and dropped while its leaders are killed: each epoch runs the code that
its record names, on whichever engine, after the file is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.command import Reply
from penstock.engine.job_client import JobClient
from penstock.errors import ExternalError
from penstock.ha.schemes import Scheme
from tests.ha.test_jobs_unit import JobsKit, Row, emits_all, emits_cheap, emits_none
from tests.ha.test_unit import is_complete

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

FILE = """
import polars as pl
import penstock as ps

decoder = ps.Delimited(
    {{"time": pl.Datetime("us", "UTC"), "user": pl.String(), "page": pl.String(), "amount": pl.Float64()}},
    times={{"time": "%Y-%m-%dT%H:%M:%S%.f%:z"}},
)
events = ps.stream("events", ps.files({pattern!r}), decoder, time="time", lateness="5s", idle_after=None)


def selected(rows):
    return rows.filter({selected})


rows = events.map_batches(selected).select("time", "user", "page", "amount")
query = ps.output("late", rows, ps.jsonl({out!r}))
"""


class PythonKit(JobsKit):
    """A unit whose late job is a Python query."""

    def submit_file(self, request: str, selected: str, row: Any) -> None:
        """Create or alter the job from a file, and remove the file once the leader has responded."""
        file = self.root.parent / "late.py"
        pattern, out = str(self.feeder.folders[0] / "*.log"), str(self.extra / "late")
        file.write_text(FILE.format(pattern=pattern, out=out, selected=selected))

        def response() -> list[Reply] | None:
            try:
                with JobClient(self.root) as client:
                    return client.submit(request, file, name="late", attribute="query")
            except (ExternalError, OSError):  # nobody leads, or not any more
                return None

        (reply,) = self.wait_until(f"{request} is executed", response)
        self.filters.append((reply.command, row))
        file.unlink()


@pytest.fixture
def kits(tmp_path: Path) -> Iterator[list[PythonKit]]:
    made: list[PythonKit] = []
    yield made
    for kit in made:
        kit.close()


def emits_expensive(row: Row) -> bool:
    return not emits_cheap(row)


@pytest.mark.parametrize(
    ("scheme", "every"),
    [(Scheme.passive_cold, 3), (Scheme.active_standby, 1), (Scheme.active_replication, 5)],
)
def test_every_engine_runs_the_code_that_an_epochs_record_names(
    scheme: Scheme, every: int, tmp_path: Path, kits: list[PythonKit]
) -> None:
    kit = PythonKit(tmp_path / "unit", scheme, checkpoint_every=every)
    kits.append(kit)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    # where the follower runs no epochs, `gap` would lose events
    kit.execute_command("ALTER JOB sessions SET RECOVERY precise")
    kit.submit_file("create", "pl.lit(True)", emits_all)
    kit.wait_for_epochs()
    kit.replace_leader()
    kit.submit_file("alter", 'pl.col("amount") < 1', emits_cheap)
    kit.wait_for_epochs()
    kit.wait_until("the unit is complete again", lambda: is_complete(kit, scheme))
    kit.submit_file("alter", 'pl.col("amount") >= 1', emits_expensive)
    kit.replace_leader()
    kit.wait_for_epochs()
    assert kit.job_state("late") == "running"
    kit.change_job("DROP JOB late", emits_none)
    kit.wait_for_epochs()
    kit.finish()
    kit.check_output("late")
    assert (kit.root / "code").is_dir()
