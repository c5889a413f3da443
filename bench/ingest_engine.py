"""The engine of the ingest benchmark, a process of its own: it counts paths of a segment log and records each epoch.

It writes `epochs.jsonl` into a folder: when each epoch was committed, how far it
read every partition, and what it counted.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path

import penstock as ps
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.settings import Settings
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import Offset


def app(log: Path) -> ps.App:
    """Build the application: hits of every path in windows of five seconds."""
    clicks = ps.stream("clicks", ps.segments(log), ps.combined_log(["session"]), time="time", lateness="2s")
    return ps.app("hits", ps.output("hits", clicks.key_by("path").window("5s").count("n")))


def main(log: Path, folder: Path) -> None:
    """Run until SIGTERM."""
    state = folder / "state"
    engine = Engine(app(log), Settings(state=state, epoch_seconds=0.5, catch_up_seconds=0.5))
    directory: StateDirectory | None = None
    with open(folder / "epochs.jsonl", "w", buffering=1) as out:

        def show_phase(phase: str) -> None:
            if phase == "running":
                stopping = threading.Thread(target=engine.stop)
                signal.signal(signal.SIGTERM, lambda *_: stopping.start())
                (folder / "running").touch()

        def watch(report: EpochReport) -> None:
            nonlocal directory
            directory = directory or engine.state
            end = directory.records.read_end(report.epoch) or Offset()
            facts = {
                "at": report.committed_at,
                "offsets": end.at.get("clicks", {}),
                "events": report.events,
                "aside": report.late + report.bad,
                "seconds": report.seconds,
            }
            out.write(json.dumps(facts) + "\n")

        engine.run(watch, on_phase=show_phase)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
