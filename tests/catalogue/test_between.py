"""Between jobs: chains, diamonds, latest answers as tables, and results that come back an epoch later."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from tests.catalogue import kit
from tests.catalogue.test_commands import grown, put, refused


def test_a_diamond_of_jobs(tmp_path: Path) -> None:
    found = kit.events(200)
    told = kit.run_all(
        tmp_path,
        kit.clicks(found),
        """
        CREATE JOB good AS SELECT user, page, ts FROM clicks WHERE status = 200;
        CREATE JOB by_user AS SELECT user, COUNT(*) AS n, window_end FROM good GROUP BY user WINDOWING 10 SECONDS;
        CREATE JOB by_page AS SELECT page, COUNT(*) AS n, window_end FROM good GROUP BY page WINDOWING 10 SECONDS;
        CREATE JOB both AS SELECT SUM(n) AS s FROM
            (SELECT n FROM by_user UNION ALL SELECT n FROM by_page) WINDOWING 10 SECONDS
        """,
        epoch_units=30,
    )
    good = kit.windows(found, 10, lambda event: None, lambda event: event["status"] == 200)
    assert [row for (row,) in told["both"]] == [
        2 * len(good[key]) for key in sorted(good, key=lambda key: key[0])
    ]


def test_a_job_s_latest_answer_is_a_table(tmp_path: Path) -> None:
    """Every click with how often its page was clicked in the last whole window before it."""
    found = kit.events(200)
    told = kit.run_all(
        tmp_path,
        kit.clicks(found),
        """
        CREATE JOB popular AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS;
        CREATE JOB seen AS SELECT c.ts, c.user, p.n FROM clicks c JOIN LATEST(popular) p ON c.page = p.page
        """,
        epoch_units=30,
    )
    counts = {key: len(them) for key, them in kit.windows(found, 10, lambda event: event["page"]).items()}
    wanted = []
    for event in found:
        at = kit.datetime.fromisoformat(event["ts"]).timestamp()
        before = [start for start, page in counts if page == event["page"] and start + 10 <= at]
        if before:
            wanted.append((event["ts"], event["user"], counts[max(before), event["page"]]))
    assert sorted((ts.isoformat(), user, n) for ts, user, n in told["seen"]) == sorted(wanted)


FEEDBACK = """
CREATE JOB frequent AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user HAVING COUNT(*) > 3 WINDOWING 5 SECONDS;
CREATE JOB watched AS SELECT c.user, c.page, f.n FROM clicks c JOIN LATEST(PREVIOUS(frequent)) f ON c.user = f.user
"""


def test_what_a_job_told_comes_back_an_epoch_later(tmp_path: Path) -> None:
    log, found = grown(80)
    with kit.running(tmp_path, kit.of_log(log), FEEDBACK) as (_, engine):
        reports = []
        for at in range(0, 80, 10):
            put(log, found[at : at + 10])
            reports += engine.steps()
        log.finish()
        reports += engine.steps()
    told = kit.told(reports)
    assert told["watched"]
    first = next(report.epoch for report in reports if "frequent" in report.rows)
    assert all(report.epoch > first for report in reports if "watched" in report.rows)
    known = {row[0] for row in told["frequent"]}
    assert {row[0] for row in told["watched"]} <= known


def test_feedback_in_a_circle_has_its_columns_declared(tmp_path: Path) -> None:
    """A limit that follows what was let through: each job reads the other, one of them an epoch late."""
    log, found = grown(120)
    sql = """
    CREATE JOB through AS SELECT c.user, c.bytes, c.ts FROM clicks c
        LEFT JOIN LATEST(PREVIOUS(bound, 'most BIGINT')) b ON TRUE WHERE c.bytes <= COALESCE(b.most, 1000);
    CREATE JOB bound AS SELECT CAST(MAX(bytes) / 2 AS BIGINT) AS most FROM through WINDOWING 10 SECONDS
    """
    with kit.running(tmp_path, kit.of_log(log), sql) as (_, engine):
        reports = []
        for at in range(0, 120, 5):
            put(log, found[at : at + 5])
            reports += engine.steps()
        log.finish()
        reports += engine.steps()
    told = kit.told(reports)
    bounds = [most for (most,) in told["bound"]]
    assert len(bounds) > 3
    assert bounds == sorted(bounds, reverse=True), "what is let through halves every time"
    assert max(row[1] for row in told["through"][:20]) > 500 > bounds[-1]


def test_feedback_is_the_same_after_a_kill(tmp_path: Path) -> None:
    def told(state: Path, kills: set[int]) -> dict[str, Any]:
        log, found = grown(80)
        at = 0
        while True:
            with kit.running(state, kit.of_log(log), FEEDBACK) as (jobs, engine):
                try:
                    while at < 80 or engine.next_epoch in kills:
                        if engine.next_epoch * 10 >= at:
                            put(log, found[at : at + 10])
                            at += 10
                        epoch = engine.next_epoch
                        step = "gathered" if epoch in kills else "nowhere"
                        kills.discard(epoch)
                        with kit.killed_at(step, epoch):
                            engine.step()
                    list(engine.steps())
                    return {
                        name: [a.rows.rows() for a in jobs.since(name, 0)] for name in ("frequent", "watched")
                    }
                except kit.Killed:
                    continue

    assert told(tmp_path / "one", {3, 5, 6}) == told(tmp_path / "other", set())


def test_previous_needs_a_job_or_its_columns(tmp_path: Path) -> None:
    with kit.running(tmp_path, kit.clicks(kit.events(10))) as (jobs, _):
        said = (
            "CREATE JOB j AS SELECT c.user FROM clicks c JOIN LATEST(PREVIOUS(nobody{})) p ON c.user = p.user"
        )
        assert refused(jobs, said.format("")).condition == "UNKNOWN_JOB"
        assert refused(jobs, said.format(", 'user NONSENSE'")).condition == "BAD_PREVIOUS"
        jobs.execute(said.format(", 'user STRING'"))
        with pytest.raises(PenstockError) as error:
            jobs.execute(
                "CREATE JOB k AS SELECT COUNT(*) AS n FROM PREVIOUS(nobody, 'user STRING') WINDOWING 5 SECONDS"
            )
        assert error.value.condition == "NO_STREAM"


def test_counts_of_counts(tmp_path: Path) -> None:
    found = kit.events(200)
    told = kit.run_all(
        tmp_path,
        kit.clicks(found),
        """
        CREATE JOB per_user AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING 10 SECONDS;
        CREATE JOB shape AS SELECT n, COUNT(*) AS users FROM per_user GROUP BY n WINDOWING 1 HOUR
        """,
        epoch_units=25,
    )
    sizes = Counter(len(them) for them in kit.windows(found, 10, lambda event: event["user"]).values())
    assert sorted(told["shape"]) == sorted(sizes.items())
