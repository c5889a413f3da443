"""Two thousand jobs of one template: a command costs what it names, not what there is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.catalogue.job_builder import JobBuilder
from tests.catalogue import kit

MANY = 2_000


def _sql(number: int) -> str:
    return f"CREATE JOB j{number} AS SELECT page FROM clicks WHERE user = 'u{number}'"


@contextmanager
def looked_at(most: int) -> Iterator[None]:
    """No more jobs are looked at in here than so many."""
    count, job = 0, JobBuilder.job

    def counted(builder: JobBuilder, *given: object) -> object:
        nonlocal count
        count += 1
        return job(builder, *given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JobBuilder, "job", counted)
        yield
    assert count <= most


def test_two_thousand_jobs(tmp_path: Path) -> None:
    draw, found = random.Random(5), kit.events(2_000)
    for event in found:
        event["user"] = f"u{draw.randrange(MANY)}"
    with kit.running(tmp_path, kit.clicks(found), epoch_units=1_000) as (jobs, engine):
        with looked_at(3 * MANY):
            jobs.execute("; ".join(map(_sql, range(MANY - 20))))
        with looked_at(3 * 20):
            for number in range(MANY - 20, MANY):
                jobs.execute(_sql(number))
        reports = [engine.step()]
        with looked_at(3 * MANY):
            jobs.execute("ALTER JOB j7 SET WHERE user = 'u8'")
            jobs.execute("DROP JOB j9")
        with looked_at(3):
            jobs.execute("PAUSE JOB j10; RESUME JOB j10")
        reports.append(engine.step())
    told = kit.told([report for report in reports if report is not None])
    expected: dict[str, list[tuple[str]]] = {}
    for number, event in enumerate(found):
        user = event["user"]
        wanted = {f"j{user[1:]}"} if number < 1_000 else {f"j{user[1:]}"} - {"j7", "j9"}
        wanted |= {"j7"} if user == "u8" and number >= 1_000 else set()
        for name in wanted:
            expected.setdefault(name, []).append((event["page"],))
    assert {name: sorted(rows) for name, rows in told.items()} == {n: sorted(r) for n, r in expected.items()}
    with looked_at(5 * MANY), kit.running(tmp_path, kit.clicks(found)) as (jobs, _):
        assert len(jobs.catalogue.jobs) == MANY - 1
        assert jobs.ask(max(told.keys() - {"j9"})) is not None
