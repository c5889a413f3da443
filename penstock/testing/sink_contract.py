"""The tests that every sink must pass. A sink's test class inherits them and defines how to make and read it.

    class TestJsonLines(SinkContract):
        @staticmethod
        def make(folder):
            return JsonLines(folder / "out")

        @staticmethod
        def read(sink):
            return sink.read().drop("_epoch")

`make` and `read` are static, so that they can be sent to a child process. A sink whose rows end with its process sets
`persists = False`; the crash and full-disk tests are then left out. One whose files a server writes sets
`writes_files = False`, one that accepts rows of any generation `fences = False`, and one that remembers its newest
epoch (`newest_epoch`) `remembers = True`. The writer that is killed waits `pause_seconds` after each epoch, and waits
for its reader when it is `AHEAD` epochs ahead, because the reader reads everything again each time.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import resource
import time
from collections import Counter
from collections.abc import Callable
from ctypes import c_longlong
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.errors import ExternalError, UserError
from penstock.sinks.contract import Sink
from penstock.sinks.portable import to_portable

Make = Callable[[Path], Sink]

SCHEMA: dict[str, pl.DataType] = {"epoch": pl.Int64(), "row": pl.Int64(), "text": pl.String()}
RICH: dict[str, pl.DataType] = {
    "at": pl.Datetime("us", "UTC"),
    "pages": pl.List(pl.String()),
    "seen": pl.List(pl.Datetime("us", "UTC")),
    "share": pl.Float64(),
    "place": pl.Struct({"city": pl.String(), "zone": pl.Int64()}),
    "name": pl.String(),
    "new": pl.Boolean(),
}
#: how many epochs the writer may be ahead of its reader
AHEAD = 30
_DEADLINE_SECONDS = 60.0
_LIMIT_BYTES = 96 * 1024
_SPAWNED = multiprocessing.get_context("spawn")


class SinkContract:
    """Inherit, define `make` and `read`, and pytest does the rest."""

    persists = True
    writes_files = True
    pause_seconds = 0.0
    kills = 5
    fences = True
    remembers = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Leave out the tests that do not apply."""
        super().__init_subclass__(**options)
        for name, applies in (
            ("test_the_rows_of_a_lower_generation_are_refused", cls.fences),
            ("test_another_epoch_of_a_number_that_the_sink_has_is_refused", cls.remembers),
            ("test_a_writer_killed_at_any_moment_leaves_whole_epochs", cls.persists),
            ("test_a_full_disk_is_reported_and_shows_no_part_of_an_epoch", cls.persists and cls.writes_files),
        ):
            if not applies:
                setattr(cls, name, None)

    @staticmethod
    def make(folder: Path) -> Sink:
        """A new sink object on the folder; it finds what an earlier one wrote there."""
        raise NotImplementedError

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        """The visible rows in a reader's order, with the job's columns only."""
        raise NotImplementedError

    def test_an_epoch_offered_twice_is_written_once(self, tmp_path: Path) -> None:
        sink = self._opened(tmp_path)
        assert sink.write(0, epoch_rows(0))
        assert not sink.write(0, epoch_rows(0))
        assert self._counted(sink) == {0: size(0)}

    def test_rows_are_read_in_the_order_of_their_epochs(self, tmp_path: Path) -> None:
        sink = self._opened(tmp_path)
        for epoch in (0, 9, 10, 100, 2_000_000_000):
            sink.write(epoch, epoch_rows(epoch % 7).with_columns(epoch=pl.lit(epoch, pl.Int64)))
        assert self.read(sink)["epoch"].is_sorted()

    def test_an_epoch_without_rows_shows_nothing_and_stops_nothing(self, tmp_path: Path) -> None:
        sink = self._opened(tmp_path)
        sink.write(0, epoch_rows(0).clear())
        assert self.read(sink).height == 0
        assert sink.write(1, epoch_rows(1))
        assert self._counted(sink) == {1: size(1)}

    def test_a_sink_opened_again_still_holds_its_epochs(self, tmp_path: Path) -> None:
        sink = self._opened(tmp_path)
        sink.write(0, epoch_rows(0))
        sink.close()
        again = self._opened(tmp_path) if self.persists else sink
        again.open("job", SCHEMA)
        assert not again.write(0, epoch_rows(0))
        assert again.write(1, epoch_rows(1))
        assert self._counted(again) == {0: size(0), 1: size(1)}

    def test_the_rows_of_a_lower_generation_are_refused(self, tmp_path: Path) -> None:
        old, new = self._opened(tmp_path), self._opened(tmp_path)
        old.take_over(3)
        old.write(0, epoch_rows(0))
        new.take_over(5)
        for attempt in (lambda: old.write(1, epoch_rows(1)), lambda: self._opened(tmp_path).take_over(4)):
            with pytest.raises(ExternalError) as refused:
                attempt()
            assert refused.value.condition == "FENCED"
            assert "generation 5" in str(refused.value)
        assert not new.write(0, epoch_rows(0))
        assert new.write(1, epoch_rows(1))
        again = self._opened(tmp_path)
        again.take_over(5)  # the same engine with a new sink
        assert again.write(2, epoch_rows(2))
        assert new.write(3, epoch_rows(3))
        assert self._counted(new) == {epoch: size(epoch) for epoch in range(4)}

    def test_another_epoch_of_a_number_that_the_sink_has_is_refused(self, tmp_path: Path) -> None:
        sink = self._opened(tmp_path)
        assert sink.newest_epoch() is None
        for epoch in range(40):
            sink.take_over(3)
            sink.identify(f"{epoch:04x}")
            assert sink.write(epoch, epoch_rows(epoch % 5).with_columns(epoch=pl.lit(epoch, pl.Int64)))
        before = self.read(sink).height
        for again in (sink, self._opened(tmp_path)):
            newest = again.newest_epoch()
            assert newest is not None
            assert (newest.epoch, newest.digest, newest.generation) == (39, f"{39:04x}", 3)
            again.take_over(3)
            for epoch in (37, 39):
                again.identify(f"{epoch:04x}")
                assert not again.write(epoch, epoch_rows(epoch))
                again.identify("")  # a former version has recorded it
                assert not again.write(epoch, epoch_rows(epoch))
                again.identify("ffff")
                with pytest.raises(UserError) as refused:
                    again.write(epoch, epoch_rows(epoch))
                assert refused.value.condition == "STATE_RESTORED"
        assert self.read(sink).height == before
        other = self.make(tmp_path)
        with contextlib.suppress(UserError):  # a sink that belongs to one job
            other.open("another", SCHEMA)
            assert other.newest_epoch() is None

    def test_nulls_lists_times_and_unicode_come_back(self, tmp_path: Path) -> None:
        rows = pl.DataFrame(
            [
                [datetime(2024, 2, 29, 23, 59, 59, 123456, UTC), datetime(1970, 1, 1, tzinfo=UTC), None],
                [["/a", None, "/ü 漢字"], [], None],
                [[datetime(2024, 1, 1, tzinfo=UTC), None], [], None],
                [0.1, -1e300, None],
                [{"city": "Zürich", "zone": 3}, {"city": None, "zone": None}, None],
                ['quote " and \\ and\nnew line\t', "🚲", None],
                [True, False, None],
            ],
            schema=RICH,
        )
        sink = self.make(tmp_path)
        sink.open("job", RICH)
        sink.write(0, rows)
        assert _comparable(self.read(sink)) == _comparable(rows)
        assert self.read(sink).columns == rows.columns

    @pytest.mark.kill
    def test_a_writer_killed_at_any_moment_leaves_whole_epochs(self, tmp_path: Path) -> None:
        """A child writes epoch after epoch and is killed, again and again, while this process reads."""
        chance = random.Random(20240229)
        last = -1
        for _ in range(self.kills):
            again = max(0, last - 2)  # some epochs are offered again
            until = _SPAWNED.RawValue(c_longlong, last + AHEAD)
            writer = _child(_write_on, self.make, tmp_path, again, self.pause_seconds, until)
            try:
                last = self._watch(
                    tmp_path, beyond=last, looks=chance.randint(1, 8), writer=writer, until=until
                )
                time.sleep(chance.uniform(0.001, 0.02))  # by now it writes again
            finally:
                writer.kill()
                writer.join()
            last = max(last, max(self._whole(tmp_path), default=-1))
        sink = self._opened(tmp_path)
        for epoch in range(last + 1):
            sink.write(epoch, epoch_rows(epoch))
        assert self._counted(sink) == {epoch: size(epoch) for epoch in range(last + 1)}

    @pytest.mark.kill
    def test_a_full_disk_is_reported_and_shows_no_part_of_an_epoch(self, tmp_path: Path) -> None:
        """A child may not write files beyond a limit; its epochs double in size until one does not fit."""
        verdict = tmp_path / "verdict"
        writer = _child(_write_until_full, self.make, tmp_path / "sink", verdict)
        writer.join(_DEADLINE_SECONDS)
        assert writer.exitcode == 0
        condition, last = json.loads(verdict.read_text())
        assert condition == "SINK_UNWRITABLE"
        sink = self._opened(tmp_path / "sink")
        assert Counter(self.read(sink)["epoch"].to_list()) == {e: 2**e for e in range(last)}
        assert sink.write(last, doubled_rows(last)), "once there is room, the same epoch goes in"
        assert Counter(self.read(sink)["epoch"].to_list()) == {e: 2**e for e in range(last + 1)}

    def _opened(self, folder: Path) -> Sink:
        sink = self.make(folder)
        sink.open("job", SCHEMA)
        return sink

    def _counted(self, sink: Sink) -> dict[int, int]:
        """Rows per epoch; fails unless each epoch is there whole, once and in order."""
        seen = self.read(sink)
        if seen.is_empty():
            return {}
        in_order = pl.col("row") == pl.int_range(pl.len()).over("epoch")
        assert seen.select(in_order.all()).item(), "rows are missing, doubled or out of order"
        counts = dict(seen.group_by("epoch").len().iter_rows())
        torn = {epoch: count for epoch, count in counts.items() if count != size(epoch)}
        assert not torn, f"these epochs show other numbers of rows than they have: {torn}"
        return counts

    def _whole(self, folder: Path) -> dict[int, int]:
        """What a reader that is not the writer sees now."""
        return self._counted(self.make(folder))

    def _watch(self, folder: Path, beyond: int, looks: int, writer: BaseProcess, until: c_longlong) -> int:
        """Read until the child has written something new, then `looks` more times. Each time it may write more."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        newest = beyond
        while looks > 0:
            assert writer.is_alive(), f"the writer ended by itself ({writer.exitcode})"
            assert time.monotonic() < deadline, "the writer wrote nothing new"
            newest = max(self._whole(folder), default=-1)
            until.value = max(until.value, newest + AHEAD)
            if newest > beyond:
                looks -= 1
            else:
                time.sleep(0.01)  # it starts
        return newest


def size(epoch: int) -> int:
    """How many rows the contract's epoch has: at least one, and not always the same."""
    return 1 + (epoch * 37) % 1009


