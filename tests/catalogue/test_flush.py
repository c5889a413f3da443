"""FLUSH emits the current rows of all open windows, of any shape, and changes nothing else."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from penstock.errors import UserError
from penstock.testing.list_log import ListLog
from tests.catalogue import kit

pytestmark = pytest.mark.slow

#: size and step of windows: hopping (few at a time, many at a time), with gaps, tumbling
SHAPES = [(30, 10), (60, 5), (45, 6), (5, 20), (20, 20)]
LATENESS = 2


def _sql(size: int, every: int) -> str:
    return f"""
    CREATE JOB flushed AS SELECT page, COUNT(*) AS n, MAX(status) AS most FROM clicks GROUP BY page
        WINDOWING {size} SECONDS EVERY {every} SECONDS;
    CREATE JOB untouched AS SELECT page, COUNT(*) AS n, MAX(status) AS most FROM clicks GROUP BY page
        WINDOWING {size} SECONDS EVERY {every} SECONDS"""


def _at(event: kit.Event) -> float:
    return datetime.fromisoformat(event["ts"]).timestamp()


def _open(seen: list[kit.Event], size: int, every: int) -> list[tuple[str, int, int]]:
    """The rows of the windows whose end the watermark has not reached."""
    watermark = _at(seen[-1]) - LATENESS
    groups = kit.windows(seen, size, lambda event: event["page"], every=every)
    return sorted(
        (page, len(events), max(event["status"] for event in events))
        for (start, page), events in groups.items()
        if start + size > watermark
    )


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("size", "every"), SHAPES)
def test_flush_emits_the_current_rows_of_open_windows(
    size: int, every: int, together: bool, tmp_path: Path
) -> None:
    """`together`: the epoch of the flush has events too."""
    events = kit.events(200)
    lines = [json.dumps(event) for event in events]
    undisturbed = ListLog({"p": lines}, finished=True)
    expected = kit.run_all(tmp_path / "straight", kit.of_log(undisturbed), _sql(size, every))
    log = ListLog({"p": []}, finished=False)
    emitted: dict[str, list[tuple[object, ...]]] = {"flushed": [], "untouched": []}
    count = 0
    with kit.running(tmp_path / "s", kit.of_log(log), _sql(size, every), slices=lambda n: n % 3 + 1) as (
        jobs,
        engine,
    ):
        for end in range(20, 201, 20):
            if together:
                jobs.execute("FLUSH JOB flushed")
            log.add("p", *lines[end - 20 : end])
            rows = kit.emitted_rows(list(engine.steps()))
            if not together:
                jobs.execute("FLUSH JOB flushed")
                early = kit.emitted_rows(list(engine.steps()))
                assert early.keys() <= {"flushed"}
                early_rows = sorted(early.get("flushed", []))
            else:
                # both jobs emit the windows that close
                early_rows = sorted(_without(rows.get("flushed", []), rows.get("untouched", [])))
                rows["flushed"] = rows.get("untouched", [])
            assert early_rows == _open(events[:end], size, every)
            count += len(early_rows)
            for name, mine in rows.items():
                emitted[name] += mine
        log.finish()
        for name, mine in kit.emitted_rows(list(engine.steps())).items():
            emitted[name] += mine
    assert count
    assert emitted == expected, "closing windows emit the same rows as without a flush"


GAP = 3
SESSIONS = "\n".join(
    f"CREATE JOB {name} AS SELECT page, COUNT(*) AS n, MAX(status) AS most, MIN(user) AS who FROM clicks "
    f"GROUP BY page WINDOWING SESSION {GAP} SECONDS;"
    for name in ("flushed", "untouched")
)


def _open_sessions(seen: list[kit.Event]) -> list[tuple[str, int, int, str]]:
    """The sessions whose end the watermark has not reached."""
    watermark, sessions = _at(seen[-1]) - LATENESS, list[tuple[str, int, int, str]]()
    for page in {event["page"] for event in seen}:
        session: list[kit.Event] = []
        for event in [*(event for event in seen if event["page"] == page), None]:
            if session and (event is None or _at(event) >= _at(session[-1]) + GAP):
                if _at(session[-1]) + GAP > watermark:
                    most, who = max(e["status"] for e in session), min(e["user"] for e in session)
                    sessions.append((page, len(session), most, who))
                session = []
            session += [event] if event is not None else []
    return sorted(sessions)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("step", [7, 20])
def test_flush_emits_the_current_rows_of_open_sessions(step: int, together: bool, tmp_path: Path) -> None:
    events = kit.events(140)
    lines = [json.dumps(event) for event in events]
    expected = kit.run_all(tmp_path / "straight", kit.of_log(ListLog({"p": lines}, finished=True)), SESSIONS)
    log = ListLog({"p": []}, finished=False)
    emitted: dict[str, list[tuple[object, ...]]] = {"flushed": [], "untouched": []}
    count = 0
    with kit.running(tmp_path / "s", kit.of_log(log), SESSIONS, slices=lambda n: n % 3 + 1) as (jobs, engine):
        for end in range(step, 141, step):
            if together:
                jobs.execute("FLUSH JOB flushed")
            log.add("p", *lines[end - step : end])
            rows = kit.emitted_rows(list(engine.steps()))
            early = _without(rows.get("flushed", []), rows.get("untouched", []))
            rows["flushed"] = rows.get("untouched", [])
            if not together:
                assert not early
                jobs.execute("FLUSH JOB flushed")
                flush_rows = kit.emitted_rows(list(engine.steps()))
                assert flush_rows.keys() <= {"flushed"}
                early = flush_rows.get("flushed", [])
            assert sorted(early) == _open_sessions(events[:end])
            count += len(early)
            for name, mine in rows.items():
                emitted[name] += mine
        log.finish()
        for name, mine in kit.emitted_rows(list(engine.steps())).items():
            emitted[name] += mine
    assert count
    assert emitted == expected


def test_flush_of_a_window_of_events_is_refused(tmp_path: Path) -> None:
    counted = "CREATE JOB counted AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 EVENTS"
    with kit.running(tmp_path, kit.clicks(kit.events(20)), counted) as (jobs, _):
        with pytest.raises(UserError) as refused:
            jobs.execute("FLUSH JOB counted")
        assert refused.value.condition == "NOTHING_TO_FLUSH"


def _without(rows: list[tuple[object, ...]], some: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    left = list(rows)
    for row in some:
        left.remove(row)
    return left
