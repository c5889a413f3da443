"""Executes the agent's part of a reduction: decode, detect late events, filter, aggregate, write partial results.

Pure: the same lines, newest event time and clock give the same bytes (see `decode/partials.py`).

Lines are in such an order that the engine finds the same events late as if it had read the events: a partial result is
placed at its newest event, in order of time; late and future events come last, each by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.decode.contract import ROW
from penstock.decode.partials import AT, CUT, MARK, pack_column
from penstock.logs.contract import Chunk
from penstock.operators.contract import FOREVER, NEVER, PARTITION, SEQUENCE, TIME
from penstock.operators.panes import partial_columns
from penstock.operators.watermark import classify_events
from penstock.query.reduction_plan import EVENT_TIME, NEWEST, Cut, Reduction

_LINE = "line"
_NO_LINES = pl.DataFrame(schema={AT: pl.Int64, _LINE: pl.String})


class Reducer:
    """Reduces lines of events."""

    def __init__(self, reduction: Reduction) -> None:
        self._reduction = reduction
        self.plan = reduction.plan

    def __call__(self, lines: bytes, highest: int | None, clock: int) -> tuple[bytes, int | None]:
        """The partial results of lines, and the newest event time after them (`highest`: before them). `clock` is the
        time of the wall clock."""
        stream = self._reduction.stream
        before = NEVER if highest is None else highest
        decoded = stream.decoder.decode(Chunk("agent", 0, lines), self._reduction.needed)
        time = pl.col(str(stream.time)).dt.cast_time_unit("us").to_physical()
        events = decoded.good.with_columns(
            time.alias(TIME),
            pl.lit(0, pl.UInt32).alias(PARTITION),
            pl.col(ROW).cast(pl.Int64).alias(SEQUENCE),
        )
        output = [self._write_bad(decoded.bad)]
        timeless = events.filter(pl.col(TIME).is_null())
        if timeless.height:
            split = lines.split(b"\n")
            raw = [split[row].decode("utf-8", "replace") for row in timeless[ROW]]
            reason = f"no event time in {stream.time}"
            output.append(self._write_bad(timeless.select(ROW, reason=pl.lit(reason), raw=pl.Series(raw))))
            events = events.filter(pl.col(TIME).is_not_null())
        events = events.drop(ROW)
        after = before
        if events.height:
            bound = FOREVER if stream.ahead is None else clock + stream.ahead
            classes = classify_events(events[TIME].to_numpy(), before, NEVER, bound, stream.lateness)
            after = classes.highest
            late = events.filter(pl.Series(classes.late & ~classes.future))
            future = events.filter(pl.Series(classes.future))
            on_time = events.filter(pl.Series(~(classes.late | classes.future)))
            reduced = _sort([self._reduce(cut, on_time) for cut in self._reduction.cuts])
            output.append(reduced)
            newest = reduced[AT][-1] if reduced.height else before
            if after > newest:
                output.append(self._write_mark(after))
            output += [
                _sort([self._reduce_each(cut, rows) for cut in self._reduction.cuts])
                for rows in (late, future)
            ]
        lines_out = "".join(f"{line}\n" for rows in output for line in rows[_LINE])
        return lines_out.encode(), None if after == NEVER else after

    def _reduce(self, cut: Cut, events: pl.DataFrame) -> pl.DataFrame:
        """Partial results per key and pane."""
        events = _apply_steps(cut, events)
        if not events.height:
            return _NO_LINES
        rows = cut.operator_with_newest.prepare(events.with_columns(pl.col(TIME).alias(EVENT_TIME)))
        return self._write(cut, rows.with_columns(pl.col(NEWEST).alias(AT)))

    def _reduce_each(self, cut: Cut, events: pl.DataFrame) -> pl.DataFrame:
        """A partial result for every event."""
        events = _apply_steps(cut, events)
        covered = cut.operator.window.covers(pl.col(TIME))
        if covered is not None:
            events = events.filter(covered)
        if not events.height:
            return _NO_LINES
        parts = [part for function in cut.operator.aggregates for part in function.from_event()]
        return self._write(cut, events.select(*cut.operator.keys, *parts, pl.col(TIME).alias(AT)))

    def _write(self, cut: Cut, rows: pl.DataFrame) -> pl.DataFrame:
        columns = [
            pack_column(rows[name]).alias(cut.names[name])
            for name in (*cut.operator.keys, *partial_columns(cut.operator.aggregates))
        ]
        whole = pl.DataFrame(columns) if columns else pl.DataFrame()
        whole = whole.with_columns(rows[AT], pl.lit(cut.number).alias(CUT), pl.lit(self.plan).alias("p"))
        order = ["p", AT, CUT, *(column.name for column in columns)]
        return whole.select(pl.col(AT), pl.struct(order).struct.json_encode().alias(_LINE))

    def _write_mark(self, at: int) -> pl.DataFrame:
        row = pl.DataFrame({"p": [self.plan], AT: [at], CUT: [MARK]})
        return row.select(pl.col(AT), pl.struct("p", AT, CUT).struct.json_encode().alias(_LINE))

    def _write_bad(self, rows: pl.DataFrame) -> pl.DataFrame:
        renamed = rows.select(
            pl.lit(self.plan).alias("p"), pl.col("reason").alias("why"), pl.col("raw").alias("bad")
        )
        return renamed.select(
            pl.lit(0, pl.Int64).alias(AT), pl.struct("p", "why", "bad").struct.json_encode().alias(_LINE)
        )


def _apply_steps(cut: Cut, events: pl.DataFrame) -> pl.DataFrame:
    for step in cut.steps:
        if not events.height:
            break
        events = step.apply(events)
    return events


def _sort(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """In order of time; at one instant, by content, so that the order is the same in any process."""
    return pl.concat([part.cast({AT: pl.Int64}) for part in parts]).sort(AT, _LINE)
