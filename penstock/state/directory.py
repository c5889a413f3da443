"""The state directory: one query's epoch records, manifests and runs, and who may write them.

    DIR/penstock.json     format, the query's fingerprint, what logs must remember, what was dropped
    DIR/engine.lock       held by the engine that writes
    DIR/generations/      of two engines that believe they may write, which one does (see `generation`)
    DIR/epochs/           one epoch record each: what an epoch consists of, written before it runs
    DIR/manifests/        one manifest each: the state after an epoch
    DIR/runs/             the runs the manifests name
    DIR/dead/, DIR/late/  rows put aside, by stream
    DIR/ha/               what the engines of an HA unit share
    DIR/backup-format-1/  what the directory was before it was upgraded (see `upgrade`)

Guarantees: records and manifests are written once per epoch and never replaced; one engine at a time writes, that of
the highest generation. The lock is there to tell a second engine so at its start; generations hold without it.
On failure: `ExternalError` FENCED when another engine has taken over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.state.continuity import (
    Continuity,
    Identities,
    compare,
    drop_states,
    find_unreadable,
    rename_ids,
)
from penstock.state.difference import first_difference
from penstock.state.durable import sync_directory
from penstock.state.epoch_record import EpochRecord, Offset, PerPartition
from penstock.state.format import FORMAT, KEY, refuse_newer
from penstock.state.generation import FencedDirectory, fenced_error
from penstock.state.manifest import Manifest
from penstock.state.run import epoch_of
from penstock.state.run_file import check_run, unwritable_error
from penstock.state.shared_records import SharedRecords, list_epochs
from penstock.state.upgrade import upgrade

#: what may lie in a directory before it is a state directory; commands are taken in before a unit's first engine is up
_FIRST = {"engine.lock", "generations", "ha", "engine.log", "commands", "code", "service.json"}
#: where, below the directory a unit was started on, its engines find what they share
SHARED = "ha"
#: where, in there, those have their state that follow another
REPLICAS = "replicas"


class StateDirectory:
    """Opens, checks and locks a state directory; reads and writes what lies in it, except runs.

    One of an HA unit has its epochs from its `shared_records`, and copies of their records.
    """

    def __init__(self, path: Path, shared_records: SharedRecords | None = None) -> None:
        self.path = path
        self.shared_records = shared_records
        self.runs = path / "runs"
        self._fenced_directory = FencedDirectory(path / "generations")
        self._lock: int | None = None
        #: the ids that have become of those in manifests of format 1
        self._former_ids: Mapping[str, str] | None = None
        #: up to which epoch manifests count without which states
        self._dropped: list[tuple[int, frozenset[str]]] | None = None
        #: the last epoch that another query than the present one has recorded
        self.former_query_last_epoch = -1

    @property
    def generation(self) -> int:
        """The generation this one writes as; 0 before the directory is claimed."""
        return self._fenced_directory.generation

    @property
    def fenced_directory(self) -> FencedDirectory:
        """Where the engine that leads writes what it decides: of an HA unit, whatever directory it runs on, one."""
        return self._fenced_directory if self.shared_records is None else self.shared_records.fenced_directory

    @property
    def newest_generation(self) -> int:
        """The highest generation that ever claimed the directory; a lease on it must be higher."""
        return self._fenced_directory.newest_generation()

    # -- opening ---------------------------------------------------------------------------------

    def claim(
        self,
        query: str,
        summary: str,
        generation: int | None = None,
        *,
        former: str | None = None,
        drops_state: bool = False,
        use: Identities | None = None,
    ) -> dict[str, Any]:
        """Take the directory for an engine that runs the query with this fingerprint; returns its facts.

        With the generation of a lease it is taken from any engine of a lower one; otherwise only when it is free. One
        of format 1 is upgraded if it belongs to the query by its `former` fingerprint. With `drops_state` the query may
        be another one: `continue_as` says what is dropped. The refusal says what the query could `use`.
        """
        self._refuse_alone()
        try:
            if not (self.path / "engine.lock").exists():
                self.facts()  # refuse another's directory before a lock is left in it
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock(must=generation is None)
            facts = self.facts()
            if not drops_state or (facts is not None and facts[KEY] < FORMAT):
                self.refuse_another(query, summary, former, use)
            self._fenced_directory.take_over(generation)
            facts = self.facts()
            if facts is not None and facts[KEY] < FORMAT:
                facts = upgrade(self.path, self._fenced_directory, facts, query, summary)
            if facts is None:
                facts = {
                    KEY: FORMAT,
                    "id": uuid.uuid4().hex[:8],
                    "query": query,
                    "summary": summary,
                    "logs": {},
                }
                self.remember(facts)
        except OSError as failure:
            self.release()
            raise unwritable_error(self.path, failure) from failure
        except PenstockError:
            self.release()
            raise
        self._dropped = self._drops_up_to_now(facts)
        self.former_query_last_epoch = int(facts.get("former_query_upto", -1))
        return facts

    def _drops_up_to_now(self, facts: dict[str, Any]) -> list[tuple[int, frozenset[str]]]:
        """Up to which epoch manifests count without which states. Manifests that were rolled back are not there any
        more: those that come in their place are of the present query, and no mark is about them."""
        newest = max(self.epochs(), default=-1)
        marks = [(min(through, newest), ids) for through, ids in _dropped_in(facts)]
        if marks != _dropped_in(facts):
            facts["dropped"] = _dropped_as_json(marks)
            self.remember(facts)
        return marks

    def continue_as(
        self,
        facts: dict[str, Any],
        query: Identities,
        former_ids: Mapping[str, str],
        *,
        same_query: bool = True,
        drops_state: bool = False,
    ) -> Continuity:
        """Continue with the newest manifest as the state of a query: ids of format 1 become its own, and what it has no
        use for is dropped if that was allowed; else that is refused."""
        self._former_ids = former_ids
        newest = self.latest()
        found = compare(newest, query, same_query=same_query)
        if found.dropped and not drops_state:
            raise UserError(
                "PLAN_DROPS_STATE",
                f"the query has no use for some of the state in {self.path}",
                detail=found.describe(),
                hint="Start with --drop-state to go on without what would be dropped, or name another directory with "
                "--state.",
            )
        strange = find_unreadable(drop_states(newest, frozenset(found.dropped)), query)
        if strange and not drops_state:
            first = next(iter(strange))
            raise UserError(
                "OPERATOR_STATE_OF_OTHER_VERSION",
                f"the state of {first} in {self.path} has another form than this Penstock keeps it in",
                detail=strange[first],
                hint="Use the Penstock that wrote it, start with --drop-state to have it start empty, or name another "
                "directory with --state.",
            )
        found = found.also_without(strange)
        if found.dropped:
            self._dropped = [*(self._dropped or ()), (newest.epoch, frozenset(found.dropped))]
            facts["dropped"] = _dropped_as_json(self._dropped)
        return found

    def take_over(self, generation: int) -> None:
        """Write as this generation from now on: the engine has come to lead."""
        self._fenced_directory.take_over(generation)

    def _refuse_alone(self) -> None:
        own = self.path / SHARED / "agreed"
        # a follower's directory lies in ha/replicas of the directory its unit was started on
        lent = self.path.resolve().parent
        unit_records = lent.parent / "agreed" if lent.name == REPLICAS else own
        if unit_records.exists() and (
            self.shared_records is None or unit_records.resolve() != self.shared_records.path.resolve()
        ):
            raise UserError(
                "STATE_OF_A_UNIT",
                f"the state directory {self.path} belongs to an HA unit",
                detail="Which of its directories is in force, and what its epochs consist of, its engines know.",
                hint="Start it with --ha (--scheme passive-replication runs one engine), or name another directory.",
            )

    def refuse_another(
        self, query: str, summary: str, former: str | None = None, use: Identities | None = None
    ) -> None:
        """Raise if the directory belongs to another query, or is no state directory; `former`: the query's fingerprint
        in a directory of format 1; `use`: the state that it could use."""
        facts = self.facts()
        held = None if facts is None else facts["query"]
        if facts is not None and held != query and not (facts[KEY] == 1 and held == former):
            raise UserError(
                "STATE_OF_ANOTHER_QUERY",
                f"the state directory {self.path} belongs to another query",
                detail=self._another(facts, summary, use),
                hint="Choose another directory with --state, or start it with `penstock run APP --drop-state` to keep "
                "what state the query can use and drop the rest."
                if use is not None and facts[KEY] == FORMAT
                else "Choose another directory with --state, or remove this one to start from the beginning.",
            )

    def _another(self, facts: dict[str, Any], summary: str, use: Identities | None) -> str:
        """How another query differs and, where that is known, what would become of each state."""
        differs = first_difference(str(facts.get("summary", "?")), summary)
        if use is None or facts[KEY] < FORMAT:
            return differs
        return f"{differs}. With --drop-state, {compare(self.latest(), use, same_query=False).describe()}"

    def facts(self) -> dict[str, Any] | None:
        """What penstock.json says; None for a new directory."""
        try:
            facts: dict[str, Any] = json.loads((self.path / "penstock.json").read_bytes())
            _ = facts[KEY] > FORMAT, facts["query"], facts["logs"]
        except FileNotFoundError:
            if self.path.exists() and any(p.name not in _FIRST for p in self.path.iterdir()):
                raise UserError(
                    "NOT_A_STATE_DIRECTORY",
                    f"{self.path} holds files but no state of Penstock",
                    hint="Name an empty or a new directory with --state.",
                ) from None
            return None
        except (ValueError, KeyError, TypeError) as failure:
            raise InternalError(
                "STATE_DAMAGED", f"{self.path / 'penstock.json'} is damaged", detail=repr(failure)
            ) from failure
        refuse_newer(f"the state directory {self.path}", facts)
        return facts

    def remember(self, facts: dict[str, Any]) -> None:
        """Replace penstock.json."""
        path = self.path / "penstock.json"
        try:
            self._fenced_directory.write_whole(path, json.dumps(facts, indent=1).encode())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure

    def _take_lock(self, *, must: bool = True) -> None:
        handle = os.open(self.path / "engine.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(handle, 200).decode(errors="replace").strip()
            os.close(handle)
            if not must:  # a paused engine keeps its lock, and a lease is worth more
                return
            raise ExternalError(
                "STATE_IN_USE",
                f"another engine runs on the state directory {self.path}",
                detail=f"it is held by {owner or 'an unknown process'}",
                hint="Stop that engine first, or give this one its own directory with --state.",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._lock = handle

    def release(self) -> None:
        """Let another engine have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold an existing directory, as an engine would, while a person changes something in it."""
        self.existing()
        self._take_lock()
        try:
            self._fenced_directory.take_over()
            yield
        finally:
            self.release()

    def existing(self) -> dict[str, Any]:
        """The facts of a directory that must be there."""
        facts = self.facts()
        if facts is None:
            raise UserError(
                "NOT_A_STATE_DIRECTORY",
                f"there is no state of Penstock at {self.path}",
                hint="Name the directory given with --state; by default it is .penstock/NAME.",
            )
        return facts

    # -- epoch records and manifests -------------------------------------------------------------

    def record(self, epoch: int, record: EpochRecord) -> EpochRecord:
        """Write an epoch's record unless it has one; returns the one in force, if it is not a higher generation's."""
        path = self._record_path(epoch)
        if self.shared_records is not None:
            record = self.shared_records.record(epoch, self._recorded(path) if path.exists() else record)
        try:
            if not path.exists():
                if self.generation and self.shared_records is None:
                    record = replace(record, generation=self.generation)
                self._fenced_directory.write_once(path, record.to_bytes())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        found = self._recorded(path)
        if self.shared_records is None and found.generation > self.generation > 0:
            raise fenced_error(self.path, self.generation, found.generation)
        return found

    def recorded_end(self, epoch: int) -> Offset | None:
        """The end offset an epoch was recorded with; None when it has no record."""
        found = self.recorded(epoch)
        return None if found is None else found.end

    def recorded(self, epoch: int) -> EpochRecord | None:
        """An epoch's record, its own or the unit's; None when it has none."""
        path = self._record_path(epoch)
        if path.exists():
            return self._recorded(path)
        return None if self.shared_records is None else self.shared_records.recorded(epoch)

    def newest_epoch(self) -> int:
        """The last epoch that has a record, its own or the unit's; -1 before the first."""
        own = list_epochs(self.path / "epochs")
        return max(
            (*own[-1:], *(self.shared_records.epochs() if self.shared_records is not None else ())[-1:]),
            default=-1,
        )

    def last_commands(self) -> int:
        """How many commands the newest epoch record takes in, its own or the unit's."""
        newest = self.newest_epoch()
        end = None if newest < 0 else self.recorded_end(newest)
        return 0 if end is None else end.commands

    def last_maps_version(self) -> int:
        """The version of the bucket maps that the newest epoch record names; -1 before the first."""
        newest = self._newest_record()
        if newest is None:
            return -1
        return 0 if newest.maps is None else newest.maps.version

    def last_offsets(self) -> PerPartition:
        """The offsets that the newest epoch record reaches, its own or the unit's, per stream."""
        newest = self.recorded(self.newest_epoch())
        return {} if newest is None else newest.end.at

    def _newest_record(self) -> EpochRecord | None:
        epochs = list_epochs(self.path / "epochs")
        return self._recorded(self._record_path(epochs[-1])) if epochs else None

    def _recorded(self, path: Path) -> EpochRecord:
        try:
            return EpochRecord.from_bytes(path.read_bytes(), f"the epoch record {path.name}")
        except (OSError, ValueError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                f"the epoch record {path.name} is damaged",
                detail=f"{failure!r} ({path})",
                hint="Run `penstock state rollback DIR` to go back to the last good epoch.",
            ) from failure

    def commit(self, manifest: Manifest) -> None:
        """Put the manifest of an epoch in place."""
        path = self._manifest_path(manifest.epoch)
        try:
            manifest = replace(manifest, generation=self.generation, format=FORMAT)
            fresh = self._fenced_directory.write_once(path, manifest.to_bytes())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        if not fresh:
            if (newest := self.newest_generation) > self.generation > 0:
                raise fenced_error(self.path, self.generation, newest)
            raise InternalError(
                "EPOCH_COMMITTED_TWICE",
                f"epoch {manifest.epoch} already has a manifest",
                detail=str(path),
                hint="Another engine wrote to this state directory; stop both and start one of them again.",
            )

    def remove_manifests_after(self, epoch: int) -> None:
        """Take back the manifests of later epochs, the newest first, so that a crash leaves no gap."""
        for later in reversed(self.epochs()):
            if later > epoch:
                self._manifest_path(later).unlink()
        sync_directory(self.path / "manifests")

    def committed_end(self) -> Offset | None:
        """The end offset of the last committed epoch; None before the first."""
        epoch = self.latest().epoch
        end = self.recorded_end(epoch)
        if end is None and epoch >= 0:
            raise InternalError(
                "STATE_DAMAGED",
                f"epoch {epoch} has a manifest but no record",
                detail=str(self.path),
                hint="Run `penstock state rollback DIR` to go back to an epoch that has one.",
            )
        return end

    def epochs(self) -> list[int]:
        """The epochs that have a manifest, ascending."""
        return list_epochs(self.path / "manifests")

    def manifest(self, epoch: int) -> Manifest:
        """The state after an epoch; epoch -1 is the empty state."""
        if epoch < 0:
            return Manifest()
        path = self._manifest_path(epoch)
        try:
            return self._continued(Manifest.from_bytes(path.read_bytes()))
        except (OSError, ValueError, KeyError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                f"the manifest of epoch {epoch} is damaged",
                detail=f"{failure} ({path})",
                hint="Run `penstock state verify DIR`, then `penstock state rollback DIR` to go back to the "
                "last good epoch.",
            ) from failure

    def _continued(self, manifest: Manifest) -> Manifest:
        """A manifest as the query sees it that the directory was taken for."""
        if manifest.format == 1 and self._former_ids is not None:
            manifest = replace(rename_ids(manifest, self._former_ids), format=FORMAT)
        if self._dropped is None:  # it was not taken, but is looked at
            self._dropped = []
            with contextlib.suppress(PenstockError):
                self._dropped = _dropped_in(self.facts() or {})
        for through, ids in self._dropped:
            if manifest.epoch <= through:
                manifest = drop_states(manifest, ids)
        return manifest

    def latest(self) -> Manifest:
        """The newest manifest, or the empty state."""
        epochs = self.epochs()
        return self.manifest(epochs[-1] if epochs else -1)

    # -- keeping house ---------------------------------------------------------------------------

    def recycle(self, keep: int) -> list[str]:
        """Remove all but the newest `keep` manifests, older records, and the runs nobody needs.

        Returns the names of the runs removed. Runs newer than the newest manifest are left: they may
        belong to an epoch under way.
        """
        epochs = self.epochs()
        if len(epochs) <= keep:
            return []
        kept = epochs[-keep:]
        needed = set().union(*(self.manifest(epoch).runs() for epoch in kept))
        gone = []
        for run in self.run_names():
            if run not in needed and epoch_of(run) <= kept[-1]:
                (self.runs / run).unlink(missing_ok=True)
                gone.append(run)
        for torn in self.runs.glob("*/.*.run.*.tmp"):  # left by a writer that was killed
            if epoch_of(torn.name[1:]) <= kept[-1]:
                torn.unlink(missing_ok=True)
        for epoch in epochs[:-keep]:
            self._manifest_path(epoch).unlink(missing_ok=True)
        for epoch in list_epochs(self.path / "epochs"):
            if epoch < kept[0]:
                self._record_path(epoch).unlink(missing_ok=True)
        if self.shared_records is not None and self.shared_records.generation:
            self.shared_records.recycle(kept[0])
        return gone

    def run_names(self) -> Iterator[str]:
        """Every run file there is, needed or not."""
        for path in self.runs.glob("*/*.run"):
            yield f"{path.parent.name}/{path.name}"

    def verify(self, epoch: int) -> list[str]:
        """What is wrong with the state of an epoch; an empty list when it is whole."""
        try:
            manifest = self.manifest(epoch)
        except InternalError as damage:
            return [str(damage)]
        problems = []
        for run in sorted(manifest.runs()):
            try:
                check_run(self.runs / run)
            except (InternalError, ExternalError) as damage:
                problems.append(str(damage))
        return problems

    def _record_path(self, epoch: int) -> Path:
        return self.path / "epochs" / f"{epoch:012d}.json"

    def _manifest_path(self, epoch: int) -> Path:
        return self.path / "manifests" / f"{epoch:012d}.json"


def _dropped_in(facts: Mapping[str, Any]) -> list[tuple[int, frozenset[str]]]:
    """Up to which epoch manifests count without which states, as penstock.json says."""
    return [(one["upto"], frozenset(one["states"])) for one in facts.get("dropped", ())]


def _dropped_as_json(marks: Iterable[tuple[int, frozenset[str]]]) -> list[dict[str, Any]]:
    return [{"upto": through, "states": sorted(ids)} for through, ids in marks]
