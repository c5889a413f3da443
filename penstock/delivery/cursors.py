"""Cursors: how far each sink of each output has come in the result log.

    DIR/results/cursors.json   {"through": n, "behind": {output: {sink: n}}, "format": 2}

All sinks have what was emitted up to epoch `through`, but for those in `behind`, which have it up to the epoch there.

The file is replaced after deliveries, in one step, and is not synced. A sink that knows epochs takes each once, however
old a cursor is; after a power loss, one that does not may get again what the file had not kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from penstock.delivery.result_log import ResultLog
from penstock.errors import InternalError
from penstock.state.durable import write_filled
from penstock.state.run_file import unwritable_error
from penstock.state.state_facts import FORMAT, KEY, refuse_newer

_LOG = logging.getLogger(__name__)
#: the name of the file, beside the results
CURSORS = "cursors.json"


@dataclass(frozen=True)
class Cursors:
    """The cursors of an engine, or of an HA unit."""

    through: int = -1
    behind: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def position(self, output: str, sink: str, present: Collection[str] = ()) -> int:
        """The last epoch that a sink has. One that is new starts where a former sink of the output stopped that is not
        `present` any more: its address has changed."""
        known = self.behind.get(output, {})
        if sink in known:
            return known[sink]
        return min((epoch for name, epoch in known.items() if name not in present), default=self.through)

    def at_most(self, epoch: int | None) -> Cursors:
        """These cursors, but none later than an epoch, if there is one."""
        if epoch is None:
            return self
        behind = {
            name: {sink: min(at, epoch) for sink, at in sinks.items()} for name, sinks in self.behind.items()
        }
        return Cursors(min(self.through, epoch), behind)

    @property
    def oldest(self) -> int:
        """The epoch that every sink has."""
        return min(
            (epoch for sinks in self.behind.values() for epoch in sinks.values()), default=self.through
        )


def skip_delivery(folder: Path, log: ResultLog, job: str, through: int) -> list[int]:
    """Let the sinks of a job do without what they lack up to an epoch; returns these epochs, those that cannot be read
    among them. The engine is stopped."""
    cursors = read_cursors(folder) or Cursors()
    later = {epoch: _outputs_in(log, epoch) for epoch in log.epochs if cursors.oldest < epoch <= through}
    known = {*cursors.behind, *(name for outputs in later.values() for name in outputs or ())}
    outputs = {name for name in known if name.split("@")[0] == job} or {job}
    behind, lacked = {name: dict(sinks) for name, sinks in cursors.behind.items()}, set[int]()
    for output in outputs:
        positions = behind.get(output, {"": cursors.through})
        for epoch, emitting in later.items():
            if epoch > min(positions.values()) and (emitting is None or output in emitting):
                lacked.add(epoch)
        if lacked:
            behind[output] = {sink: max(at, through) for sink, at in positions.items()}
    write_cursors(folder, Cursors(cursors.through, behind), synced=True)
    return sorted(lacked)


def roll_back_results(folder: Path, to: int) -> None:
    """Remove the results of the epochs after one, which the repetition makes again, and let sinks get them again: one
    that has them does nothing. The engine is stopped."""
    try:
        for path in folder.glob("*.arrow"):
            if path.stem.isdigit() and int(path.stem) > to:
                path.unlink(missing_ok=True)
    except OSError as failure:
        raise unwritable_error(folder, failure) from failure
    cursors = read_cursors(folder)
    if cursors is not None:
        write_cursors(folder, cursors.at_most(to), synced=True)


def _outputs_in(log: ResultLog, epoch: int) -> set[str] | None:
    """The outputs with rows in an epoch; None if they cannot be read."""
    try:
        return log.outputs_in(epoch)
    except InternalError:
        return None


def read_cursors(folder: Path) -> Cursors | None:
    """The cursors beside the results in a folder; None if there are none yet. From a damaged file no sink is known to
    have anything: it gets again what the result log has."""
    path = folder / CURSORS
    try:
        body = json.loads(path.read_bytes())
        refuse_newer(f"the file {path}", body)
        behind = {
            name: {sink: int(at) for sink, at in sinks.items()} for name, sinks in body["behind"].items()
        }
        return Cursors(int(body["through"]), behind)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        _LOG.error("%s is damaged (%r): sinks get again what the result log has", path, failure)
        return Cursors()


def write_cursors(folder: Path, cursors: Cursors, *, synced: bool = False) -> None:
    """Replace the cursors beside the results in a folder."""
    content = json.dumps({KEY: FORMAT, "through": cursors.through, "behind": cursors.behind}).encode()

    def fill(file: IO[bytes]) -> None:
        file.write(content)

    try:
        write_filled(folder / CURSORS, fill, synced=synced)
    except OSError as failure:
        raise unwritable_error(folder / CURSORS, failure) from failure
