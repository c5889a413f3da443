"""One sink of one output: which epochs it still lacks, and how it is opened and written."""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

import polars as pl

from penstock.errors import ExternalError, PenstockError
from penstock.retries import Outage
from penstock.sinks.contract import Sink

#: how often an epoch is delivered again under another generation, when the leader has changed meanwhile
_ATTEMPTS = 20
#: a sink that has not returned from a call for so long is shown as one that does not respond, in seconds
SILENT_SECONDS = 10.0


@dataclass
class SinkDelivery:
    """What a sink has of an output, and what it lacks. `Deliveries` guards the fields with its lock; `lock` guards the
    sink itself, which several outputs may share."""

    #: the output's key in the result log, and its name
    output: str
    name: str
    sink: Sink
    lock: Lock
    #: what `Sink.open` gets
    label: str
    schema: Mapping[str, pl.DataType]
    #: the last epoch that it has, and those with rows that it lacks, ascending
    done: int = -1
    pending: list[int] = field(default_factory=list)
    is_open: bool = False
    #: the epoch up to which it is known to have what this state emitted, and nothing else, as long as it was not
    #: compared with the state; None afterwards
    known: int | None = None
    #: whether a worker has it or will have it
    is_submitted: bool = False
    outage: Outage | None = None
    #: since when a call of the sink is under way, by the monotonic clock
    called_at: float | None = None
    #: the error after which it gets nothing more until its job is resumed
    failure: BaseException | None = None
    #: its job is dropped: what it lacks is delivered if it is not away, and then it is closed
    is_retiring: bool = False
    #: epochs up to this one are delivered again; and how many rows it has taken again, by epoch
    repeats_through: int = -1
    repeated_rows: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place = self.sink.describe()

    @property
    def cursor(self) -> int:
        """The epoch up to which it has everything."""
        return self.pending[0] - 1 if self.pending else self.done

    def add(self, epoch: int) -> bool:
        """Note that an epoch has rows for it; False if it has them, or they are noted."""
        if epoch <= self.done or self.lacks(epoch):
            return False
        insort(self.pending, epoch)
        return True

    def lacks(self, epoch: int) -> bool:
        """Whether it lacks what an epoch has for it."""
        place = bisect_left(self.pending, epoch)
        return place < len(self.pending) and self.pending[place] == epoch

    def finish(self, through: int) -> list[int]:
        """Note that it has everything up to an epoch; returns the epochs that it lacked until now."""
        self.done = max(self.done, through)
        place = bisect_right(self.pending, through)
        finished, self.pending = self.pending[:place], self.pending[place:]
        return finished

    def open(self) -> None:
        """Open the sink, if it is not."""
        if not self.is_open:
            with self._calling():
                self.sink.open(self.label, dict(self.schema))
            self.is_open = True

    def write(self, epoch: int, rows: pl.DataFrame, digest: str, generation: Callable[[], int]) -> bool:
        """Write the rows of an epoch, whose record has this digest, under the generation in force; again under another
        one if the leader changes meanwhile, since the rows are the same. False if the sink had them."""
        for attempt in range(_ATTEMPTS):
            current = generation()
            try:
                with self._calling():
                    self.sink.take_over(current)
                    self.sink.identify(digest)
                    return self.sink.write(epoch, rows)
            except ExternalError as refused:
                is_same = generation() == current
                if refused.condition != "FENCED" or is_same or attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        self.called_at = time.monotonic()
        try:
            yield
        finally:
            self.called_at = None

    def silent_seconds(self, now: float) -> float:
        """For how long a call of the sink has not returned; 0 if that is not unusual."""
        since = self.called_at
        seconds = 0.0 if since is None else now - since
        return seconds if seconds >= SILENT_SECONDS else 0.0

    def find_outage(self, now: float) -> Outage | None:
        """The outage that the sink has reported, or the one that it must have if it does not respond; None if there is
        none. A server may be stopped while its kernel keeps the connection."""
        seconds = self.silent_seconds(now)
        if self.outage is not None or not seconds:
            return self.outage
        error = ExternalError(
            "SINK_NOT_RESPONDING",
            f"{self.place} has not responded for {seconds:.0f} s",
            hint="Look whether it hangs. The engine waits; other sinks get their rows meanwhile.",
            is_transient=True,
        )
        return Outage(f"deliver {self.name} to {self.place}", error, now - seconds, failures=0)

    def close(self) -> None:
        """Close the sink, if it is open."""
        if self.is_open:
            self.is_open = False
            self.sink.close()


@dataclass(frozen=True)
class DeliveryLag:
    """How far a sink is behind the result log, and why: the last error while it is away."""

    #: the output's key in the result log, and its name
    output: str
    job: str
    sink: str
    #: the epoch up to which it has everything
    cursor: int
    #: epochs with rows that it lacks, and for how long the first of them has waited
    epochs: int
    seconds: float
    failures: int = 0
    error: str = ""
    #: for how long it has not responded; 0 if it does
    silent_seconds: float = 0.0

    @staticmethod
    def of(one: SinkDelivery, waited_seconds: float, now: float) -> DeliveryLag:
        """The lag of a sink whose first missing epoch has waited for so long."""
        outage = one.find_outage(now)
        failures, error = (0, one.failure) if outage is None else (outage.failures, outage.error)
        text = "" if error is None else error.text() if isinstance(error, PenstockError) else repr(error)
        return DeliveryLag(
            one.output,
            one.name,
            one.place,
            one.cursor,
            len(one.pending),
            waited_seconds,
            failures,
            text,
            one.silent_seconds(now),
        )
