"""Generated call records: their lines, the lives of their callers, and the impossible ones."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.errors import UserError
from penstock.logs import CallLog, FileLog, Span
from penstock.logs.calls import COLUMNS
from penstock.testing.log_contract import read_all, whole

LINE = re.compile(
    r"346\d{8},346\d{8},\d{16},\d{16},(?P<district>\d+),[34]\d\.\d{5},-?\d\.\d{5},(?P<emitted>\d{16})"
)
SECOND = 1_000_000
EARTH_KM = 6371.0

EXPECTED = (
    b"34686757243,34672874070,1767225380693174,1767225598693174,257,41.48494,2.20297,1767225599589367\n"
)


def table(log: CallLog) -> pl.DataFrame:
    """Return all records in the order of the partitions, read by Polars."""
    text = b"".join(read_all(log, whole(partition)) for partition in log.partitions({}))
    types = (pl.String, pl.String, pl.Int64, pl.Int64, pl.Int64, pl.Float64, pl.Float64, pl.Int64)
    return pl.read_csv(
        io.BytesIO(text), has_header=False, schema=dict(zip(COLUMNS, types, strict=True)), quote_char=None
    )


def bounded(total: int, **settings: object) -> CallLog:
    return CallLog(total=total, live=False, **({"rate": 1_000, "partitions": 1} | settings))  # type: ignore[arg-type]


def test_lines_are_comma_separated_values_in_the_order_of_the_columns() -> None:
    lines = read_all(bounded(3_000), Span("p0", 0, 3_000)).decode().splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert len(lines) == 3_000
    assert all(found)
    assert {len(line.split(",")) for line in lines} == {len(COLUMNS)}


def test_a_line_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert read_all(CallLog(total=100, live=False, seed=7), Span("p1", 17, 18)) == EXPECTED


def test_a_span_may_start_anywhere_also_after_an_impossible_call() -> None:
    log = bounded(20_000, impossible=0.2)
    everything = read_all(log, Span("p0", 0, 20_000)).splitlines(keepends=True)
    for start, end in ((0, 1), (8_191, 8_193), (12_345, 19_999)):
        assert read_all(log, Span("p0", start, end)) == b"".join(everything[start:end])


def test_seeds_and_partitions_differ() -> None:
    texts = {
        read_all(CallLog(total=100, live=False, seed=seed), Span(partition, 0, 50))
        for seed in (1, 2)
        for partition in ("p0", "p1")
    }
    assert len(texts) == 4


def test_calls_end_before_they_are_emitted_and_take_whole_seconds() -> None:
    calls = table(bounded(20_000, call_seconds=100))
    assert calls.select((pl.col("ts") - pl.col("end")).is_between(0, 2 * SECOND).all()).item()
    durations = calls.select(duration=pl.col("end") - pl.col("start"))["duration"]
    assert (durations % SECOND == 0).all()
    seconds = durations.to_numpy() / SECOND
    assert seconds.min() >= 1
    assert seconds.max() <= 201
    assert 98 < seconds.mean() < 103
    assert 0.25 < seconds.std() / seconds.mean() < 0.33  # as in recorded calls


@pytest.mark.parametrize("disorder", [0.0, 1.0, 3.5])
def test_emission_times_are_in_order_but_for_the_jitter(disorder: float) -> None:
    emitted = table(bounded(5_000, disorder_seconds=disorder))["ts"].to_numpy()
    behind = (np.maximum.accumulate(emitted) - emitted) / SECOND
    assert behind.max() <= disorder
    assert (behind.max() == 0) == (disorder == 0)


def test_callers_and_districts_follow_power_laws_and_nobody_calls_himself() -> None:
    calls = table(bounded(100_000, callers=10_000, districts=100))
    assert calls.filter(pl.col("src") == pl.col("dst")).is_empty()
    for side in ("src", "dst"):
        counts = calls[side].value_counts(sort=True)["count"].to_numpy()
        assert counts.size > 9_000
        # the weight of rank r is r ** -0.5; their sum for 10,000 ranks is about 198.5
        assert abs(counts[0] / 100_000 - 1 / 198.5) < 0.001
    assert set(calls["district"]) == set(range(1, 101))
    assert calls["district"].value_counts(sort=True)["count"][0] > 5_000


def test_callers_stay_near_one_place_of_their_district_unless_the_call_is_impossible() -> None:
    calls = table(bounded(50_000, callers=2_000, impossible=0.0))
    stay = calls.group_by("src").agg(
        pl.col("district").n_unique(),
        pl.col("lat").max() - pl.col("lat").min(),
        pl.col("lon").max() - pl.col("lon").min(),
    )
    assert (stay["district"] == 1).all()
    assert stay["lat"].max() < 0.005  # type: ignore[operator] # about 400 metres
    assert stay["lon"].max() < 0.005  # type: ignore[operator]
    apart = calls.group_by("district").agg(pl.col("lat", "lon").max() - pl.col("lat", "lon").min())
    assert apart["lat"].max() < 0.05  # type: ignore[operator] # about 5 kilometres


def test_an_impossible_call_follows_one_of_the_same_caller_too_fast_for_any_traveller() -> None:
    possible = table(bounded(100_000, callers=5_000, impossible=0.0))
    home = possible.group_by("src").agg(pl.col("district").first().alias("home"))
    calls = table(bounded(50_000, callers=5_000, impossible=0.01)).with_row_index()
    odd = calls.join(home, on="src").filter(pl.col("district") != pl.col("home"))
    assert 280 < odd.height < 420  # 1 in 100, but in the first half minute there may be no one to follow
    pairs = odd.join(calls, on="src", suffix="_before").filter(
        pl.col("index_before") < pl.col("index"),
        (pl.col("ts") - pl.col("ts_before")).is_between(0, 31 * SECOND),
    )
    assert pairs["index"].n_unique() > 0.98 * odd.height
    fast = pairs.filter(pl.col("district") != pl.col("district_before")).select(
        km=EARTH_KM * (pl.col("lat") - pl.col("lat_before")).abs().radians(),
        hours=(pl.col("ts") - pl.col("ts_before")) / 3.6e9,
    )
    assert fast.filter(pl.col("km") > 1_000 * pl.col("hours")).height > 0.95 * fast.height


def test_the_decoder_of_call_lines_reads_them(tmp_path: Path) -> None:
    log = bounded(1_000)
    (path,) = log.materialise(tmp_path)
    assert path.name == "calls-p0.log"
    files = FileLog(str(path), finished=True)
    (chunk,) = files.read(whole(files.partitions({})[0]))
    decoded = ps.call_lines().decode(chunk, COLUMNS)
    assert decoded.bad.is_empty()
    instants = pl.col("start", "end", "ts").cast(pl.Datetime("us", "UTC"))
    plain = table(log).with_columns(instants, pl.col("district").cast(pl.Int32))
    assert decoded.good.drop("_row").equals(plain)


def test_impossible_settings_are_refused() -> None:
    for settings in (
        {"callers": 1},
        {"districts": 0},
        {"impossible": 2.0},
        {"disorder_seconds": -1.0},
        {"rate": 0},
        {"partitions": 0},
        {"total": None},
    ):
        with pytest.raises(UserError) as error:
            bounded(**({"total": 10} | settings))
        assert error.value.condition == "BAD_GENERATED_LOG"
    assert "call records" in ps.call_records().describe()
