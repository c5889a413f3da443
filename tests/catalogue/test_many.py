"""Two thousand jobs of one template: the cost of a command depends on the jobs it names, not on all jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.catalogue.job_builder import JobBuilder
from tests.catalogue import kit

pytestmark = pytest.mark.slow

JOBS = 2_000


def _sql(number: int) -> str:
    return f"CREATE JOB j{number} AS SELECT page FROM clicks WHERE user = 'u{number}'"


@contextmanager
def builds_at_most(limit: int) -> Iterator[None]:
    """Assert that no more jobs than this are built in the block."""
    count, job = 0, JobBuilder.job

    def counted(builder: JobBuilder, *arguments: object) -> object:
        nonlocal count
        count += 1
        return job(builder, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JobBuilder, "job", counted)
        yield
    assert count <= limit


def test_commands_to_two_thousand_jobs_build_only_the_jobs_they_name(tmp_path: Path) -> None:
    draw, events = random.Random(5), kit.events(2_000)
    for event in events:
        event["user"] = f"u{draw.randrange(JOBS)}"
    with kit.running(tmp_path, kit.clicks(events), epoch_units=1_000) as (jobs, engine):
        with builds_at_most(3 * JOBS):
            jobs.execute("; ".join(map(_sql, range(JOBS - 20))))
        with builds_at_most(3 * 20):
            for number in range(JOBS - 20, JOBS):
                jobs.execute(_sql(number))
        reports = [engine.step()]
        with builds_at_most(3 * JOBS):
            jobs.execute("ALTER JOB j7 SET WHERE user = 'u8'")
            jobs.execute("DROP JOB j9")
        with builds_at_most(3):
            jobs.execute("PAUSE JOB j10; RESUME JOB j10")
        reports.append(engine.step())
    emitted = kit.emitted_rows([report for report in reports if report is not None])
    expected: dict[str, list[tuple[str]]] = {}
    for number, event in enumerate(events):
        user = event["user"]
        names = {f"j{user[1:]}"} if number < 1_000 else {f"j{user[1:]}"} - {"j7", "j9"}
        names |= {"j7"} if user == "u8" and number >= 1_000 else set()
        for name in names:
            expected.setdefault(name, []).append((event["page"],))
    assert {name: sorted(rows) for name, rows in emitted.items()} == {
        n: sorted(r) for n, r in expected.items()
    }
    with builds_at_most(5 * JOBS), kit.running(tmp_path, kit.clicks(events)) as (jobs, _):
        assert len(jobs.catalogue.jobs) == JOBS - 1
        assert jobs.ask(max(emitted.keys() - {"j9"})) is not None
