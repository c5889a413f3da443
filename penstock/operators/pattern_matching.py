"""Advance the partial matches of a pattern through the events of one epoch. Pure, vectorised over matches.

A match is a row of arrays. It refers to its events by row number, so that no column is copied before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.pattern_steps import PatternStage
from penstock.operators.timeline import Ints, Timeline, mark_chain
from penstock.state.buckets import expand_row_ranges

Bools = npt.NDArray[np.bool_]

#: the status of a match: still open; failed; or safe, waiting only for its time to pass
OPEN, FAILED, SAFE = 0, 1, 2

#: how many (match, event) pairs conditions are evaluated for at a time
_PAIRS = 1 << 19
#: for each match and event: the values of a name in a condition
Values = Callable[[str, Ints, Ints], pl.Series]


@dataclass
class Matches:
    """Partial matches, side by side."""

    #: its position among the stored matches; -1: it started in this epoch
    source: Ints
    #: the number of its key
    number: Ints
    #: the order of the starts: below 0 for stored matches, twice the row of the first event for others
    start: Ints
    due: Ints
    #: how many events it has, and for each step the row of the event; -1: none, or one of an earlier epoch
    stage: Ints
    rows: Ints
    status: Ints
    #: the events it may still take are from this row to before `stop`; the rows of its key end at `end`
    at: Ints
    stop: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.source)


def advance(matches: Matches, stages: list[PatternStage], values: Values, contiguous: bool) -> None:
    """Advance every match through the events as far as it gets."""
    for number, stage in enumerate(stages):
        if not number:
            continue
        here = np.flatnonzero(
            (matches.stage == number) & (matches.status == OPEN) & (matches.at < matches.end)
        )
        if len(here):
            (_next_event if contiguous else _first_event)(matches, here, number, stage, values)


def _first_event(matches: Matches, here: Ints, number: int, stage: PatternStage, values: Values) -> None:
    """Skip till next match: the first event that is wanted, unless an unwanted one comes before it."""
    at, stop = matches.at[here], matches.stop[here]
    if stage.references:
        row, good = _first_pair(at, stop, lambda one, event: _holds(stage, values, here[one], event))
    else:
        row, good = _first_row(at, stop, stage, values)
    if stage.wanted is not None:
        _take_events(matches, here[good], row[good], number)
    matches.status[here[(row >= 0) & ~good]] = FAILED


def _next_event(matches: Matches, here: Ints, number: int, stage: PatternStage, values: Values) -> None:
    """Contiguous: the very next event of the key."""
    inside = matches.at[here] < matches.stop[here]
    wanted, unwanted = np.zeros(len(here), dtype=bool), np.zeros(len(here), dtype=bool)
    wanted[inside], unwanted[inside] = _holds(stage, values, here[inside], matches.at[here[inside]])
    if stage.wanted is None:
        matches.status[here] = np.where(unwanted, FAILED, SAFE)
        return
    _take_events(matches, here[wanted], matches.at[here[wanted]], number)
    matches.status[here[~wanted]] = FAILED


def _take_events(matches: Matches, which: Ints, row: Ints, number: int) -> None:
    matches.rows[which, number] = row
    matches.stage[which] = number + 1
    matches.at[which] = row + 1


def _holds(stage: PatternStage, values: Values, match: Ints, event: Ints) -> tuple[Bools, Bools]:
    """For pairs of a match and an event: whether the event is wanted, and whether it is unwanted."""
    names = (*stage.own, *stage.references)
    columns = [pl.Series("_pair", np.arange(len(event))), *(values(n, match, event).alias(n) for n in names)]
    holds = stage.holds(pl.DataFrame(columns))
    return holds["_wanted"].to_numpy(), holds["_unwanted"].to_numpy()


def _first_row(at: Ints, stop: Ints, stage: PatternStage, values: Values) -> tuple[Ints, Bools]:
    """For conditions on the event alone: evaluate them once for every event, and let every match look up its row."""
    low, high = int(at.min()), int(stop.max())
    row, good = np.full(len(at), -1), np.zeros(len(at), dtype=bool)
    if low >= high:
        return row, good
    events = np.arange(low, high)
    wanted, unwanted = _holds(stage, values, events, events)
    hits = np.flatnonzero(wanted | unwanted)
    next_hit = np.searchsorted(hits, at - low)
    inside = next_hit < len(hits)
    first = hits[next_hit[inside]]
    within = first + low < stop[inside]
    matched = np.flatnonzero(inside)[within]
    row[matched] = first[within] + low
    good[matched] = wanted[first[within]]
    return row, good


def _first_pair(
    at: Ints, stop: Ints, holds: Callable[[Ints, Ints], tuple[Bools, Bools]]
) -> tuple[Ints, Bools]:
    """For conditions on earlier events too: every match tries its events, a few more at a time."""
    at = at.copy()
    row, good = np.full(len(at), -1), np.zeros(len(at), dtype=bool)
    searching, width = np.flatnonzero(at < stop), 4
    while len(searching):
        for some in np.array_split(searching, len(searching) * width // _PAIRS + 1):
            count = np.minimum(width, stop[some] - at[some])
            which, event = expand_row_ranges(at[some], at[some] + count)
            match = some[which]
            wanted, unwanted = holds(match, event)
            hits = np.flatnonzero(wanted | unwanted)
            hits = hits[np.append(True, match[hits[1:]] != match[hits[:-1]])] if len(hits) else hits
            row[match[hits]] = event[hits]
            good[match[hits]] = wanted[hits]
            at[some] += count
        searching = searching[(row[searching] < 0) & (at[searching] < stop[searching])]
        width = min(width * 4, _PAIRS)
    return row, good


def skip_past(matches: Matches, found: Ints, ends: Ints, end_times: Ints) -> tuple[Ints, Ints, Bools]:
    """Choose matches that do not overlap: those of `found` that stand, when they end, and which matches they drop.

    In the order of their ends, a match stands if it started after the end of the last one that stood. Then every match
    of its key that started up to its end, and is not over by then, is dropped. `ends` are on the scale of `start`,
    `end_times` are instants.
    """
    by_end = np.lexsort((matches.start[found], ends, matches.number[found]))
    order, ends, end_times = found[by_end], ends[by_end], end_times[by_end]
    number = matches.number[order]
    low = min(int(matches.start.min()), -1)
    width = int(max(matches.start.max(), ends.max(initial=0))) - low + 2
    by_start = np.lexsort((matches.start[order], number))
    starts = number[by_start] * width + matches.start[order][by_start] - low
    # of the matches that start from some point on, the one that ends first
    first_to_end = np.minimum.accumulate(by_start[::-1])[::-1]
    after = np.searchsorted(starts, number * width + ends - low, side="right")
    following = np.append(first_to_end, len(order))[after]
    same_key = np.append(number, -1)[following] == number
    heads = np.flatnonzero(np.append(True, number[1:] != number[:-1])) if len(order) else order
    stand = np.flatnonzero(mark_chain(heads, np.where(same_key, following, len(order))))
    codes = number[stand] * width + ends[stand] - low
    meets = np.searchsorted(codes, matches.number * width + matches.start - low)
    met = np.append(stand, -1)[meets]
    dropped = (np.append(number, -1)[met] == matches.number) & (np.append(end_times, 0)[met] <= matches.due)
    standing = order[stand]
    dropped[standing] = False
    return standing, end_times[stand], dropped


def concat_matches(first: Matches, second: Matches) -> Matches:
    """Concatenate matches."""
    names = [field.name for field in fields(Matches)]
    return Matches(*(np.concatenate([getattr(first, name), getattr(second, name)]) for name in names))


def start_matches(line: Timeline | None, starts: Ints, within: int, steps: int) -> Matches:
    """New matches whose first events are these rows."""
    number = np.zeros(0, dtype=np.int64) if line is None else line.number[starts]
    due = starts if line is None else line.times[starts] + within
    rows = np.full((len(starts), steps), -1)
    rows[:, 0] = starts
    none = np.zeros(len(starts), dtype=np.int64)
    stop = none if line is None else line.first_from(number, due + 1)
    end = none if line is None else line.ends[number]
    return Matches(none - 1, number, starts * 2, due, none + 1, rows, none + OPEN, starts + 1, stop, end)
