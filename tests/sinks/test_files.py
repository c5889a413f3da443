"""The file sinks: names, owners, drafts and disks that refuse."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from penstock.errors import ExternalError, UserError
from penstock.sinks import JsonLines, Parquet, jsonl, parquet

SCHEMA: dict[str, pl.DataType] = {"page": pl.String(), "visits": pl.Int64()}
ROWS = pl.DataFrame({"page": ["/a", "/b"], "visits": [3, 1]})


def opened(directory: Path, job: str = "job") -> JsonLines:
    sink = jsonl(directory)
    sink.open(job, SCHEMA)
    return sink


def visible(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_making_a_sink_touches_nothing(tmp_path: Path) -> None:
    jsonl(tmp_path / "out")
    parquet(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_epoch_is_a_file_named_after_it(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write(12, ROWS)
    assert visible(tmp_path) == ["epoch-000000000012.jsonl"]
    assert (tmp_path / "epoch-000000000012.jsonl").read_text() == (
        '{"page":"/a","visits":3}\n{"page":"/b","visits":1}\n'
    )


def test_columns_come_in_the_order_of_the_schema(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write(0, ROWS.select("visits", "page"))
    assert list(json.loads((tmp_path / "epoch-000000000000.jsonl").read_text().splitlines()[0])) == list(
        SCHEMA
    )


def test_an_epoch_without_rows_leaves_no_file(tmp_path: Path) -> None:
    opened(tmp_path).write(0, ROWS.clear())
    assert visible(tmp_path) == []


def test_reading_tells_each_rows_epoch(tmp_path: Path) -> None:
    for sink in (jsonl(tmp_path / "lines"), parquet(tmp_path / "columns")):
        assert sink.read().is_empty()
        sink.open("job", SCHEMA)
        sink.write(3, ROWS)
        sink.write(11, ROWS.head(1))
        assert sink.read().rows() == [(3, "/a", 3), (3, "/b", 1), (11, "/a", 3)]
        assert sink.epochs() == [3, 11]


def test_a_column_that_is_null_in_one_epoch_keeps_its_type_in_the_whole(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write(0, ROWS.with_columns(visits=pl.lit(None, pl.Int64)))
    sink.write(1, ROWS)
    assert sink.read()["visits"].to_list() == [None, None, 3, 1]


def test_opening_removes_the_drafts_of_a_crashed_writer(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / ".epoch-000000000007.jsonl.tmp").write_text('{"page":"/h')
    sink = opened(tmp_path)
    assert not list(tmp_path.glob("*.tmp"))
    assert not list(tmp_path.glob(".*.tmp"))
    assert sink.write(7, ROWS)


def test_another_jobs_directory_is_refused(tmp_path: Path) -> None:
    opened(tmp_path, "first")
    with pytest.raises(UserError) as caught:
        opened(tmp_path, "second")
    assert caught.value.condition == "SINK_TAKEN"
    assert "'first'" in str(caught.value)
    opened(tmp_path, "first")


def test_epoch_files_of_unknown_origin_are_not_taken_over(tmp_path: Path) -> None:
    opened(tmp_path).write(0, ROWS)
    (tmp_path / ".penstock-job").unlink()
    with pytest.raises(UserError) as caught:
        opened(tmp_path)
    assert caught.value.condition == "SINK_TAKEN"


def test_one_job_may_write_both_formats_side_by_side(tmp_path: Path) -> None:
    lines, columns = jsonl(tmp_path), parquet(tmp_path)
    for sink in (lines, columns):
        sink.open("job", SCHEMA)
        assert sink.write(0, ROWS)
    assert visible(tmp_path) == ["epoch-000000000000.jsonl", "epoch-000000000000.parquet"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("kind", [JsonLines, Parquet])
def test_no_space_left_is_said_and_nothing_is_visible(
    tmp_path: Path, kind: type[JsonLines] | type[Parquet]
) -> None:
    sink = kind(tmp_path)
    sink.open("job", SCHEMA)
    (tmp_path / f".epoch-000000000000{kind.suffix}.tmp").symlink_to("/dev/full")
    with pytest.raises(ExternalError) as caught:
        sink.write(0, ROWS)
    assert caught.value.condition == "SINK_UNWRITABLE"
    assert "No space left" in str(caught.value)
    assert visible(tmp_path) == []
    assert sink.write(0, ROWS), "the draft is gone, so the next try has a free way"


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExternalError) as caught:
        opened(tmp_path / "file" / "out")
    assert caught.value.condition == "SINK_UNWRITABLE"


def test_times_without_a_zone_are_utc_and_end_in_z(tmp_path: Path) -> None:
    sink = jsonl(tmp_path)
    sink.open("job", {"naive": pl.Datetime("us"), "tokyo": pl.Datetime("us", "Asia/Tokyo")})
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    rows = pl.DataFrame({"naive": [moment.replace(tzinfo=None)], "tokyo": [moment]}).with_columns(
        pl.col("tokyo").dt.convert_time_zone("Asia/Tokyo")
    )
    sink.write(0, rows)
    assert sink.read().row(0) == (0, "2024-05-01T12:00:00.000000Z", "2024-05-01T12:00:00.000000Z")
