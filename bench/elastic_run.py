"""One run of the elastic benchmark in a process of its own: an engine on a cluster, disturbed by a script.

The script says as JSON where the input and the state are, and what happens when; the run writes
epoch lengths, moves and a digest of the output to a file.

The query keeps the last pages of every visitor: state that grows with the visitors and is read and written by key. It
emits the ten pages most visited in each ten seconds by those who have seen eight.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import penstock as ps
from penstock import col
from penstock.engine.engine import Engine
from penstock.epoch.migration import MapChange, MigrationResult
from penstock.epoch.migration_cost import Protocol
from penstock.epoch.runner import EpochReport
from penstock.logs.contract import Log
from penstock.scaling.measurements import Snapshot
from penstock.scaling.settings import parse_settings
from penstock.settings import Settings
from penstock.state.bucket_map import ExecutorLocation

BUCKETS = 16
Step = Literal["place", "grow", "shrink", "bucket"]
_DEADLINE_SECONDS = 120.0
#: epochs between the end of a step and the next; and a number that no epoch reaches
_REST, _NOT_YET = 5, 1 << 62


@dataclass(frozen=True)
class Script:
    """What a run does. `steps`: from which epoch of the run on what is done to the executors, by which protocol; one
    after the other, however long each takes."""

    master: str
    files: str
    state: str
    out: str
    #: events of the live log a second; 0: the files are read
    rate: float = 0.0
    #: from when on, for how long and how many times the rate, of a live log
    spike: tuple[float, float, float] = (0.0, 0.0, 1.0)
    seconds: float = 0.0
    executors: int = 1
    epoch_events: int | None = None
    interval_seconds: float = 0.1
    steps: tuple[tuple[int, Step], ...] = ()
    protocol: Protocol | None = None
    elastic: tuple[str, ...] = ()


@dataclass
class RunFacts:
    """The measurements of a run."""

    seconds: list[float] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    executors: list[int] = field(default_factory=list)
    #: epoch of the run, the step, and the result of the migration
    moves: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    #: steps that were not done when all was read
    left: list[str] = field(default_factory=list)
    run_seconds: float = 0.0
    state_bytes: int = 0
    digest: str = ""
    decisions: list[dict[str, Any]] = field(default_factory=list)
    backlog_seconds: list[float] = field(default_factory=list)
    #: of all cores, at the end of each epoch
    utilisation: list[float] = field(default_factory=list)


def query(log: Log, out: str) -> ps.App:
    """The application."""
    decoder = ps.combined_log(extra=[ps.Cookie("session")])
    clicks = ps.stream("clicks", log, decoder, time="time", lateness="1s")
    pages = clicks.select(visitor=col("session"), page=col("path")).filter(col("visitor").is_not_null())
    walks = pages.key_by("visitor").last(8, "page")
    hot = walks.select(page=col("page").list.last()).key_by("page").window("10s").count().top(10)
    return ps.app("elastic", ps.output("hot", hot, ps.jsonl(out)))


def main(text: str, place: Path) -> None:
    """In the process: run, and write the measurements."""
    facts = json.loads(text)
    facts["steps"] = tuple((epoch, step) for epoch, step in facts["steps"])
    facts["spike"], facts["elastic"] = tuple(facts["spike"]), tuple(facts["elastic"])
    script = Script(**facts)
    (place / "found.json").write_text(json.dumps(asdict(_Run(script).run_to_end())))


class _Run:
    def __init__(self, script: Script) -> None:
        self._script = script
        at, lasting, factor = script.spike
        log: Log = (
            ps.generated(
                rate=script.rate,
                users=200_000,
                profile="spike" if factor != 1 else "constant",
                spike_factor=factor,
                at_seconds=at,
                for_seconds=lasting,
            )
            if script.rate
            else ps.files(script.files)
        )
        settings = Settings(
            state=Path(script.state),
            master=script.master,
            executors=script.executors,
            buckets=BUCKETS,
            drain=not script.rate,
            most_epoch_units=None if script.epoch_events is None else script.epoch_events * 200,
            epoch_interval_seconds=script.interval_seconds,
            elastic=parse_settings(script.elastic) if script.elastic else None,
            small_epoch_bytes=0,
        )
        self._engine = Engine(query(log, script.out), settings)
        self._facts = RunFacts()
        self._step_thread: threading.Thread | None = None
        self._steps = list(script.steps)
        #: what a step "bucket" moves: the first, then the one after it
        self._next_bucket = 0
        #: the epoch before which no further step starts
        self._earliest_epoch = 0

    def run_to_end(self) -> RunFacts:
        run = self._engine.run(self._watch, for_seconds=self._script.seconds or None)
        if self._step_thread is not None:
            self._step_thread.join(_DEADLINE_SECONDS)
        self._facts.run_seconds = run.seconds
        done = [step for _, step, _ in self._facts.moves]
        self._facts.left = [step for _, step in self._script.steps[len(done) :]]
        self._facts.digest = digest(Path(self._script.out))
        if self._engine.elasticity is not None:
            record = self._engine.elasticity.loop.record
            self._facts.decisions = [entry.to_json() for entry in record.entries]
        return self._facts

    def _watch(self, report: EpochReport) -> None:
        found = self._facts
        number = len(found.seconds)
        found.seconds.append(report.seconds)
        found.events.append(report.events)
        found.executors.append(len(self._engine.workers()))
        found.state_bytes = report.state_bytes
        latest = self._engine.meter.latest
        found.backlog_seconds.append(latest.backlog_seconds if latest is not None and latest.warm else 0.0)
        found.utilisation.append(0.0 if latest is None else _utilisation(latest))
        if self._steps and number >= max(self._steps[0][0], self._earliest_epoch):
            self._earliest_epoch = _NOT_YET  # the next one waits for the end of this
            self._step_thread = threading.Thread(target=self._run_step, args=(number, self._steps.pop(0)[1]))
            self._step_thread.start()

    # -- steps while epochs run ------------------------------------------------------------------

    def _run_step(self, number: int, step: Step) -> None:
        self._execute_step(number, step)
        self._earliest_epoch = len(self._facts.seconds) + _REST

    def _execute_step(self, number: int, step: Step) -> None:
        started_at = time.monotonic()
        if step == "place":
            self._move_buckets(number, step, self._locations(), "immediate")
        elif step == "grow":
            self._executors().request(self._script.executors + 1)
            self._executors().wait_for(self._script.executors + 1, _DEADLINE_SECONDS)
            started_after = time.monotonic() - started_at
            self._engine.warm_up_executor(self._locations()[-1])
            self._move_buckets(
                number, step, self._locations(), self._script.protocol, came_seconds=started_after
            )
        elif step == "shrink":
            locations = self._locations()
            self._move_buckets(number, step, locations[:-1], self._script.protocol)
            self._executors().retire([locations[-1].executor])
        else:
            maps = self._engine.maps
            assert maps is not None
            moved = maps.with_owners(None, {self._next_bucket: maps.slices - 1})
            self._next_bucket += 1
            self._record_move(
                number,
                step,
                self._engine.request_map_change(MapChange(moved, self._script.protocol)).result(
                    _DEADLINE_SECONDS
                ),
            )

    def _move_buckets(
        self,
        number: int,
        step: Step,
        locations: Sequence[ExecutorLocation],
        protocol: Protocol | None,
        **more: float,
    ) -> None:
        maps = self._engine.maps
        assert maps is not None
        owners = {bucket: bucket * len(locations) // BUCKETS for bucket in range(BUCKETS)}
        change = MapChange(maps.with_owners(None, owners).with_locations(locations), protocol)
        self._record_move(
            number, step, self._engine.request_map_change(change).result(_DEADLINE_SECONDS), **more
        )

    def _record_move(self, number: int, step: str, moved: MigrationResult, **more: float) -> None:
        facts = {
            "done": moved.done,
            "protocol": moved.protocol,
            "reason": moved.reason,
            "buckets": moved.buckets,
            "bytes": moved.bytes,
            "seconds": moved.seconds,
            "pause_seconds": moved.pause_seconds,
            "switched_epoch": moved.switched_epoch,
        }
        self._facts.moves.append((number, step, facts | more))

    def _executors(self) -> Any:
        assert self._engine.executors is not None
        return self._engine.executors

    def _locations(self) -> list[ExecutorLocation]:
        return [ExecutorLocation(one.host, one.id) for one in self._executors().staying()]


def _utilisation(measured: Snapshot) -> float:
    busy = sum(one.busy_seconds for one in measured.stages.values())
    return busy / (measured.period_seconds * max(measured.fleet.all_cores, 1))


def digest(out: Path) -> str:
    """Return a digest of all rows of an output, in their order."""
    hasher = hashlib.sha256()
    for file in sorted(out.glob("*.jsonl")):
        hasher.update(file.read_bytes())
    return hasher.hexdigest()[:16]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
