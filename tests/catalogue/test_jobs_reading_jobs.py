"""Jobs that read jobs: chains, diamonds, latest results as tables, and feedback of the previous epoch's results."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from tests.catalogue import kit
from tests.catalogue.kit import append_events, growing_log, refusal


def test_jobs_in_a_diamond_count_each_event_on_both_paths(tmp_path: Path) -> None:
    events = kit.events(200)
    emitted = kit.run_all(
        tmp_path,
        kit.clicks(events),
        """
        CREATE JOB good AS SELECT user, page, ts FROM clicks WHERE status = 200;
        CREATE JOB by_user AS SELECT user, COUNT(*) AS n, window_end FROM good GROUP BY user WINDOWING 10 SECONDS;
        CREATE JOB by_page AS SELECT page, COUNT(*) AS n, window_end FROM good GROUP BY page WINDOWING 10 SECONDS;
        CREATE JOB both AS SELECT SUM(n) AS s FROM
            (SELECT n FROM by_user UNION ALL SELECT n FROM by_page) WINDOWING 10 SECONDS
        """,
        epoch_units=30,
    )
    good = kit.windows(events, 10, lambda event: None, lambda event: event["status"] == 200)
    assert [row for (row,) in emitted["both"]] == [
        2 * len(good[key]) for key in sorted(good, key=lambda key: key[0])
    ]


def test_the_latest_result_of_a_job_can_be_joined_as_a_table(tmp_path: Path) -> None:
    """Every click with the count of its page in the last complete window before it."""
    events = kit.events(200)
    emitted = kit.run_all(
        tmp_path,
        kit.clicks(events),
        """
        CREATE JOB popular AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS;
        CREATE JOB seen AS SELECT c.ts, c.user, p.n FROM clicks c JOIN LATEST(popular) p ON c.page = p.page
        """,
        epoch_units=30,
    )
    counts = {
        key: len(clicks) for key, clicks in kit.windows(events, 10, lambda event: event["page"]).items()
    }
    expected = []
    for event in events:
        at = datetime.fromisoformat(event["ts"]).timestamp()
        before = [start for start, page in counts if page == event["page"] and start + 10 <= at]
        if before:
            expected.append((event["ts"], event["user"], counts[max(before), event["page"]]))
    assert sorted((ts.isoformat(), user, n) for ts, user, n in emitted["seen"]) == sorted(expected)


FEEDBACK = """
CREATE JOB frequent AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user HAVING COUNT(*) > 3 WINDOWING 5 SECONDS;
CREATE JOB watched AS SELECT c.user, c.page, f.n FROM clicks c JOIN LATEST(PREVIOUS(frequent)) f ON c.user = f.user
"""


def test_previous_results_of_a_job_can_be_read_an_epoch_later(tmp_path: Path) -> None:
    log, events = growing_log(80)
    with kit.running(tmp_path, kit.of_log(log), FEEDBACK) as (_, engine):
        reports = []
        for at in range(0, 80, 10):
            append_events(log, events[at : at + 10])
            reports += engine.steps()
        log.finish()
        reports += engine.steps()
    emitted = kit.emitted_rows(reports)
    assert emitted["watched"]
    first = next(report.epoch for report in reports if "frequent" in report.rows)
    assert all(report.epoch > first for report in reports if "watched" in report.rows)
    known = {row[0] for row in emitted["frequent"]}
    assert {row[0] for row in emitted["watched"]} <= known


@pytest.mark.slow
def test_feedback_in_a_cycle_works_with_declared_columns(tmp_path: Path) -> None:
    """A bound on the events that are let through: each job reads the other, one of them an epoch late."""
    log, events = growing_log(120)
    sql = """
    CREATE JOB through AS SELECT c.user, c.bytes, c.ts FROM clicks c
        LEFT JOIN LATEST(PREVIOUS(bound, 'most BIGINT')) b ON TRUE WHERE c.bytes <= COALESCE(b.most, 1000);
    CREATE JOB bound AS SELECT CAST(MAX(bytes) / 2 AS BIGINT) AS most FROM through WINDOWING 10 SECONDS
    """
    with kit.running(tmp_path, kit.of_log(log), sql) as (_, engine):
        reports = []
        for at in range(0, 120, 5):
            append_events(log, events[at : at + 5])
            reports += engine.steps()
        log.finish()
        reports += engine.steps()
    emitted = kit.emitted_rows(reports)
    bounds = [most for (most,) in emitted["bound"]]
    assert len(bounds) > 3
    assert bounds == sorted(bounds, reverse=True), "the bound halves with every window"
    assert max(row[1] for row in emitted["through"][:20]) > 500 > bounds[-1]


@pytest.mark.slow
def test_feedback_is_the_same_after_a_kill(tmp_path: Path) -> None:
    def run_with_kills(state: Path, kills: set[int]) -> dict[str, Any]:
        log, events = growing_log(80)
        at = 0
        while True:
            with kit.running(state, kit.of_log(log), FEEDBACK) as (jobs, engine):
                try:
                    while at < 80 or engine.next_epoch in kills:
                        if engine.next_epoch * 10 >= at:
                            append_events(log, events[at : at + 10])
                            at += 10
                        epoch = engine.next_epoch
                        kill = ("gathered", epoch) if epoch in kills else kit.NEVER
                        kills.discard(epoch)
                        with kit.killed_at(*kill):
                            engine.step()
                    list(engine.steps())
                    return {
                        name: [result.rows.rows() for result in jobs.since(name, 0)]
                        for name in ("frequent", "watched")
                    }
                except kit.Killed:
                    continue

    assert run_with_kills(tmp_path / "one", {3, 5, 6}) == run_with_kills(tmp_path / "other", set())


def test_previous_requires_the_job_or_its_columns(tmp_path: Path) -> None:
    with kit.running(tmp_path, kit.clicks(kit.events(10))) as (jobs, _):
        sql = (
            "CREATE JOB j AS SELECT c.user FROM clicks c JOIN LATEST(PREVIOUS(nobody{})) p ON c.user = p.user"
        )
        assert refusal(jobs, sql.format("")).condition == "UNKNOWN_JOB"
        assert refusal(jobs, sql.format(", 'user NONSENSE'")).condition == "BAD_PREVIOUS"
        jobs.execute(sql.format(", 'user STRING'"))
        with pytest.raises(PenstockError) as error:
            jobs.execute(
                "CREATE JOB k AS SELECT COUNT(*) AS n FROM PREVIOUS(nobody, 'user STRING') WINDOWING 5 SECONDS"
            )
        assert error.value.condition == "NO_STREAM"


def test_a_job_aggregates_the_aggregates_of_another(tmp_path: Path) -> None:
    events = kit.events(200)
    emitted = kit.run_all(
        tmp_path,
        kit.clicks(events),
        """
        CREATE JOB per_user AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING 10 SECONDS;
        CREATE JOB shape AS SELECT n, COUNT(*) AS users FROM per_user GROUP BY n WINDOWING 1 HOUR
        """,
        epoch_units=25,
    )
    sizes = Counter(len(clicks) for clicks in kit.windows(events, 10, lambda event: event["user"]).values())
    assert sorted(emitted["shape"]) == sorted(sizes.items())
