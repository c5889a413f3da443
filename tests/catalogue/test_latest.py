"""The latest answer of a job is that of its last window, also when an epoch closes many; what was told is all kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.followed_results import FollowedResults
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.catalogue.results import Results
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
FOUND = kit.events(400)


def last_window(key: str, size: int, every: int | None = None) -> Counter[str]:
    """What the oracle counts in the window that ends last."""
    groups = kit.windows(FOUND, size, lambda event: event[key], every=every)
    last = max(start for start, _ in groups)
    return Counter({name: len(found) for (start, name), found in groups.items() if start == last})


def asked(jobs: Program, name: str) -> list[Any]:
    answer = jobs.ask(name)
    assert answer is not None
    return answer.rows.rows()


@pytest.mark.parametrize(("units", "slices"), [(1_000, 1), (1_000, 3), (40, 2)])
def test_the_latest_answer_is_of_the_last_window(tmp_path: Path, units: int, slices: int) -> None:
    with kit.running(tmp_path, kit.clicks(FOUND), SQL, epoch_units=units, slices=slices) as (jobs, engine):
        told = kit.told(list(engine.steps()))
        first = {name: asked(jobs, name) for name in ("best", "counts", "hops", "shown", "errors")}
        counts = last_window("page", 10)
        assert Counter(dict(first["counts"])) == counts
        assert len(first["counts"]) == len(counts)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]
        assert [row[-2:] if len(row) == 2 else row[:2] for row in first["best"]] == ranked
        assert Counter(dict(first["hops"])) == last_window("user", 20, 5)
        assert Counter(dict(first["shown"])) == Counter({page: n for page, n in counts.items() if n > 1})
        if units == 1_000:
            assert len(first["errors"]) > 1
            assert len(told["counts"]) > 2 * len(counts), "the epoch has closed many windows"
        for name in first:  # subscribers and pages of results have all of it
            kept = [row for answer in jobs.since(name, 0) for row in answer.rows.rows()]
            assert kept == told[name]
        alias = {name: jobs.catalogue.jobs[name].result_key for name in first}
    with kit.running(tmp_path, kit.clicks(FOUND), SQL, epoch_units=units) as (jobs, _):
        assert {name: asked(jobs, name) for name in first} == first
    followed = FollowedResults(tmp_path)
    followed.load(alias.values())
    for name, told_as in alias.items():
        answer = followed.latest(told_as)
        assert answer is not None
        assert answer.rows.rows() == first[name]
        everything = followed.of(told_as, answer.epoch)
        assert everything is not None
        assert everything.rows()[-len(first[name]) :] == first[name]


def test_an_output_of_an_app_answers_so_too(tmp_path: Path) -> None:
    counts = kit.clicks(FOUND).key_by("page").window("10s").count()
    program = program_of(ps.app("counted", ps.output("counts", counts)), tmp_path, keeps_results=True)
    engine = InlineEngine(program, tmp_path, epoch_units=1_000)
    try:
        list(engine.steps())
        answer = program.ask("counts")
    finally:
        engine.close()
    assert answer is not None
    assert dict(answer.rows.select("page", "count").rows()) == dict(last_window("page", 10))


def test_files_that_do_not_say_so_mean_all_rows(tmp_path: Path) -> None:
    rows = pl.DataFrame({"n": [1, 2, 3]})
    results = Results(tmp_path)
    results.put(4, {"a": rows, "b": rows}, {"a": 1})
    path = tmp_path / "results" / f"{4:012d}.arrow"
    for before, a in ((False, [3]), (True, [1, 2, 3])):
        if before:
            path.write_bytes(stream_bytes(from_stream(path.read_bytes()).drop("last")).to_pybytes())
        again = Results(tmp_path)
        again.load(["a", "b"])
        found = {name: again.latest(name) for name in "ab"}
        assert {name: one and one.rows["n"].to_list() for name, one in found.items()} == {
            "a": a,
            "b": [1, 2, 3],
        }
