"""Apache Flink, SQL with built-in functions only: no Python runs while events do.

python flink_sql.py windows INPUT OUT.json
"""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Iterator
from typing import Any

import flink_environment
from program import (
    CALL_LATENESS,
    EARTH_KM,
    JOB_WINDOW,
    JOIN_SECONDS,
    LATENCY_WINDOW,
    LATENESS,
    TOP,
    WINDOW,
    Rows,
    Task,
    main,
)
from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.local-time-zone": "UTC",
}
#: each job's operators want memory of their own
MANY = {"taskmanager.memory.network.max": "1g", "taskmanager.memory.managed.size": "4g"}
#: rows are at hand at once: with checkpoints, those that are collected wait for the next one
LIVE = {"table.exec.mini-batch.enabled": "false", "execution.checkpointing.interval": ""}


def environment(task: Task, further: dict[str, str] | None = None) -> TableEnvironment:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in flink_environment.configured(task, SETTINGS | (further or {})).items():
        made.get_config().set(key, value)
    return made


def told(task: Task, tables: TableEnvironment, columns: str) -> None:
    """A table that is written as files of comma-separated values."""
    tables.execute_sql(
        f"CREATE TABLE told ({columns}) WITH ('connector' = 'filesystem', 'path' = 'file://{task.place}/told', "
        "'format' = 'csv')"
    )


def rows_told(task: Task) -> Iterator[list[str]]:
    """What was written there."""
    for path in sorted((task.place / "told").rglob("*")):
        if path.is_file() and not path.name.startswith((".", "_")):
            with open(path, newline="") as file:
                yield from csv.reader(file)


def written(task: Task, tables: TableEnvironment, columns: str, query: str) -> Iterator[list[str]]:
    """The rows of a query by way of files."""
    told(task, tables, columns)
    flink_environment.timed(task, tables.execute_sql(f"INSERT INTO told {query}").get_job_client())
    return rows_told(task)


# begin patterns windows clients jobs latency
def clicks(task: Task, tables: TableEnvironment, folder: str = "parts", further: str = "") -> None:
    tables.execute_sql(f"""
        CREATE TABLE clicks (
            line STRING,
            host AS SPLIT_INDEX(line, ' ', 0),
            page AS SPLIT_INDEX(SPLIT_INDEX(line, '"', 1), ' ', 1),
            amount AS TRY_CAST(SPLIT_INDEX(SPLIT_INDEX(line, '"', 2), ' ', 2) AS BIGINT),
            visitor AS SUBSTRING(SPLIT_INDEX(line, '"', 7), 9),
            ts AS TO_TIMESTAMP(SUBSTRING(SPLIT_INDEX(line, '[', 1), 1, 20), 'dd/MMM/yyyy:HH:mm:ss'),
            WATERMARK FOR ts AS ts - INTERVAL '{LATENESS}' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = 'file://{task.input}/{folder}', 'format' = 'raw' {further})
    """)


# end patterns windows clients jobs latency
def seconds(column: str) -> str:
    return f"UNIX_TIMESTAMP(CAST({column} AS STRING))"


# begin patterns
def patterns(task: Task) -> Rows:
    tables = environment(task)
    clicks(task, tables)
    result = tables.execute_sql(f"""
        WITH walks AS (
            SELECT LISTAGG(page, ' > ') OVER steps AS walk, COUNT(*) OVER steps AS pages FROM clicks
            WINDOW steps AS (PARTITION BY visitor ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)),
        counts AS (SELECT walk, COUNT(*) AS n FROM walks WHERE pages = 3 GROUP BY walk)
        SELECT place, walk, n FROM (
            SELECT walk, n, ROW_NUMBER() OVER (ORDER BY n DESC, walk) AS place FROM counts)
        WHERE place <= {TOP}""")
    # end patterns
    held: dict[tuple[Any, ...], int] = {}
    with result.collect() as changes:
        for change in changes:
            away = change.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
            row = tuple(change)
            held[row] = held.get(row, 0) + (-1 if away else 1)
    flink_environment.timed(task, result.get_job_client())
    return [row for row, times in held.items() if times]


# begin windows latency
def top_pages(size: int) -> str:
    return f"""
        SELECT {seconds("window_start")}, place, page, n FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY n DESC, page) AS place
            FROM (
                SELECT window_start, window_end, page, COUNT(*) AS n
                FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '{size}' SECONDS))
                GROUP BY window_start, window_end, page))
        WHERE place <= {TOP}"""


