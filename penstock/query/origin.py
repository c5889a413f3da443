"""Where in the user's file something was said, so that an error can point there."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path

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
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Origin(frame.f_code.co_filename, frame.f_lineno)
