"""Rows in JSON keep their types; the events of a subscription are assembled from any pieces."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.result import Result
from penstock.client.subscription import EventReader, ServerEvent
from penstock.delivery.result_log import JobResult
from penstock.server.subscriptions import encode_event
from penstock.server.wire import result_json

FRAME = pl.DataFrame(
    {
        "int": pl.Series([1, None, -(2**62)], dtype=pl.Int64),
        "small": pl.Series([1, None, 2], dtype=pl.UInt8),
        "float": [1.5, None, -0.1],
        "text": ["a\nb", None, 'é"\u2028'],
        "flag": [True, None, False],
        "at": pl.Series(
            [datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC), None, datetime(1969, 1, 1, tzinfo=UTC)]
        ),
        "naive": pl.Series([datetime(2026, 3, 1), None, datetime(2026, 3, 2)], dtype=pl.Datetime("ms")),
        "there": pl.Series([datetime(2026, 3, 1), None, None]).dt.replace_time_zone("Europe/Madrid"),
        "day": [date(2026, 3, 1), None, date(1, 1, 1)],
        "time": [time(1, 2, 3, 4), None, time(0)],
        "long": [timedelta(seconds=1.5), None, timedelta(days=-1)],
        "exact": pl.Series([Decimal("1.25"), None, Decimal("-0.01")], dtype=pl.Decimal(38, 2)),
        "bytes": [b"\x00\xff", None, b""],
        "list": [[1, 2], None, []],
        "struct": [{"x": 1}, {"x": None}, {"x": 3}],
        "none": pl.Series([None, None, None], dtype=pl.String),
    }
)


def test_columns_keep_their_types_in_json() -> None:
    result = Result.from_json(json.loads(result_json("job", JobResult(3, FRAME))))
    assert result is not None
    assert result.rows.schema == FRAME.schema
    assert result.rows.equals(FRAME)


def test_a_result_without_rows_and_no_result() -> None:
    result = Result.from_json(json.loads(result_json("job", JobResult(3, FRAME[:0]))))
    assert result is not None
    assert result.rows.columns == FRAME.columns
    assert Result.from_json(json.loads(result_json("job", None))) is None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 99), st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))
        )
    ),
    st.randoms(use_true_random=False),
)
def test_events_are_assembled_from_any_pieces(sent: list[tuple[int, str]], draw: object) -> None:
    data = b"".join(encode_event("rows", epoch, text.encode()) + b": a comment\n\n" for epoch, text in sent)
    reader, received, at = EventReader(), list[ServerEvent](), 0
    while at < len(data):
        size = draw.randrange(1, 30)  # type: ignore[attr-defined]
        received += reader.read(data[at : at + size])
        at += size
    assert received == [ServerEvent("rows", str(epoch), text) for epoch, text in sent]
