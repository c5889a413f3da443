"""Results are the same when agents reduce: for any history, however it is cut into steps, epochs and slices, and
after the agent was killed."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.catalogue.agent_reduction import compile_reducer, compile_reduction
from penstock.decode.partials import Partials, pack_column, unpack_column
from penstock.errors import UserError
from penstock.ingest.frames import Frame
from penstock.ingest.reducing import Reducing
from penstock.ingest.spool import Spool
from penstock.ingest.store import Store
from penstock.logs.contract import Chunk
from penstock.query.reducer import Reducer
from penstock.query.reduction_plan import Reduction, plan_reduction
from penstock.testing.inline import run_inline
from tests.ingest.processes import Processes, Running, until
from tests.operators.harness import (
    BUCKETS,
    STRAIGHT,
    CutLog,
    Cutting,
    History,
    cuttings,
    events_stream,
    fast_directory,
    histories,
    in_any_order,
    modestly,
    run_app,
)

ALL = (
    ps.count(),
    ps.sum_("n"),
    ps.min_("n"),
    ps.max_("n"),
    ps.avg("n"),
    ps.sum_("x"),
    ps.min_("x"),
    ps.max_("x"),
    ps.avg("x"),
    ps.max_("page"),
    ps.count_of("x", "many_x"),
    ps.stddev("x", "spread"),
)


def jobs(events: ps.Stream) -> ps.App:
    """Four jobs over one stream: windows of all kinds, with and without keys, filters and operators after them."""
    some = events.filter(ps.col("n") > 0).map(twice=ps.col("n") * 2)
    return ps.app(
        "jobs",
        ps.output("tumbling", events.key_by("user", "page").window("5s").aggregate(*ALL)),
        ps.output(
            "hopping", some.key_by("page").window("6s", every="4s").aggregate(ps.sum_("twice"), ps.count())
        ),
        ps.output("gaps", events.key_by("x").window("2s", every="5s").count().filter(ps.col("count") > 1)),
        ps.output("often", events.key_by("user").window("10s").emit(every="3s").aggregate(ps.avg("n"))),
        ps.output("running", some.key_by("user").running(every="4s").aggregate(ps.count(), ps.max_("x"))),
        ps.output("best", events.key_by("page").window("5s").count().top(2, by="count")),
    )


def reduce_lines(reducer: Reducer, lines: Sequence[str], steps: Sequence[int]) -> list[str]:
    """Return what an agent reduces lines to, `steps` many lines at a time."""
    output, highest, position, step = b"", None, 0, 0
    while position < len(lines):
        count = max(steps[step % len(steps)], 1)
        data = "".join(f"{line}\n" for line in lines[position : position + count]).encode()
        part, highest = reducer(data, highest, 10**16)
        output += part
        position, step = position + count, step + 1
    return output.decode().splitlines()


def reduced_app(reduction: Reduction, history: History, steps: Sequence[int], cutting: Cutting) -> ps.App:
    """Return the application over a history that agents have reduced, one agent per partition."""
    lines = {
        f"p{position}": reduce_lines(Reducer(reduction), [event.line() for event in part], steps)
        for position, part in enumerate(history.partitions)
    }
    ends = {f"p{position}": places for position, places in enumerate(cutting.ends)}
    stream = replace(reduction.source.stream, log=CutLog(lines, ends))
    return replace(reduction, source=replace(reduction.source, stream=stream)).engine_app()


@pytest.mark.slow
@modestly
@given(histories(), st.lists(st.integers(1, 9), min_size=1), cuttings())
def test_results_are_the_same_straight_cut_and_resumed(
    history: History, steps: list[int], cutting: Cutting
) -> None:
    app = jobs(events_stream(history))
    reduction = plan_reduction(app, "events")
    assert len(reduction.cuts) == 6
    expected = {name: in_any_order(rows) for name, rows in run_app(app).items()}
    straight = run_app(reduced_app(reduction, history, [10**6], STRAIGHT))
    assert {name: in_any_order(rows) for name, rows in straight.items()} == expected
    cut = run_app(reduced_app(reduction, history, steps, cutting), cutting)
    assert {name: in_any_order(rows) for name, rows in cut.items()} == expected
    resumed: dict[str, list[dict[str, Any]]] = {name: [] for name in expected}
    with fast_directory() as folder:
        for epochs, slices in ((2, 1), (1, 3), (None, 2)):
            app = reduced_app(reduction, history, steps, cutting)
            for report in run_inline(app, Path(folder) / "s", slices=slices, buckets=BUCKETS, epochs=epochs):
                for name, rows in report.rows.items():
                    resumed[name] += rows.to_dicts()
    assert {name: in_any_order(rows) for name, rows in resumed.items()} == expected


def test_reduced_bytes_are_deterministic() -> None:
    """A step that is repeated after a kill must return the same bytes."""
    lines = "".join(
        json.dumps({"time": n * 1000, "user": f"u{n % 50}", "page": "/a", "n": n, "x": n / 7}) + "\n"
        for n in range(3000)
    ).encode()
    reduction = plan_reduction(jobs(events_stream(History(()))), "events")
    assert len({Reducer(reduction)(lines, None, 10**16) for _ in range(3)}) == 1


def test_undecodable_lines_and_lines_without_event_time_become_dead_letters() -> None:
    reduction = plan_reduction(jobs(events_stream(History(()))), "events")
    reduced, highest = Reducer(reduction)(b'nonsense\n{"n": 1}\n{"time": 5, "n": -1, "x": 1}\n', None, 10**16)
    assert highest == 5
    decoder = reduction.engine_app().outputs[0].node
    while decoder.inputs:
        decoder = decoder.inputs[0]
    results = decoder.stream.decoder.decode(Chunk("p", 0, reduced), ["t", "c"])  # type: ignore[attr-defined]
    assert results.bad["raw"].to_list() == ["nonsense", '{"n": 1}']
    assert "no event time" in results.bad["reason"][1]
    strange = Partials("another", {}).decode(Chunk("p", 0, reduced), ["t"])
    assert strange.good.height == 0
    assert "another plan reduced it" in strange.bad["reason"][0]


def test_floats_travel_to_the_last_bit() -> None:
    values = [0.1, -0.0, float("inf"), float("-inf"), 5e-324, None, 1e308]
    for dtype in (pl.Float64(), pl.Float32()):
        column = pl.Series("x", values, dtype)
        back = unpack_column(pack_column(column), dtype)
        assert back.to_list() == column.to_list()
        assert str(back[1]) == "-0.0"
    assert unpack_column(pack_column(pl.Series("x", [float("nan")])), pl.Float64()).is_nan().all()


@modestly
@given(
    st.lists(
        st.binary(max_size=60) | st.sampled_from([b'{"time": 7}', b'{"time": 1e30}', b"{", b"\xff"]),
        max_size=8,
    )
)
def test_any_bytes_are_reduced_or_become_dead_letters(lines: list[bytes]) -> None:
    """Neither agent nor engine raises, whatever bytes a log holds."""
    reduction = plan_reduction(jobs(events_stream(History(()))), "events")
    data = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    reduced, _ = Reducer(reduction)(data, None, 10**16)
    decoder = Partials(
        reduction.plan, {cut.names[n]: t for cut in reduction.cuts for n, t in cut.types.items()}
    )
    for arrived in (reduced, data, reduced[: len(reduced) // 2]):
        results = decoder.decode(Chunk("p", 0, arrived), list(decoder.schema()))
        assert results.good.height + results.bad.height <= arrived.count(b"\n") + 1
    assert decoder.decode(Chunk("p", 0, reduced), ["t"]).bad["reason"].str.contains("plan").sum() == 0


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (lambda e: e, "emits the events themselves"),
        (lambda e: e.filter(ps.col("n") > 1), "emits the events themselves"),
        (lambda e: e.key_by("user").last(3, "page"), "needs the events themselves"),
        (lambda e: e.late().key_by("user").window("5s").count(), "needs the events themselves"),
        (lambda e: e.key_by("user").window("5s").aggregate(ps.first("n")), "the order of events"),
        (lambda e: e.key_by("user").window("5s").aggregate(ps.median("n")), "grow with the events"),
        (
            lambda e: e.key_by("user").window("5s").aggregate(ps.count_distinct("page")),
            "grow with the events",
        ),
        (lambda e: e.key_by("user").window("5s").emit("change").count(), "needs the events themselves"),
        (lambda e: e.union(e).key_by("user").window("5s").count(), "needs the events themselves"),
    ],
)
def test_a_query_that_needs_the_events_is_refused_with_the_reason(query: Any, reason: str) -> None:
    app = ps.app("app", ps.output("out", query(events_stream(History(())))))
    with pytest.raises(UserError, match=reason) as refused:
        plan_reduction(app, "events")
    assert refused.value.condition == "NOT_REDUCIBLE"
    with pytest.raises(UserError, match="nothing reads"):
        plan_reduction(app, "other")


# -- the agent ------------------------------------------------------------------------------------


class _Counted:
    """A reducer that names the first and last line: enough to see which were reduced, and how often."""

    plan = "counted"

    def __call__(self, lines: bytes, highest: int | None, clock: int) -> tuple[bytes, int | None]:
        first, last = lines.split(b"\n")[0], lines.split(b"\n")[-2]
        return b"%s to %s\n" % (first, last), (highest or 0) + lines.count(b"\n")


class _Torn(Spool):
    """A spool whose process is killed after `left` bytes of an append."""

    left = -1

    def append(self, data: bytes) -> None:
        if self.left >= 0:
            super().append(data[: self.left])
            raise KeyboardInterrupt
        super().append(data)


def _reducing(folder: Path, lines: Spool, reduction: Spool) -> Reducing:
    stop = threading.Event()
    return Reducing(
        lines,
        reduction,
        _Counted(),
        most_bytes=1 << 20,
        linger_seconds=0.001,
        finished=lambda: True,
        stop=stop,
    )


@pytest.mark.parametrize("left", [0, 1, 5, 11, 12])
def test_a_step_killed_anywhere_is_finished_by_the_next_start(tmp_path: Path, left: int) -> None:
    lines, reduction = Spool(tmp_path / "lines", file_bytes=64), _Torn(tmp_path / "made", file_bytes=64)
    lines.append(b"".join(b"%03d\n" % n for n in range(10)))
    reducing = _reducing(tmp_path, lines, reduction)
    assert reducing.step()
    lines.append(b"".join(b"%03d\n" % n for n in range(10, 40)))
    reduction.left = left
    with pytest.raises(KeyboardInterrupt):
        reducing.step()
    lines.close()
    reduction.close()
    lines, again = Spool(tmp_path / "lines", file_bytes=64), Spool(tmp_path / "made", file_bytes=64)
    reducing = _reducing(tmp_path, lines, again)
    lines.append(b"040\n")
    reducing.run()
    results = again.lines(0)
    assert results == (0, b"000 to 009\n010 to 039\n040 to 040\n")
    assert lines.first > 0
    assert not reducing.step()


SQL = """
CREATE STREAM clicks FROM segments('{log}', finished => TRUE)
    FORMAT json(at TIMESTAMP, page STRING, bytes BIGINT) EVENT TIME at LATENESS 2 SECONDS;
