"""Matching: partial matches of a pattern taken on through the events of one epoch. Pure, vectorised over matches.

Receives the epoch's events in strict order and the partial matches remembered; hands the same matches, each at the
stage it came to. A match is a row of arrays; where the events it took stand is kept as row numbers, so that
no column is copied before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.pattern_steps import PatternStage
from penstock.operators.timeline import Ints, Timeline, mark_chain
from penstock.state.row_order import expand_row_ranges

Bools = npt.NDArray[np.bool_]

#: what a match is: still going on; failed; or safe, waiting only for its time to pass
OPEN, FAILED, SAFE = 0, 1, 2

#: (match, event) pairs whose conditions are worked out at a time
_PAIRS = 1 << 19
#: for each match and event: the values of a name in a condition
Values = Callable[[str, Ints, Ints], pl.Series]


@dataclass
class Matches:
    """Partial matches, side by side."""

    #: where it stands among the remembered ones; -1: it began in this epoch
    source: Ints
    #: its key's number
    number: Ints
    #: the order of the starts: remembered ones below 0, others twice the row they began with
    start: Ints
    due: Ints
    #: how many events it has taken, and for each step the row of the event; -1: none, or an earlier epoch's
    stage: Ints
    rows: Ints
    status: Ints
    #: the events it may still take: from this row to before that one, and where its key's rows end
    at: Ints
    stop: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.source)


def advance(matches: Matches, stages: list[PatternStage], values: Values, contiguous: bool) -> None:
    """Take every match on through the events, as far as it comes."""
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
        _taken(matches, here[good], row[good], number)
    matches.status[here[(row >= 0) & ~good]] = FAILED


def _next_event(matches: Matches, here: Ints, number: int, stage: PatternStage, values: Values) -> None:
    """Contiguous: the key's very next event."""
    inside = matches.at[here] < matches.stop[here]
    wanted, unwanted = np.zeros(len(here), dtype=bool), np.zeros(len(here), dtype=bool)
    wanted[inside], unwanted[inside] = _holds(stage, values, here[inside], matches.at[here[inside]])
    if stage.wanted is None:
        matches.status[here] = np.where(unwanted, FAILED, SAFE)
        return
    _taken(matches, here[wanted], matches.at[here[wanted]], number)
    matches.status[here[~wanted]] = FAILED


def _taken(matches: Matches, which: Ints, row: Ints, number: int) -> None:
    matches.rows[which, number] = row
    matches.stage[which] = number + 1
    matches.at[which] = row + 1


def _holds(stage: PatternStage, values: Values, match: Ints, event: Ints) -> tuple[Bools, Bools]:
    """For pairs of a match and an event: whether the event is wanted, and whether it is unwanted."""
    names = (*stage.own, *stage.references)
    columns = [pl.Series("_pair", np.arange(len(event))), *(values(n, match, event).alias(n) for n in names)]
    found = stage.holds(pl.DataFrame(columns))
    return found["_wanted"].to_numpy(), found["_unwanted"].to_numpy()


def _first_row(at: Ints, stop: Ints, stage: PatternStage, values: Values) -> tuple[Ints, Bools]:
    """Where the conditions are over the event alone: they are worked out once, and every match looks up its row."""
    low, high = int(at.min()), int(stop.max())
    row, good = np.full(len(at), -1), np.zeros(len(at), dtype=bool)
    if low >= high:
        return row, good
    events = np.arange(low, high)
    wanted, unwanted = _holds(stage, values, events, events)
    places = np.flatnonzero(wanted | unwanted)
    found = np.searchsorted(places, at - low)
    inside = found < len(places)
    first = places[found[inside]]
    within = first + low < stop[inside]
    hit = np.flatnonzero(inside)[within]
    row[hit] = first[within] + low
    good[hit] = wanted[first[within]]
    return row, good


def _first_pair(
    at: Ints, stop: Ints, holds: Callable[[Ints, Ints], tuple[Bools, Bools]]
) -> tuple[Ints, Bools]:
    """Where the conditions look at earlier events too: every match tries its events, a few more at a time."""
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
    """Matches that do not overlap: which of those `found` stand, when they end, and which matches they end.

    A match stands when it ends, if it began after the end of the last one that stood; then whatever of its key
    began up to its end, and is not over by then, is dropped. `ends` are on the scale of `start`, `end_times`
    the instants.
    """
    by_end = np.lexsort((matches.start[found], ends, matches.number[found]))
    order, ends, end_times = found[by_end], ends[by_end], end_times[by_end]
    number = matches.number[order]
    low = min(int(matches.start.min()), -1)
    width = int(max(matches.start.max(), ends.max(initial=0))) - low + 2
    by_start = np.lexsort((matches.start[order], number))
    starts = number[by_start] * width + matches.start[order][by_start] - low
    # of the matches that begin from some point on, the one that ends first
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
    """The matches of both."""
    names = [field.name for field in fields(Matches)]
    return Matches(*(np.concatenate([getattr(first, name), getattr(second, name)]) for name in names))


def start_matches(line: Timeline | None, starts: Ints, within: int, steps: int) -> Matches:
    """Matches that begin with these rows."""
    number = np.zeros(0, dtype=np.int64) if line is None else line.number[starts]
    due = starts if line is None else line.times[starts] + within
    rows = np.full((len(starts), steps), -1)
    rows[:, 0] = starts
    none = np.zeros(len(starts), dtype=np.int64)
    stop = none if line is None else line.first_from(number, due + 1)
    end = none if line is None else line.ends[number]
    return Matches(none - 1, number, starts * 2, due, none + 1, rows, none + OPEN, starts + 1, stop, end)
