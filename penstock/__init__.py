"""Penstock: continuous queries over live event streams, on Apache Spark."""

from polars import Boolean, Date, Datetime, Float64, Int32, Int64, String, col, lit

from penstock.decode import Cookie, Delimited, Pattern, combined_log
from penstock.decode import JsonLines as json_lines
from penstock.logs import FileLog as files
from penstock.logs import GeneratedLog as generated
from penstock.operators.custom import Context, CustomOperator, Out
from penstock.operators.functions import avg, count, max_, min_, sum_
from penstock.operators.pattern_steps import prev, step
from penstock.query.app import app, output
from penstock.query.logical import App
from penstock.query.stream import Stream, stream
from penstock.sinks import console, jsonl, parquet, sqlite

__version__ = "0.1.0"

__all__ = [
    "App",
    "Boolean",
    "Context",
    "Cookie",
    "CustomOperator",
    "Date",
    "Datetime",
    "Delimited",
    "Float64",
    "Int32",
    "Int64",
    "Out",
    "Pattern",
    "Stream",
    "String",
    "app",
    "avg",
    "col",
    "combined_log",
    "console",
    "count",
    "files",
    "generated",
    "json_lines",
    "jsonl",
    "lit",
    "max_",
    "min_",
    "output",
    "parquet",
    "prev",
    "sqlite",
    "step",
    "stream",
    "sum_",
]
