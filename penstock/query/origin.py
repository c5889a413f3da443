"""Where in the user's file something was said, so that an error can point there."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.words.origin import Origin

__all__ = ["Origin", "here"]

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def here() -> Origin:
    """The nearest line up the stack that is not Penstock's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Origin(frame.f_code.co_filename, frame.f_lineno)
