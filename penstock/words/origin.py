"""Lines of the user's program, so that an error can point there."""

from __future__ import annotations

import linecache
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Origin:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        return f"{Path(self.file).name}:{self.line}" + (f" `{text}`" if text else "")


def innermost_line(failure: BaseException, files: Collection[str]) -> Origin | None:
    """The last line of these files that an exception came through; None if it came through none."""
    found, trace = None, failure.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in files:
            found = Origin(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found
