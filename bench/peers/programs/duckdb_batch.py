"""The limit: DuckDB as a plain batch program over whole files, nothing kept for a next event.

python duckdb_batch.py windows INPUT OUT.json
"""

from __future__ import annotations

import duckdb
from program import EARTH_KM, JOB_WINDOW, JOIN_SECONDS, LOG_FIELDS, TOP, WINDOW, Rows, Task, main

_COLUMNS = ", ".join(f"'{name}': 'VARCHAR'" for name in LOG_FIELDS)


def connected(task: Task) -> duckdb.DuckDBPyConnection:
    """A database in memory with as many threads as the machine gives."""
    database = duckdb.connect()
    database.execute(f"SET threads = {task.cores}")
    database.execute("SET preserve_insertion_order = false")
    return database


# begin patterns windows clients jobs
def clicks(task: Task, further: str = "") -> str:
    return f"""(
        SELECT epoch(strptime(stamp, '[%d/%b/%Y:%H:%M:%S'))::BIGINT AS time, host,
            split_part(request, ' ', 2) AS path, try_cast(bytes AS BIGINT) AS bytes, cookie[9:] AS session {further}
        FROM read_csv('{task.input}/parts/*.log', sep = ' ', quote = '"', escape = '"', header = false,
            auto_detect = false, columns = {{{_COLUMNS}}}))"""


# end patterns windows clients jobs
# begin patterns
def patterns(task: Task) -> Rows:
    database = connected(task)
    with task.clock():
        database.execute("SET preserve_insertion_order = true")
        database.execute(f"CREATE TABLE clicks AS SELECT session, path FROM {clicks(task)}")
        best = database.execute(f"""
            WITH walks AS (
                SELECT lag(path, 2) OVER steps AS two, lag(path) OVER steps AS one, path FROM clicks
                WINDOW steps AS (PARTITION BY session ORDER BY rowid))
            SELECT two || ' > ' || one || ' > ' || path AS pattern, count(*) AS n FROM walks
            WHERE two IS NOT NULL GROUP BY pattern ORDER BY n DESC, pattern LIMIT {TOP}""").fetchall()
    return [(rank, *row) for rank, row in enumerate(best, 1)]


# end patterns
# begin windows
def windows(task: Task) -> Rows:
    database = connected(task)
    with task.clock():
        return database.execute(f"""
            WITH counts AS (
                SELECT time // {WINDOW} * {WINDOW} AS start, path, count(*) AS n FROM {clicks(task)} GROUP BY ALL)
            SELECT start, row_number() OVER (PARTITION BY start ORDER BY n DESC, path) AS rank, path, n
            FROM counts QUALIFY rank <= {TOP}""").fetchall()


# end windows
# begin clients
def clients(task: Task) -> Rows:
    database = connected(task)
    target = f"{task.place}/clients.parquet"
    with task.clock():
        database.execute(f"""COPY (
            SELECT time // {WINDOW} * {WINDOW} AS start, host, count(*), min(time), max(time)
            FROM {clicks(task)} GROUP BY start, host) TO '{target}' (FORMAT parquet)""")
    return database.execute(f"SELECT * FROM '{target}'").fetchall()


# end clients
# begin join
def join(task: Task) -> Rows:
    database = connected(task)
    reach, target = JOIN_SECONDS * 1_000_000, f"{task.place}/join.parquet"
    with task.clock():
        database.execute(f"""CREATE TABLE calls AS SELECT src, start, ts, radians(lat) AS lat, radians(lon) AS lon
            FROM read_csv('{task.input}/parts/*.log', header = false, auto_detect = false, columns = {{
                'src': 'VARCHAR', 'dst': 'VARCHAR', 'start': 'BIGINT', 'end': 'BIGINT', 'district': 'BIGINT',
                'lat': 'DOUBLE', 'lon': 'DOUBLE', 'ts': 'BIGINT'}})""")
        database.execute(f"""COPY (
            SELECT l.src, l.start, r.start AS start_right, 2 * {EARTH_KM} * asin(sqrt(pow(sin((r.lat - l.lat) / 2), 2)
                + cos(l.lat) * cos(r.lat) * pow(sin((r.lon - l.lon) / 2), 2))) AS km
            FROM calls l JOIN calls r ON l.src = r.src AND l.start < r.start AND r.start <= l.start + {reach}
                AND abs(l.ts - r.ts) <= {reach}) TO '{target}' (FORMAT parquet)""")
    task.extra["answer"] = {"km": round(database.execute(f"SELECT sum(km) FROM '{target}'").fetchall()[0][0])}
    return database.execute(f"SELECT src, start, start_right FROM '{target}'").fetchall()


# end join
# begin jobs
def jobs(task: Task) -> Rows:
    database = connected(task)
    found = []
    with task.clock():
        database.execute(f"CREATE TABLE clicks AS SELECT time, path, bytes FROM {clicks(task)}")
        for number, page in enumerate(task.pages):
            rows = database.execute(
                f"""SELECT time // {JOB_WINDOW} * {JOB_WINDOW} AS start, count(*), coalesce(sum(bytes), 0)::BIGINT
                FROM clicks WHERE path = ? GROUP BY start""",
                [page],
            )
            found += [(number, *row) for row in rows.fetchall()]
    return found


# end jobs
WORKLOADS = {name.__name__: name for name in (patterns, windows, clients, join, jobs)}

if __name__ == "__main__":
    main("duckdb", WORKLOADS, ["duckdb"], {"preserve_insertion_order": "only where order counts"})
