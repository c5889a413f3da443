"""A file system without room stops no engine: it waits until there is room, and each row is in the sink once."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.engine import Engine
from penstock.query.logical import App
from penstock.settings import INLINE, Settings
from penstock.sinks import JsonLines

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.may_skip("the right to mount a file system")]
_DEADLINE = 90.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def app(folder: Path, out: Path) -> App:
    rows = ps.stream(
        "rows",
        ps.files(str(folder / "in.jsonl")),
        ps.json_lines({"at": ps.Datetime("us", "UTC"), "row": ps.Int64}),
        time="at",
    )
    return ps.app("full", ps.output("out", rows.select("row"), ps.jsonl(str(out))))


def fill(ballast: Path) -> None:
    """Take all the room that is left."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def append(folder: Path, first: int, last: int) -> None:
    with (folder / "in.jsonl").open("a") as log:
        for n in range(first, last):
            log.write(f'{{"at": "2026-03-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "row": {n}}}\n')


def wait_until(is_reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not is_reached():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


@pytest.mark.parametrize("full", ["sink", "state"])
def test_an_engine_waits_for_room_on_a_full_disk(small_disk: Path, tmp_path: Path, full: str) -> None:
    out = (small_disk if full == "sink" else tmp_path) / "out"
    state = (small_disk if full == "state" else tmp_path) / "state"
    append(tmp_path, 0, 50)
    engine = Engine(app(tmp_path, out), Settings(state=state, master=INLINE, drain=False))
    failures: list[BaseException] = []

    def run() -> None:
        try:
            engine.run()
        except BaseException as failure:
            failures.append(failure)

    def count() -> int:
        return sum(len(path.read_text().splitlines()) for path in out.glob("epoch-*.jsonl"))

    thread = threading.Thread(target=run)
    thread.start()
    ballast = small_disk / "ballast"
    try:
        wait_until(lambda: bool(failures) or count() == 50, "the rows before")
        fill(ballast)
        append(tmp_path, 50, 90)
        wait_until(lambda: bool(failures) or engine.retry_count >= 3, "some attempts")
        assert not failures, failures
        ballast.unlink()
        wait_until(lambda: bool(failures) or count() >= 90, "the rows once there is room")
    finally:
        engine.stop()
        thread.join(_DEADLINE)
    assert not failures, failures
    rows = JsonLines(out).read()["row"].to_list()
    assert sorted(rows) == list(range(90))
