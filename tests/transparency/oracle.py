"""Queries worked out by hand: plain Python over lists, one event at a time, as simply as it can be said.

Receives a description and the events of every stream as they were logged; hands the rows. It knows nothing of the
product: no epochs, slices, watermarks or frames.

What is not said of a query is not decided here: where the order of two rows makes a difference and nothing says which
is first (answers of one instant come "in the order of their contents"), `unsure` is set.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tests.transparency import description as d

#: when that happens which is told because a log has ended: just before the year 9999
END_OF_TIME = 253_370_764_800_000_000 - 1

Values = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """What happened: when, and where in its log; an answer has no such place."""

    time: int
    #: number of the partition, then the number in it, then numbers of rows made of that one
    place: tuple[int, ...] | None
    values: Values

    def key(self, names: Iterable[str]) -> Key:
        return tuple(self.values[name] for name in names)


#: a stream is made of flows, one for every part of a union
Flows = list[list[Row]]


@dataclass(frozen=True)
class Log:
    """A stream's events, per partition as they were logged; the column of their time; how late they may be."""

    columns: Sequence[str]
    partitions: Sequence[Sequence[Values]]
    time: str
    lateness: int

    def sorted_out(self, first_partition: int) -> tuple[list[Row], list[Row]]:
        """The events that are on time, and the late ones: these happen at the newest time before them."""
        on_time, late = [], []
        for number, partition in enumerate(self.partitions, first_partition):
            newest = None
            for offset, event in enumerate(partition):
                time, place = event[self.time], (number, offset)
                if newest is None or time >= newest - self.lateness:
                    on_time.append(Row(time, place, dict(event)))
                else:
                    late.append(Row(newest, place, dict(event)))
                newest = time if newest is None else max(newest, time)
        return on_time, late


def answers(query: Any, logs: dict[str, Log]) -> tuple[list[Values], bool]:
    """The rows of a query, and whether they are sure."""
    oracle = Oracle(logs)
    rows = [row.values for flow in oracle.flows(query) for row in flow]
    return rows, not oracle.unsure