CREATE JOB pages AS SELECT page, COUNT(*) AS n, AVG(bytes) AS size FROM clicks
    WHERE bytes > 10 GROUP BY page WINDOWING 5 SECONDS;
CREATE JOB most AS SELECT MAX(bytes) AS most FROM clicks GROUP BY HOP(at, INTERVAL '5' SECOND, INTERVAL '10' SECOND);
"""


def _click_lines(agent: int, count: int) -> list[bytes]:
    dice = random.Random(agent)
    lines = []
    for n in range(count):
        second = n // 40 - dice.choice([0, 0, 0, 1, 1, 5])
        at = f"2026-03-01T12:{max(second, 0) // 60:02}:{max(second, 0) % 60:02}Z"
        lines.append(json.dumps({"at": at, "page": f"/{n % 7}", "bytes": dice.randrange(100)}).encode())
    return lines


def _rows(app: ps.App, state: Path) -> dict[str, list[str]]:
    results: dict[str, list[Any]] = {}
    for report in run_inline(app, state, epoch_units=20_000):
        for name, rows in report.rows.items():
            results.setdefault(name, []).extend(rows.to_dicts())
    return {name: in_any_order(rows) for name, rows in results.items()}


def _write_raw_log(directory: Path, sent: dict[str, list[bytes]]) -> None:
    """Write the lines unreduced, one partition for each agent."""
    store = Store(directory, partitions=len(sent))
    for agent, lines in sent.items():
        store.append([Frame.of(agent, 0, b"".join(line + b"\n" for line in lines))])
    store.close()


def test_an_agent_that_is_killed_reduces_every_line_once(processes: Processes, tmp_path: Path) -> None:
    processes.gateway("--partitions", 4)
    file = tmp_path / "jobs.sql"
    file.write_text(SQL.format(log=processes.log / "clicks"))
    sent = {"killed": _click_lines(1, 8_000), "calm": _click_lines(2, 8_000)}
    _write_raw_log(tmp_path / "raw", sent)

    def agent(name: str, *more: object) -> Running:
        how = ("--stream", "clicks", "--tail", tmp_path / name, "--spool", tmp_path / f"{name}-spool")
        return processes.agent(*how, "--reduce", file, *more)

    (tmp_path / "killed").touch()
    with (tmp_path / "killed").open("ab", buffering=0) as out:
        for part in range(2):
            running = agent("killed")
            out.write(b"\n".join(sent["killed"][part * 3_000 : (part + 1) * 3_000]) + b"\n")
            until(lambda running=running: running.reports("connected"), 60, "connected")
            running.kill()
        out.write(b"\n".join(sent["killed"][6_000:]) + b"\n")
    (tmp_path / "calm").write_bytes(b"\n".join(sent["calm"]) + b"\n")
    for name in sent:
        last = agent(name, "--once", "--drain", "60s")
        assert last.wait(90) == 0, last.text()
        (ended,) = last.reports("ended")
        assert ended["unacknowledged_bytes"] == 0
    assert sum(map(len, processes.lines("clicks"))) < sum(map(len, sent["calm"]))
    expected = _rows(
        compile_reduction(SQL.format(log=tmp_path / "raw"), "clicks").app, tmp_path / "raw-state"
    )
    results = _rows(compile_reduction(file.read_text(), "clicks").engine_app(), tmp_path / "state")
    assert results == expected
    assert sum(len(rows) for rows in expected.values()) > 100


def test_a_plan_depends_on_the_jobs_and_not_on_the_log(tmp_path: Path) -> None:
    reduction = compile_reducer(SQL.format(log="nowhere"), "clicks")
    assert reduction.plan == compile_reducer(SQL.format(log="elsewhere"), "clicks").plan
    assert reduction.plan != compile_reducer(SQL.replace("> 10", "> 11"), "clicks").plan
    assert re.fullmatch("[0-9a-f]{12}", reduction.plan)
    with pytest.raises(UserError, match="creates streams and jobs"):
        compile_reducer(SQL + "DROP JOB most;", "clicks")
    with pytest.raises(UserError, match="no job"):
        compile_reducer(SQL.split(";")[0], "clicks")


def test_a_spool_cannot_change_between_raw_and_reduced(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "jobs.sql"
    file.write_text(SQL)
    spool = ("--spool", tmp_path / "spool", "--stream", "clicks", "--drain", "0s")
    assert processes.agent(*spool).wait() == 0
    refused = processes.agent(*spool, "--reduce", file)
    assert refused.wait() == 2
    assert "SPOOL_OF_ANOTHER_KIND" in refused.text()
    missing = processes.agent(*spool, "--reduce", tmp_path / "none.sql")
    assert missing.wait() == 2
    assert "FILE_UNREADABLE" in missing.text()
