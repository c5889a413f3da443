"""Queries read segment logs with the same results however epochs are cut; engines release what they have read."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.catalogue.program_of import program_of
from penstock.engine.state_location import state_location
from penstock.epoch.execution import SkippedSpan, newly_skipped, returned_spans
from penstock.epoch.runner import EpochReport, EpochRunner, RunnerSettings, Shape
from penstock.epoch.stages import LocalStages
from penstock.errors import UserError
from penstock.ingest.frames import Frame
from penstock.ingest.readers import read_floors
from penstock.ingest.segment_log import SegmentLog
from penstock.ingest.store import Store
from penstock.sql.connectors import build_stream
from penstock.sql.parse import parse
from penstock.sql.statements import CreateStream
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import Offset
from penstock.testing.inline import run_inline

COLUMNS = {"at": ps.Datetime("us", "UTC"), "shop": ps.String, "v": ps.Int64}


def fill(directory: Path, first: int, count: int) -> None:
    """Append sales of three shops, one producer each, one group per minute."""
    store = Store(directory, partitions=3, segment_bytes=600)
    for minute in range(first, first + count):
        for shop in "abc":
            data = b"".join(
                b"2026-03-01T10:%02d:%02d,%s,%d\n" % (minute, s, shop.encode(), s) for s in (0, 20, 40)
            )
            store.take(Frame.of(shop, store.expected(shop), data), now=minute)
        store.commit()
    store.close()


def totals(log: SegmentLog) -> ps.App:
    sales = ps.stream("sales", log, ps.Delimited(COLUMNS), time="at")
    return ps.app(
        "shops", ps.output("totals", sales.key_by("shop").window("5m").aggregate(ps.sum_("v", "total")))
    )


def _rows(report: EpochReport) -> list[tuple[object, ...]]:
    return report.rows["totals"].rows() if "totals" in report.rows else []


@pytest.mark.slow
def test_results_are_the_same_however_epochs_are_cut(tmp_path: Path) -> None:
    fill(tmp_path / "log", 0, 20)
    results = []
    for cut_bytes in (1 << 40, 200, 1):
        reports = run_inline(
            totals(ps.segments(tmp_path / "log", finished=True)),
            tmp_path / f"state{cut_bytes}",
            epoch_units=cut_bytes,
        )
        assert sum(report.events for report in reports) == 180
        results.append(sorted(row for report in reports for row in _rows(report)))
    assert results[0] == results[1] == results[2]
    assert [row[-1] for row in results[0]] == [300] * 12


def test_a_stream_declared_in_sql_reads_a_segment_log(tmp_path: Path) -> None:
    fill(tmp_path / "log", 0, 2)
    (statement,) = parse(
        f"CREATE STREAM s FROM segments('{tmp_path}/log', finished => TRUE) "
        "FORMAT csv(at TIMESTAMP, shop STRING, v INT) EVENT TIME at"
    )
    assert isinstance(statement, CreateStream)
    (report,) = run_inline(ps.app("all", ps.output("all", build_stream(statement))), tmp_path / "state")
    assert report.events == 18
    (statement,) = parse("CREATE STREAM s FROM segments() FORMAT combined_log EVENT TIME time")
    assert isinstance(statement, CreateStream)
    with pytest.raises(UserError, match="It takes directory"):
        build_stream(statement)


def test_an_engine_releases_segments_that_it_will_not_read_again(tmp_path: Path) -> None:
    """The spans that a rollback to the oldest retained manifest would read are still needed."""
    fill(tmp_path / "log", 0, 20)
    app = totals(ps.segments(tmp_path / "log"))
    run_inline(app, tmp_path / "state", epoch_units=200, epochs=12)
    assert read_floors(tmp_path / "log") == {}  # a reader that has released nothing
    directory = StateDirectory(tmp_path / "state")
    program = program_of(app, tmp_path / "state")
    settings = RunnerSettings(Shape(1, 1, 64), state_location(directory, None, 0))
    runner = EpochRunner(LocalStages(), program, directory, settings)
    runner.remove_old_state(3)
    reached = directory.records.read_end(directory.manifests.epochs()[0])
    assert reached is not None
    assert read_floors(tmp_path / "log") == reached.at["sales"]


@pytest.mark.parametrize(
    ("idle_before", "idle_now", "count"),
    [
        ([], [], 0),
        (["p0", "p1"], ["p1"], 1),
        ([], ["p1"], 1),
        (["p1"], ["p1"], 0),
        ([], ["p0", "p1"], 0),
        (["p1"], [], 0),
    ],
)
def test_a_silent_partition_is_skipped_once_and_only_if_others_continue(
    idle_before: list[str], idle_now: list[str], count: int
) -> None:
    at = {"clicks": {"p0": 10, "p1": 10}}
    start, end = (Offset(at=at, idle={"clicks": tuple(idle)}) for idle in (idle_before, idle_now))
    assert len(newly_skipped(start, end)) == count


def test_the_span_of_a_returned_straggler_is_reported() -> None:
    start = Offset(at={"clicks": {"p0": 10, "p1": 10}}, idle={"clicks": ("p1",)})
    end = Offset(at={"clicks": {"p0": 20, "p1": 17}})
    assert returned_spans(start, end) == [SkippedSpan("clicks", "p1", 10, 17)]
    assert returned_spans(start, Offset(at={"clicks": {"p0": 20, "p1": 10}})) == []
