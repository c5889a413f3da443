"""Checks that hold for every decoder, whatever the bytes: used by the tests of each of them."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from penstock.decode import BAD_SCHEMA, ROW, Decoded, Decoder
from penstock.logs.contract import Chunk


def decode(decoder: Decoder, raw: bytes, columns: Collection[str] | None = None, start: int = 0) -> Decoded:
    """Decodes a chunk and checks the shape of the answer and that each record came out exactly once."""
    wanted = list(decoder.schema()) if columns is None else list(columns)
    answer = decoder.decode(Chunk("p", start, raw), wanted)
    assert answer.good.schema == {
        ROW: pl.UInt32,
        **{n: t for n, t in decoder.schema().items() if n in wanted},
    }
    assert answer.bad.schema == BAD_SCHEMA
    assert answer.good[ROW].is_sorted()
    assert answer.bad[ROW].is_sorted()
    rows = sorted(answer.good[ROW].to_list() + answer.bad[ROW].to_list())
    header = int(getattr(decoder, "has_header", False) and start == 0)
    assert rows == list(range(header, raw.count(b"\n")))
    return answer


def reasons(answer: Decoded) -> dict[int, str]:
    """What is wrong, by row."""
    return dict(zip(answer.bad[ROW].to_list(), answer.bad["reason"].to_list(), strict=True))


def check_cuts(decoder: Decoder, lines: list[bytes], cut: int, start: int = 7) -> None:
    """The same records in one chunk and in two give the same rows, good and bad."""
    raw = b"".join(line + b"\n" for line in lines)
    head = b"".join(line + b"\n" for line in lines[:cut])
    whole = decode(decoder, raw, start=start)
    first = decode(decoder, head, start=start)
    second = decode(decoder, raw[len(head) :], start=start + len(head))
    for side in ("good", "bad"):
        later = getattr(second, side).with_columns(pl.col(ROW) + pl.lit(cut, pl.UInt32))
        assert pl.concat([getattr(first, side), later]).equals(getattr(whole, side))
