"""Closing: how much of what is due one epoch tells, so that windows that end together do not make it long. Pure.

Receives what slices say of how many rows wait for which instant, and how long epochs took; hands how far the
watermark may come in the next epoch, and how long what it decides there will take.

A watermark that is held back changes when rows are told, not which: it is what it would be in an epoch that had read
less. So what is due at several instants can be told in several epochs and, where operators can, what is due at one
instant lot by lot. Each epoch that finds something due tells some of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.epoch.message import Awaited
from penstock.epoch.rate_control import LEAST_READING
from penstock.operators.contract import NEVER
from penstock.operators.job_windows import CLOSING_BATCHES, NEAR_INSTANTS
from penstock.state.manifest import StreamTime

#: where the watermark is held, and how many lots have told what is due one instant later
WatermarkLimit = tuple[int, int]
#: rows that are told lot by lot, and rows that are not
Rows = tuple[int, int]

#: an epoch that tells fewer rows says more of epochs than of rows
MANY = 20_000
_ALL_LOTS = tuple(range(CLOSING_BATCHES))


@dataclass(frozen=True)
class Due:
    """What the time of a stream has yet to decide, after an epoch.

    The watermark has `reached` an instant, and with `ahead` lots the one after it; it could be at `sure`. `rows` wait
    for instants to come; in these `lots` there are jobs.
    """

    reached: int
    sure: int
    ahead: int = 0
    rows: Mapping[int, Rows] = field(default_factory=dict)
    lots: tuple[int, ...] = _ALL_LOTS

    @property
    def held(self) -> bool:
        """Whether there is something to tell without reading any more."""
        return self.sure > self.reached

    def left(self, at: int) -> tuple[int, ...]:
        """The lots that have not told what is due at an instant."""
        if at <= self.reached:
            return ()
        return tuple(lot for lot in self.lots if at != self.reached + 1 or lot >= self.ahead)

    def passed(self, later: Due) -> int:
        """How many of the rows that waited were told by a later epoch."""
        total = 0.0
        for at, (in_lots, whole) in self.rows.items():
            waited = len(self.left(at))
            if waited:
                told = waited - min(waited, len(later.left(at)))
                total += in_lots * told / len(self.lots)
            total += whole if self.reached < at <= later.reached else 0
        return round(total)


@dataclass(frozen=True)
class Step:
    """How far the next epoch goes (None: as far as it can), and the seconds it takes for what is due for sure."""

    limit: WatermarkLimit | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Closing:
    """What it takes to tell a row that waited; learned from epochs that tell many."""

    row_seconds: float = 4e-6

    #: by so much an epoch may be longer for what is decided by what it reads
    SLACK = 0.15
    #: how far one epoch may change what is believed of a row; and how much of it where it took less than believed: not
    #: all rows take as long, and an epoch that is too long is worse than one too many
    MOST_CHANGE, FASTER = 4.0, 0.5
    #: what no row takes less or more than, in seconds: beyond that something else made epochs long
    FASTEST, SLOWEST = 2e-7, 5e-5

    def step(self, due: Due, room_seconds: float, reading_seconds: float) -> Step:
        """How far an epoch of so many seconds may go, which would read for so long if nothing were due."""
        room = (1 - LEAST_READING) * room_seconds
        spent = later = 0.0
        for at in sorted(at for at in due.rows if at > due.reached):
            in_lots, whole = due.rows[at]
            left = due.left(at)
            lot = in_lots * self.row_seconds / max(1, len(due.lots))
            cost = len(left) * lot + whole * self.row_seconds
            begun = due.ahead if at == due.reached + 1 else 0
            if at > due.sure:
                free = max(room_seconds - spent, LEAST_READING * room_seconds)
                if spent + later + cost + min(reading_seconds, free) > (1 + self.SLACK) * room_seconds:
                    return Step((at - 1, begun), spent)
                later += cost
            elif spent + cost > room:
                fit = int((room - spent) / lot) if lot > 0 and spent < room else 0
                # an epoch that has told nothing yet tells a lot at least; where there is one lot alone, all of it
                now = left[: max(fit, 0 if spent else 1)] if len(due.lots) > 1 and lot > 0 else ()
                if spent or now:
                    ahead = CLOSING_BATCHES if now and now == left else now[-1] + 1 if now else begun
                    return Step((at - 1, ahead), spent + len(now) * lot)
                spent += cost  # it cannot be cut
            else:
                spent += cost
        return Step(None, spent)

    def observed(self, share: float, factor: float) -> Closing:
        """After an epoch that took `factor` times as long as believed, `share` of it for what it told."""
        factor = min(max(factor, 1 / self.MOST_CHANGE), self.MOST_CHANGE)
        share *= 1 if factor > 1 else self.FASTER
        learned = self.row_seconds * (1 + share * (factor - 1))
        return replace(self, row_seconds=min(max(learned, self.FASTEST), self.SLOWEST))


def soonest(awaited: Mapping[int, int]) -> dict[int, int]:
    """What waits for the next instants; what waits for later ones is put to the first of these."""
    instants = sorted(awaited)
    found = {at: awaited[at] for at in instants[:NEAR_INSTANTS]}
    if len(instants) > NEAR_INSTANTS:
        found[instants[NEAR_INSTANTS]] = sum(awaited[at] for at in instants[NEAR_INSTANTS:])
    return found


def dues(
    awaited: Iterable[Awaited],
    times: Mapping[str, StreamTime],
    sure: Mapping[str, StreamTime],
) -> dict[str, Due]:
    """What is due in each stream, by what the slices said and where the watermarks are and could be."""
    rows: dict[str, dict[int, Rows]] = {}
    lots: dict[str, set[int]] = {}
    for one in awaited:
        lots.setdefault(one.stream, set()).update(one.batches)
        there = rows.setdefault(one.stream, {})
        for at, count in one.rows.items():
            cut, whole = there.get(at, (0, 0))
            there[at] = (cut + count, whole) if one.batches else (cut, whole + count)
    return {
        name: Due(
            _mark(stream),
            _mark(sure[name]),
            stream.ahead,
            rows.get(name, {}),
            tuple(sorted(lots.get(name, ()))),
        )
        for name, stream in times.items()
    }


def _mark(stream: StreamTime) -> int:
    return NEVER if stream.watermark is None else stream.watermark
