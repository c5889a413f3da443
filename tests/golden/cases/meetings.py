"""Where two streams meet: joins, lookups, products."""

from __future__ import annotations

import penstock as ps
from penstock import col
from tests.golden.given import Given


def joins(given: Given) -> ps.App:
    """Joins in time and by number, inner and outer, in the order of epochs and in strict order, with itself."""
    events, other = given.stream("events").select(*_COLUMNS), given.stream("other").select(*_COLUMNS)
    left, right = events.key_by("user"), other.key_by("user")
    great = events.filter(col("n") > 1).key_by("user")
    same_page = col("page") == col("page_right")
    rows = {
        "within": left.join(right, within="3s", where=same_page),
        "bounds": left.join(right, before="6s", after="2s", where=col("n") < col("n_right")),
        "left": great.join(right, within="2s", where=same_page, how="left"),
        "right": great.join(right, before="4s", where=same_page, how="right"),
        "full": great.join(right, after="3s", where=same_page, how="full"),
        "strict": left.join(right, within="2s", where=same_page, order="strict"),
        "with_itself": great.join(great, within="4s", where=same_page, distinct_pairs=True),
        "last_events": left.join(right, events=2, where=same_page),
        "last_events_with_itself": great.join(great, events=3, distinct_pairs=True),
    }
    return ps.app("joins", *(given.output(name, one) for name, one in rows.items()))


def lookups(given: Given) -> ps.App:
    """Lookups by key and of a table that is broadcast."""
    events, other = given.stream("events").select(*_COLUMNS), given.stream("other").select(*_COLUMNS)
    table = other.filter(col("page") != "/d").map(gone=col("n").fill_null(1) < 0).key_by("user")
    users = events.key_by("user")
    plain = other.select("time", "page", "n").key_by("page")
    rows = {
        "left": users.lookup(table, deleted="gone"),
        "inner": users.lookup(table, how="inner", deleted="gone"),
        "broadcast": users.lookup(table, deleted="gone", broadcast=True),
        "by_page": events.key_by("page").lookup(plain, suffix="_then"),
    }
    return ps.app("lookups", *(given.output(name, one) for name, one in rows.items()))


def products(given: Given) -> ps.App:
    """Every pair of events near each other: in time, by number, with itself."""
    events, other = given.stream("events").select(*_COLUMNS), given.stream("other").select(*_COLUMNS)
    great = events.filter(col("n") > 2)
    near = col("n") == col("n_right")
    rows = {
        "within": great.product(other, near, within="5s"),
        "bounds": great.product(other, near, before="8s", after="1s"),
        "all_near": great.filter(col("n") > 9).product(other.filter(col("n") > 7), within="6s"),
        "with_itself": great.product(great, near, within="6s", distinct_pairs=True),
        "last_events": great.product(other, near, events=5),
        "last_events_within": great.product(other, near, events=9, within="6s"),
        "last_events_with_itself": great.product(great, near, events=6, distinct_pairs=True),
    }
    return ps.app("products", *(given.output(name, one) for name, one in rows.items()))


_COLUMNS = ("time", "user", "page", "n")
