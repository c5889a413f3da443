"""Connects what ships one source of an agent: a reader, its spool, a shipper, and a reducer if there is one."""

from __future__ import annotations

import os
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import UserError
from penstock.ingest.event_log import log_event
from penstock.ingest.pipe_reader import Overflow, PipeReader, WhenFull
from penstock.ingest.reducing import Reduce, Reducing
from penstock.ingest.shipper import Shipper
from penstock.ingest.spool import Spool
from penstock.ingest.tail import TailReader

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True)
class SourceSettings:
    """How the sources of an agent are read and shipped."""

    gateway: tuple[str, int]
    stream: str
    #: the most that the spool of a source may hold
    spool_bytes: int
    when_full: WhenFull
    #: how long a renamed file may still grow
    settle_seconds: float
    #: how long lines wait to be batched
    linger_seconds: float
    follow_symlinks: bool
    from_end: bool
    once: bool
    reduce: Reduce | None
    tls: ssl.SSLContext | None
    token: str


class Source:
    """A producer: its reader, spool and shipper, each in a thread of its own."""

    def __init__(
        self, settings: SourceSettings, directory: Path, path: Path | None, stop: threading.Event
    ) -> None:
        self.path = path
        self._settings = settings
        name = "stdin" if path is None else f"{path.name}-{zlib.crc32(os.fsencode(path)):08x}"
        reduce = settings.reduce
        _check_reduces(directory, name, reduce is not None)
        self.spool = self._open_spool(directory / f"{name}.lines" if reduce else directory / name)
        self.overflow = Overflow(self.spool, settings.spool_bytes, settings.when_full)
        self.reader = self._make_reader(stop)
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self._abandoned = threading.Event()
        #: the spool that is shipped
        self.shipped = self.spool
        self._reducing: Reducing | None = None
        if reduce is not None:
            self.shipped = self._open_spool(directory / f"{name}.reduced")
            self._reducing = self._make_reducing(reduce)
        self.shipper = self._make_shipper()
        works = [(self._read, "read"), (self._ship, "ship")]
        if self._reducing is not None:
            works.append((self._reduce, "reduce"))
        self._threads = [
            threading.Thread(target=work, name=f"{verb} {name}", daemon=True) for work, verb in works
        ]

    def _open_spool(self, directory: Path) -> Spool:
        return Spool(directory, file_bytes=max(min(4 << 20, self._settings.spool_bytes // 8), 4096))

    def _make_reader(self, stop: threading.Event) -> PipeReader | TailReader:
        if self.path is None:
            return PipeReader(0, self.spool, self.overflow, stop)
        return TailReader(
            self.path,
            self.spool,
            self.overflow,
            stop,
            settle_seconds=self._settings.settle_seconds,
            follow_symlinks=self._settings.follow_symlinks,
            from_end=self._settings.from_end,
            once=self._settings.once,
        )

    def _make_reducing(self, reduce: Reduce) -> Reducing:
        return Reducing(
            self.spool,
            self.shipped,
            reduce,
            most_bytes=self._settings.spool_bytes,
            linger_seconds=self._settings.linger_seconds,
            finished=self.ended.is_set,
            stop=self._abandoned,
        )

    def _make_shipper(self) -> Shipper:
        linger_seconds, finished = self._settings.linger_seconds, self.ended.is_set
        if self._reducing is not None:
            linger_seconds, finished = min(linger_seconds, 0.2), self._reducing.done.is_set
        return Shipper(
            self.shipped,
            self._settings.gateway,
            self._settings.stream,
            token=self._settings.token,
            tls=self._settings.tls,
            linger_seconds=linger_seconds,
            finished=finished,
            stop=self._abandoned,
        )

    @property
    def missing(self) -> bool:
        """Whether there was never a file."""
        return isinstance(self.reader, TailReader) and self.reader.missing

    def take_new_name(self) -> None:
        """Become another producer; the spool was a copy."""
        if self._reducing is not None:
            raise UserError(
                "CANNOT_RENAME",
                "a reducing agent cannot tell which of its results the copied spool had before",
                hint="Start it with a new --spool; what only this spool has is not shipped.",
            )
        former = self.shipped.producer
        self.shipped.take_new_name()
        log_event("new name", producer=self.shipped.producer, former=former, since=self.shipped.first)

    def start(self) -> None:
        """Start reading and shipping."""
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        try:
            self.reader.run()
        except Exception as error:
            self.failure = error
        finally:
            self.ended.set()

    def _ship(self) -> None:
        try:
            self.shipper.run()
        except Exception as error:
            self.failure = self.failure or error

    def _reduce(self) -> None:
        assert self._reducing is not None
        try:
            self._reducing.run()
        except Exception as error:
            self.failure = self.failure or error

    def close(self) -> bool:
        """Stop shipping; return whether all was acknowledged."""
        done = self.shipper.done
        self._abandoned.set()
        for thread in self._threads[1:]:
            thread.join(2)
        self.spool.sync()
        self.shipped.sync()
        return done

    def build_summary(self) -> dict[str, object]:
        """Build the facts for the agent's last event."""
        shipped = self.shipper.shipped
        summary: dict[str, object] = {
            "producer": self.shipped.producer,
            "lines": shipped.lines,
            "frames": shipped.frames,
            "bytes_sent": shipped.bytes_sent,
            "dropped_lines": self.overflow.dropped_lines,
            "unacknowledged_bytes": self.shipped.bytes_after(shipped.acknowledged),
        }
        if isinstance(self.reader, PipeReader) and self.reader.pending_bytes:
            summary["unwritten_bytes"] = self.reader.pending_bytes
        return summary if self._reducing is None else summary | {"reduced_lines": self._reducing.taken}


def _check_reduces(spool: Path, name: str, reducing: bool) -> None:
    """Raise if an agent with the other setting of --reduce used the spool, which records how far the input was read."""
    other = spool / name if reducing else spool / f"{name}.lines"
    if other.exists():
        raise UserError(
            "SPOOL_OF_ANOTHER_KIND",
            f"{spool} was used {'without' if reducing else 'with'} --reduce",
            hint="Let that agent ship its lines, then use another spool for this one.",
        )