def epoch_rows(epoch: int) -> pl.DataFrame:
    """The rows of an epoch, always the same."""
    return _rows(epoch, size(epoch))


def doubled_rows(epoch: int) -> pl.DataFrame:
    """Rows of an epoch that has twice as many as the one before."""
    return _rows(epoch, 2**epoch)


def _rows(epoch: int, count: int) -> pl.DataFrame:
    row = pl.int_range(count, dtype=pl.Int64, eager=True)
    text = row.hash(seed=epoch).cast(pl.String)  # text that does not compress
    return pl.DataFrame({"epoch": row * 0 + epoch, "row": row, "text": text}, schema=SCHEMA)


def _comparable(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows in their JSON form, so that sinks with fewer types can be compared."""
    return [
        {name: _decoded(value) for name, value in row.items()}
        for row in to_portable(rows).iter_rows(named=True)
    ]


def _decoded(value: Any) -> Any:
    """Text that holds a JSON list or object counts as that list or object."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return json.loads(value)
    return value


def _child(work: Callable[..., None], *arguments: object) -> BaseProcess:
    process = _SPAWNED.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def _write_on(make: Make, folder: Path, epoch: int, pause_seconds: float, until: c_longlong) -> None:
    """Write epochs as far as the reader allows, until this process is killed."""
    sink = make(folder)
    sink.open("job", SCHEMA)
    while True:
        while epoch > until.value:
            time.sleep(0.001)
        sink.write(epoch, epoch_rows(epoch))
        epoch += 1
        time.sleep(pause_seconds)


def _write_until_full(make: Make, folder: Path, verdict: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT_BYTES, _LIMIT_BYTES))
    sink = make(folder)
    sink.open("job", SCHEMA)
    for epoch in range(20):
        try:
            sink.write(epoch, doubled_rows(epoch))
        except ExternalError as problem:
            sink.close()
            verdict.write_text(json.dumps([problem.condition, epoch]))
            return
