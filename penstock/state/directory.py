"""Open, check and lock a state directory: what an engine does before it runs a query on it.

    DIR/penstock.json     format, the query's fingerprint, what logs must remember, what was dropped
    DIR/coordinators.key  a secret of its coordinators (see `coordination.shared_key`)
    DIR/service.token     the token of its service, if none is configured (see `service_token`)
    DIR/engine.lock       held by the engine that writes
    DIR/generations/      of two engines that believe they may write, which one does (see `generation`)
    DIR/epochs/           epoch records (see `epoch_store`)
    DIR/manifests/        manifests (see `epoch_store`)
    DIR/runs/             the runs that manifests name
    DIR/dead/, DIR/late/  dead letters and late events, by stream
    DIR/ha/               what the engines of an HA unit share
    DIR/backup-format-1/  what the directory was before it was upgraded (see `upgrade`)

The content of penstock.json is a dict, called the facts of the directory.

Guarantees: one engine at a time writes, that of the highest generation. The lock only tells a second engine so when it
starts; generations hold without it.
On failure: `ExternalError` FENCED when another engine has taken over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.state.continuity import (
    Continuity,
    Identities,
    compare,
    drop_states,
    drop_states_of_jobs,
    find_unreadable,
    first_difference,
)
from penstock.state.durable import make_private
from penstock.state.epoch_record import Offset
from penstock.state.epoch_store import ManifestStore, RecordStore
from penstock.state.generation import FencedDirectory
from penstock.state.private import check_writers
from penstock.state.run import epoch_of
from penstock.state.run_file import unwritable_error
from penstock.state.shared_records import SharedRecords
from penstock.state.state_facts import FORMAT, DroppedStates, StateFacts, refuse_newer
from penstock.state.upgrade import upgrade

#: what may lie in a directory before it is a state directory: a unit accepts commands before its first engine is up
_FIRST = {"engine.lock", "generations", "ha", "engine.log", "commands", "code", "service.json"}
_FIRST |= {
    "revoked-sessions.json",
    "revoked-sessions.lock",
    "service.token",
    "audit.jsonl",
    *(f"audit.jsonl.{number}" for number in range(1, 4)),
}
#: below the directory that a unit was started on: what its engines share
SHARED = "ha"
#: in there: the state directories of followers
REPLICAS = "replicas"


class StateDirectory:
    """A state directory: its facts, its lock, its epoch records and its manifests."""

    def __init__(self, path: Path, shared_records: SharedRecords | None = None) -> None:
        self.path = path
        self.shared_records = shared_records
        self.runs = path / "runs"
        self._fenced_directory = FencedDirectory(path / "generations")
        self.records = RecordStore(path, self._fenced_directory, shared_records)
        self.manifests = ManifestStore(path, self._fenced_directory, self._read_dropped)
        self._lock: int | None = None
        self._facts: StateFacts | None = None

    @property
    def generation(self) -> int:
        """The generation this one writes as; 0 before the directory is claimed."""
        return self._fenced_directory.generation

    @property
    def fenced_directory(self) -> FencedDirectory:
        """Where the leader writes its decisions: this directory or, in an HA unit, the one that its engines share."""
        return self._fenced_directory if self.shared_records is None else self.shared_records.fenced_directory

    @property
    def newest_generation(self) -> int:
        """The highest generation that ever claimed the directory; a lease on it must be higher."""
        return self._fenced_directory.newest_generation()

    @property
    def facts(self) -> StateFacts:
        """What penstock.json says; of a directory that is claimed."""
        assert self._facts is not None
        return self._facts

    def claim(
        self,
        query: str,
        summary: str,
        generation: int | None = None,
        *,
        former: str | None = None,
        drops_state: bool = False,
        use: Identities | None = None,
    ) -> StateFacts:
        """Claim the directory for an engine that runs the query with this fingerprint; returns its facts.

        With the generation of a lease it is taken over from any engine of a lower one; otherwise it must be free. A
        directory of format 1 is upgraded if its query has the `former` fingerprint. With `drops_state` the query may be
        another one: `continue_as` says what is dropped. An error says which state the query could `use`.
        """
        self._refuse_without_unit()
        try:
            if not (self.path / "engine.lock").exists():
                self.read_facts()  # refuse a foreign directory before a lock file is left in it
            check_writers(self.path)
            make_private(self.path)
            self._acquire_lock(must=generation is None)
            facts = self.read_facts()
            if not drops_state or (facts is not None and facts.format < FORMAT):
                self.refuse_another(query, summary, former, use)
            self._fenced_directory.take_over(generation)
            facts = self.read_facts()
            if facts is not None and facts.format < FORMAT:
                facts = upgrade(self.path, self._fenced_directory, facts, query, summary)
            if facts is None:
                facts = StateFacts(uuid.uuid4().hex[:8], query, summary)
                self.write_facts(facts)
            self._facts = facts
        except OSError as failure:
            self.release()
            raise unwritable_error(self.path, failure) from failure
        except PenstockError:
            self.release()
            raise
        # After a rollback, manifests that replace removed ones are of the present query: nothing in them was dropped.
        newest = max(self.manifests.epochs(), default=-1)
        self.update_facts(dropped=tuple((min(through, newest), ids) for through, ids in facts.dropped))
        self.manifests.dropped = self.facts.dropped
        return self.facts

    def _read_dropped(self) -> DroppedStates:
        """The dropped states of a directory that is not claimed, but inspected."""
        try:
            facts = self.read_facts()
        except PenstockError:
            return ()
        return () if facts is None else facts.dropped

    def continue_as(
        self,
        query: Identities,
        former_ids: Mapping[str, str],
        *,
        same_query: bool = True,
        drops_state: bool = False,
    ) -> Continuity:
        """Continue with the newest manifest as the state of a query. Ids of format 1 become the query's own. State that
        it cannot use is dropped if `drops_state`, else an error; penstock.json does not say so yet."""
        self.manifests.former_ids = former_ids
        newest = self.manifests.latest()
        continuity = compare(newest, query, same_query=same_query)
        if continuity.dropped and not drops_state:
            raise UserError(
                "PLAN_DROPS_STATE",
                f"the query has no use for some of the state in {self.path}",
                detail=continuity.describe(),
                hint=self._hint_to_drop("to continue without what would be dropped"),
            )
        unreadable = find_unreadable(drop_states(newest, frozenset(continuity.dropped)), query)
        if unreadable and not drops_state:
            first = next(iter(unreadable))
            raise UserError(
                "OPERATOR_STATE_OF_OTHER_VERSION",
                f"the state of {first} in {self.path} has another form than this version of Penstock uses",
                detail=unreadable[first],
                hint=f"Use the Penstock that wrote it. {self._hint_to_drop('to have it start empty')}",
            )
        continuity = continuity.dropping(unreadable)
        if continuity.dropped:
            self.manifests.dropped = (*self.facts.dropped, (newest.epoch, frozenset(continuity.dropped)))
        return continuity

    def take_over(self, generation: int) -> None:
        """Write as this generation from now on: the engine was promoted."""
        self._fenced_directory.take_over(generation)

    def _refuse_without_unit(self) -> None:
        """Raise if the directory belongs to an HA unit and the engine to none, or to another one."""
        # a follower's directory lies in ha/replicas of the directory its unit was started on
        parent = self.path.resolve().parent
        shared = parent.parent if parent.name == REPLICAS else self.path / SHARED
        unit_records = (shared / "agreed").resolve()
        own = None if self.shared_records is None else self.shared_records.path.resolve()
        if unit_records.exists() and unit_records != own:
            raise UserError(
                "STATE_OF_A_UNIT",
                f"the state directory {self.path} belongs to an HA unit",
                detail="Its engines decide which of its directories is in use and what its epochs consist of.",
                hint="Start it with --ha (--scheme passive-replication runs one engine), or name another directory.",
            )

    def refuse_another(
        self, query: str, summary: str, former: str | None = None, use: Identities | None = None
    ) -> None:
        """Raise if the directory belongs to another query, or is no state directory; `former`: the query's fingerprint
        in a directory of format 1; `use`: the state that it could use."""
        facts = self.read_facts()
        if facts is None or facts.query == query or (facts.format == 1 and facts.query == former):
            return
        if use is not None and facts.format == FORMAT:
            hint = self._hint_to_drop("to keep what state the query can use and drop the rest")
        else:
            hint = "Choose another directory with --state, or remove this one to start from the beginning."
        raise UserError(
            "STATE_OF_ANOTHER_QUERY",
            f"the state directory {self.path} belongs to another query",
            detail=self._describe_difference(facts, summary, use),
            hint=hint,
        )

    def _describe_difference(self, facts: StateFacts, summary: str, use: Identities | None) -> str:
        """How the two queries differ and, if known, what would become of each state."""
        differs = first_difference(facts.summary, summary)
        if use is None or facts.format < FORMAT:
            return differs
        of_app = drop_states_of_jobs(self.manifests.latest())
        found = compare(of_app, use, same_query=False).describe()
        return f"{differs}. {'Of its state' if self.shared_records is not None else 'With --drop-state'}, {found}"

    def _hint_to_drop(self, purpose: str) -> str:
        """How to start although state would be lost. `penstock run` alone drops state, that of `serve` too."""
        if self.shared_records is not None:
            return (
                "An HA unit drops no state: start it with the file and the Penstock that it had, with --fresh, or on "
                "another directory with --state."
            )
        return (
            f"Run `penstock run FILE --state {shlex.quote(str(self.path))} --drop-state` once {purpose}, and then "
            "start as before; or name another directory with --state."
        )

    def read_facts(self) -> StateFacts | None:
        """The content of penstock.json; None for a new directory."""
        try:
            body = json.loads((self.path / "penstock.json").read_bytes())
            refuse_newer(f"the state directory {self.path}", body)
            return StateFacts.from_json(body)
        except FileNotFoundError:
            if self.path.exists() and any(path.name not in _FIRST for path in self.path.iterdir()):
                raise UserError(
                    "NOT_A_STATE_DIRECTORY",
                    f"{self.path} holds files but no state of Penstock",
                    hint="Name an empty or a new directory with --state.",
                ) from None
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as failure:
            raise InternalError(
                "STATE_DAMAGED", f"{self.path / 'penstock.json'} is damaged", detail=repr(failure)
            ) from failure

    def update_facts(self, **changes: Any) -> None:
        """Change what penstock.json says of the claimed directory."""
        facts = replace(self.facts, **changes)
        if facts != self._facts:
            self.write_facts(facts)
            self._facts = facts

    def write_facts(self, facts: StateFacts) -> None:
        """Replace penstock.json."""
        path = self.path / "penstock.json"
        try:
            self._fenced_directory.write_whole(path, json.dumps(facts.to_json(), indent=1).encode())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure

    def _acquire_lock(self, *, must: bool = True) -> None:
        handle = os.open(self.path / "engine.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(handle, 200).decode(errors="replace").strip()
            os.close(handle)
            if not must:  # a paused engine keeps its lock, but a lease takes precedence
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
        """Release the lock, so that another engine may claim the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock an existing directory, as an engine would, while a person changes something in it."""
        self.read_existing_facts()
        self._acquire_lock()
        try:
            self._fenced_directory.take_over()
            yield
        finally:
            self.release()

    def read_existing_facts(self) -> StateFacts:
        """The content of penstock.json; an error if there is none."""
        facts = self.read_facts()
        if facts is None:
            raise UserError(
                "NOT_A_STATE_DIRECTORY",
                f"there is no state of Penstock at {self.path}",
                hint="Name the directory given with --state; by default it is .penstock/NAME.",
            )
        return facts

    def committed_end(self) -> Offset | None:
        """The end offset of the last committed epoch; None before the first."""
        epoch = self.manifests.latest().epoch
        end = self.records.read_end(epoch)
        if end is None and epoch >= 0:
            raise InternalError(
                "STATE_DAMAGED",
                f"epoch {epoch} has a manifest but no record",
                detail=str(self.path),
                hint="Run `penstock state rollback DIR` to go back to an epoch that has one.",
            )
        return end

    def remove_old_state(self, keep: int) -> list[str]:
        """Remove all but the newest `keep` manifests, older records, and the runs that no manifest left names.

        Returns the names of the removed runs. Runs newer than the newest manifest stay: they may belong to an epoch
        under way.
        """
        epochs = self.manifests.epochs()
        if len(epochs) <= keep:
            return []
        kept = epochs[-keep:]
        needed = set().union(*(self.manifests.read(epoch).runs() for epoch in kept))
        # first the manifests: none that a power loss may bring back names a run that is gone
        for epoch in epochs[:-keep]:
            self.manifests.remove(epoch)
        self.manifests.sync()
        removed = []
        for run in self.list_runs():
            if run not in needed and epoch_of(run) <= kept[-1]:
                (self.runs / run).unlink(missing_ok=True)
                removed.append(run)
        for partial in self.runs.glob("*/.*.run.*.tmp"):  # left by a writer that was killed
            if epoch_of(partial.name[1:]) <= kept[-1]:
                partial.unlink(missing_ok=True)
        self._remove_empty_folders({run.partition("/")[0] for run in needed})
        self.records.remove_before(kept[0])
        return removed

    def _remove_empty_folders(self, used: Collection[str]) -> None:
        """Remove the folders of collections that are gone: those of jobs that were dropped. A writer makes its folder
        again if it needs it."""
        for folder in self.runs.iterdir() if self.runs.is_dir() else ():
            if folder.name not in used:
                with contextlib.suppress(OSError):  # a run of the epoch under way is in it
                    folder.rmdir()

    def list_runs(self) -> Iterator[str]:
        """The names of all run files there are, needed or not."""
        for path in self.runs.glob("*/*.run"):
            yield f"{path.parent.name}/{path.name}"
