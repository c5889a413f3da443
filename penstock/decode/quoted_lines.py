r"""Finds the quoted fields of log lines by the positions of their quotes.

Receives the records of a chunk; returns those that have the expected number of quotes,
with the position of each.

Invariants:
- A quote after an odd number of backslashes is escaped: it belongs to the field and is not counted.
- A newline always ends a record, so a stray quote spoils one line and never the next.
"""

from __future__ import annotations

import numpy as np

from penstock.decode.marked_lines import MarkedLines, marked_lines
from penstock.decode.records import NEWLINE, Faults, Ints, Records

_BACKSLASH = ord("\\")


def quoted_lines(records: Records, count: int, closed: bool, faults: Faults) -> MarkedLines:
    """Select the fit records with `count` quotes, the last one at the end when `closed`; faults for the others."""
    marks, lines_at = records.marks, records.lines_at
    if b"\\" in records.text:
        marks = _drop_escaped(records)
        lines_at = (
            np.flatnonzero(records.codes[marks] == NEWLINE) if len(marks) < len(records.marks) else lines_at
        )
    found = np.diff(lines_at, prepend=-1) - 1
    whole = records.fit & (found == count)
    if closed and len(whole):
        closing = marks[lines_at - 1] == records.ends - 1
        for row in np.flatnonzero(whole & ~closing).tolist():
            faults[row] = "text after the last quote"
        missing = records.fit & ~(found == count)
        whole &= closing
    else:
        missing = records.fit & ~whole
    for row in np.flatnonzero(missing).tolist():
        faults[row] = f"expected {count} quotes, found {found[row]}"
    return marked_lines(records, np.flatnonzero(whole), marks, lines_at, count)


def _drop_escaped(records: Records) -> Ints:
    """The marks without the quotes that stand after an odd number of backslashes."""
    codes, marks = records.codes, records.marks
    after_backslash = (codes[marks - 1] == _BACKSLASH) & (codes[marks] != NEWLINE) & (marks > 0)
    if not after_backslash.any():
        return marks
    slashes = np.flatnonzero(codes == _BACKSLASH)
    index = np.arange(len(slashes))
    run_starts = np.maximum.accumulate(np.where(np.diff(slashes, prepend=-2) != 1, index, 0))
    last = np.searchsorted(slashes, marks[after_backslash] - 1)
    odd = (last - run_starts[last]) % 2 == 0
    escaped = after_backslash.copy()
    escaped[after_backslash] = odd
    kept: Ints = marks[~escaped]
    return kept
