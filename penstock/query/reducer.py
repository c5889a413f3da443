"""What a reducing agent does with lines: decode, judge lateness, filter, aggregate, and write partial answers.

Receives lines and how far time had come before them; hands lines of partial answers (see `decode/partials.py`) and how
far it has come now. A pure function: the same lines, time and clock give the same bytes.

The lines are ordered so that the engine judges lateness as it would have of the events: a partial answer stands at its
newest event and they come in order of time; late events are not reduced and come last, each by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.decode.contract import ROW
from penstock.decode.partials import AT, CUT, MARK, pack_column
from penstock.logs.contract import Chunk
from penstock.operators.contract import FOREVER, NEVER, PARTITION, SEQUENCE, TIME
from penstock.operators.lateness import classify_events
from penstock.operators.panes import partial_columns
from penstock.query.reduced import EVENT_TIME, NEWEST, Cut, Reduction

_LINE = "line"


class Reducer:
    """Reduces lines by a reduction."""

    def __init__(self, reduction: Reduction) -> None:
        self._reduction = reduction
        self.plan = reduction.plan

    def __call__(self, lines: bytes, highest: int | None, clock: int) -> tuple[bytes, int | None]:
        """Partial answers of lines; `highest` is the newest event time before them, `clock` the wall clock's."""
        stream = self._reduction.stream
        before = NEVER if highest is None else highest
        decoded = stream.decoder.decode(Chunk("agent", 0, lines), self._reduction.needed)
        time = pl.col(str(stream.time)).dt.cast_time_unit("us").to_physical()
        events = decoded.good.with_columns(
            time.alias(TIME),
            pl.lit(0, pl.UInt32).alias(PARTITION),
            pl.col(ROW).cast(pl.Int64).alias(SEQUENCE),
        )
        told = [self._bad(decoded.bad)]
        timeless = events.filter(pl.col(TIME).is_null())
        if timeless.height:
            split = lines.split(b"\n")
            raw = [split[row].decode("utf-8", "replace") for row in timeless[ROW]]
            reason = f"no event time in {stream.time}"
            told.append(self._bad(timeless.select(ROW, reason=pl.lit(reason), raw=pl.Series(raw))))
            events = events.filter(pl.col(TIME).is_not_null())
        events = events.drop(ROW)
        after = before
        if events.height:
            bound = FOREVER if stream.ahead is None else clock + stream.ahead
            found = classify_events(events[TIME].to_numpy(), before, NEVER, bound, stream.lateness)
            after = found.highest
            late = events.filter(pl.Series(found.late & ~found.future))
            unbelieved = events.filter(pl.Series(found.future))
            on_time = events.filter(pl.Series(~(found.late | found.future)))
            reduced = _sorted([self._reduced(cut, on_time) for cut in self._reduction.cuts])
            told.append(reduced)
            newest = reduced[AT][-1] if reduced.height else before
            if after > newest:
                told.append(self._marked(after))
            told += [
                _sorted([self._apart(cut, rows) for cut in self._reduction.cuts])
                for rows in (late, unbelieved)
            ]
        made = "".join(f"{line}\n" for rows in told for line in rows[_LINE])
        return made.encode(), None if after == NEVER else after

    def _reduced(self, cut: Cut, events: pl.DataFrame) -> pl.DataFrame:
        """Partial answers per key and pane."""
        events = _through(cut, events)
        if not events.height:
            return _written([])
        rows = cut.dated.prepare(events.with_columns(pl.col(TIME).alias(EVENT_TIME)))
        return self._lines(cut, rows.with_columns(pl.col(NEWEST).alias(AT)))

    def _apart(self, cut: Cut, events: pl.DataFrame) -> pl.DataFrame:
        """A partial answer for every event."""
        events = _through(cut, events)
        held = cut.operator.window.covers(pl.col(TIME))
        if held is not None:
            events = events.filter(held)
        if not events.height:
            return _written([])
        parts = [part for function in cut.operator.aggregates for part in function.from_event()]
        return self._lines(cut, events.select(*cut.operator.keys, *parts, pl.col(TIME).alias(AT)))

    def _lines(self, cut: Cut, rows: pl.DataFrame) -> pl.DataFrame:
        columns = [
            pack_column(rows[name]).alias(cut.names[name])
            for name in (*cut.operator.keys, *partial_columns(cut.operator.aggregates))
        ]
        whole = pl.DataFrame(columns) if columns else pl.DataFrame()
        whole = whole.with_columns(rows[AT], pl.lit(cut.number).alias(CUT), pl.lit(self.plan).alias("p"))
        order = ["p", AT, CUT, *(column.name for column in columns)]
        return whole.select(pl.col(AT), pl.struct(order).struct.json_encode().alias(_LINE))

    def _marked(self, at: int) -> pl.DataFrame:
        row = pl.DataFrame({"p": [self.plan], AT: [at], CUT: [MARK]})
        return row.select(pl.col(AT), pl.struct("p", AT, CUT).struct.json_encode().alias(_LINE))

    def _bad(self, rows: pl.DataFrame) -> pl.DataFrame:
        told = rows.select(
            pl.lit(self.plan).alias("p"), pl.col("reason").alias("why"), pl.col("raw").alias("bad")
        )
        return told.select(
            pl.lit(0, pl.Int64).alias(AT), pl.struct("p", "why", "bad").struct.json_encode().alias(_LINE)
        )


def _through(cut: Cut, events: pl.DataFrame) -> pl.DataFrame:
    for step in cut.steps:
        if not events.height:
            break
        events = step.apply(events)
    return events


def _written(lines: Sequence[str]) -> pl.DataFrame:
    return pl.DataFrame({AT: [0] * len(lines), _LINE: lines}, schema={AT: pl.Int64, _LINE: pl.String})


def _sorted(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """In order of time, and at one instant in an order that does not depend on how they were made."""
    return pl.concat([part.cast({AT: pl.Int64}) for part in parts]).sort(AT, _LINE)
