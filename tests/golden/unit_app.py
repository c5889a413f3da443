"""The application that the engines of an HA unit run. Each loads this file, finds the events in the folder that the
environment names, and sees as many of them as a file there says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import penstock as ps
from penstock.logs import Chunk, Partition, Span
from penstock.testing import ListLog
from tests.golden import archive
from tests.golden.given import COLUMNS, Given

#: names the folder, in the environment
FOLDER = "PENSTOCK_GOLDEN"
#: in the folder: how many lines of every partition there are by now, or `all`
LIMIT = "upto"


class Growing(ListLog):
    """Lines of which there are more when somebody says so."""

    def __init__(self, folder: Path, stream: str) -> None:
        self._folder, self._all = folder, archive.read_lines(folder)[stream]
        self._seen = 0
        super().__init__({name: [] for name in self._all}, finished=False)

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        self._grow()
        return super().partitions(offsets)

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        self._grow()
        return super().read(span, chunk_bytes)

    def _grow(self) -> None:
        said = (self._folder / LIMIT).read_text()
        end = max(map(len, self._all.values())) if said == "all" else int(said)
        for name, lines in self._all.items():
            self.add(name, *lines[self._seen : end])
        self._seen = end
        if said == "all":
            self.finish()


def over(log: ListLog, given: Given) -> ps.App:
    """Windows, sessions and the last values, into files and a table."""
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    events = ps.stream("events", log, decoder, time="time", lateness="4s", idle_after=None)
    users = events.key_by("user")
    counts = users.window("15s").aggregate(ps.count("n"), ps.sum_("n", "sum"))
    return ps.app(
        "golden-unit",
        ps.output(
            "counts", counts, ps.jsonl(given.out / "counts"), ps.sqlite(given.out / "rows.db", "counts")
        ),
        ps.output("sessions", users.session("3s").count("n"), ps.jsonl(given.out / "sessions")),
        ps.output("last", users.last(3, "page"), ps.jsonl(given.out / "last")),
        ps.output("best", users.running("6s").sum("n", "total").top(2), ps.jsonl(given.out / "best")),
    )


def build(given: Given) -> ps.App:
    """The same over all events at once."""
    return over(ListLog(given.lines["events"]), given)


if FOLDER in os.environ:
    folder = Path(os.environ[FOLDER])
    app = over(Growing(folder, "events"), Given({}, folder / "out"))
