"""Reads a log of files as an engine does: epochs with durable offsets, tasks that have a copy of the log, restarts."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

from penstock.logs import FileLog, Span
from penstock.logs.new_files import OnRewrite
from penstock.state.epoch_record import EpochRecord, Offset

STREAM = "s"


class FileReader:
    """One reader of a glob. `lines` counts what it has delivered."""

    def __init__(
        self, pattern: str | Path, settle_seconds: float = 0.0, on_rewrite: OnRewrite = "error"
    ) -> None:
        self._pattern, self._settle_seconds, self._on_rewrite = str(pattern), settle_seconds, on_rewrite
        self.lines: Counter[bytes] = Counter()
        self.reached = Offset()
        #: the last epoch record, as it is on disk, and whether its epoch is still to be executed
        self.record: bytes | None = None
        self.is_recorded = False
        self.restart()

    def restart(self) -> None:
        """A new process: it knows what is in the epoch records, and nothing else."""
        if self.record is not None:
            self.reached = EpochRecord.from_bytes(self.record).end
        self.log = FileLog(self._pattern, gz_settle_seconds=self._settle_seconds, on_rewrite=self._on_rewrite)
        self.log.recognise(self.reached.identities.get(STREAM, {}))
        self.tasks_log = pickle.dumps(self.log)

    def admit(self, units: int = 1 << 30) -> None:
        """Record the next epoch, unless one is still to be executed."""
        if self.is_recorded:
            return
        start = self.reached
        self.log.recognise(start.identities.get(STREAM, {}))
        at = dict(start.at.get(STREAM, {}))
        partitions = self.log.partitions(at)
        starts = {p.id: p.earliest for p in partitions if p.id not in at}
        for p in partitions:
            at.setdefault(p.id, p.earliest)
            if p.latest > at[p.id]:
                at[p.id] = self.log.cut(p.id, at[p.id], units)
        for gone in self.log.forgettable(at):
            del at[gone]
        end = Offset(
            start.epoch + 1, {STREAM: at}, {STREAM: starts}, identities={STREAM: self.log.identify(at)}
        )
        self.record = EpochRecord(start, end).to_bytes()
        self.is_recorded, self.reached = True, end

    @property
    def spans(self) -> list[Span]:
        """The spans of the last recorded epoch."""
        assert self.record is not None
        return [span for _, span in EpochRecord.from_bytes(self.record).spans]

    def read_spans(self) -> list[bytes]:
        """The lines of the last recorded epoch, as a task on another executor reads them."""
        log = pickle.loads(self.tasks_log)
        return [
            line
            for span in self.spans
            for chunk in log.read(span, chunk_bytes=1000)
            for line in chunk.data.splitlines()
        ]

    def execute(self) -> None:
        """Execute the epoch that is recorded."""
        if self.is_recorded:
            self.lines.update(self.read_spans())
            self.is_recorded = False

    def step(self, units: int = 1 << 30) -> int:
        """One epoch; returns how many lines it has read."""
        before = self.lines.total()
        self.admit(units)
        self.execute()
        return self.lines.total() - before

    def settle(self) -> None:
        """Epochs until nothing is new, at least enough for a file that vanished to be missed."""
        quiet = 0
        while quiet < 3:
            quiet = quiet + 1 if not self.step() else 0

    @property
    def names(self) -> set[str]:
        """The partitions that offsets name."""
        return set(self.reached.at.get(STREAM, {}))

    @property
    def size(self) -> int:
        """The size of an offset on disk."""
        return len(json.dumps(self.reached.to_json()))
