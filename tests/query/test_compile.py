"""The compiler: few columns, shared stages, levels, and a fingerprint of the state's shape."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.decode.contract import Decoded, Decoder
from penstock.logs.contract import Chunk
from penstock.query.compile import compile_app
from penstock.query.physical import Plan
from penstock.query.steps import EdgeSource
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog

COLUMNS = {
    "time": pl.Datetime("us", "UTC"),
    "user": pl.String(),
    "page": pl.String(),
    "bytes": pl.Int64(),
    "agent": pl.String(),
}
LINE = '{"time": "2026-01-01T00:00:00Z", "user": "ada", "page": "/a", "bytes": 3, "agent": "x"}'


def clicks(name: str = "clicks") -> ps.Stream:
    return ps.stream(name, ListLog([LINE]), ps.json_lines(COLUMNS), time="time")


def plan(*streams: ps.Stream, name: str = "app") -> Plan:
    return compile_app(ps.app(name, *(ps.output(f"out{at}", stream) for at, stream in enumerate(streams))))


# -- columns --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "needed"),
    [
        (clicks().window("1s").count(), ["time"]),
        (clicks().key_by("user").window("1s").count(), ["time", "user"]),
        (clicks().key_by("user").last(2, "page"), ["time", "user", "page"]),
        (clicks().filter(col("agent") != "bot").window("1s").sum("bytes"), ["time", "bytes", "agent"]),
        (clicks().map(unused=col("agent")).key_by("user").window("1s").count(), ["time", "user"]),
        (clicks().map(user=col("agent")).key_by("user").window("1s").count(), ["time", "agent"]),
        (
            clicks().map(a=col("page")).map(b=col("a") + col("user")).key_by("b").window("1s").count(),
            ["time", "user", "page"],
        ),
        (clicks().select("user", k=col("page")).key_by("k").window("1s").count(), ["time", "page"]),
        (clicks().select("user", "page"), ["time", "user", "page"]),
        (clicks(), list(COLUMNS)),
        (clicks().map_batches(lambda frame: frame).window("1s").count(), list(COLUMNS)),
    ],
)
def test_only_the_columns_that_somebody_needs_are_read(query: ps.Stream, needed: list[str]) -> None:
    assert list(plan(query).scans["clicks"].columns) == needed


def test_what_several_outputs_need_is_read_once() -> None:
    events = clicks()
    made = plan(events.key_by("user").window("1s").count(), events.key_by("page").last(2, "bytes"))
    assert list(made.scans) == ["clicks"]
    assert list(made.scans["clicks"].columns) == ["time", "user", "page", "bytes"]


@dataclass(frozen=True)
class Asking(Decoder):
    """A decoder that notes in a file which columns are requested: tasks have copies of it."""

    inner: Decoder
    notes: Path

    def schema(self) -> dict[str, pl.DataType]:
        return self.inner.schema()

    def decode(self, chunk: Chunk, columns: Collection[str]) -> Decoded:
        with self.notes.open("a") as file:
            file.write(json.dumps(sorted(columns)) + "\n")
        return self.inner.decode(chunk, columns)


def test_the_decoder_decodes_the_needed_columns_only(state: Path, tmp_path: Path) -> None:
    decoder = Asking(ps.json_lines(COLUMNS), tmp_path / "notes")
    events = ps.stream("clicks", ListLog([LINE]), decoder, time="time")
    run_inline(ps.app("x", ps.output("out", events.key_by("user").window("1s").sum("bytes"))), state)
    asked = [json.loads(line) for line in decoder.notes.open()]
    assert asked == [["time"], ["bytes", "time", "user"]], "first a sample, to compare the clock with"


# -- stages and levels ----------------------------------------------------------------------------------


def test_a_stateless_query_has_no_stage_and_no_level() -> None:
    made = plan(clicks().filter(col("bytes") > 1).select("user"))
    assert (made.levels, list(made.stages)) == (0, [])
    assert [(str(edge.source), str(edge.target)) for edge in made.edges] == [("scan:clicks", "out:out0")]


def test_a_shared_input_is_one_stage() -> None:
    counts = clicks().key_by("user").window("1s").count()
    made = plan(counts, counts.top(3), counts.filter(col("count") > 2))
    assert len(made.stages) == 1
    assert sorted(
        str(edge.target) for edge in made.edges_from(EdgeSource("stage", "1-time-window-aggregate"))
    ) == [
        "out:out0",
        "out:out1",
        "out:out2",
    ]


def test_a_level_is_one_more_than_the_deepest_input() -> None:
    events = clicks()
    patterns = events.key_by("user").last(2, "page").map(path=col("page").list.join(">"))
    totals = patterns.key_by("path").window("1s").count("bytes")
    flat = events.select("time", "bytes", path=col("page"))
    deep = (
        totals.select("bytes", "path")
        .union(flat.select("bytes", "path"))
        .key_by("path")
        .window("5s")
        .sum("bytes")
    )
    made = plan(deep, events.key_by("user").window("1s").count())
    assert [(sub.id, sub.level) for sub in made.stages.values()] == [
        ("1-last-n", 1),
        ("2-time-window-aggregate", 2),
        ("3-time-window-aggregate", 2),  # by the same key as the one it reads: no further exchange
        ("4-time-window-aggregate", 1),
    ]
    assert made.levels == 2
    assert [sub.id for sub in made.at_level(1)] == ["1-last-n", "4-time-window-aggregate"]


def test_a_stage_waits_for_every_stream_it_reads() -> None:
    both = clicks("a").union(clicks("b")).key_by("user").window("1s").count()
    made = plan(both.key_by("user").last(2, "count"))
    assert [sub.streams for sub in made.stages.values()] == [("a", "b"), ("a", "b")]


# -- fingerprint ----------------------------------------------------------------------------------------


def query(limit: int = 3, n: int = 2, size: str = "30s", factor: int = 2) -> ps.Stream:
    events = clicks().filter(col("bytes") > limit).map(bytes=col("bytes") * factor)
    last = events.key_by("user").last(n, "page").map(path=col("page").list.join(">"))
    return last.key_by("path").window(size).count().top(3)


FINGERPRINT = """
from tests.query.test_compile import plan, query
print(plan(query()).fingerprint)
"""


@pytest.mark.process
def test_a_fingerprint_is_the_same_in_every_process() -> None:
    root = Path(__file__).parent.parent.parent
    fingerprints = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert fingerprints == {plan(query()).fingerprint}


def test_filters_and_maps_may_change_under_a_state() -> None:
    fingerprint = plan(query()).fingerprint
    assert plan(query(limit=99)).fingerprint == fingerprint
    assert plan(query(factor=7)).fingerprint == fingerprint


@pytest.mark.parametrize("changed", [query(n=3), query(size="31s"), clicks().key_by("user").last(2, "page")])
def test_operators_may_not_change_under_a_state(changed: ps.Stream) -> None:
    assert plan(changed).fingerprint != plan(query()).fingerprint


def test_keys_aggregates_ranks_and_names_are_part_of_the_fingerprint() -> None:
    counts = clicks().key_by("user").window("1s").count()
    others = [
        clicks().key_by("page").window("1s").count(),
        clicks().key_by("user").window("1s").sum("bytes", "count"),
        clicks().key_by("user").running("1s").count(),
        clicks("other").key_by("user").window("1s").count(),
        counts.top(3),
        counts.top(4),
        counts.top(3, least=True),
    ]
    prints = [plan(stream).fingerprint for stream in (counts, *others)] + [plan(counts, name="b").fingerprint]
    assert len(set(prints)) == len(prints)


def test_the_types_of_what_is_kept_are_part_of_the_fingerprint() -> None:
    def typed(dtype: type[pl.DataType]) -> str:
        events = clicks().map(user=col("bytes").cast(dtype))
        return plan(events.key_by("user").last(2, "page")).fingerprint

    assert typed(pl.Int64) != typed(pl.String)
