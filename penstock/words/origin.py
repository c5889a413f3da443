"""Lines of the user's program, so that an error can point there."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True)
class Origin:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        return f"{Path(self.file).name}:{self.line}" + (f" `{text}`" if text else "")


def here() -> Origin:
    """The nearest line up the stack that is not Penstock's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _ours(frame):
        frame = frame.f_back
    return Origin(frame.f_code.co_filename, frame.f_lineno)


def _ours(frame: FrameType) -> bool:
    """Whether this is Penstock's code, also what a dataclass has made for it."""
    file = frame.f_code.co_filename
    made = file == "<string>" and str(frame.f_globals.get("__name__")).startswith("penstock.")
    return made or file.startswith(_PACKAGE)


def innermost_line(failure: BaseException, files: Collection[str]) -> Origin | None:
    """The last line of these files that an exception came through; None if it came through none."""
    found, trace = None, failure.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in files:
            found = Origin(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found
