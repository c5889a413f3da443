"""FLUSH tells what is open of each window as it stands, however windows lie, and changes nothing else."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from penstock.errors import UserError
from penstock.testing.list_log import ListLog
from tests.catalogue import kit

#: size and step of windows: few at a time, many at a time, with gaps, one after the other
SHAPES = [(30, 10), (60, 5), (45, 6), (5, 20), (20, 20)]
LATENESS = 2


def _sql(size: int, every: int) -> str:
    return f"""
    CREATE JOB told AS SELECT page, COUNT(*) AS n, MAX(status) AS most FROM clicks GROUP BY page
        WINDOWING {size} SECONDS EVERY {every} SECONDS;
    CREATE JOB quiet AS SELECT page, COUNT(*) AS n, MAX(status) AS most FROM clicks GROUP BY page
        WINDOWING {size} SECONDS EVERY {every} SECONDS"""


def _at(event: kit.Event) -> float:
    return datetime.fromisoformat(event["ts"]).timestamp()


def _open(seen: list[kit.Event], size: int, every: int) -> list[tuple[str, int, int]]:
    """What stands in the windows that the watermark has not reached the end of."""
    watermark = _at(seen[-1]) - LATENESS
    groups = kit.windows(seen, size, lambda event: event["page"], every=every)
    return sorted(
        (page, len(events), max(event["status"] for event in events))
        for (start, page), events in groups.items()
        if start + size > watermark
    )


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("size", "every"), SHAPES)
def test_open_windows_are_told_as_they_stand(size: int, every: int, together: bool, tmp_path: Path) -> None:
    """`together`: events come in the epoch in which the job is flushed."""
    found = kit.events(200)
    lines = [json.dumps(event) for event in found]
    straight = ListLog({"p": lines}, finished=True)
    expected = kit.run_all(tmp_path / "straight", kit.of_log(straight), _sql(size, every))
    log = ListLog({"p": []}, finished=False)
    told: dict[str, list[tuple[object, ...]]] = {"told": [], "quiet": []}
    flushed = 0
    with kit.running(tmp_path / "s", kit.of_log(log), _sql(size, every), slices=lambda n: n % 3 + 1) as (
        jobs,
        engine,
    ):
        for end in range(20, 201, 20):
            if together:
                jobs.execute("FLUSH JOB told")
            log.add("p", *lines[end - 20 : end])
            rows = kit.told(list(engine.steps()))
            if not together:
                jobs.execute("FLUSH JOB told")
                early = kit.told(list(engine.steps()))
                assert early.keys() <= {"told"}
                found_early = sorted(early.get("told", []))
            else:
                # what is closed now is told to both
                found_early = sorted(_less(rows.get("told", []), rows.get("quiet", [])))
                rows["told"] = rows.get("quiet", [])
            assert found_early == _open(found[:end], size, every)
            flushed += len(found_early)
            for name, mine in rows.items():
                told[name] += mine
        log.finish()
        for name, mine in kit.told(list(engine.steps())).items():
            told[name] += mine
    assert flushed
    assert told == expected, "what is told when windows close is what it is without"


GAP = 3
SESSIONS = "\n".join(
    f"CREATE JOB {name} AS SELECT page, COUNT(*) AS n, MAX(status) AS most, MIN(user) AS who FROM clicks "
    f"GROUP BY page WINDOWING SESSION {GAP} SECONDS;"
    for name in ("told", "quiet")
)


def _open_sessions(seen: list[kit.Event]) -> list[tuple[str, int, int, str]]:
    """The sessions that the watermark has not reached the end of."""
    watermark, found = _at(seen[-1]) - LATENESS, list[tuple[str, int, int, str]]()
    for page in {event["page"] for event in seen}:
        session: list[kit.Event] = []
        for event in [*(event for event in seen if event["page"] == page), None]:
            if session and (event is None or _at(event) >= _at(session[-1]) + GAP):
                if _at(session[-1]) + GAP > watermark:
                    most, who = max(e["status"] for e in session), min(e["user"] for e in session)
                    found.append((page, len(session), most, who))
                session = []
            session += [event] if event is not None else []
    return sorted(found)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("step", [7, 20])
def test_open_sessions_are_told_as_they_stand(step: int, together: bool, tmp_path: Path) -> None:
    found = kit.events(140)
    lines = [json.dumps(event) for event in found]
    expected = kit.run_all(tmp_path / "straight", kit.of_log(ListLog({"p": lines}, finished=True)), SESSIONS)
    log = ListLog({"p": []}, finished=False)
    told: dict[str, list[tuple[object, ...]]] = {"told": [], "quiet": []}
    flushed = 0
    with kit.running(tmp_path / "s", kit.of_log(log), SESSIONS, slices=lambda n: n % 3 + 1) as (jobs, engine):
        for end in range(step, 141, step):
            if together:
                jobs.execute("FLUSH JOB told")
            log.add("p", *lines[end - step : end])
            rows = kit.told(list(engine.steps()))
            early = _less(rows.get("told", []), rows.get("quiet", []))
            rows["told"] = rows.get("quiet", [])
            if not together:
                assert not early
                jobs.execute("FLUSH JOB told")
                said = kit.told(list(engine.steps()))
                assert said.keys() <= {"told"}
                early = said.get("told", [])
            assert sorted(early) == _open_sessions(found[:end])
            flushed += len(early)
            for name, mine in rows.items():
                told[name] += mine
        log.finish()
        for name, mine in kit.told(list(engine.steps())).items():
            told[name] += mine
    assert flushed
    assert told == expected


def test_windows_of_events_are_not_told_early(tmp_path: Path) -> None:
    counted = "CREATE JOB counted AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 EVENTS"
    with kit.running(tmp_path, kit.clicks(kit.events(20)), counted) as (jobs, _):
        with pytest.raises(UserError) as refused:
            jobs.execute("FLUSH JOB counted")
        assert refused.value.condition == "NOTHING_TO_FLUSH"


def _less(all_of: list[tuple[object, ...]], some: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    left = list(all_of)
    for row in some:
        left.remove(row)
    return left
