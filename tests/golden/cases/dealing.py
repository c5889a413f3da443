"""How rows find their buckets and each other: partitioners, unions, late events, several rows of one."""

from __future__ import annotations

import polars as pl

import penstock as ps
from penstock import col
from tests.golden.given import COLUMNS, Given


def by_first_letter(keys: pl.DataFrame) -> pl.Series:
    """A part for each first letter, more or less."""
    return (keys["user"].str.slice(0, 1).fill_null("z").str.to_uppercase() > "B").cast(pl.Int64)


def shouted(frame: pl.DataFrame) -> pl.DataFrame:
    """Batch by batch."""
    return frame.with_columns(shout=pl.col("page").str.to_uppercase())


def by_tag(frame: pl.DataFrame) -> pl.DataFrame:
    """A row for every tag."""
    return frame.with_columns(tag=pl.col("tags").str.split(",")).explode("tag")


def partitioned(given: Given) -> ps.App:
    """Keys that lie together as the user says."""
    events = given.stream("events")
    ranges = ps.by_range("user", ["b", "d"])
    letters = ps.by_function(by_first_letter, 2)
    rows = {
        "ranges": events.key_by("user", partition=ranges).window("20s").count("n"),
        "ranges_last": events.key_by("user", partition=ranges).last(4, "page"),
        "function": events.key_by("user", partition=letters).session("4s").count("n"),
        "function_running": events.key_by("user", partition=letters).running("10s").sum("n", "sum"),
        "rebalanced": events.rebalance().key_by("user").window("15s").count("n"),
    }
    return ps.app("partitioned", *(given.output(name, one) for name, one in rows.items()))


def united(given: Given) -> ps.App:
    """Unions, late events, streams dealt out, rows made several of."""
    events, other = given.stream("events"), given.stream("other")
    both = events.select(*_COLUMNS).union(
        other.select(*_COLUMNS), events.filter(col("n") > 3).select(*_COLUMNS)
    )
    parts = events.demux(small=col("n") <= 1, great=col("n") > 4)
    tagged = events.flat_map(by_tag, {**COLUMNS, "tag": ps.String()})
    rows = {
        "both": both.key_by("user").last(3, "n", "page"),
        "both_windows": both.key_by("page")
        .window("30s")
        .aggregate(ps.count("n"), ps.collect("user", "users")),
        "late": events.late().select("user", "n"),
        "late_windows": events.late().key_by("user").window("45s").count("n"),
        "late_last": events.late().key_by("page").last(2, "user"),
        "small": parts["small"].key_by("user").last(2, "n"),
        "rest": parts["rest"].key_by("page").window("40s").count("n"),
        "tags": tagged.key_by("tag").last(3, "user"),
        "shouted": events.map_batches(shouted, {**COLUMNS, "shout": ps.String()})
        .key_by("shout")
        .session("2s")
        .count("n"),
    }
    return ps.app("united", *(given.output(name, one) for name, one in rows.items()))


_COLUMNS = ("time", "user", "page", "n")
