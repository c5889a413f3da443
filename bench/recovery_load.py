"""The load of the recovery benchmark: a query with a state of some size, its files, and a feeder that appends to them.

The query keeps the last two pages of every visitor and emits those who come to one page in twenty, so that every epoch
has results. The files first hold a visit of each visitor, which makes the state; then visits come at a steady rate.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import polars as pl

import penstock as ps
from penstock import col

#: bytes of state for each visitor, about: what a size in megabytes is made from
VISITOR_BYTES = 25
_PAGES = 20
_BEAT_SECONDS = 0.05
#: the visits that make the state were spread over this long
_FILLING_SECONDS = 60.0
_APP = "from bench.recovery_load import query\n\napp = query({folder!r}, {out!r})\n"


def query(folder: str, out: str) -> ps.App:
    """The application."""
    decoder = ps.Delimited(
        {"time": pl.Datetime("us", "UTC"), "visitor": pl.String(), "page": pl.String()},
        times={"time": "%Y-%m-%dT%H:%M:%S%.f%:z"},
    )
    visits = ps.stream(
        "visits", ps.files(f"{folder}/*.log"), decoder, time="time", lateness="100ms", idle_after=None
    )
    walks = visits.key_by("visitor").last(2, "page")
    emitted = walks.select("visitor", page=col("page").list.last()).filter(col("page") == _page(0))
    return ps.app("recovery", ps.output("told", emitted, ps.jsonl(out)))


def write_app(file: Path, folder: Path, out: Path) -> None:
    """Write the application as a file that `penstock run` takes."""
    file.write_text(_APP.format(folder=str(folder), out=str(out)))


class Feeder:
    """Appends visits to two files at a rate; close it at the end."""

    def __init__(self, folder: Path, visitors: int, rate: float, seed: int = 1) -> None:
        self._files = [folder / f"part{number}.log" for number in range(2)]
        self._visitors = visitors
        #: visits a second; may be changed
        self.rate = rate
        self._draw = np.random.default_rng(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        folder.mkdir(parents=True)
        every = np.arange(visitors)
        for file, part in zip(self._files, (every[::2], every[1::2]), strict=True):
            self._append(file, part, _FILLING_SECONDS)

    def start(self) -> None:
        """Start to append at the rate."""
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _feed(self) -> None:
        since, pending = time.monotonic(), 0.0
        while not self._stop.wait(_BEAT_SECONDS):
            now = time.monotonic()
            pending += (now - since) * self.rate
            since, due = now, int(pending)
            pending -= due
            for file, count in zip(self._files, (due // 2, due - due // 2), strict=True):
                self._append(file, self._draw.integers(0, self._visitors, count))

    def _append(
        self, file: Path, visitors: np.ndarray[tuple[int], np.dtype[np.int64]], seconds: float = 0.0
    ) -> None:
        """Visits of the last so many seconds."""
        count = len(visitors)
        back = (np.arange(count, 0, -1) * (seconds * 1e6 / max(count, 1))).astype(np.int64)
        at = int(time.time() * 1e6) - back
        rows = pl.DataFrame({"visitor": visitors, "page": self._draw.integers(0, _PAGES, count), "at": at})
        lines = rows.select(
            time=pl.col("at").cast(pl.Datetime("us", "UTC")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00"),
            visitor=pl.lit("visitor-") + pl.col("visitor").cast(pl.String),
            page=pl.lit(_page("")) + pl.col("page").cast(pl.String),
        )
        with open(file, "ab") as grown:
            lines.write_csv(grown, include_header=False)


def _page(number: int | str) -> str:
    return f"/articles/of-the-day/{number}"
