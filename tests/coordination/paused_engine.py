"""An engine with a lease, in a process of its own, that a test pauses: `python -m tests.coordination.paused_engine`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import penstock as ps
from penstock.coordination.address import open_store
from penstock.coordination.contract import Session, Store
from penstock.coordination.leadership import leader_lease_path
from penstock.coordination.lease import Lease, acquire
from penstock.engine.engine import Engine
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.state.directory import StateDirectory
from penstock.state.generation import Fence
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from tests import golden_query as golden

UNITS = 60
UNIT = "golden"


def build(out: Path) -> ps.App:
    """Paths and counts, to files and to a table; some lines are undecodable and some events late."""
    source = ListLog(golden.lines(count=150))
    events = ps.stream("events", source, golden.decoder(), time="time", lateness=golden.LATENESS)
    counts = events.key_by("page").window("10s").count("visits")
    paths = events.key_by("user").last(3, "page").map(path=ps.col("page").list.join(">"))
    return ps.app(
        "paused",
        ps.output("paths", paths.select("user", "path"), ps.jsonl(out / "paths")),
        ps.output("counts", counts, ps.jsonl(out / "counts"), ps.sqlite(out / "out.db", "counts")),
    )


@dataclass(frozen=True)
class UncheckedFence:
    """A fence that checks nothing: an engine whose clock stands still believes that it holds its lease."""

    generation: int

    def check(self) -> None:
        pass


def acquire_lease(folder: Path, session_seconds: float) -> tuple[Store, Session, Lease]:
    """Acquire the lease on the state below a folder."""
    store = open_store(str(folder / "coordination"))
    session = store.start_session(session_seconds)
    directory = StateDirectory(folder / "state")
    lease = acquire(
        store, leader_lease_path(UNIT), session, above=lambda: directory.newest_generation, seconds=60
    )
    assert lease is not None
    return store, session, lease


def settings(folder: Path) -> Settings:
    """Return settings of an engine on Spark with epochs of the same size as without Spark."""
    return Settings(
        state=folder / "state",
        master="local[2]",
        most_epoch_units=UNITS,
        epoch_interval_seconds=0.0,
        drain=True,
        warm_up=False,
        small_epoch_bytes=0,
    )


def main(folder_path: str, kind: str) -> int:
    folder = Path(folder_path)
    # an engine that never checks its lease need not hold it for long
    _, session, lease = acquire_lease(folder, 1.0 if kind == "unchecked" else 3.0)
    fence: Fence = lease if kind == "checked" else UncheckedFence(lease.generation)
    try:
        if kind == "spark":
            Engine(build(folder / "out"), settings(folder), fence=fence).run()
        else:
            run_inline(build(folder / "out"), folder / "state", epoch_units=UNITS, fence=fence)
    except PenstockError as failure:
        print(failure, flush=True)
        return failure.exit_code
    finally:
        session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
