"""The latest result of a job is that of its last window, also when an epoch closes many; all results are stored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.delivery.followed_results import FollowedResults
from penstock.delivery.result_log import ResultLog
from penstock.state.ipc import from_stream, stream_bytes
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit

SQL = """
CREATE JOB best AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page ORDER BY n DESC LIMIT 2 WINDOWING 10 SECONDS;
CREATE JOB counts AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS;
CREATE JOB hops AS SELECT user, COUNT(*) AS n FROM clicks
    GROUP BY user, HOP(ts, INTERVAL '5' SECOND, INTERVAL '20' SECOND);
CREATE JOB shown AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page HAVING COUNT(*) > 1 WINDOWING 10 SECONDS;
CREATE JOB errors AS SELECT page, status FROM clicks WHERE status >= 500;
"""
EVENTS = kit.events(400)


def last_window(key: str, size: int, every: int | None = None) -> Counter[str]:
    """The counts of the oracle in the window that ends last."""
    groups = kit.windows(EVENTS, size, lambda event: event[key], every=every)
    last = max(start for start, _ in groups)
    return Counter({name: len(clicks) for (start, name), clicks in groups.items() if start == last})


def latest_rows(jobs: Program, name: str) -> list[Any]:
    result = jobs.ask(name)
    assert result is not None
    return result.rows.rows()


@pytest.mark.slow
@pytest.mark.parametrize(("units", "slices"), [(1_000, 1), (1_000, 3), (40, 2)])
def test_the_latest_result_is_that_of_the_last_window(tmp_path: Path, units: int, slices: int) -> None:
    with kit.running(tmp_path, kit.clicks(EVENTS), SQL, epoch_units=units, slices=slices) as (jobs, engine):
        emitted = kit.emitted_rows(list(engine.steps()))
        first = {name: latest_rows(jobs, name) for name in ("best", "counts", "hops", "shown", "errors")}
        counts = last_window("page", 10)
        assert Counter(dict(first["counts"])) == counts
        assert len(first["counts"]) == len(counts)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]
        assert [row[-2:] if len(row) == 2 else row[:2] for row in first["best"]] == ranked
        assert Counter(dict(first["hops"])) == last_window("user", 20, 5)
        assert Counter(dict(first["shown"])) == Counter({page: n for page, n in counts.items() if n > 1})
        if units == 1_000:
            assert len(first["errors"]) > 1
            assert len(emitted["counts"]) > 2 * len(counts), "the epoch has closed many windows"
        for name in first:  # subscribers and pages of results get all rows
            stored = [row for result in jobs.since(name, 0) for row in result.rows.rows()]
            assert stored == emitted[name]
        keys = {name: jobs.catalogue.jobs[name].result_key for name in first}
    with kit.running(tmp_path, kit.clicks(EVENTS), SQL, epoch_units=units) as (jobs, _):
        assert {name: latest_rows(jobs, name) for name in first} == first
    followed = FollowedResults(tmp_path)
    followed.load(keys.values())
    for name, result_key in keys.items():
        result = followed.latest(result_key)
        assert result is not None
        assert result.rows.rows() == first[name]
        everything = followed.of(result_key, result.epoch)
        assert everything is not None
        assert everything.rows()[-len(first[name]) :] == first[name]


def test_the_latest_result_of_an_apps_output_is_that_of_the_last_window(tmp_path: Path) -> None:
    counts = kit.clicks(EVENTS).key_by("page").window("10s").count()
    program = program_of(ps.app("counted", ps.output("counts", counts)), tmp_path)
    engine = InlineEngine(program, tmp_path, epoch_units=1_000)
    try:
        list(engine.steps())
        result = program.ask("counts")
    finally:
        engine.close()
    assert result is not None
    assert dict(result.rows.select("page", "count").rows()) == dict(last_window("page", 10))


def test_in_result_files_of_former_versions_all_rows_are_the_latest(tmp_path: Path) -> None:
    rows = pl.DataFrame({"n": [1, 2, 3]})
    results = ResultLog(tmp_path)
    results.append(4, {"a": rows, "b": rows}, {"a": 1})
    path = tmp_path / "results" / f"{4:012d}.arrow"
    for former, a in ((False, [3]), (True, [1, 2, 3])):
        if former:
            path.write_bytes(stream_bytes(from_stream(path.read_bytes()).drop("last")).to_pybytes())
        again = ResultLog(tmp_path)
        again.load(["a", "b"])
        latest = {name: again.latest(name) for name in "ab"}
        assert {name: one and one.rows["n"].to_list() for name, one in latest.items()} == {
            "a": a,
            "b": [1, 2, 3],
        }
