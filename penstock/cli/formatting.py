"""Numbers as people read them, and how the user called us."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from penstock.formatting import amount, clock, seconds, size, sparkline

__all__ = ["amount", "clock", "program", "seconds", "size", "sparkline"]

_NAME = "penstock"


def program() -> str:
    """How the user called us, so that what we tell to type works: as `./run`, by a path, or by a name on the PATH."""
    own = sys.argv[0] if Path(sys.argv[0]).name == _NAME else ""
    typed = os.environ.get("PENSTOCK_CALLED_AS", own)
    if not Path(typed).is_file():
        return _NAME
    name = Path(typed).name
    found = shutil.which(name)
    if found is not None and Path(found).samefile(typed):
        return name
    return typed if os.sep in typed else os.path.join(os.curdir, typed)
