"""The engine of the run with every fault, in a process of its own; and its program, also for commands while none runs.

    python -m bench.fault_app FOLDER MASTER URL POSTGRES

PENSTOCK_BENCH_SKEW_SECONDS in the environment sets its wall clock forward. An error ends it as it ends `penstock run`:
with its text on standard error.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_skew = float(os.environ.get("PENSTOCK_BENCH_SKEW_SECONDS", "0"))
if _skew:  # before anything binds the clock
    _real_time = time.time
    time.time = lambda: _real_time() + _skew

import polars as pl  # noqa: E402 - see above

from penstock.catalogue.program import Program  # noqa: E402
from penstock.engine.engine import Engine  # noqa: E402
from penstock.engine.job_server import JobServer  # noqa: E402
from penstock.errors import PenstockError  # noqa: E402
from penstock.settings import Settings  # noqa: E402

#: bytes that a job's own code may take, and that Spark collects of an epoch
_JOB_BYTES, _RESULT = 300_000_000, "8m"
BIG, CHANGED = 900, 950

_STREAMS = """
CREATE STREAM events FROM files('{folder}/in/*.log*', gz_settle_seconds => 0.5)
    FORMAT json(number BIGINT, at TIMESTAMP 'iso', key STRING, bytes BIGINT)
    EVENT TIME at LATENESS 2 SECONDS IDLE AFTER 5 SECONDS;
CREATE STREAM spans FROM files('{folder}/spans/*.log')
    FORMAT json(number BIGINT, at TIMESTAMP 'iso', key STRING, bytes BIGINT)
    EVENT TIME at LATENESS 2 SECONDS IDLE AFTER 5 SECONDS;
"""
_JOBS = """
CREATE JOB counts AS
    SELECT window_start, key, COUNT(*) AS n, SUM(bytes) AS total FROM events GROUP BY key WINDOWING 10 SECONDS
    INTO sqlite('{folder}/out/counts.db', 'counts'), jsonl('{folder}/out/counts', compact_bytes => 200000);
CREATE JOB big AS SELECT number FROM events WHERE bytes >= {big}
    INTO jsonl('{folder}/out/big', compact_bytes => 50000), sqlite('{folder}/out/big.db', 'big');
CREATE JOB twice AS SELECT number, doubled(number) AS other FROM events WHERE bytes >= {big}
    INTO sqlite('{folder}/out/twice.db', 'twice');
CREATE JOB pushed AS SELECT number FROM events WHERE bytes >= {big}
    INTO http_push('{url}/pushed', patience_seconds => 1);
CREATE JOB changed AS SELECT number FROM events WHERE bytes >= {changed}
    INTO sqlite('{folder}/out/changed.db', 'changed');
CREATE JOB spans_of AS SELECT number FROM spans INTO sqlite('{folder}/out/spans.db', 'spans');
"""
_POSTGRES = """
CREATE JOB stored AS SELECT number FROM events WHERE bytes >= {big}
    INTO postgres('{url}', 'stored', make_table => TRUE);
"""


def make_program(folder: Path, url: str, postgres: str) -> Program:
    """The program; `postgres` is the address of a server, or empty."""
    where = str(folder)

    def double(values: pl.Series) -> pl.Series:
        return values * 2

    def fail(values: pl.Series) -> pl.Series:
        if (Path(where) / "wants-failure").exists():
            raise ValueError("a fault that was injected")
        return values

    def hog(values: pl.Series) -> pl.Series:
        held: list[bytearray] = []
        if (Path(where) / "wants-memory").exists():
            for _ in range(150):
                held.append(bytearray(b"x" * 10_000_000))
                time.sleep(0.01)
        return values + len(held) * 0

    def enlarge(values: pl.Series) -> pl.Series:
        wants = (Path(where) / "wants-size").exists()
        return pl.Series([os.urandom(2_000_000).hex() if wants else "" for _ in values], dtype=pl.String)

    text = (_STREAMS + _JOBS).format(folder=folder, url=url, big=BIG, changed=CHANGED)
    if postgres:
        text += _POSTGRES.format(url=postgres, big=BIG)
    return Program(
        "faults",
        state_of(folder),
        functions={
            "doubled": lambda x: x.map_batches(double, return_dtype=pl.Int64),
            "failing": lambda x: x.map_batches(fail, return_dtype=pl.Int64),
            "hogging": lambda x: x.map_batches(hog, return_dtype=pl.Int64),
            "enlarged": lambda x: x.map_batches(enlarge, return_dtype=pl.String),
        },
        begin=text,
    )


def state_of(folder: Path) -> Path:
    """The state directory, on a disk of its own that can be filled."""
    return folder / "disk" / "state"


def main(folder: Path, master: str, url: str, postgres: str) -> int:
    """Run the engine until it is ended or an error ends it."""
    program = make_program(folder, url, postgres)
    settings = Settings(
        state=state_of(folder),
        master=master,
        epoch_seconds=0.5,
        job_memory_bytes=_JOB_BYTES,
        cache_root=None,  # so that a damaged run is read, and no copy of it
        spark={"spark.driver.maxResultSize": _RESULT, "spark.ui.enabled": "false"},
    )
    engine = Engine(program, settings)
    server: list[JobServer] = []

    def listen(phase: str) -> None:
        if phase == "running":
            server.append(JobServer(program, settings.state))
            server[0].__enter__()

    try:
        engine.run(on_phase=listen)
    except PenstockError as error:
        print(error.text(), file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:5]))
