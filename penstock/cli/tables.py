"""Prints tables in the style of the command line, and writes pictures to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from penstock.errors import ExternalError


def plain_table(*columns: str, left: Sequence[str] = (), right: Sequence[str] = ()) -> Table:
    """A table without frame. Columns named in `right` are aligned there, or all that are not in `left` if it is
    given."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), show_header=bool(columns))
    for column in columns:
        is_right = column in right or bool(left and column not in left)
        table.add_column(column, justify="right" if is_right else "left", overflow="fold")
    return table


def shortened_table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], shown: int, otherwise: str
) -> Table:
    """Rows whose first column is a time: only so many of each end, with a line for those between; `otherwise` where
    there are none."""
    table = plain_table(*columns, right=columns[:1])
    if not rows:
        table.add_row("", otherwise, "")
    for number, row in enumerate(rows):
        if not shown <= number < len(rows) - shown:
            table.add_row(*row)
        elif number == shown:
            table.add_row("…", f"{len(rows) - 2 * shown} more", "")
    return table


def write_file(path: Path, text: str) -> None:
    """Write text to a file that the user named."""
    try:
        path.write_text(text)
    except OSError as failure:
        raise ExternalError(
            "FILE_UNWRITABLE", f"{path} cannot be written", detail=failure.strerror or str(failure)
        ) from failure
