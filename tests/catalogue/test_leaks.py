"""Jobs that come and go leave nothing open and nothing in memory: descriptors, connections, sinks, jobs and streams."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

import pytest

from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.program import Program
from penstock.query.stream import Stream
from penstock.sinks.contract import Sink
from penstock.testing.inline import InlineEngine
from tests.catalogue.kit import append_events, growing_log, of_log, running

pytestmark = pytest.mark.slow
#: jobs that are created and dropped, and as many to warm up
COUNT, FIRST = 200, 20


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def count_objects() -> Counter[str]:
    """How many sinks, compiled jobs and streams there are."""
    gc.collect()
    kinds = (Sink, CompiledJob, Stream)
    return Counter(kind.__name__ for one in gc.get_objects() for kind in kinds if isinstance(one, kind))


def create_and_drop(
    program: Program, engine: InlineEngine, events: list[object], out: Path, numbers: range
) -> None:
    for number in numbers:
        log = events[0]
        append_events(log, [events[number % (len(events) - 1) + 1]])  # type: ignore[arg-type, list-item]
        program.execute(
            f"CREATE JOB j{number} AS SELECT user, bytes FROM clicks WHERE bytes > {number} "
            f"INTO sqlite('{out}/j{number}.db', 'rows'), jsonl('{out}/j{number}')"
        )
        engine.step()
        program.execute(f"DROP JOB j{number}")
        engine.step()


def test_dropped_jobs_leave_no_descriptor_and_no_object(tmp_path: Path) -> None:
    log, events = growing_log(300)
    with running(tmp_path / "state", of_log(log)) as (program, engine):
        program.execute("CREATE JOB stays AS SELECT user FROM clicks")
        given = [log, *events]
        create_and_drop(program, engine, given, tmp_path, range(FIRST))
        descriptors, objects = count_descriptors(), count_objects()
        create_and_drop(program, engine, given, tmp_path, range(FIRST, FIRST + COUNT))
        assert count_descriptors() <= descriptors + 5
        after = count_objects()
        assert {name: after[name] - objects[name] for name in after if after[name] > objects[name] + 5} == {}


def test_state_of_dropped_jobs_leaves_no_folder(tmp_path: Path) -> None:
    """A folder for every job that ever had state would be listed whenever old runs are removed."""
    log, events = growing_log(60)
    with running(tmp_path / "state", of_log(log)) as (program, engine):
        for number in range(1, 6):
            program.execute(
                f"CREATE JOB j{number} AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user "
                f"WINDOWING SESSION {number} SECONDS"
            )
            for event in events[10 * number : 10 * number + 5]:
                append_events(log, [event])
                engine.step()
            program.execute(f"DROP JOB j{number}")
            append_events(log, [events[10 * number + 6]])
            engine.step()
            engine.step()
            engine.remove_old_state(1)
        assert list((tmp_path / "state" / "runs").iterdir()) == []
