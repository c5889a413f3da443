"""Cells: partial answers of equal keys and panes become one, whichever way, and keys as numbers hash as themselves."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.operators import panes as module
from penstock.operators.functions.summary import COUNT_PART, ROWS, partial_columns, summarize_column
from penstock.operators.job_windows import JOB, JobAggregation, JobWindows
from penstock.operators.key_codes import CODE, EncodedColumn, EncodedKeys, concat_keys
from penstock.operators.panes import PANE, merge_partials
from penstock.state.buckets import HASH, key_hash, with_hash

LEAST, MOST = -(2**63), 2**63 - 1
VALUES = st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([LEAST, MOST]))
ROW = st.tuples(st.sampled_from(["a", "b", None, "d" * 30]), st.integers(0, 3), VALUES)
FUNCTIONS = (ps.count(), ps.min_("v"), ps.max_("v"), ps.sum_("v"), ps.avg("x"))


@pytest.mark.parametrize("share", [0.0, 1.0])
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=30))
def test_merged_apart_or_all_at_once_the_answers_are_those_of_the_rows(
    share: float, rows: list[tuple[str | None, int, int | None]]
) -> None:
    given_ = pl.DataFrame(rows, schema={"k": pl.String, PANE: pl.Int64, "v": pl.Int64}, orient="row")
    given_ = given_.with_columns((pl.col(PANE) / 2).alias("x"))
    functions = [function.resolve(given_.schema) for function in FUNCTIONS]
    parts = with_hash(
        given_.select("k", PANE, *(expr for function in functions for expr in function.from_event())), ("k",)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_MERGED", share)
        made = merge_partials(parts, ("k",), functions).rows
    results = made.select("k", PANE, *(function.result() for function in functions))
    wanted = given_.group_by("k", PANE).agg(
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("v").min().alias("min_v"),
        pl.col("v").max().alias("max_v"),
    )
    found = results.select("k", PANE, "count", "min_v", "max_v").sort("k", PANE)
    assert found.equals(wanted.sort("k", PANE))
    sums: dict[tuple[str | None, int], int] = {}
    for key, pane, value in rows:
        sums[key, pane] = sums.get((key, pane), 0) + (value or 0)
    for key, pane, total in results.select("k", PANE, "sum_v").iter_rows():
        assert total == (sums[key, pane] if LEAST <= sums[key, pane] <= MOST else None)


def test_keys_as_numbers_come_with_the_hashes_of_the_keys_themselves_in_their_order() -> None:
    pages = EncodedColumn.of(pl.Series("page", ["/", "/cart", None, "/", "żółw 🐢"]))
    methods = EncodedColumn.of(pl.Series("method", ["GET", "GET", "POST", None, ""]))
    batches = [EncodedKeys((pages, methods)), EncodedKeys((methods, pages)), EncodedKeys((pages, pages))]
    keys = concat_keys(["k0", "k1"], batches)
    coded = pl.concat(
        [
            pl.DataFrame(
                {
                    JOB: pl.Series([7 + number, 7, 8, 9, 70_000], dtype=pl.UInt32),
                    CODE: batch.codes(5)[::-1] + first,
                    PANE: [10] * 5,
                    COUNT_PART: [1, 2, 3, 4, 5],
                }
            ).hstack(partial_columns("a0", *(pl.Series([1, 0, 3, 4, 5]).to_numpy() for _ in range(4))))
            for number, (batch, (first, _)) in enumerate(zip(batches, keys.parts, strict=True))
        ]
    )
    times = JobWindows(((7, 10, 0),))
    operator = JobAggregation((JOB, "k0", "k1"), times, (ps.count(ROWS), summarize_column("a0", "v0")))
    made = operator.decode_keys(coded, keys)
    assert made[HASH].to_list() == key_hash(made, (JOB, "k0", "k1")).tolist() == sorted(made[HASH])
    wanted = {
        (job, *((pair, pair[::-1], (pair[0], pair[0]))[number]), n)
        for number in range(3)
        for job, pair, n in zip(
            [7 + number, 7, 8, 9, 70_000],
            [("żółw 🐢", ""), ("/", None), (None, "POST"), ("/cart", "GET"), ("/", "GET")],
            range(1, 6),
            strict=True,
        )
    }
    assert set(made.select(JOB, "k0", "k1", COUNT_PART).iter_rows()) == wanted