# end windows latency
# begin windows
def windows(task: Task) -> Rows:
    tables = environment(task)
    clicks(task, tables)
    return written(task, tables, "began BIGINT, place BIGINT, page STRING, n BIGINT", top_pages(WINDOW))


# end windows
# begin clients
def clients(task: Task) -> Rows:
    tables = environment(task)
    clicks(task, tables)
    columns = "began BIGINT, host STRING, n BIGINT, first_seen BIGINT, last_seen BIGINT"
    return written(
        task,
        tables,
        columns,
        f"""SELECT {seconds("window_start")}, host, COUNT(*), {seconds("MIN(ts)")}, {seconds("MAX(ts)")}
        FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '{WINDOW}' SECONDS))
        GROUP BY window_start, window_end, host""",
    )


# end clients
# begin join
def join(task: Task) -> Rows:
    tables = environment(task)
    tables.execute_sql(f"""
        CREATE TABLE calls (
            src STRING, dst STRING, started BIGINT, ended BIGINT, district INT, lat DOUBLE, lon DOUBLE, us BIGINT,
            ts AS TO_TIMESTAMP_LTZ(us / 1000, 3),
            WATERMARK FOR ts AS ts - INTERVAL '{CALL_LATENESS}' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = 'file://{task.input}/parts', 'format' = 'csv')""")
    reach, distance = JOIN_SECONDS * 1_000_000, f"INTERVAL '{JOIN_SECONDS}' SECOND"
    north, east = "SIN(RADIANS(r.lat - l.lat) / 2)", "SIN(RADIANS(r.lon - l.lon) / 2)"
    rows = written(
        task,
        tables,
        "src STRING, started BIGINT, started_right BIGINT, km DOUBLE",
        f"""SELECT l.src, l.started, r.started, 2 * {EARTH_KM} * ASIN(SQRT(
            {north} * {north} + COS(RADIANS(l.lat)) * COS(RADIANS(r.lat)) * {east} * {east}))
        FROM calls l JOIN calls r ON l.src = r.src AND l.ts BETWEEN r.ts - {distance} AND r.ts + {distance}
            AND l.started < r.started AND r.started <= l.started + {reach}
            AND l.us - r.us <= {reach} AND r.us - l.us <= {reach}""",
    )
    # end join
    found = list(rows)
    task.extra["answer"] = {"km": round(sum(float(row[3]) for row in found))}
    return [row[:3] for row in found]


# begin jobs
def jobs(task: Task) -> Rows:
    tables = environment(task, MANY)
    clicks(task, tables)
    told(task, tables, "job INT, began BIGINT, n BIGINT, b BIGINT")
    together = tables.create_statement_set()
    for number, page in enumerate(task.pages):
        together.add_insert_sql(f"""
            INSERT INTO told
            SELECT CAST({number} AS INT), {seconds("window_start")}, COUNT(*), COALESCE(SUM(amount), 0)
            FROM TABLE(TUMBLE((SELECT * FROM clicks WHERE page = '{page}'), DESCRIPTOR(ts),
                INTERVAL '{JOB_WINDOW}' SECONDS))
            GROUP BY window_start, window_end""")
    flink_environment.timed(task, together.execute().get_job_client())
    return rows_told(task)


# end jobs
# begin latency
def latency(task: Task) -> Rows:
    tables = environment(task, LIVE)
    clicks(task, tables, "pieces", ", 'source.monitor-interval' = '100 ms'")
    result = tables.execute_sql(top_pages(LATENCY_WINDOW))
    # end latency
    arrived: dict[int, float] = {}

    def follow() -> None:
        for row in result.collect():
            arrived.setdefault(row[0], time.time())

    threading.Thread(target=follow, daemon=True).start()
    time.sleep(task.live_seconds)
    task.seconds = task.live_seconds
    told = sorted(arrived.items())
    result.get_job_client().cancel()
    return told


WORKLOADS = {name.__name__: name for name in (patterns, windows, clients, join, jobs, latency)}

if __name__ == "__main__":
    main(
        "flink-sql",
        WORKLOADS,
        ["apache-flink"],
        flink_environment.SETTINGS
        | SETTINGS
        | {
            "jobs": "4 GB managed memory, 1 GB for network",
            "latency": "neither mini-batches nor checkpoints",
        },
    )
