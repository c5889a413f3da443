"""The state of a ranking of running totals through the life of its job: paused, resumed and reset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.query.stream import Stream
from penstock.state.continuity import Identities, drop_stale_rankings
from penstock.state.manifest import Manifest
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog
from tests.catalogue import kit

#: how many events an epoch reads
EPOCH = 10
#: the first page gets no events after the first two epochs, so its place in the ranking is state alone
PAGES = [f"/{'abcd'[n % 4 if n % 3 else 1]}" if n >= 2 * EPOCH else "/big" for n in range(12 * EPOCH)]
#: running totals in SQL, to rank
TOTALS = "SELECT page, COUNT(*) AS count FROM clicks GROUP BY page ORDER BY count DESC"


def build_program(how: str, state: Path) -> Program:
    """A job of its own, or an output of an app, that ranks the three pages with most events so far."""
    events = [
        {
            "ts": (kit.BEGIN + timedelta(seconds=n)).isoformat(),
            "page": page,
            "user": "u",
            "bytes": 1,
            "status": 200,
        }
        for n, page in enumerate(PAGES)
    ]
    stream = kit.of_log(ListLog({"p": [json.dumps(event) for event in events]}, finished=True))
    totals = stream.key_by("page").running("1s").count()
    tops: Stream = totals.top(3, by="count")
    if how == "job":
        return Program("rankings", state, streams={"clicks": stream}, queries={"tops": tops})
    others = totals if how == "shared" else stream.select("page")
    app = ps.app("rankings", ps.output("tops", tops), ps.output("others", others))
    return program_of(app, state)


def final_counts(
    how: str, state: Path, statements: Mapping[int, str], restarts: bool, name: str = "tops"
) -> list[int]:
    """The counts of a job's last ranking; `statements`: SQL by the epoch before which it is executed."""
    epoch = 0
    while True:
        program = build_program(how, state)
        engine = InlineEngine(program, state, epoch_units=EPOCH)
        try:
            while True:
                if epoch in statements:
                    program.execute(statements[epoch])
                if engine.step() is None:
                    result = program.ask(name)
                    assert result is not None
                    rows = result.rows
                    if "as_of" in rows.columns:  # a job of SQL has the columns that it selects
                        rows = rows.filter(pl.col("as_of") == pl.col("as_of").max())
                    return sorted(rows["count"], reverse=True)[:3]
                epoch += 1
                if restarts:
                    break
        finally:
            engine.close()


def expected_counts(*paused: int, since: int = 0) -> list[int]:
    """The three highest counts over the events of all epochs but some."""
    epochs = [n for n in range(since, len(PAGES) // EPOCH) if n not in paused]
    counts = Counter(page for n in epochs for page in PAGES[n * EPOCH : (n + 1) * EPOCH])
    return [count for _, count in counts.most_common(3)]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["job", "app"])
def test_a_ranking_continues_after_a_pause(how: str, restarts: bool, tmp_path: Path) -> None:
    statements = {4: "PAUSE JOB tops", 6: "RESUME JOB tops"}
    counts = final_counts(how, tmp_path, statements, restarts)
    assert counts == expected_counts(4, 5)
    assert 2 * EPOCH in counts, "the page without events since then is in the ranking only by its state"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["job", "app"])
def test_a_ranking_that_is_reset_starts_empty(how: str, restarts: bool, tmp_path: Path) -> None:
    counts = final_counts(how, tmp_path, {4: "EMPTY JOB tops"}, restarts)
    assert counts == expected_counts(since=4)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
def test_a_paused_ranking_follows_totals_that_another_output_needs(restarts: bool, tmp_path: Path) -> None:
    statements = {4: "PAUSE JOB tops", 6: "RESUME JOB tops"}
    assert final_counts("shared", tmp_path, statements, restarts) == expected_counts()


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_replaces_an_output_starts_with_an_empty_ranking(restarts: bool, tmp_path: Path) -> None:
    statements = {4: f"DROP JOB tops; CREATE JOB tops AS {TOTALS} LIMIT 3"}
    assert final_counts("app", tmp_path, statements, restarts) == expected_counts(since=4)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
def test_a_larger_ranking_has_rows_that_the_smaller_one_did_not_keep(restarts: bool, tmp_path: Path) -> None:
    statements = {0: f"CREATE JOB few AS {TOTALS} LIMIT 1", 6: f"ALTER JOB few AS {TOTALS} LIMIT 3"}
    assert final_counts("job", tmp_path, statements, restarts, name="few") == expected_counts()


def test_a_ranking_is_kept_only_for_its_own_query_and_job() -> None:
    query = Identities({"out-tops": "a"}, {}, {}, {"out-tops": frozenset({7})})
    held = Manifest(collections={"out-tops": {}, "others": {}}, last_results={"tops": "x"})
    own = replace(held, identities={"out-tops": "a"}, jobs={"out-tops": "7"})
    assert drop_stale_rankings(own, query) == own
    for other in (
        replace(own, jobs={"out-tops": "6"}),
        replace(own, jobs={}),
        replace(own, identities={"out-tops": "b"}),
    ):
        dropped = drop_stale_rankings(other, query)
        assert dropped.collections.keys() == {"others"}
        assert not dropped.last_results
    of_format_1 = drop_stale_rankings(held, query)
    assert of_format_1.collections.keys() == {"others"}
    assert of_format_1.last_results == held.last_results, (
        "a ranking that has not changed is not emitted again"
    )