@dataclass
class Oracle:
    logs: dict[str, Log]
    unsure: bool = False
    first_partitions: dict[str, int] = field(default_factory=dict)

    def flows(self, node: Any) -> Flows:
        """The rows of a node, in no order."""
        return getattr(self, f"_{type(node).__name__.lower()}")(node)  # type: ignore[no-any-return]

    def rows(self, node: Any) -> list[Row]:
        return [row for flow in self.flows(node) for row in flow]

    def names(self, node: Any) -> list[str]:
        """The columns of a node."""
        match node:
            case d.Source() | d.Late():
                return list(self.logs[node.stream].columns)
            case d.Map():
                mine = [name for name, _ in node.columns]
                return mine if node.only else [*dict.fromkeys((*self.names(node.input), *mine))]
            case d.FlatMap():
                return [*(name for name, _ in node.kept), node.turn]
            case d.Union():
                return self.names(node.parts[0])
            case d.Windows():
                return [*_window_columns(node.window), *node.keys, *(a.alias for a in node.aggregates)]
            case d.Last():
                return [*dict.fromkeys((*node.keys, *node.values))]
            case d.Join() | d.Pairs() | d.Lookup() | d.Product():
                return self.joined(node).names()
            case d.Pattern():
                taking = [step.name for step in node.steps if not step.absent]
                named = [f"{step}_{column}" for step in taking for column in ("time", *node.columns)]
                return [*node.keys, *named, *(["matched"] if node.timeouts else [])]
            case d.Fold() | d.Before():
                return ["key", "value", "before"]
            case d.Ticks():
                return ["key", "told"]
            case d.Top():
                return [*self.names(node.input), "rank"]
        return self.names(node.input)

    def joined(self, node: Any) -> _Joined:
        match node:
            case d.Pairs():
                names = self.names(node.input)
                return _Joined(names, names, node.keys, node.keys, node.suffix)
            case d.Join():
                sides = self.names(node.left), self.names(node.right)
                return _Joined(*sides, node.keys, node.right_keys, node.suffix)
            case d.Lookup():
                sides = self.names(node.left), self.names(node.table)
                return _Joined(*sides, node.keys, node.table_keys, node.suffix, node.deleted)
        return _Joined(self.names(node.left), self.names(node.right), (), (), node.suffix)

    # -- order -----------------------------------------------------------------------------------

    def in_order(self, flows: Flows, keys: Sequence[str], names: Iterable[str]) -> dict[Key, list[Row]]:
        """The rows of every key in total order; unsure if that matters to the columns of these names."""
        names = sorted(set(names))
        placed: dict[Key, list[tuple[Any, Row]]] = defaultdict(list)
        for number, flow in enumerate(flows):
            for row in flow:
                rank = (1,) if row.place is None else (0, row.place, number)
                placed[row.key(keys)].append(((row.time, *rank), row))
        for found in placed.values():
            found.sort(key=lambda one: one[0])
            for (rank, row), (other_rank, other) in pairwise(found):
                if row.time == other.time and row.key(names) != other.key(names):
                    self.unsure |= _undecided(rank, row, other_rank, other)
        return {key: [row for _, row in found] for key, found in placed.items()}

    def made_at(self, row: Row, flows: Flows) -> tuple[int, ...] | None:
        """The place of an answer that stands for one event: the event's, unless several streams came together."""
        return row.place if len(flows) == 1 else None

    # -- rows without memory ---------------------------------------------------------------------

    def _source(self, node: d.Source) -> Flows:
        return [self._log(node.stream)[0]]

    def _late(self, node: d.Late) -> Flows:
        return [self._log(node.stream)[1]]

    def _log(self, stream: str) -> tuple[list[Row], list[Row]]:
        """Partitions are numbered through all streams, as these are met."""
        if stream not in self.first_partitions:
            met = sum(len(self.logs[name].partitions) for name in self.first_partitions)
            self.first_partitions[stream] = met
        return self.logs[stream].sorted_out(self.first_partitions[stream])

    def _filter(self, node: d.Filter) -> Flows:
        return [[r for r in flow if holds(node.condition, r.values)] for flow in self.flows(node.input)]

    def _map(self, node: d.Map) -> Flows:
        def made(row: Row) -> Row:
            fresh = {name: computed(formula, row.values) for name, formula in node.columns}
            return replace(row, values=fresh if node.only else row.values | fresh)

        return [[made(row) for row in flow] for flow in self.flows(node.input)]

    def _explode(self, node: d.Explode) -> Flows:
        return self._multiplied(
            self.flows(node.input),
            lambda v: [v | {node.column: one} for one in v[node.column] or ()],
        )

    def _flatmap(self, node: d.FlatMap) -> Flows:
        def copies(values: Values) -> list[Values]:
            times = 0 if values[node.column] is None else values[node.column] % 3
            kept = {name: values[name] for name, _ in node.kept}
            return [kept | {node.turn: turn} for turn in range(1, times + 1)]

        return self._multiplied(self.flows(node.input), copies)

    def _multiplied(self, flows: Flows, copies: Callable[[Values], list[Values]]) -> Flows:
        return [
            [
                Row(row.time, None if row.place is None else (*row.place, number), values)
                for row in flow
                for number, values in enumerate(copies(row.values))
            ]
            for flow in flows
        ]

    def _demux(self, node: d.Demux) -> Flows:
        def chosen(values: Values) -> bool:
            fitting = [n for n, condition in enumerate(node.conditions) if holds(condition, values)]
            if not fitting:
                return node.chosen == len(node.conditions)
            return node.chosen in (fitting if node.every_match else fitting[:1])

        return [[row for row in flow if chosen(row.values)] for flow in self.flows(node.input)]

    def _union(self, node: d.Union) -> Flows:
        return [flow for part in node.parts for flow in self.flows(part)]

    def _rebalance(self, node: d.Rebalance) -> Flows:
        flows = self.flows(node.input)
        if len(flows) == 1:
            return flows

        def told_apart(row: Row, number: int) -> Row:
            return row if row.place is None else replace(row, place=(*row.place, number))

        return [[told_apart(row, number) for number, flow in enumerate(flows) for row in flow]]

    # -- windows ---------------------------------------------------------------------------------

    def _windows(self, node: d.Windows) -> Flows:
        flows = self.flows(node.input)
        names = {a.column for a in node.aggregates if a.column} | set(node.keys)
        window = node.window
        told: list[Row] = []
        if isinstance(window, d.InTime | d.Running):
            told = self._of_time(node, flows, window, names)
        else:
            marks = {window.opens.column, window.closes.column} if isinstance(window, d.Landmarks) else set()
            for key, rows in self.in_order(flows, node.keys, names | marks).items():
                for start, end, time, place, more, inside in _event_windows(window, rows):
                    kept = place if len(flows) == 1 else None
                    values = {"window_start": start, "window_end": end, **more}
                    told.append(Row(time, kept, self._told(values, node, key, inside)))
        return [told]

    def _of_time(self, node: d.Windows, flows: Flows, window: Any, names: set[str]) -> list[Row]:
        running = isinstance(window, d.Running)
        told: list[Row] = []
        if window.emit == "change":
            for key, rows in self.in_order(flows, node.keys, names).items():
                told += self._changes(node, key, rows, window, len(flows))
            return told
        groups: dict[tuple[int, int, Key], list[Row]] = defaultdict(list)
        for row in (row for flow in flows for row in flow):
            for start, end in [(0, 0)] if running else _windows_of(window, row.time):
                groups[start, end, row.key(node.keys)].append(row)
        for (start, end, key), rows in groups.items():
            for at in {end} if window.emit == "close" else _instants(rows, window.emit, end, running):
                inside = [row for row in rows if row.time < at]
                values: Values = {} if running else {"window_start": start, "window_end": end}
                values |= {} if window.emit == "close" else {"as_of": at}
                told.append(Row(at - 1, None, self._told(values, node, key, inside)))
        return told

    def _changes(self, node: d.Windows, key: Key, rows: list[Row], window: Any, flows: int) -> list[Row]:
        running = isinstance(window, d.Running)
        alone = running or window.size <= (window.every or window.size)
        so_far: dict[tuple[int, int], list[Row]] = defaultdict(list)
        last: dict[tuple[int, int], Values] = {}
        told = []
        for row in rows:
            for bounds in [(0, 0)] if running else _windows_of(window, row.time):
                so_far[bounds].append(row)
                answer = self._told({}, node, key, so_far[bounds])
                if bounds not in last or last[bounds] != answer:
                    last[bounds] = answer
                    values = {} if running else {"window_start": bounds[0], "window_end": bounds[1]}
                    place = row.place if alone and flows == 1 else None
                    told.append(Row(row.time, place, values | {"as_of": row.time} | answer))
        return told

    def _told(self, values: Values, node: d.Windows, key: Key, rows: list[Row]) -> Values:
        made = values | dict(zip(node.keys, key, strict=True))
        return made | {a.alias: self._aggregated(a, rows) for a in node.aggregates}

    def _aggregated(self, aggregate: d.Aggregate, rows: list[Row]) -> Any:
        if aggregate.column is None:
            return {
                "count": len(rows),
                "earliest": min(row.time for row in rows),
                "latest": max(row.time for row in rows),
            }[aggregate.function]
        if aggregate.function in ("first", "last", "collect"):
            values = self._values_in_order(rows, aggregate.column)
            return (
                values
                if aggregate.function == "collect"
                else values[0 if aggregate.function == "first" else -1]
            )
        there = [row.values[aggregate.column] for row in rows if row.values[aggregate.column] is not None]
        return FUNCTIONS[aggregate.function](there, aggregate.share)

    def _values_in_order(self, rows: list[Row], column: str) -> list[Any]:
        found = self.in_order([rows], (), (column,))[()]
        for row, other in pairwise(found):
            if (row.time, row.place) == (other.time, other.place):
                self.unsure |= row.values[column] != other.values[column]
        return [row.values[column] for row in found]

    # -- last, distinct, the user's own ----------------------------------------------------------

    def _last(self, node: d.Last) -> Flows:
        flows = self.flows(node.input)
        told = []
        for key, rows in self.in_order(flows, node.keys, node.values).items():
            for number, row in enumerate(rows, 1):
                if node.partial or number >= node.size:
                    last = rows[max(0, number - node.size) : number]
                    values = dict(zip(node.keys, key, strict=True))
                    values |= {name: [one.values[name] for one in last] for name in node.values}
                    told.append(Row(row.time, self.made_at(row, flows), values))
        return [told]

    def _distinct(self, node: d.Distinct) -> Flows:
        flows = self.flows(node.input)
        told = []
        for rows in self.in_order(flows, node.columns, self.names(node.input)).values():
            kept: Row | None = None
            for row in rows:
                if kept is None or (node.within is not None and row.time - kept.time >= node.within):
                    kept = row
                    told.append(replace(row, place=self.made_at(row, flows)))
        return [told]

    def _fold(self, node: d.Fold) -> Flows:
        flows = self.flows(node.input)
        told = []
        for (key,), rows in self.in_order(flows, (node.key,), (node.value,)).items():
            before, seen = None, None
            for row in rows:
                if seen is not None and node.forget_after is not None and row.time - seen > node.forget_after:
                    before = None
                value, seen = row.values[node.value], row.time
                fresh = [{"key": key, "value": value, "before": before}]
                if value is not None and value > 2:
                    fresh.append({"key": key, "value": value, "before": None})
                place = self.made_at(row, flows)
                for number, values in enumerate(fresh):
                    told.append(Row(row.time, None if place is None else (*place, number), values))
                before = value
        return [told]

    def _before(self, node: d.Before) -> Flows:
        told = []
        for (key,), rows in self.in_order(self.flows(node.input), (node.key,), (node.value,)).items():
            before = None
            for row in rows:
                value = row.values[node.value]
                told.append(Row(row.time, None, {"key": key, "value": value, "before": before}))
                before = value
        return [told]

    def _ticks(self, node: d.Ticks) -> Flows:
        counts: dict[tuple[int, Any], int] = defaultdict(int)
        for row in self.rows(node.input):
            counts[(row.time // node.every + 1) * node.every, row.values[node.key]] += 1
        return [[Row(at - 1, None, {"key": key, "told": n}) for (at, key), n in counts.items()]]

    # -- rows that meet --------------------------------------------------------------------------

    def _join(self, node: d.Join) -> Flows:
        left, right = self.flows(node.left), self.flows(node.right)
        join = self.joined(node)
        if node.last is not None:
            return [self._over_last(node, left, right, join)]
        pairs = [
            (one, other)
            for one in _all(left)
            for other in _all(right)
            if _equal(one.key(node.keys), other.key(node.right_keys))
            and -node.before <= other.time - one.time <= node.after
            and holds(node.where, join.values(one, other))
        ]
        told = [Row(max(one.time, other.time), None, join.values(one, other)) for one, other in pairs]
        if node.how in ("left", "full"):
            met = {id(one) for one, _ in pairs}
            alone = [one for one in _all(left) if id(one) not in met]
            told += [Row(one.time + node.after, None, join.values(one, None)) for one in alone]
        if node.how in ("right", "full"):
            met = {id(other) for _, other in pairs}
            alone = [other for other in _all(right) if id(other) not in met]
            told += [Row(other.time + node.before, None, join.values(None, other)) for other in alone]
        return [told]

    def _over_last(self, node: d.Join, left: Flows, right: Flows, join: _Joined) -> list[Row]:
        """Each row meets the last rows of its key that came on the other side before it."""
        assert node.last is not None
        told = []
        mine, theirs = _keyed(left, node.keys), _keyed(right, node.right_keys)
        for key in mine.keys() | theirs.keys():
            if None not in key:
                for one, other in self._last_of_other(mine.get(key, []), theirs.get(key, []), node.last):
                    if holds(node.where, join.values(one, other)):
                        told.append(Row(max(one.time, other.time), None, join.values(one, other)))
        return told

    def _last_of_other(self, left: Flows, right: Flows, last: int) -> list[tuple[Row, Row]]:
        turns = []
        for side, flows in enumerate((left, right)):
            for number, flow in enumerate(flows):
                for row in flow:
                    place: Any = (1, str(row.values)) if row.place is None else (0, row.place)
                    turns.append(((row.time, *place, number), side, row))
        turns.sort(key=lambda turn: (turn[0][0], turn[0][1:], turn[1]))
        for (rank, side, row), (other_rank, other_side, other) in pairwise(turns):
            # of one place, left comes before right
            if row.time == other.time and (side == other_side or rank != other_rank or row.place is None):
                self.unsure |= _undecided(rank, row, other_rank, other)
        pairs = []
        seen: tuple[list[Row], list[Row]] = ([], [])
        for _, side, row in turns:
            pairs += [(partner, row) if side else (row, partner) for partner in seen[1 - side][-last:]]
            seen[side].append(row)
        return pairs

    def _pairs(self, node: d.Pairs) -> Flows:
        flows = self.flows(node.input)
        join = self.joined(node)
        told = []
        for key, rows in self.in_order(flows, node.keys, self.names(node.input)).items():
            for number, other in enumerate(rows):
                for one in rows[:number] if node.last is None else rows[max(0, number - node.last) : number]:
                    near = node.within is None or other.time - one.time <= node.within
                    if None not in key and near and holds(node.where, join.values(one, other)):
                        told.append(Row(other.time, None, join.values(one, other)))
        return [told]

    def _lookup(self, node: d.Lookup) -> Flows:
        events, table = self.flows(node.left), self.flows(node.table)
        join = self.joined(node)
        changes = self.in_order(table, node.table_keys, self.names(node.table))
        told = []
        for event in _all(events):
            key = event.key(node.keys)
            found = [c for c in changes.get(key, []) if c.time <= event.time and None not in key]
            row = found[-1] if found else None
            if row is not None and node.deleted is not None and row.values[node.deleted]:
                row = None
            if row is not None or node.how == "left":
                told.append(Row(event.time, self.made_at(event, events), join.values(event, row)))
        return [told]

    def _product(self, node: d.Product) -> Flows:
        left, right = self.flows(node.left), self.flows(node.right)
        join = self.joined(node)
        if node.distinct:
            near = self._of_itself(node, left)
        elif node.last is not None:
            near = self._last_of_other(left, right, node.last)
        else:
            near = [(one, other) for one in _all(left) for other in _all(right)]
        back = math.inf if node.before is None else node.before
        ahead = math.inf if node.after is None else node.after
        return [
            [
                Row(max(one.time, other.time), None, join.values(one, other))
                for one, other in near
                if -back <= other.time - one.time <= ahead and holds(node.where, join.values(one, other))
            ]
        ]

    def _of_itself(self, node: d.Product, flows: Flows) -> list[tuple[Row, Row]]:
        rows = self.in_order(flows, (), self.names(node.left)).get((), [])
        return [
            (one, other)
            for number, other in enumerate(rows)
            for one in (rows[:number] if node.last is None else rows[max(0, number - node.last) : number])
        ]

    # -- patterns --------------------------------------------------------------------------------

    def _pattern(self, node: d.Pattern) -> Flows:
        flows = self.flows(node.input)
        told = []
        for key, rows in self.in_order(flows, node.keys, self.names(node.input)).items():
            for time, taken, matched in _Matches(node).of(rows):
                values = dict(zip(node.keys, key, strict=True))
                for step in node.steps:
                    if not step.absent:
                        event = taken.get(step.name)
                        values[f"{step.name}_time"] = None if event is None else event.time
                        values |= {
                            f"{step.name}_{c}": None if event is None else event.values[c]
                            for c in node.columns
                        }
                told.append(Row(time, None, values | ({"matched": matched} if node.timeouts else {})))
        return [told]

    # -- the best --------------------------------------------------------------------------------

    def _top(self, node: d.Top) -> Flows:
        windows = node.input
        while not isinstance(windows, d.Windows):
            windows = windows.input
        running = isinstance(windows.window, d.Running)
        rows = sorted(self.rows(node.input), key=lambda row: row.time)
        groups = list(dict.fromkeys(row.key(node.per) for row in rows))
        return [[one for group in groups for one in self._best(node, windows.keys, running, group, rows)]]

    def _best(self, node: d.Top, keys: d.Names, running: bool, group: Key, rows: list[Row]) -> list[Row]:
        told: list[Row] = []
        standing: dict[Key, Values] = {}
        last: list[Values] | None = None
        when = ("as_of",) if running else ("window_start", "window_end")
        mine = [row for row in rows if row.key(node.per) == group]
        for time in sorted({row.time for row in mine}):
            now = [row.values for row in mine if row.time == time]
            if not running:
                standing = {}
            standing |= {tuple(values[key] for key in keys): values for values in now}
            best = sorted(standing.values(), key=lambda values: _rank(values, node, keys))[: node.k]
            answer = [{name: v for name, v in values.items() if name not in when} for values in best]
            if node.changes_only and answer == last:
                continue
            last = answer
            instants = {"as_of": time + 1} if running else {name: now[0][name] for name in when}
            told += [
                Row(time, None, values | instants | {"rank": rank}) for rank, values in enumerate(answer, 1)
            ]
        return told


def _rank(values: Values, node: d.Top, keys: d.Names) -> Any:
    by = values[node.by]
    value = 0 if by is None else by if node.least else -by
    return (
        by is None,
        value,
        [(values[key] is None, 0 if values[key] is None else values[key]) for key in keys],
    )


# -- conditions and formulas ---------------------------------------------------------------------


def holds(condition: d.Compare | None, values: Values, taken: dict[str, Row] | None = None) -> bool:
    """Whether a condition holds; one that asks about nothing does not."""
    if condition is None or condition.op == "true":
        return True
    mine, other = values[condition.column], condition.other
    if condition.op == "null":
        return mine is None
    if isinstance(other, d.Other):
        other = values[other.column] if other.step is None else (taken or {})[other.step].values[other.column]
    if mine is None or other is None:
        return False
    return bool(
        {">": mine > other, "<=": mine <= other}[condition.op]
        if condition.op in (">", "<=")
        else (mine == other) == (condition.op == "==")
    )


def computed(formula: d.Formula, values: Values) -> Any:
    """What a formula makes of a row."""
    if formula.what == "constant":
        return formula.by
    if formula.what == "holds":
        return holds(formula.by, values)
    value = values[formula.column]
    if value is None or formula.what == "copy":
        return value
    return {
        "plus": lambda: value + formula.by,
        "times": lambda: value * formula.by,
        "mod": lambda: value % formula.by,
        "steps": lambda: list(range(value % 3)),
        "upper": lambda: value.upper(),
    }[formula.what]()


# -- functions of values -------------------------------------------------------------------------


def _stddev(values: list[Any], _: float) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _quantile(values: list[Any], share: float) -> float | None:
    if not values:
        return None
    ordered, place = sorted(values), share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


FUNCTIONS: dict[str, Callable[[list[Any], float], Any]] = {
    "sum": lambda values, _: sum(values),
    "min": lambda values, _: min(values, default=None),
    "max": lambda values, _: max(values, default=None),
    "avg": lambda values, _: sum(values) / len(values) if values else None,
    "stddev": _stddev,
    "median": lambda values, _: _quantile(values, 0.5),
    "quantile": _quantile,
    "count_distinct": lambda values, _: len(set(values)),
}


# -- windows -------------------------------------------------------------------------------------


def _window_columns(window: Any) -> list[str]:
    if isinstance(window, d.Running):
        return ["as_of"]
    when = ["as_of"] if isinstance(window, d.InTime) and window.emit != "close" else []
    when += ["closed"] if isinstance(window, d.Landmarks) and window.longest is not None else []
    return ["window_start", "window_end", *when]


def _windows_of(window: d.InTime, time: int) -> list[tuple[int, int]]:
    """The windows that hold an instant, as (start, end)."""
    advance = window.every or window.size
    start = (time - window.offset) // advance * advance + window.offset
    found = []
    while start + window.size > time:
        found.append((start, start + window.size))
        start -= advance
    return found


def _instants(rows: list[Row], every: int, end: int, running: bool) -> set[int]:
    """When the answer of these rows is told: at multiples of `every`, and at the window's end."""
    at = {(row.time // every + 1) * every for row in rows}
    return at if running else {min(instant, end) for instant in at}


#: start, end, when it is told and at which place, further columns, the rows inside
_Window = tuple[int, int, int, tuple[int, ...] | None, Values, list[Row]]


def _event_windows(window: Any, rows: list[Row]) -> Iterable[_Window]:
    match window:
        case d.ByCount():
            yield from _by_count(window, rows)
        case d.LastEvents():
            for life in _lives(rows, window.forget_after):
                for number, row in enumerate(life, 1):
                    inside = life[max(0, number - window.size) : number]
                    if len(inside) == window.size or not window.whole:
                        yield inside[0].time, row.time, row.time, row.place, {}, inside
        case d.Sessions():
            inside, end = [], 0
            for row in rows:
                if inside and row.time >= end:
                    yield inside[0].time, end, end - 1, None, {}, inside
                    inside = []
                inside.append(row)
                end = row.time + window.gap
                if window.longest is not None:
                    end = min(end, inside[0].time + window.longest)
            if inside:
                yield inside[0].time, end, end - 1, None, {}, inside
        case d.Landmarks():
            yield from _landmarks(window, rows)


def _lives(rows: list[Row], forget_after: int | None) -> list[list[Row]]:
    """A key's rows, from one time it was forgotten to the next."""
    lives: list[list[Row]] = []
    for row in rows:
        if not lives or (forget_after is not None and row.time - lives[-1][-1].time >= forget_after):
            lives.append([])
        lives[-1].append(row)
    return lives


def _by_count(window: d.ByCount, rows: list[Row]) -> Iterable[_Window]:
    for life in _lives(rows, window.forget_after):
        for start in range(0, len(life), window.every or window.size):
            inside = life[start : start + window.size]
            last = inside[-1]
            if len(inside) == window.size:
                place = None if window.partial else last.place
                yield inside[0].time, last.time, last.time, place, {}, inside
            elif window.partial:
                yield inside[0].time, last.time, END_OF_TIME, None, {}, inside


def _landmarks(window: d.Landmarks, rows: list[Row]) -> Iterable[_Window]:
    inside: list[Row] = []

    def ended() -> _Window:
        assert window.longest is not None
        end = inside[0].time + window.longest
        return inside[0].time, end, end - 1, None, {"closed": False}, inside

    for row in rows:
        if inside and window.longest is not None and row.time >= inside[0].time + window.longest:
            yield ended()
            inside = []
        if inside or holds(window.opens, row.values):
            inside.append(row)
            if holds(window.closes, row.values):
                more = {} if window.longest is None else {"closed": True}
                place = row.place if window.longest is None else None
                yield inside[0].time, row.time, row.time, place, more, inside
                inside = []
    if inside and window.longest is not None:
        yield ended()


# -- matches of a pattern ------------------------------------------------------------------------


@dataclass
class _Match:
    due: int
    taken: dict[str, Row]
    #: the number of the step that comes next
    next: int = 1
    failed: bool = False


class _Matches:
    """The matches among the rows of one key: (when told, the events taken, whether it is a match)."""

    def __init__(self, pattern: d.Pattern) -> None:
        self.pattern, self.steps = pattern, pattern.steps
        self.open: list[_Match] = []
        self.told: list[tuple[int, dict[str, Row], bool]] = []

    def of(self, rows: list[Row]) -> list[tuple[int, dict[str, Row], bool]]:
        for row in rows:
            self.time_passes(row.time)
            self.happens(row)
        self.time_passes(None)
        return self.told

    def time_passes(self, now: int | None) -> None:
        for match in list(self.open):
            if match in self.open and (now is None or match.due < now):
                self.open.remove(match)
                only_absent_left = all(step.absent for step in self.steps[match.next :])
                if self.steps[-1].absent and only_absent_left and not match.failed:
                    self.told.append((match.due, match.taken, True))
                    if self.pattern.skip:
                        self.open = []
                elif self.pattern.timeouts:
                    self.told.append((match.due, match.taken, False))

    def happens(self, row: Row) -> None:
        whole = [m for m in self.open if not m.failed and self.goes_on(m, row)]
        if whole and self.pattern.skip:
            self.told.append((row.time, whole[0].taken, True))
            self.open = []
            return
        self.told += [(row.time, match.taken, True) for match in whole]
        self.open = [m for m in self.open if m not in whole and (self.pattern.timeouts or not m.failed)]
        if holds(self.steps[0].condition, row.values):
            self.open.append(_Match(row.time + self.pattern.within, {self.steps[0].name: row}))

    def goes_on(self, match: _Match, row: Row) -> bool:
        """Feed an event to a match; whether that completes it."""
        unwanted = []
        wanted = None
        for number in range(match.next, len(self.steps)):
            if not self.steps[number].absent:
                wanted = number
                break
            unwanted.append(self.steps[number])
        if wanted is not None and holds(self.steps[wanted].condition, row.values, match.taken):
            match.taken = match.taken | {self.steps[wanted].name: row}
            match.next = wanted + 1
            return match.next == len(self.steps)
        if any(holds(step.condition, row.values, match.taken) for step in unwanted):
            match.failed = True
        elif self.pattern.contiguous:
            if wanted is not None:
                match.failed = True
            else:  # the next event was not the unwanted one: nothing can spoil it any more
                match.next = len(self.steps) + 1
        return False


# -- rows that meet ------------------------------------------------------------------------------


class _Joined:
    """What the row of a pair looks like."""

    def __init__(
        self,
        left: list[str],
        right: list[str],
        keys: d.Names,
        right_keys: d.Names,
        suffix: str,
        dropped: str | None = None,
    ) -> None:
        self.left = left
        self.shared = {mine for mine, theirs in zip(keys, right_keys, strict=True) if mine == theirs}
        self.named = {
            name: name + suffix if name in self.left else name
            for name in right
            if name not in self.shared and name != dropped
        }

    def names(self) -> list[str]:
        return [*self.left, *self.named.values()]

    def values(self, one: Row | None, other: Row | None) -> Values:
        made: Values = {name: None if one is None else one.values[name] for name in self.left}
        if one is None and other is not None:
            made |= {name: other.values[name] for name in self.shared}
        return made | {
            named: None if other is None else other.values[name] for name, named in self.named.items()
        }


def _all(flows: Flows) -> list[Row]:
    return [row for flow in flows for row in flow]


def _keyed(flows: Flows, keys: d.Names) -> dict[Key, Flows]:
    found: dict[Key, Flows] = defaultdict(lambda: [[] for _ in flows])
    for number, flow in enumerate(flows):
        for row in flow:
            found[row.key(keys)][number].append(row)
    return found


def _equal(one: Key, other: Key) -> bool:
    return None not in one and one == other


def _undecided(rank: Any, row: Row, other_rank: Any, other: Row) -> bool:
    """Whether nothing says which of two different rows of one instant comes first."""
    if row.place is None or other.place is None:
        return row.place is other.place and row.values != other.values
    # a row, and rows that were made of another: their numbers are not of one kind
    same_partition = row.place[0] == other.place[0]
    return same_partition and (len(row.place) != len(other.place) or rank == other_rank)
