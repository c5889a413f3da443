"""Lines of the user's program, so that an error can point there."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PYTHON = sysconfig.get_path("stdlib") + os.sep
_PACKAGE = str(Path(__file__).resolve().parent) + os.sep
_DEMOS = _PACKAGE + "demos" + os.sep


@dataclass(frozen=True)
class Origin:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        if not self.file:
            return ""
        text = linecache.getline(self.file, self.line).strip()
        return f"{Path(self.file).name}:{self.line}" + (f" `{text}`" if text else "")


#: no line of the user's
NOWHERE = Origin("", 0)


def here() -> Origin:
    """The nearest line up the stack that is neither Penstock's nor Python's own; `NOWHERE` if that is a library's, such
    as the one behind the command line, or there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (_ours(frame) or _pythons(frame)):
        frame = frame.f_back
    if frame is None or _library(frame.f_code.co_filename):
        return NOWHERE
    return Origin(frame.f_code.co_filename, frame.f_lineno)


def _ours(frame: FrameType) -> bool:
    """Whether this is Penstock's code, also what a dataclass has made for it."""
    file = frame.f_code.co_filename
    made = file == "<string>" and str(frame.f_globals.get("__name__")).startswith("penstock.")
    return made or (file.startswith(_PACKAGE) and not is_demo(file))


def is_demo(file: str) -> bool:
    """Whether a file is one of the demos, which come with Penstock and are written as a user's programs are."""
    return file.startswith(_DEMOS)


def _pythons(frame: FrameType) -> bool:
    """Whether this is code of Python itself: a thread's, a decorator's."""
    file = frame.f_code.co_filename
    return file.startswith(("<frozen ", _PYTHON)) and not _installed(file)


def _library(file: str) -> bool:
    return _installed(file) and not is_demo(file)


def _installed(file: str) -> bool:
    return any(f"{os.sep}{name}{os.sep}" in file for name in ("site-packages", "dist-packages"))


def innermost_line(failure: BaseException, files: Collection[str]) -> Origin | None:
    """The last line of these files that an exception came through; None if it came through none."""
    found, trace = None, failure.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in files:
            found = Origin(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found
