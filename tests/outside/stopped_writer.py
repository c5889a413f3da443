"""A writer to PostgreSQL that stops itself in mid-transaction.

Run as `python -m tests.outside.stopped_writer ADDRESS TABLE WHERE`.
It delivers epoch 0, then stops in epoch 1: `idle` after its rows are copied, `copy` while the server waits for more.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module

import polars as pl

from penstock.sinks import Postgres

SCHEMA: dict[str, pl.DataType] = {"page": pl.String(), "visits": pl.Int64()}
ROWS = pl.DataFrame({"page": [f"/{n}" for n in range(20_000)], "visits": range(20_000)})


def stop_here(where: str) -> None:
    """Replace the conversion of rows by one that stops this process: at its end, or in the middle."""
    module = import_module("penstock.sinks.postgres")
    convert = module.to_copy_rows

    def convert_and_stop(rows: pl.DataFrame) -> Iterator[tuple[object, ...]]:
        for number, row in enumerate(convert(rows)):
            if where == "copy" and number == 10_000:
                os.kill(os.getpid(), signal.SIGSTOP)
            yield row

    module.to_copy_rows = convert_and_stop  # type: ignore[attr-defined]


class Stopping(Postgres):
    """Stops when all rows are copied and the transaction is open."""

    def _copy(self, *arguments: object) -> None:
        super()._copy(*arguments)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGSTOP)


def main(address: str, table: str, where: str) -> None:
    sink = Postgres(address, table, make_table=True)
    sink.open("job", SCHEMA)
    sink.take_over(1)
    sink.write(0, ROWS.head(2))
    stop_here(where)
    stopping = sink if where == "copy" else Stopping(address, table)
    if stopping is not sink:
        stopping.open("job", SCHEMA)
        stopping.take_over(1)
    print("writing", flush=True)
    stopping.write(1, ROWS)
    print("written", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
