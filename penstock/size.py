"""Parses sizes such as ``"50MB"``, ``"1.5 GB"`` or ``4096`` into whole bytes."""

from __future__ import annotations

import math
import re

from penstock.errors import UserError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_LARGEST = 2**60


def byte_count(size: str | int | float) -> int:
    """The bytes of a size; a bare number means bytes."""
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match and match[2].upper() in _UNITS:
        count = float(match[1]) * _UNITS[match[2].upper()]
    elif isinstance(size, int | float):
        count = size
    else:
        count = math.nan
    if not 0 <= count <= _LARGEST:
        raise UserError("BAD_SIZE", f"{size!r} is not a size", hint='Write for example "50MB" or "1.5GB".')
    return round(count)
