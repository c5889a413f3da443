"""The decoders on real logs. Skipped where the folder with the shared data is absent."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from penstock.decode import Delimited, JsonLines, combined_log
from tests.decode.exactly_once import decode, reasons

DATA = Path(__file__).parents[2].parent / "shared" / "data"
pytestmark = [
    pytest.mark.may_skip("the real data"),
    pytest.mark.skipif(not DATA.is_dir(), reason="the real data, ../shared/data, is not on this machine"),
]
UTC = pl.Datetime("us", "UTC")
Columns = dict[str, pl.DataType | type[pl.DataType]]


def read(name: str) -> bytes:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not among the real data")
    return gzip.decompress(path.read_bytes())


def test_an_apache_log() -> None:
    decoded = decode(combined_log(), read("access_apache_combined.log.gz"))
    assert decoded.good.height + decoded.bad.height == 10_000
    assert reasons(decoded) == {8_898: "expected 6 quotes, found 5"}
    assert decoded.good["path"].null_count() == 0
    assert decoded.good["status"].value_counts(sort=True)["status"].to_list()[:2] == [200, 304]


@pytest.mark.parametrize("day", ["nasa_19950701.tsv.gz", "nasa_19950801.tsv.gz"])
def test_the_nasa_logs(day: str) -> None:
    names: Columns = {
        "host": pl.String,
        "logname": pl.String,
        "time": UTC,
        "method": pl.String,
        "url": pl.String,
    }
    numbers: Columns = {"response": pl.Int32, "bytes": pl.Int64, "referer": pl.String, "agent": pl.String}
    decoder = Delimited(
        {**names, **numbers},
        "\t",
        None,
        has_header=True,
        times={"time": "s"},
        null_values=("-", ""),
        encoding="latin-1",
    )
    decoded = decode(decoder, read(day))
    assert decoded.good.height == 9_999
    assert decoded.bad.height == 0
    assert decoded.good["time"].dt.year().unique().to_list() == [1995]


@pytest.mark.slow
def test_shop_invoices() -> None:
    columns: Columns = {
        "InvoiceNo": pl.String,
        "StockCode": pl.String,
        "Description": pl.String,
        "Quantity": pl.Int64,
    }
    more: Columns = {
        "InvoiceDate": UTC,
        "UnitPrice": pl.Float64,
        "CustomerID": pl.Float64,
        "Country": pl.String,
    }
    times = {"InvoiceDate": "%Y-%m-%d %H:%M:%S"}
    decoded = decode(
        Delimited({**columns, **more}, has_header=True, times=times), read("online_retail.csv.gz")
    )
    assert (decoded.good.height, reasons(decoded)) == (541_909, {})
    assert decoded.good["Quantity"].min() == -80_995


def test_taxi_trips() -> None:
    texts: Columns = {
        "taxi": pl.String,
        "license": pl.String,
        "pickup": UTC,
        "dropoff": UTC,
        "seconds": pl.Int64,
    }
    floats: Columns = dict.fromkeys(["miles", "x0", "y0", "x1", "y1"], pl.Float64)
    money: Columns = dict.fromkeys(["fare", "surcharge", "tax", "tip", "tolls", "total"], pl.Float64)
    decoded = decode(
        Delimited({**texts, **floats, "paid": pl.String, **money}), read("taxi_trips_2013-01-01.csv.gz")
    )
    assert (decoded.good.height, reasons(decoded)) == (10_004, {})
    assert decoded.good["dropoff"].is_sorted()


def test_call_records() -> None:
    columns: Columns = {
        "id": pl.Int64,
        "from": pl.Int64,
        "to": pl.Int64,
        "at": UTC,
        "seconds": pl.Int64,
        "tower": pl.Int64,
    }
    decoder = Delimited(columns, has_header=True, times={"at": "%m/%d/%Y %H:%M"})
    decoded = decode(decoder, read("call_records.csv.gz"))
    assert (decoded.good.height, reasons(decoded)) == (9_834, {})


def test_wikipedia_edits() -> None:
    decoder = JsonLines(
        {"time": UTC, "channel": pl.String, "page": pl.String, "delta": pl.Int64, "isRobot": pl.Boolean}
    )
    decoded = decode(decoder, read("wiki_edits_2015-09-12.json.gz"))
    assert (decoded.good.height, reasons(decoded)) == (39_244, {})
    assert decoded.good["time"].dt.date().n_unique() == 1
