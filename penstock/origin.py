"""Finds lines of the user's program, so that errors can point there."""

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


#: no line of the user's program
NOWHERE = Origin("", 0)


def here() -> Origin:
    """The nearest line up the stack that is neither Penstock's nor Python's; `NOWHERE` if there is none or it is a
    library's, such as that of the command line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (_is_penstock(frame) or _is_python(frame)):
        frame = frame.f_back
    if frame is None or _is_library(frame.f_code.co_filename):
        return NOWHERE
    return Origin(frame.f_code.co_filename, frame.f_lineno)


def _is_penstock(frame: FrameType) -> bool:
    """Whether this is Penstock's code, or was generated for it by a dataclass."""
    file = frame.f_code.co_filename
    generated = file == "<string>" and str(frame.f_globals.get("__name__")).startswith("penstock.")
    return generated or (file.startswith(_PACKAGE) and not is_demo(file))


def is_demo(file: str) -> bool:
    """Whether a file is one of the demos, which count as the user's program."""
    return file.startswith(_DEMOS)


def _is_python(frame: FrameType) -> bool:
    """Whether this is code of Python itself, as of a thread or a decorator."""
    file = frame.f_code.co_filename
    return file.startswith(("<frozen ", _PYTHON)) and not _is_installed(file)


def _is_library(file: str) -> bool:
    return _is_installed(file) and not is_demo(file)


def _is_installed(file: str) -> bool:
    return any(f"{os.sep}{name}{os.sep}" in file for name in ("site-packages", "dist-packages"))


def innermost_line(failure: BaseException, files: Collection[str]) -> Origin | None:
    """The last line in these files on the way of an exception; None if there is none."""
    line, trace = None, failure.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in files:
            line = Origin(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return line
