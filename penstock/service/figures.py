"""Numbers as people read them, and how the user called us."""

from __future__ import annotations

import os

from penstock.words.figures import amount, clock, seconds, size, sparkline

__all__ = ["amount", "clock", "program", "seconds", "size", "sparkline"]


def program() -> str:
    """How the user called us, so that what we tell to type works."""
    return os.environ.get("PENSTOCK_CALLED_AS", "penstock")
