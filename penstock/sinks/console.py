"""A sink for people at a terminal: shows the rows of the latest epoch as a table that replaces the one before.

Writes one plain line for each row to a pipe, a file or a terminal without cursor movement (TERM=dumb), where a table
cannot replace the one before.

Guarantees: within one process an epoch is shown once, and in one piece.
Does not guarantee: anything across a restart; it does not know what was printed before.
On failure: `ExternalError` SINK_UNWRITABLE when the pipe has no reader any more.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TextIO

import polars as pl

from penstock.errors import ExternalError
from penstock.formatting import printable
from penstock.sinks.contract import Sink
from penstock.sinks.portable import to_portable

if TYPE_CHECKING:  # loaded at a terminal: every engine and every worker loads this module
    from rich.live import Live
    from rich.table import Table


class Console(Sink):
    """Shows rows on the standard output, or on `output`. A table shows at most `most_rows` of an epoch."""

    def __init__(self, output: TextIO | None = None, most_rows: int = 20) -> None:
        self._output = output
        self._most_rows = most_rows
        self._job = ""
        self._last_epoch = -1
        self._live: Live | None = None

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        self.close()
        self._job = job

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Show the rows of the epoch. An epoch without rows leaves the former table."""
        if epoch <= self._last_epoch:
            return False
        if not rows.is_empty():
            output = self._output or sys.stdout
            try:
                if _can_replace(output):
                    self._replace_table(output, epoch, rows)
                else:
                    output.write("".join(f"{line}\n" for line in _plain_lines(epoch, rows)))
                    output.flush()
            except OSError as problem:
                raise ExternalError(
                    "SINK_UNWRITABLE",
                    "could not print the rows",
                    detail=f"{problem.strerror or problem}.",
                    hint="Keep the reader of the pipe running, or choose a sink that keeps the rows.",
                ) from problem
        self._last_epoch = epoch
        return True

    def close(self) -> None:
        """Leave the last table on the screen and release the cursor."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def describe(self) -> str:
        return "the console"

    def _replace_table(self, output: TextIO, epoch: int, rows: pl.DataFrame) -> None:
        from rich.console import Console as Terminal
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=Terminal(file=output), auto_refresh=False)
            self._live.start()
        self._live.update(_table(self._job, epoch, rows, self._most_rows), refresh=True)


def _can_replace(output: TextIO) -> bool:
    """Whether the output is a terminal on which the cursor can go up."""
    if not output.isatty():
        return False
    from rich.console import Console as Terminal

    return Terminal(file=output).is_interactive


def _table(job: str, epoch: int, rows: pl.DataFrame, most_rows: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    hidden = rows.height - most_rows
    table = Table(
        title=Text(f"{printable(job)}  epoch {epoch}"),
        caption=f"and {hidden:,} more rows" if hidden > 0 else None,
        title_justify="left",
        caption_justify="left",
    )
    for name, dtype in rows.schema.items():
        table.add_column(
            Text(printable(name)), justify="right" if dtype.is_numeric() else "left", overflow="fold"
        )
    for row in to_portable(rows.head(most_rows)).iter_rows():
        table.add_row(*(Text(_cell(value)) for value in row))  # no markup of rich
    return table


def _plain_lines(epoch: int, rows: pl.DataFrame) -> list[str]:
    """`epoch 12  page=/index  visits=3`; text with blanks and nested values are written as JSON."""
    return [
        "  ".join([f"epoch {epoch}", *(f"{printable(name)}={_word(value)}" for name, value in row.items())])
        for row in to_portable(rows).iter_rows(named=True)
    ]


def _word(value: object) -> str:
    text = _cell(value)
    if isinstance(value, str) and (not text or any(sign.isspace() or sign == '"' for sign in text)):
        return json.dumps(text, ensure_ascii=False)
    return text


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
