"""Lives of an engine on a state directory: the one place here that knows how an engine is driven.

The engine runs in this process, without Spark, unless a function says otherwise.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import penstock as ps
from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.code import CodeBundle
from penstock.catalogue.code_requests import AlterFrom, CodeRequest, CreateFrom, Deploy
from penstock.catalogue.command import Reply
from penstock.catalogue.jobs_app import JobsApp
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.engine.engine import Engine
from penstock.engine.job_client import JobClient
from penstock.epoch.migration import MapChange
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError
from penstock.ha.claim import claim_unit, prepare_launch
from penstock.ha.coordinator import Coordinator
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import unit_name
from penstock.ingest.frames import Frame
from penstock.ingest.store import Retention, Store
from penstock.query.physical import Plan
from penstock.query.reducer import Reducer
from penstock.query.reduction_plan import plan_reduction
from penstock.settings import INLINE, Settings
from penstock.state.bucket_map import BucketMaps
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import Offset
from penstock.state.state_facts import FORMAT
from penstock.testing.inline import InlineEngine
from tests.golden.given import CODE_PLACE, Change, FromFile, Named
from tests.operators.harness import Holding

BUCKETS = 8
#: manifests that an archive holds: one to open, one to go back to
KEPT = 2
#: of a segment log, small enough for several segments
SEGMENT_BYTES = 1_000

#: the format that the code of today writes
CURRENT_FORMAT = f"format-{FORMAT}"

#: what a case runs
Query = ps.App | JobsApp
#: by epoch, the changes executed before it
Commands = Mapping[int, Change | Sequence[Change]]
#: by epoch, the buckets that go to other slices before it; of all operators
Moves = Mapping[int, Mapping[int, int]]


def live(
    query: Query,
    state: Path,
    *,
    epochs: int | None = None,
    epoch_units: int = 1 << 40,
    slices: int = 2,
    checkpoint_every: int = 1,
    commands: Commands | None = None,
    moves: Moves | None = None,
    fold_after: int | None = None,
    holds_emissions: bool = False,
    drop_state: bool = False,
) -> int:
    """Run some epochs, or until everything is read; returns how many. With `holds_emissions` results that are due
    together are emitted over several epochs."""
    program = make_program(query, state, fold_after)
    engine = InlineEngine(
        program,
        state,
        epoch_units=epoch_units,
        slices=slices,
        buckets=BUCKETS,
        checkpoint_every=checkpoint_every,
        closing=Holding(3) if holds_emissions else None,
        drop_state=drop_state,
    )
    done = 0
    try:
        while epochs is None or done < epochs:
            _execute(program, (commands or {}).get(engine.next_epoch, ()))
            if owners := (moves or {}).get(engine.next_epoch):
                engine.runner.request_map_change(
                    MapChange(_moved(engine.runner.maps, owners, _plan(program)))
                )
            if engine.step() is None:
                break
            done += 1
        engine.runner.checkpoint()
        if epochs is not None:
            engine.remove_old_state(KEPT)
    finally:
        engine.close()
    return done


def _execute(program: Program, changes: Change | Sequence[Change]) -> None:
    for change in (changes,) if isinstance(changes, Change) else changes:
        match change:
            case FromFile():
                program.submit(_code_request(change))
            case Named():
                program.execute(change.text, change.name)
            case str() if change:
                program.execute(change)


def _code_request(change: FromFile) -> CodeRequest:
    bundle = CodeBundle(f"{CODE_PLACE}/{next(iter(change.files))}", change.files)
    match change.do:
        case "create":
            return CreateFrom(change.job, bundle, change.attribute)
        case "alter":
            return AlterFrom(change.job, bundle, change.attribute)
        case "deploy":
            return Deploy(bundle, prune=True)


def live_in_stages(query: Query, state: Path, texts: Iterable[str]) -> None:
    """Run until everything is read, before each of these texts is executed and after the last."""
    program = make_program(query, state)
    engine = InlineEngine(program, state, buckets=BUCKETS)
    try:
        for text in texts:
            for _ in engine.steps():
                pass
            program.execute(text)
        for _ in engine.steps():
            pass
    finally:
        engine.close()


def live_on_spark(
    query: Query,
    state: Path,
    *,
    spark: SparkSession | None = None,
    epochs: int | None = None,
    epoch_units: int = 24,
    slices: int = 2,
) -> None:
    """The same on real Spark, in a session that is given or started."""
    settings = Settings(
        state=state,
        master="local[2]",
        buckets=BUCKETS,
        first_epoch_units=epoch_units,
        most_epoch_units=epoch_units,
        epoch_interval_seconds=0.0,
        manifests_kept=KEPT,
        slices=slices,
        drain=True,
        warm_up=False,
        small_epoch_bytes=0,
    )
    engine = Engine(make_program(query, state), settings, spark)

    def watch(report: EpochReport) -> None:
        if epochs is not None and report.epoch + 1 >= epochs:
            engine.stop()

    engine.run(watch)


def _importable() -> None:
    """Have processes that are started from here find the cases."""
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.append(root)


#: settings of a unit's engines
_UNIT: dict[str, Any] = {
    "buckets": BUCKETS,
    "job_share": 0.0,
    "epoch_interval_seconds": 0.05,
    "manifests_kept": KEPT,
    "checkpoint_every": 1,
    "checkpoint_varies": False,
}


class LiveUnit:
    """An HA unit of engine processes without Spark, and its coordinator in a thread. To be ended."""

    def __init__(
        self, file: Path, app: str, root: Path, scheme: str, *, drain: bool, **settings: Any
    ) -> None:
        root.mkdir(exist_ok=True)
        launch = Launch(
            unit_name(app, root),
            str(root / "ha" / "coordination"),
            str(file),
            str(root.parent),
            master=INLINE,
            drain=drain,
            lease_seconds=2.5,
            settings=_UNIT | settings,
        )
        _importable()
        self.unit = claim_unit(root, launch, Scheme(scheme))
        self._coordinator = Coordinator(
            self.unit, report=lambda _: None, prepare=prepare_launch(self.unit, Scheme(scheme))
        )
        self._thread = threading.Thread(target=self._coordinator.run, daemon=True)
        self._thread.start()

    def until(self, what: str, true: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not (found := true()):
            assert time.monotonic() < deadline, (
                f"waited in vain until {what}\n{self.unit.record()}\n{self._printed()}"
            )
            time.sleep(0.05)
        return found

    def _printed(self) -> str:
        logs = sorted((self.unit.shared / "logs").glob("*.log"))
        return "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in logs)

    def stands(self, secondary: bool) -> bool:
        """Whether an engine leads and, if it is to be, another follows."""
        engines = self.unit.engines()
        leads = [name for name, engine in engines.items() if engine.phase == "primary"]
        follows = [name for name, engine in engines.items() if engine.phase in ("following", "ready")]
        return len(leads) == 1 and len(follows) == secondary

    def leader(self) -> str:
        """The engine that leads."""
        return next(name for name, engine in self.unit.engines().items() if engine.phase == "primary")

    def committed(self, stream: str, lines: int) -> bool:
        """Whether the state in force has come to this many lines of every partition."""
        end = self._end()
        reached = {} if end is None else end.at.get(stream, {})
        return bool(reached) and set(reached.values()) == {lines}

    def _end(self) -> Offset | None:
        """How far the state in force has come."""
        directory = StateDirectory(Path(self.unit.record().directory))
        return directory.records.read_end(directory.manifests.latest().epoch)

    def execute(self, sql: str) -> None:
        """Have whoever leads execute statements, and wait until an epoch has done so."""

        def replies() -> list[Reply] | None:
            with contextlib.suppress(ExternalError, OSError), JobClient(self.unit.root) as client:
                return client.execute(sql)
            return None

        number = self.until(f"{sql} is accepted", replies)[-1].command
        self.until(f"{sql} is executed", lambda: (self._end() or Offset()).commands >= number)

    def kill(self, name: str) -> None:
        """SIGKILL to an engine."""
        os.kill(self.unit.engines()[name].pid, signal.SIGKILL)

    def die(self) -> None:
        """Everything ends at once, as in a power loss: first who would start engines again, then these."""
        pids = [engine.pid for engine in self.unit.engines().values()]
        self._coordinator._supply = lambda *_: None  # type: ignore[method-assign]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """Every engine ends after its epoch."""
        self._coordinator.stop()
        self.wait()

    def wait(self, seconds: float = 90.0) -> str:
        """Wait until all has ended; says how."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the unit does not end\n{self._printed()}"
        phase = self.unit.record().phase
        self.unit.close()
        return phase


