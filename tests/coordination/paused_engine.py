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
    """Paths and counts, to files and to a table; some lines are broken and some late."""
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
class Blind:
    """A fence that never looks: an engine whose clock stands still believes in its lease for ever."""

    generation: int

    def check(self) -> None:
        pass


def leading(folder: Path, session_seconds: float) -> tuple[Store, Session, Lease]:
    """A lease on the state below a folder."""
    store = open_store(str(folder / "coordination"))
    session = store.start_session(session_seconds)
    directory = StateDirectory(folder / "state")
    lease = acquire(
        store, leader_lease_path(UNIT), session, above=lambda: directory.newest_generation, seconds=60
    )
    assert lease is not None
    return store, session, lease


def settings(folder: Path) -> Settings:
    """For an engine on Spark that cuts epochs as the others do."""
    return Settings(
        state=folder / "state",
        master="local[2]",
        most_epoch_units=UNITS,
        epoch_interval_seconds=0.0,
        drain=True,
        warm_up=False,
        small_epoch_bytes=0,
    )


def main(place: str, how: str) -> int:
    folder = Path(place)
    # who never looks at its lease need not have it for long
    _, session, lease = leading(folder, 1.0 if how == "blind" else 3.0)
    fence: Fence = lease if how == "looking" else Blind(lease.generation)
    try:
        if how == "spark":
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
