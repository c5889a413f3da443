"""Checks that hold for every decoder and any bytes; the tests of each decoder use them."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from penstock.decode import BAD_SCHEMA, ROW, Decoded, Decoder
from penstock.logs.contract import Chunk


def decode(decoder: Decoder, raw: bytes, columns: Collection[str] | None = None, start: int = 0) -> Decoded:
    """Decode a chunk; check the shape of the result and that it has each record exactly once."""
    requested = list(decoder.schema()) if columns is None else list(columns)
    decoded = decoder.decode(Chunk("p", start, raw), requested)
    assert decoded.good.schema == {
        ROW: pl.UInt32,
        **{n: t for n, t in decoder.schema().items() if n in requested},
    }
    assert decoded.bad.schema == BAD_SCHEMA
    assert decoded.good[ROW].is_sorted()
    assert decoded.bad[ROW].is_sorted()
    rows = sorted(decoded.good[ROW].to_list() + decoded.bad[ROW].to_list())
    header = int(getattr(decoder, "has_header", False) and start == 0)
    assert rows == list(range(header, raw.count(b"\n")))
    return decoded


def reasons(decoded: Decoded) -> dict[int, str]:
    """Return the reason of each dead letter, by row."""
    return dict(zip(decoded.bad[ROW].to_list(), decoded.bad["reason"].to_list(), strict=True))


def check_cuts(decoder: Decoder, lines: list[bytes], cut: int, start: int = 7) -> None:
    """Check that the same records in one chunk and in two decode to the same rows, good and bad."""
    raw = b"".join(line + b"\n" for line in lines)
    head = b"".join(line + b"\n" for line in lines[:cut])
    whole = decode(decoder, raw, start=start)
    first = decode(decoder, head, start=start)
    second = decode(decoder, raw[len(head) :], start=start + len(head))
    for side in ("good", "bad"):
        later = getattr(second, side).with_columns(pl.col(ROW) + pl.lit(cut, pl.UInt32))
        assert pl.concat([getattr(first, side), later]).equals(getattr(whole, side))
