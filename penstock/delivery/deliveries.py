"""Delivers the result log to the sinks: each sink of each output at its own pace, with a cursor of its own.

A transient error of a sink is retried with back-off for as long as it lasts; meanwhile the sink's cursor falls behind,
and nothing else waits for it. Any other error belongs to the job, which `on_failure` may fail alone; an error that
nobody takes ends the engine (`check`).

Guarantees: a sink gets the epochs of an output in ascending order, each until it has taken it. A cursor is never ahead
of its sink. An engine that holds delivers nothing until `release`; what it lacks is in the log by then.
Does not guarantee: that a sink that does not know epochs gets each once: after a crash it gets again what was delivered
since the cursors were written.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from threading import Lock

import polars as pl

from penstock.delivery.cursors import Cursors, read_cursors, write_cursors
from penstock.delivery.result_log import ResultLog
from penstock.delivery.side_output import SIDE_OUTPUT
from penstock.delivery.sink_delivery import DeliveryLag, SinkDelivery
from penstock.delivery.sink_progress import RecordedEpochs, is_ahead, read_sink_labels, restored_error
from penstock.delivery.workers import Workers
from penstock.errors import InternalError, PenstockError, is_transient
from penstock.retries import Outage, RetryPolicy
from penstock.sinks.contract import Sink, SinkEpoch
from penstock.sinks.recent_epochs import STATE_RESTORED

_LOG = logging.getLogger(__name__)
#: a worker delivers to one sink for so long at a time, in seconds; then it is another one's turn
_TURN_SECONDS = 0.1
#: while there is more to deliver, cursors are written so often, in seconds
_SAVE_SECONDS = 0.02
#: of so many epochs that sinks may lack it is known at a start which outputs have rows; of earlier ones once they
#: are delivered
_READ_AT_START = 1_000
#: an outage that lasts is logged so often, in seconds
_LOG_SECONDS = 300.0


# over 25 methods: who delivers, what sinks lack and their cursors share one lock
class Deliveries:
    """The deliveries of one engine. From any thread; no call waits for a sink but those that say so."""

    def __init__(self, log: ResultLog, policy: RetryPolicy | None = None) -> None:
        self._log, self._policy = log, policy or RetryPolicy()
        #: the generation under which sinks are written
        self.generation: Callable[[], int] = lambda: 0
        #: gets an output and the error of one of its sinks; returns whether its job fails alone
        self.on_failure: Callable[[str, PenstockError], bool] = lambda output, error: False
        #: is called before each write to a sink, and raises if this engine may write no more
        self.check_lease: Callable[[], None] = lambda: None
        #: is called when all sinks have an epoch
        self.on_delivered: Callable[[int], None] = lambda epoch: None
        #: what the state has recorded; None: sinks are not compared with it
        self.recorded: RecordedEpochs | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._sinks: dict[str, list[SinkDelivery]] = {}
        self._locks: dict[int, Lock] = {}
        self._workers: Workers[SinkDelivery] | None = None
        self._is_holding = self._is_closed = self._leads = False
        #: the first error of a sink that ends the engine
        self.error: BaseException | None = None
        self._random = random.Random()
        #: how far everything was delivered at the start, and the outputs with rows in each epoch after that
        self._cursors, self._found = Cursors(), dict[int, set[str] | None]()
        self._found_epochs: list[int] = []
        #: the cursors as they were written, by which sinks are compared with the state
        self._written = Cursors()
        self._labels: Mapping[str, str] = {}
        self._through = -1
        #: how many sinks lack an epoch, and when it was appended, by the monotonic clock
        self._lacking: dict[int, int] = {}
        self._appended_at: dict[int, float] = {}
        self._is_dirty, self._saved_at = False, 0.0
        self._save_lock = Lock()
        #: how many attempts have failed because a sink was away
        self.retry_count = 0

    # -- start -----------------------------------------------------------------------------------

    def start(self, default: int, *, leads: bool, most: int | None = None) -> None:
        """Read the cursors: what the log has after them is delivered once the sinks are registered. `default`: where
        they are if a former version has written none; `most`: where they are at most. Who `leads` writes them from now
        on."""
        with self._lock:
            self._leads, self._is_closed, self.error, self._workers = leads, False, None, None
            folder = self._log.folder
            found = read_cursors(folder)
            self._labels = read_sink_labels(folder)
            self._written = found or Cursors(default)
            self._cursors = self._written.at_most(most)
            if found is None and leads:
                write_cursors(folder, self._cursors, synced=True)
            epochs = [epoch for epoch in self._log.epochs if epoch > self._cursors.oldest]
            self._found = dict.fromkeys(epochs)
            self._found |= {epoch: self._outputs_in(epoch) for epoch in epochs[-_READ_AT_START:]}
            self._found_epochs = epochs
            self._through = max([self._cursors.through, *epochs])

    def _outputs_in(self, epoch: int) -> set[str] | None:
        """The outputs with rows in an epoch; None, which is any, where they cannot be read: whoever needs them reports
        it."""
        try:
            return self._log.outputs_in(epoch)
        except InternalError as damage:
            _LOG.error("%s", damage)
            return None

    def oldest_cursor(self) -> int:
        """The epoch that every sink has, by the cursors that were written last."""
        found = read_cursors(self._log.folder)
        return self._through if found is None else found.oldest

    def register(
        self,
        output: str,
        name: str,
        sinks: Sequence[Sink],
        label: str,
        schema: Mapping[str, pl.DataType],
        *,
        opens: bool = False,
    ) -> None:
        """Deliver an output to these sinks from now on, and what the log has for them. `opens`: the caller opens them
        first, waits for that and gets their errors."""
        label += self._labels.get(output, "")
        ones = [SinkDelivery(output, name, sink, self._lock_of(sink), label, schema) for sink in sinks]
        self._set_known(output, ones)
        for one in ones if opens else ():
            with one.lock:
                self._open(one)
        with self._lock:
            former = self._sinks.get(output)
            if former is not None:
                _hand_over(former, ones, self._through)
            else:
                present = [one.place for one in ones]
                for one in ones:
                    self._catch_up(one, self._cursors.position(output, one.place, present))
                self._claim(output)
            self._sinks[output] = ones
            for one in ones:
                self._submit(one)
        for one in former or ():
            with one.lock:
                _close(one)

    def _set_known(self, output: str, ones: Sequence[SinkDelivery]) -> None:
        """Set the epoch up to which new sinks of an output are known."""
        present = [one.place for one in ones]
        with self._lock:
            former = {one.place: one for one in self._sinks.get(output, ())}
            for one in ones:
                if one.place in former:
                    one.known = former[one.place].known
                elif former:
                    one.known = self._through
                elif self._written.is_damaged and self.recorded is not None:
                    one.known = self.recorded.newest()
                else:
                    one.known = self._written.known(output, one.place, present)

    def _open(self, one: SinkDelivery) -> None:
        """Open a sink, and compare it with the state before it gets anything."""
        one.open()
        if one.known is None:
            return
        found = one.sink.newest_epoch()
        if found is not None and is_ahead(found, one.known, self.recorded, self._log):
            with self._lock:
                self._note_refused(found)
            _close(one)
            raise restored_error(self._log.folder.parent, one.name, one.place, found, one.known)
        with self._lock:
            one.known, self._is_dirty = None, True

    def _lock_of(self, sink: Sink) -> Lock:
        with self._lock:
            return self._locks.setdefault(id(sink), Lock())

    def _catch_up(self, one: SinkDelivery, done: int) -> None:
        """Let a sink that has everything up to an epoch get what the log has after it."""
        one.finish(done)
        for epoch in self._found_epochs[bisect_right(self._found_epochs, done) :]:
            outputs = self._found.get(epoch, set[str]())
            if (outputs is None or one.output in outputs) and one.add(epoch):
                self._lacking[epoch] = self._lacking.get(epoch, 0) + 1

    def _claim(self, output: str) -> None:
        """The sinks of an output know from now on themselves what they lack."""
        self._cursors = self._cursors.only({*self._cursors.behind, *self._cursors.unchecked} - {output})
        for outputs in self._found.values():
            if outputs is not None:
                outputs.discard(output)

    def settle(self, known: Collection[str]) -> None:
        """All sinks are registered but those of these outputs: what the log has for others gets nobody."""
        with self._lock:
            lost = [name for name in self._cursors.behind if name not in known]
            for name in lost:
                _LOG.warning("what the sinks of %s lack is not delivered: it is dropped", name)
            self._cursors = self._cursors.only(known)
            for epoch, outputs in list(self._found.items()):
                if outputs is None or not outputs & set(known):
                    del self._found[epoch]
                else:
                    self._found[epoch] = outputs & set(known)

    def open_all(self, seconds: float) -> None:
        """Open all sinks, and wait at most so long for those that are neither open nor away. Raises what ends the
        engine."""
        with self._lock:
            ones = [one for sinks in self._sinks.values() for one in sinks]
            for one in ones:
                self._submit(one, opens=True)
            self._changed.wait_for(
                lambda: self.error is not None or not any(_is_opening(one) for one in ones),
                seconds,
            )
        self.check()

    def is_registered(self, output: str, sinks: Sequence[Sink]) -> bool:
        """Whether an output is delivered to these very sinks."""
        with self._lock:
            known = self._sinks.get(output)
            return known is not None and [one.sink for one in known] == list(sinks)

    def check_columns(self, output: str, schema: Mapping[str, pl.DataType]) -> None:
        """Raise if a sink of an output cannot take these columns, which it gets from now on. One that is away is not
        asked: it says so when it is back."""
        with self._lock:
            ones = list(self._sinks.get(output, ()))
        for one in ones:
            if one.is_open and dict(one.schema) != dict(schema):
                one.sink.check(dict(schema))
        for one in ones:
            one.schema = schema

    # -- epochs ----------------------------------------------------------------------------------

    def add(self, epoch: int, outputs: Collection[str]) -> None:
        """Deliver an epoch, which is committed and in which these outputs have rows."""
        with self._lock:
            self._through = max(self._through, epoch)
            for output in outputs:
                for one in self._sinks.get(output, ()):
                    if one.add(epoch):
                        self._lacking[epoch] = self._lacking.get(epoch, 0) + 1
                        self._appended_at.setdefault(epoch, time.monotonic())
                    self._submit(one)
            is_delivered = epoch not in self._lacking
            self._is_dirty = True
        if is_delivered:
            self.on_delivered(epoch)

    def repeat(self, outputs: Collection[str], after: int) -> None:
        """Deliver again to the sinks of outputs what they got after an epoch."""
        with self._lock:
            epochs = [epoch for epoch in self._log.epochs if epoch > after]
            for one in (one for output in outputs for one in self._sinks.get(output, ())):
                if one.done > self._through:  # somebody has decided that it does without
                    continue
                one.repeats_through, one.done = one.done, min(one.done, after)
                for epoch in epochs:
                    if one.output in (self._outputs_in(epoch) or {one.output}) and one.add(epoch):
                        self._lacking[epoch] = self._lacking.get(epoch, 0) + 1
                self._submit(one)

    def take_repeated_rows(self, epoch: int, seconds: float) -> Mapping[str, int]:
        """How many rows sinks have taken again of an epoch, by the name of the output; waits at most so long for
        sinks that are not away."""
        taken: dict[str, int] = {}
        with self._lock:
            repeating = [
                one for sinks in self._sinks.values() for one in sinks if epoch <= one.repeats_through
            ]
            self._changed.wait_for(
                lambda: not any(epoch in one.pending and one.outage is None for one in repeating), seconds
            )
            for one in repeating:
                taken[one.name] = taken.get(one.name, 0) + one.repeated_rows.pop(epoch, 0)
        return taken

    def resume(self, outputs: Collection[str]) -> None:
        """Try again to deliver these outputs, also after an error of theirs."""
        with self._lock:
            for one in (one for output in outputs for one in self._sinks.get(output, ())):
                if one.failure is not None:
                    one.failure = None
                    self._submit(one)

    def retire(self, needed: Collection[str]) -> None:
        """Close the sinks of all other outputs once they have what the log has for them, or are away."""
        with self._lock:
            for output in [name for name in self._sinks if name not in needed and name != SIDE_OUTPUT]:
                for one in self._sinks[output]:
                    one.is_retiring = True
                    self._submit(one)
                if not self._sinks[output] or (
                    self._is_holding and not any(one.pending for one in self._sinks[output])
                ):
                    del self._sinks[output]  # nothing of it is open

    def lacking(self, epoch: int) -> Collection[str]:
        """The outputs that some sink lacks in an epoch."""
        with self._lock:
            found = {output for output, ones in self._sinks.items() if any(one.lacks(epoch) for one in ones)}
            unregistered = self._found.get(epoch, set[str]())
            return found | (set(self._sinks) if unregistered is None else unregistered)

    @property
    def first_lacked(self) -> int | None:
        """The first epoch that some sink lacks; None if none lacks any."""
        with self._lock:
            pending = (one.pending[0] for ones in self._sinks.values() for one in ones if one.pending)
            return min([*pending, *self._found], default=None)

    def farthest_behind(self, outputs: Collection[str]) -> DeliveryLag | None:
        """Of the sinks of some outputs the one that lacks the oldest epoch; None if none lacks any."""
        return next((lag for lag in self.lags() if lag.output in outputs), None)

    # -- who delivers ----------------------------------------------------------------------------

    def hold(self) -> None:
        """Deliver nothing from now on."""
        with self._lock:
            self._is_holding = True

    def release(self) -> None:
        """Deliver what sinks lack."""
        with self._lock:
            if self._is_holding:
                self._is_holding = False
                for ones in self._sinks.values():
                    for one in ones:
                        self._submit(one)

    def lead(self) -> None:
        """Deliver, and write the cursors from now on."""
        with self._lock:
            self._leads = self._is_dirty = True
            self.release()

    def follow(self) -> None:
        """Leave out what the sinks have by the cursors that the leader writes."""
        cursors = read_cursors(self._log.folder)
        if cursors is None:
            return
        with self._lock:
            for output, ones in self._sinks.items():
                present = [one.place for one in ones]
                for one in ones:
                    position = cursors.position(output, one.place, present)
                    is_skipped = position > cursors.through  # somebody has decided that
                    self._finish(one, position if is_skipped else min(position, self._through))
                    if one.known is not None:
                        one.known = cursors.known(output, one.place, present)

    @property
    def held_epochs(self) -> list[int]:
        """The epochs that some sink lacks while nothing is delivered."""
        with self._lock:
            if not self._is_holding:
                return []
            return sorted({epoch for ones in self._sinks.values() for one in ones for epoch in one.pending})

    # -- what is known ---------------------------------------------------------------------------

    def check(self) -> None:
        """Raise an error of a sink that ends the engine."""
        if self.error is not None:
            raise self.error

    def lags(self) -> list[DeliveryLag]:
        """The sinks that are behind, the farthest first."""
        now = time.monotonic()
        with self._lock:
            ones = [one for ones in self._sinks.values() for one in ones if one.pending]
            ones = [one for one in ones if not (one.is_retiring and one.outage is not None)]
            found = [
                DeliveryLag.of(one, now - self._appended_at.setdefault(one.pending[0], now), now)
                for one in ones
            ]
        return sorted(found, key=lambda lag: lag.cursor)

    @property
    def failures(self) -> list[BaseException]:
        """Why sinks take nothing now: errors that do not pass, and that of the longest outage."""
        with self._lock:
            ones = [one for ones in self._sinks.values() for one in ones]
            found = [one.failure for one in ones if one.failure is not None]
        return found if self.outage is None else [*found, self.outage.error]

    @property
    def outage(self) -> Outage | None:
        """The longest outage of a sink whose job is not dropped; None if none is away and all respond."""
        now = time.monotonic()
        with self._lock:
            ones = [one for ones in self._sinks.values() for one in ones if not one.is_retiring]
            outages = [one.find_outage(now) for one in ones]
        return min((one for one in outages if one is not None), key=lambda one: one.since, default=None)

    def finish(self, seconds: float, longest_outage_seconds: float = 0.0) -> None:
        """Wait until the sinks have everything: at most so long for those that are not away, and for an outage until it
        has lasted so long. Raises what ends the engine."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while not self._is_holding and self.error is None:
                now = time.monotonic()
                waiting = [
                    one for ones in self._sinks.values() for one in ones if self._next_epoch(one) is not None
                ]
                outages = [one.find_outage(now) for one in waiting]
                is_active = None in outages and now < deadline
                is_away = any(one and now - one.since < longest_outage_seconds for one in outages)
                if not (is_away or is_active):
                    break
                self._changed.wait(0.1)
        self._save(at_once=True)
        self.check()

    def close(self) -> None:
        """Deliver nothing more, and close all sinks."""
        with self._lock:
            self._is_closed = True
            workers = self._workers
        if workers is not None:
            workers.close(seconds=1.0)
        self._save(at_once=True)
        with self._lock:
            ones = [one for ones in self._sinks.values() for one in ones]
            self._sinks.clear()
            self._locks.clear()
            self._lacking.clear()
        for one in ones:
            if one.pending and self._leads:
                _LOG.warning(
                    "%s lacks %d epochs of %s: they are delivered after the next start",
                    *(one.place, len(one.pending), one.name),
                )
            if one.lock.acquire(timeout=0.5):  # else a worker is still in it
                try:
                    _close(one)
                finally:
                    one.lock.release()

    def wait_until_ended(self, seconds: float) -> bool:
        """Wait at most so long, after `close`, until no write to a sink is under way; returns whether none is."""
        return self._workers is None or self._workers.close(seconds)

    # -- workers ---------------------------------------------------------------------------------

    def _next_epoch(self, one: SinkDelivery) -> int | None:
        """The next epoch that a sink is to get."""
        is_blocked = self._is_closed or self._is_holding or one.failure is not None or self.error is not None
        return None if is_blocked or not one.pending else one.pending[0]

    def _submit(self, one: SinkDelivery, delay_seconds: float = 0.0, *, opens: bool = False) -> None:
        """Have a worker deliver what a sink lacks, if there is anything and none has it already."""
        has_work = self._next_epoch(one) is not None or one.is_retiring
        is_blocked = self._is_closed or self._is_holding
        if one.is_submitted or is_blocked or not (has_work or (opens and not one.is_open)):
            return
        if self._workers is None:
            self._workers = Workers(self._deliver, "delivery")
        one.is_submitted = True
        self._workers.submit(one, delay_seconds)

    def _deliver(self, one: SinkDelivery) -> None:
        """Deliver to a sink for a while. Does not raise."""
        started, pause = time.monotonic(), 0.0
        try:
            with one.lock:
                if not (self._is_closed or self._is_holding or one.failure or one.is_retiring):
                    self.check_lease()
                    self._open(one)
                while (epoch := self._next_epoch(one)) is not None:
                    self._write(one, epoch)
                    if time.monotonic() - started > _TURN_SECONDS:
                        break
            self._end_outage(one)
        except BaseException as failure:  # of a sink, which may be the user's own
            pause = self._handle(one, failure)
        with self._lock:
            one.is_submitted = False
            is_over = self._is_retired(one)
            closes = is_over and self._retire(one)
            if not is_over:
                self._submit(one, pause, opens=pause > 0)
            self._changed.notify_all()
        if closes:
            with one.lock:
                _close(one)
        try:
            self._save()
        except PenstockError as failure:
            _LOG.warning("%s", failure)  # older cursors are as good, and the next ones may be written

    def _write(self, one: SinkDelivery, epoch: int) -> None:
        """Deliver an epoch to a sink."""
        self.check_lease()
        self._open(one)
        rows = self._log.of(one.output, epoch)
        if rows is None and self._leads and not self._log.has(epoch):
            raise InternalError(
                "RESULTS_GONE",
                f"the result log no longer has what {one.name} emitted in epoch {epoch}, and {one.place} lacks it",
                hint="Go back to an earlier epoch with `penstock state rollback DIR`, which makes it again; or "
                f"continue without it: `penstock recover skip-delivery DIR {one.name} --through {epoch}`.",
            )
        is_new = rows is not None and self._write_rows(one, epoch, rows)
        with self._lock:
            if epoch <= one.repeats_through:
                one.repeated_rows[epoch] = rows.height if is_new and rows is not None else 0
            self._finish(one, epoch)

    def _write_rows(self, one: SinkDelivery, epoch: int, rows: pl.DataFrame) -> bool:
        try:
            return one.write(epoch, rows, self._log.digest_of(epoch), self.generation)
        except PenstockError as refused:
            if refused.condition != STATE_RESTORED:
                raise
            found = one.sink.newest_epoch() or SinkEpoch(epoch)
            with self._lock:
                one.known = epoch - 1
                self._note_refused(found)
            directory = self._log.folder.parent
            raise restored_error(directory, one.name, one.place, found, epoch - 1) from refused

    def _note_refused(self, found: SinkEpoch) -> None:
        """Have the cursors say that a sink was refused."""
        generation = max(self._cursors.refused_generation, found.generation)
        self._cursors, self._is_dirty = replace(self._cursors, refused_generation=generation), True

    def _finish(self, one: SinkDelivery, epoch: int) -> None:
        """A sink has everything up to an epoch."""
        delivered = []
        for finished in one.finish(epoch):
            self._lacking[finished] = self._lacking.get(finished, 1) - 1
            if self._lacking[finished] <= 0:
                del self._lacking[finished]
                self._appended_at.pop(finished, None)
                delivered.append(finished)
        self._is_dirty = True
        for finished in delivered:
            self.on_delivered(finished)

    def _handle(self, one: SinkDelivery, failure: BaseException) -> float:
        """Decide what follows from an error of a sink; returns the seconds until the next attempt."""
        if one.is_retiring:
            one.failure = failure
            return 0.0
        if isinstance(failure, Exception) and is_transient(failure):
            return self._note_outage(one, failure)
        condition = failure.condition if isinstance(failure, PenstockError) else ""
        error = failure
        # a panic in Polars is no Exception: a sink's format may not have a date of the year 5,000,000
        is_of_sink = isinstance(failure, Exception | pl.exceptions.PanicException)
        if is_of_sink and not isinstance(failure, PenstockError):
            error = InternalError("SINK_FAILED", f"{one.place}: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        with self._lock:
            one.failure, one.outage = failure, None
        is_taken = False
        if isinstance(error, PenstockError) and condition not in ("FENCED", "LEASE_LOST"):
            try:
                is_taken = self.on_failure(one.output, error)
            except Exception as other:  # what prevents that ends the engine
                error = other
        if not is_taken:
            with self._lock:
                self.error = self.error or error
        return 0.0

    def _note_outage(self, one: SinkDelivery, failure: Exception) -> float:
        now, step = time.monotonic(), f"deliver {one.name} to {one.place}"
        with self._lock:
            self.retry_count += 1
            former = one.outage
            outage = (
                Outage(step, failure, former.since, former.failures + 1, former.logged_at) if former else None
            )
            outage = outage or Outage(step, failure, now)
            if former is None or now - outage.logged_at >= _LOG_SECONDS:
                _LOG.warning("waiting to %s, tried again until it succeeds: %s", step, failure)
                outage = Outage(step, failure, outage.since, outage.failures, now)
            one.outage = outage
        return self._policy.pause_seconds(outage.failures, self._random.random())

    def _end_outage(self, one: SinkDelivery) -> None:
        with self._lock:
            outage, one.outage = one.outage, None
        if outage is not None:
            seconds = time.monotonic() - outage.since
            _LOG.warning("can %s again, after %.1f s and %d failures", outage.step, seconds, outage.failures)

    def _is_retired(self, one: SinkDelivery) -> bool:
        """Whether a sink of a dropped job has what the log has for it, or cannot take it."""
        is_blocked = self._is_closed or self._is_holding or self.error is not None
        return one.is_retiring and not is_blocked and (not one.pending or one.failure is not None)

    def _retire(self, one: SinkDelivery) -> bool:
        """Forget a sink of a dropped job; returns whether no other output has the same one."""
        if one.pending:
            _LOG.warning(
                "%s is away and its job %s is dropped: %d epochs are not delivered",
                *(one.place, one.name, len(one.pending)),
            )
            self._finish(one, one.pending[-1])
        ones = [other for other in self._sinks.get(one.output, ()) if other is not one]
        if ones:
            self._sinks[one.output] = ones
        else:
            self._sinks.pop(one.output, None)
        is_last = all(other.lock is not one.lock for others in self._sinks.values() for other in others)
        if is_last:
            self._locks.pop(id(one.sink), None)
        return is_last

    # -- cursors ---------------------------------------------------------------------------------

    def _save(self, *, at_once: bool = False) -> None:
        """Write the cursors, if they have changed and nothing else is due."""
        workers = self._workers
        with self._save_lock:
            is_late = time.monotonic() - self._saved_at >= _SAVE_SECONDS
            if not (at_once or is_late or workers is None or workers.is_idle):
                return
            with self._lock:
                if not (self._is_dirty and self._leads):
                    return
                self._is_dirty = False
                unchecked = self._unchecked()
                generation = self._cursors.refused_generation if unchecked else 0
                cursors = Cursors(self._through, self._behind(), unchecked, generation)
            write_cursors(self._log.folder, cursors)
            self._saved_at = time.monotonic()

    def _behind(self) -> dict[str, dict[str, int]]:
        """The cursors of sinks that are behind, and of those that are not registered."""
        behind = {name: dict(sinks) for name, sinks in self._cursors.behind.items()}
        for outputs in self._found.values():
            for name in outputs or ():
                behind.setdefault(name, {"": self._cursors.through})
        for output, ones in self._sinks.items():
            for one in ones:
                if one.pending or one.done > self._through:
                    positions = behind.setdefault(output, {})
                    positions[one.place] = min(one.cursor, positions.get(one.place, one.cursor))
        return behind

    def _unchecked(self) -> dict[str, dict[str, int]]:
        """The sinks that were not compared with the state, and up to which epochs they are known."""
        unchecked = {name: dict(sinks) for name, sinks in self._cursors.unchecked.items()}
        for output, ones in self._sinks.items():
            places = {one.place: one.known for one in ones if one.known is not None and output != SIDE_OUTPUT}
            if places:
                unchecked[output] = places
        return unchecked


def _is_opening(one: SinkDelivery) -> bool:
    """Whether a sink is neither open and compared with the state, nor away."""
    return one.is_submitted and (not one.is_open or one.known is not None) and one.outage is None


def _hand_over(former: Sequence[SinkDelivery], ones: Sequence[SinkDelivery], through: int) -> None:
    """Let the new sinks of an output, of which nothing is open yet, continue where the former ones are."""
    by_place = {one.place: one for one in former}
    for one in ones:
        before = by_place.get(one.place)
        one.finish(through if before is None else before.done)
        one.pending = [] if before is None else list(before.pending)


def _close(one: SinkDelivery) -> None:
    try:
        one.close()
    except Exception as failure:  # a sink of the user's own may raise anything
        _LOG.warning("%s could not be closed: %s", one.place, failure)
