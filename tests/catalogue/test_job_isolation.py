"""Jobs that run together: each emits the rows that it emits alone, whichever jobs are beside it and however epochs
are cut."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.catalogue import kit

pytestmark = pytest.mark.slow

#: a failing case takes minutes to shrink, and names its seed
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)

#: a job for every kind of plan
QUERIES = {
    "count_page": "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS",
    "sum_page": "SELECT page, SUM(bytes) AS b, window_start FROM clicks GROUP BY page WINDOWING 10 SECONDS",
    "slow_page": "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 30 SECONDS",
    **{
        f"only_{page}": f"SELECT page, COUNT(*) AS n FROM clicks WHERE page == '/{page}' GROUP BY page "
        "WINDOWING 10 SECONDS"
        for page in "abcd"
    },
    "errors": "SELECT user, status FROM clicks WHERE status >= 400 AND page <> '/a'",
    "error_500": "SELECT user, page FROM clicks WHERE status = 500",
    "two_keys": "SELECT page, user, MIN(bytes) AS low, MAX(bytes) AS high FROM clicks WHERE bytes > 100 "
    "GROUP BY page, user WINDOWING 20 SECONDS",
    "hopping": "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 30 SECONDS EVERY 10 SECONDS",
    "best": "SELECT user, SUM(bytes) AS b FROM clicks GROUP BY user ORDER BY b DESC LIMIT 3 WINDOWING 15 SECONDS",
    "often": "SELECT user, COUNT(*) AS n FROM clicks GROUP BY user HAVING COUNT(*) > 3 WINDOWING 15 SECONDS",
    "sessions": "SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING SESSION 2 SECONDS",
    "running": "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page",
    "ends": "SELECT page, FIRST(user) AS u, LAST(user) AS v FROM clicks GROUP BY page WINDOWING 10 SECONDS",
    "everything": "SELECT COUNT(*) AS n, AVG(bytes) AS m FROM clicks WINDOWING 10 SECONDS",
    "joined": "SELECT a.user, a.page, b.page AS other FROM clicks a JOIN clicks b ON a.user = b.user "
    "AND a.bytes < b.bytes WITHIN 1 SECOND",
    "read_windows": "SELECT page, MAX(n) AS most FROM count_page GROUP BY page WINDOWING 30 SECONDS",
    "read_errors": "SELECT user, COUNT(*) AS n FROM errors GROUP BY user WINDOWING 10 SECONDS",
    "read_best": "SELECT user, b FROM best WHERE b > 900",
    "read_again": "SELECT COUNT(*) AS n, SUM(most) AS s FROM read_windows WINDOWING 60 SECONDS",
}
READS = {
    "read_windows": ["count_page"],
    "read_errors": ["errors"],
    "read_best": ["best"],
    "read_again": ["count_page", "read_windows"],
}


def script(names: list[str]) -> str:
    return ";\n".join(f"CREATE JOB {name} AS {QUERIES[name]}" for name in names)


@pytest.mark.parametrize("name", QUERIES)
def test_a_job_emits_the_same_rows_beside_all_others_as_alone(name: str, tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(150))
    together = _run_all_together(tmp_path)
    alone = kit.run_all(tmp_path / "alone", stream, script([*READS.get(name, []), name]), epoch_units=40)
    assert alone[name] == together[name]
    assert alone[name], "a job that emits nothing proves nothing"


_ROWS_TOGETHER: dict[str, list[tuple[object, ...]]] = {}


def _run_all_together(tmp_path: Path) -> dict[str, list[tuple[object, ...]]]:
    if not _ROWS_TOGETHER:
        stream = kit.clicks(kit.events(150))
        _ROWS_TOGETHER.update(
            kit.run_all(tmp_path / "together", stream, script(list(QUERIES)), epoch_units=40)
        )
    return _ROWS_TOGETHER


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(seed=st.integers(0, 10**6), units=st.integers(7, 200), slices=st.integers(1, 5))
def test_rows_do_not_depend_on_epochs_and_slices(seed: int, units: int, slices: int) -> None:
    events = kit.events(120, seed)
    names = list(QUERIES)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole = kit.run_all(Path(one) / "s", kit.clicks(events), script(names), slices=1)
        cut = kit.run_all(
            Path(other) / "s", kit.clicks(events), script(names), epoch_units=units, slices=slices
        )
    for name in names:
        assert sorted(map(str, cut.get(name, []))) == sorted(map(str, whole.get(name, []))), name


def test_counts_and_sums_are_those_of_plain_python(tmp_path: Path) -> None:
    events = kit.events(300)
    emitted = kit.run_all(tmp_path, kit.clicks(events), script(list(QUERIES)), epoch_units=50)
    pages = kit.windows(events, 10, lambda event: event["page"])
    assert sorted(emitted["count_page"]) == sorted((page, len(clicks)) for (_, page), clicks in pages.items())
    sums = [
        (page, sum(e["bytes"] for e in clicks if e["bytes"] is not None), start)
        for (start, page), clicks in pages.items()
    ]
    assert sorted((p, b, int(start.timestamp())) for p, b, start in emitted["sum_page"]) == sorted(sums)
    hopping = kit.windows(events, 30, lambda event: event["page"], every=10)
    assert sorted(emitted["hopping"]) == sorted((page, len(clicks)) for (_, page), clicks in hopping.items())
    for page in "abcd":
        only = kit.windows(
            events, 10, lambda event: event["page"], lambda e, page=page: e["page"] == f"/{page}"
        )
        assert sorted(emitted[f"only_{page}"]) == sorted((p, len(clicks)) for (_, p), clicks in only.items())
    errors = [(e["user"], e["status"]) for e in events if e["status"] >= 400 and e["page"] != "/a"]
    assert sorted(emitted["errors"]) == sorted(errors)
    best: dict[int, list[tuple[str, int]]] = {}
    for (start, user), clicks in kit.windows(events, 15, lambda event: event["user"]).items():
        best.setdefault(start, []).append((user, sum(e["bytes"] or 0 for e in clicks)))
    ranked = [row for start in sorted(best) for row in sorted(best[start], key=lambda r: (-r[1], r[0]))[:3]]
    assert emitted["best"] == ranked


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(seed=st.integers(0, 10**6))
def test_creating_altering_and_dropping_jobs_does_not_change_the_rows_of_the_others(seed: int) -> None:
    """Some jobs are there all the time; others are created, altered, paused, emptied and dropped around them."""
    draw = random.Random(seed)
    events = kit.events(160, seed)
    steady = ["count_page", "only_a", "best", "hopping", "sessions", "errors", "joined", "read_windows"]
    changing = [
        "sum_page",
        "only_b",
        "only_c",
        "two_keys",
        "running",
        "everything",
        "read_errors",
        "slow_page",
    ]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        alone = kit.run_all(Path(one) / "s", kit.clicks(events), script(steady), epoch_units=15)
        with kit.running(Path(other) / "s", kit.clicks(events), script(steady), epoch_units=15) as (
            jobs,
            engine,
        ):
            reports, running = [], set[str]()
            while True:
                for name in changing:
                    if name not in running and draw.random() < 0.2:
                        jobs.execute(f"CREATE JOB {name} AS {QUERIES[name]}")
                        running.add(name)
                    elif name in running and draw.random() < 0.2:
                        verb = draw.choice(["drop", "pause", "empty", "alter"])
                        life = jobs.catalogue.jobs[name].master.life
                        if verb == "drop":
                            jobs.execute(f"DROP JOB {name}")
                            running.discard(name)
                        elif verb == "pause":
                            jobs.execute(f"{'RESUME' if life == 'paused' else 'PAUSE'} JOB {name}")
                        elif verb == "empty":
                            jobs.execute(f"EMPTY JOB {name}")
                        elif name != "read_errors":
                            jobs.execute(f"ALTER JOB {name} SET WHERE status = {draw.choice([200, 404])}")
                report = engine.step()
                if report is None:
                    break
                reports.append(report)
        together = kit.emitted_rows(reports)
    for name in steady:
        assert together[name] == alone[name], name
