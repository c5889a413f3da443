"""Who is compared and on what: the peers, the workloads, and why a peer leaves one out.

A peer's program is a file of `programs/`; its environment is Penstock's own, or a
virtual environment with the packages named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import penstock.demos
from bench.peers.data import Kind

PROGRAMS = Path(__file__).resolve().parent / "programs"
BEGIN, END = "# begin ", "# end "


@dataclass(frozen=True)
class Peer:
    """An engine and how it is run. `packages`: of its own environment; none: Penstock's is used.

    `without` says of a workload why there is no program for it; `newest_python` is the last one it has wheels for.
    """

    name: str
    title: str
    program: str
    packages: tuple[str, ...] = ()
    java: bool = False
    newest_python: tuple[int, int] | None = None
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return PROGRAMS / self.program


@dataclass(frozen=True)
class Workload:
    """A question and its input. `program` is what programs call it; `share` of the events that are asked for."""

    name: str
    title: str
    kind: Kind
    program: str
    jobs: int = 1
    share: float = 1.0


_BATCH = {"latency": "a batch program has no latency"}
_SEQUENCE = "the ranking goes trip by trip, which is no query"

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("polars", "limit: Polars, plain batch", "polars_batch.py", without=_BATCH),
        Peer(
            "duckdb",
            "limit: DuckDB, plain batch",
            "duckdb_batch.py",
            ("duckdb==2.0.0",),
            without=_BATCH | {"taxi": _SEQUENCE},
        ),
        Peer("penstock", "Penstock", "penstock_program.py", java=True),
        Peer("pyspark", "PySpark Structured Streaming", "pyspark_program.py", java=True),
        Peer(
            "flink-sql",
            "Flink, SQL",
            "flink_sql.py",
            ("apache-flink==2.3.0",),
            java=True,
            newest_python=(3, 12),
            without={"taxi": _SEQUENCE},
        ),
        Peer(
            "flink-python",
            "Flink, DataStream with Python functions",
            "flink_python.py",
            ("apache-flink==2.3.0",),
            java=True,
            newest_python=(3, 12),
            without={
                "join": "written in SQL, which is faster",
                "jobs": "written in SQL, which is faster",
                "latency": "measured in SQL, which is faster",
            },
        ),
        Peer(
            "bytewax",
            "Bytewax",
            "bytewax_program.py",
            ("bytewax==0.21.1",),
            newest_python=(3, 12),
            without={"join": "its joins keep one value a key and side, not all within a time"},
        ),
        Peer(
            "pathway",
            "Pathway",
            "pathway_program.py",
            ("pathway==0.33.0",),
            without={"taxi": _SEQUENCE},
        ),
    )
}

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("windows", "the ten most visited pages of each 30 s", "clicks", "windows"),
        Workload("patterns", "the ten most frequent rows of three pages", "clicks", "patterns"),
        Workload("clients", "requests of each client in 30 s, first and last", "clicks", "clients"),
        Workload("join", "calls of one caller within 60 s, and their distance", "calls", "join", share=0.25),
        Workload("taxi", "the ten busiest routes of 30 minutes, on change", "trips", "taxi", share=0.1),
        Workload("jobs-1", "one job: count and sum of one page in 10 s", "clicks", "jobs", 1, 0.25),
        Workload("jobs-100", "100 such jobs on one stream", "clicks", "jobs", 100, 0.25),
        Workload("jobs-1000", "1,000 such jobs on one stream", "clicks", "jobs", 1_000, 0.25),
        Workload("latency", "the ten most visited pages of each second, at half load", "clicks", "latency"),
    )
}

#: the share of a workload's events that a peer gets which would take minutes for all of them; answers are compared
#: on the same share
_SHARES: dict[tuple[str, str], float] = {
    ("flink-python", "*"): 0.02,
    ("bytewax", "*"): 0.25,
    ("pyspark", "patterns"): 0.1,
    ("pyspark", "taxi"): 0.5,
    ("pathway", "patterns"): 0.1,
    ("pathway", "*"): 0.5,
    ("flink-sql", "patterns"): 0.25,
    ("flink-sql", "jobs-100"): 0.1,
    ("flink-sql", "jobs-1000"): 0.02,
    ("pyspark", "jobs-100"): 0.1,
    ("pyspark", "jobs-1000"): 0.02,
    ("bytewax", "jobs-1000"): 0.02,
    ("pathway", "jobs-1000"): 0.02,
}


def events_of(peer: Peer, workload: Workload, events: int) -> int:
    """How many events a peer gets of a workload, if the largest workloads have so many."""
    every = 1.0 if workload.program == "taxi" else _SHARES.get((peer.name, "*"), 1.0)
    of_program = _SHARES.get((peer.name, workload.program), every)
    share = _SHARES.get((peer.name, workload.name), of_program)
    return max(1_000, round(events * workload.share * share))


def left_out(peer: Peer, workload: Workload) -> str | None:
    """Why there is no program of a peer for a workload; None if there is one."""
    return peer.without.get(workload.program)


def code_lines(peer: Peer, workload: Workload) -> int:
    """The lines of code a user writes for a workload: those marked with its name, not blank, not comments alone.

    What the ranking of routes takes counts for those who use it; the harness (sessions, clocks) does not count.
    """
    paths = [peer.path]
    text = peer.path.read_text()
    if workload.program == "taxi" and "from taxi_routes import" in text:
        paths.append(PROGRAMS / "taxi_routes.py")
    if workload.program == "taxi" and "from penstock.demos.taxi_ranking" in text:
        demos = Path(penstock.demos.__file__).parent
        parts = (
            ("taxi.py", "NORTH, WEST", "def build"),
            ("taxi_ranking.py", "def move_entry", "def best_areas"),
        )
        return _marked(text, "taxi") + sum(_lines(demos / name, begin, end) for name, begin, end in parts)
    return sum(_marked(path.read_text(), workload.program) for path in paths)


def _marked(text: str, name: str) -> int:
    count, inside = 0, False
    for line in map(str.strip, text.splitlines()):
        if line.startswith(BEGIN) and name in line.removeprefix(BEGIN).split():
            inside = True
        elif line.startswith(END) and name in line.removeprefix(END).split():
            inside = False
        elif inside and line and not line.startswith(("#", '"""')):
            count += 1
    return count


def _lines(path: Path, begin: str, end: str) -> int:
    """The lines of an application from one place to another: what routes need of it."""
    text = path.read_text()
    wanted = text[text.index(begin) : text.index(end)]
    return len([line for line in map(str.strip, wanted.splitlines()) if line and not line.startswith('"""')])
