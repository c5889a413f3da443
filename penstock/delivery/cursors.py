"""Cursors: how far each sink of each output has come in the result log.

    DIR/results/cursors.json   {"through": n, "behind": {output: {sink: n}}, "unchecked": ..., "format": 2}

All sinks have what was emitted up to epoch `through`, but for those in `behind`, which have it up to the epoch there;
that may be a later one, which somebody has decided to skip to. `unchecked` are sinks that were not yet compared with
the state since they were away, or that were refused, and the epochs up to which they are known (see `sink_progress`).

The file is replaced after deliveries, in one step, and is not synced. A sink that knows epochs takes each once, however
old a cursor is; after a power loss, one that does not may get again what the file had not kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
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
    unchecked: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: the highest generation of sinks that were refused: who continues needs a higher one
    refused_generation: int = 0
    #: whether sinks are believed what they have, as far as it was recorded: the file was damaged
    is_damaged: bool = False

    def position(self, output: str, sink: str, present: Collection[str] = ()) -> int:
        """The last epoch that a sink has. One that is new starts where a former sink of the output stopped that is not
        `present` any more: its address has changed."""
        known = self.behind.get(output, {})
        if sink in known:
            return known[sink]
        return min((epoch for name, epoch in known.items() if name not in present), default=self.through)

    def known(self, output: str, sink: str, present: Collection[str] = ()) -> int:
        """The epoch up to which a sink is known to have what this state emitted, and nothing else."""
        known = self.unchecked.get(output, {})
        return known[sink] if sink in known else self.position(output, sink, present)

    def only(self, outputs: Collection[str]) -> Cursors:
        """These cursors, for some outputs."""
        return replace(
            self,
            behind={name: one for name, one in self.behind.items() if name in outputs},
            unchecked={name: one for name, one in self.unchecked.items() if name in outputs},
        )

    def at_most(self, epoch: int | None) -> Cursors:
        """These cursors, but none later than an epoch, if there is one."""
        if epoch is None:
            return self
        behind = {
            name: {sink: min(at, epoch) for sink, at in sinks.items()} for name, sinks in self.behind.items()
        }
        return replace(self, through=min(self.through, epoch), behind=behind)

    @property
    def oldest(self) -> int:
        """The epoch that every sink has."""
        return min([self.through, *(epoch for sinks in self.behind.values() for epoch in sinks.values())])


def skip_delivery(folder: Path, log: ResultLog, job: str, through: int) -> list[int]:
    """Let the sinks of a job do without what they lack up to an epoch; returns these epochs, those that cannot be read
    among them. Those that were refused keep what they have, and also do without what is emitted later up to that epoch.
    The engine is stopped."""
    cursors = read_cursors(folder) or Cursors()
    later = {epoch: _outputs_in(log, epoch) for epoch in log.epochs if cursors.oldest < epoch <= through}
    behind, lacked = {name: dict(sinks) for name, sinks in cursors.behind.items()}, set[int]()
    for output, sinks in cursors.unchecked.items():
        if output.split("@")[0] == job:
            behind[output] = {name: cursors.position(output, name) for name in sinks} | behind.get(output, {})
    known = {*behind, *(name for outputs in later.values() for name in outputs or ())}
    for output in {name for name in known if name.split("@")[0] == job} or {job}:
        positions = behind.get(output, {"": cursors.through})
        for epoch, emitting in later.items():
            if epoch > min(positions.values()) and (emitting is None or output in emitting):
                lacked.add(epoch)
        if lacked or output in behind:
            behind[output] = {sink: max(at, through) for sink, at in positions.items()}
    unchecked = {name: one for name, one in cursors.unchecked.items() if name.split("@")[0] != job}
    write_cursors(folder, replace(cursors, behind=behind, unchecked=unchecked), synced=True)
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


def find_unchecked(folder: Path, job: str) -> list[str]:
    """The outputs of a job with sinks that were not compared with the state, or were refused."""
    cursors = read_cursors(folder) or Cursors()
    return [output for output in cursors.unchecked if output.split("@")[0] == job]


def forget_unchecked(folder: Path, output: str) -> None:
    """Forget that sinks of an output were not compared with the state. The engine is stopped."""
    cursors = read_cursors(folder) or Cursors()
    unchecked = {name: one for name, one in cursors.unchecked.items() if name != output}
    write_cursors(folder, replace(cursors, unchecked=unchecked), synced=True)


def read_cursors(folder: Path) -> Cursors | None:
    """The cursors beside the results in a folder; None if there are none yet. From a damaged file no sink is known to
    have anything: it gets again what the result log has."""
    path = folder / CURSORS
    try:
        body = json.loads(path.read_bytes())
        refuse_newer(f"the file {path}", body)
        behind, unchecked = (
            {name: {sink: int(at) for sink, at in sinks.items()} for name, sinks in part.items()}
            for part in (body["behind"], body.get("unchecked", {}))
        )
        return Cursors(int(body["through"]), behind, unchecked, int(body.get("refused_generation", 0)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        _LOG.error("%s is damaged (%r): sinks get again what the result log has", path, failure)
        return Cursors(is_damaged=True)


def write_cursors(folder: Path, cursors: Cursors, *, synced: bool = False) -> None:
    """Replace the cursors beside the results in a folder."""
    body = {KEY: FORMAT, "through": cursors.through, "behind": cursors.behind}
    optional = {"unchecked": cursors.unchecked, "refused_generation": cursors.refused_generation}
    content = json.dumps(body | {key: part for key, part in optional.items() if part}).encode()

    def fill(file: IO[bytes]) -> None:
        file.write(content)

    try:
        write_filled(folder / CURSORS, fill, synced=synced)
    except OSError as failure:
        raise unwritable_error(folder / CURSORS, failure) from failure
