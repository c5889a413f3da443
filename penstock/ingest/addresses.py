"""Parses addresses and sizes of the command line."""

from __future__ import annotations

import re

from penstock.errors import UserError

_SIZES = {
    "": 1,
    "B": 1,
    "K": 1 << 10,
    "KB": 1 << 10,
    "M": 1 << 20,
    "MB": 1 << 20,
    "G": 1 << 30,
    "GB": 1 << 30,
}


def parse_address(text: str) -> tuple[str, int]:
    """Parse the host and port of `HOST:PORT`; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UserError("BAD_ADDRESS", f"{text!r} is not HOST:PORT", hint="Write for example 127.0.0.1:7070.")
    return host, int(port)


def parse_size(text: str) -> int:
    """Parse the bytes of `256MB`, `64K` or `1000`."""
    found = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", text)
    if not found or found[2].upper() not in _SIZES:
        raise UserError("BAD_SIZE", f"{text!r} is not a size", hint="Write for example 256MB or 64K.")
    return int(found[1]) * _SIZES[found[2].upper()]
