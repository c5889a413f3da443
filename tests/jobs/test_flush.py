"""FLUSH tells what is open of each window as it stands, however windows lie, and changes nothing else."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from penstock.testing.list_log import ListLog
from tests.jobs import kit

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
        for upto in range(20, 201, 20):
            if together:
                jobs.say("FLUSH JOB told")
            log.add("p", *lines[upto - 20 : upto])
            rows = kit.told(list(engine.steps()))
            if not together:
                jobs.say("FLUSH JOB told")
                early = kit.told(list(engine.steps()))
                assert early.keys() <= {"told"}
                found_early = sorted(early.get("told", []))
            else:
                # what is closed now is told to both
                found_early = sorted(_less(rows.get("told", []), rows.get("quiet", [])))
                rows["told"] = rows.get("quiet", [])
            assert found_early == _open(found[:upto], size, every)
            flushed += len(found_early)
            for name, mine in rows.items():
                told[name] += mine
        log.finish()
        for name, mine in kit.told(list(engine.steps())).items():
            told[name] += mine
    assert flushed
    assert told == expected, "what is told when windows close is what it is without"


def _less(all_of: list[tuple[object, ...]], some: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    left = list(all_of)
    for row in some:
        left.remove(row)
    return left