def reduced(app: Query, stream: str) -> ps.App:
    """An app as it reads what agents have made of a stream."""
    assert isinstance(app, ps.App)
    return plan_reduction(app, stream).engine_app()


def reduced_lines(app: Query, stream: str, lines: Sequence[str]) -> list[str]:
    """What an agent makes of lines, nine at a time."""
    assert isinstance(app, ps.App)
    reducer, made, highest = Reducer(plan_reduction(app, stream)), b"", None
    for at in range(0, len(lines), 9):
        data = "".join(f"{line}\n" for line in lines[at : at + 9]).encode()
        part, highest = reducer(data, highest, 10**16)
        made += part
    return made.decode().splitlines()


def append_segments(directory: Path, lines: Mapping[str, Sequence[str]], frame_lines: int) -> None:
    """Put lines of some producers into a segment log, as a gateway does: a frame of each in every group."""
    store = Store(directory, partitions=2, segment_bytes=SEGMENT_BYTES)
    try:
        for at in range(0, max(map(len, lines.values())), frame_lines):
            frames = []
            for producer, held in lines.items():
                if data := "".join(f"{line}\n" for line in held[at : at + frame_lines]).encode():
                    frames.append(Frame.of(producer, store.position(producer), data))
            store.append(frames, now=time.time_ns() // 1000)
    finally:
        store.close()


def prune_segments(directory: Path) -> int:
    """Remove what no reader of a segment log needs, as a gateway does; returns how many segments."""
    store = Store(directory)
    try:
        return store.prune(Retention(), time.time()).segments
    finally:
        store.close()


def make_program(query: Query, state: Path, fold_after: int | None = None) -> Program:
    """The program of a query on a state directory."""
    if fold_after is None:
        return program_of(query, state)
    if not isinstance(query, JobsApp):
        return Program(query.name, state, app=AppPlan.of(query), fold_after=fold_after)
    given = {name: getattr(query, name) for name in ("streams", "queries", "functions")}
    return Program(query.name, state, **given, begin=query.sql, fold_after=fold_after)


def _plan(program: Program) -> Plan:
    return program.epochs.plan(program.commands)


def _moved(maps: BucketMaps, owners: Mapping[int, int], plan: Plan) -> BucketMaps:
    """Buckets of all operators to other slices, and one bucket of one operator by itself."""
    return maps.with_owners(None, owners).with_owners(next(iter(plan.stages)), {0: 3})


def name_of_unit(app: str, root: Path) -> str:
    """What a unit of an app on a directory is called."""
    return unit_name(app, root)
