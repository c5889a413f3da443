"""What `import penstock as ps` gives: every public name, from where it is defined."""

from polars import Boolean, Date, Datetime, Float64, Int32, Int64, String, col, lit

from penstock.catalogue.jobs_app import jobs_app
from penstock.decode import Cookie, Delimited, Pattern, call_lines, combined_log
from penstock.decode import JsonLines as json_lines
from penstock.ingest.producer_log import ProducerLog as segments_by_producer
from penstock.ingest.segment_log import SegmentLog as segments
from penstock.logs import CallLog as call_records
from penstock.logs import FileLog as files
from penstock.logs import GeneratedLog as generated
from penstock.logs import KafkaLog as kafka
from penstock.logs import RedisLog as redis
from penstock.logs import ReplicatedLog as replicated
from penstock.operators.custom import Context, CustomOperator, Out
from penstock.operators.functions import (
    aggregate_function,
    approx_count_distinct,
    approx_quantile,
    avg,
    collect,
    count,
    count_distinct,
    count_of,
    earliest,
    first,
    last,
    latest,
    max_,
    median,
    min_,
    quantile,
    stddev,
    sum_,
    variance,
)
from penstock.operators.partitioners import by_function, by_range
from penstock.operators.pattern_steps import prev, step
from penstock.query.app import app, output
from penstock.query.jobs import job, previous
from penstock.query.logical import App
from penstock.query.stream import Stream, stream
from penstock.sinks import console, http_push, jsonl, parquet, postgres, sqlite, to_kafka, to_redis
from penstock.spark.source_log import SparkSource as spark_source

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
    "aggregate_function",
    "app",
    "approx_count_distinct",
    "approx_quantile",
    "avg",
    "call_lines",
    "by_function",
    "by_range",
    "call_records",
    "col",
    "collect",
    "combined_log",
    "console",
    "count",
    "count_distinct",
    "count_of",
    "earliest",
    "files",
    "first",
    "generated",
    "http_push",
    "job",
    "jobs_app",
    "json_lines",
    "jsonl",
    "kafka",
    "last",
    "latest",
    "lit",
    "max_",
    "median",
    "min_",
    "output",
    "parquet",
    "postgres",
    "prev",
    "previous",
    "quantile",
    "redis",
    "replicated",
    "segments",
    "segments_by_producer",
    "spark_source",
    "sqlite",
    "stddev",
    "step",
    "stream",
    "sum_",
    "to_kafka",
    "to_redis",
    "variance",
]
