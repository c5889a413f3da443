"""Pane totals against plain Python: counts, sums, least and greatest per key and pane of any choice of events."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.key_codes import EncodedColumn, EncodedKeys, concat_keys
from penstock.query.pane_totals import PaneTotals, can_be_summed

KEYS = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
EVENT = st.tuples(st.integers(0, 50), KEYS, st.one_of(st.none(), st.integers(-1000, 1000)), st.booleans())


@settings(max_examples=80, deadline=None)
@given(events=st.lists(EVENT, min_size=1, max_size=40), step=st.integers(1, 60), offset=st.integers(0, 20))
def test_totals_are_those_of_plain_python(
    events: list[tuple[int, str | None, int | None, bool]], step: int, offset: int
) -> None:
    column = EncodedColumn.of(pl.Series("k", [key for _, key, _, _ in events], dtype=pl.String))
    keys = EncodedKeys((column,))
    codes = keys.codes(len(events))
    values = pl.Series("v", [value for _, _, value, _ in events], dtype=pl.Int64)
    times = np.array([at for at, _, _, _ in events], dtype=np.int64)
    mask = np.array([chosen for _, _, _, chosen in events])
    cells = PaneTotals(codes, times).select(mask, (step, offset, 7), [values], [True])
    wanted = defaultdict(list)
    for at, key, value, chosen in events:
        if chosen:
            wanted[key, at - (at - offset) % step + 7].append(value)
    found: dict[tuple[str | None, int], list[tuple[int, ...]]] = defaultdict(list)
    if cells is not None:
        named = keys.columns[0].values.gather(keys.value_codes(cells.codes)[0])
        n, total, least, most = cells.columns[0]
        for row, key in enumerate(named):
            found[key, int(cells.panes[row])].append(
                (int(cells.rows[row]), int(n[row]), int(total[row]), int(least[row]), int(most[row]))
            )
    assert found.keys() == wanted.keys()
    for place, parts in found.items():  # a key's events may lie apart: its parts are put together later
        known = [value for value in wanted[place] if value is not None]
        assert sum(part[0] for part in parts) == len(wanted[place])
        assert sum(part[1] for part in parts) == len(known)
        assert sum(part[2] for part in parts) == sum(known)
        if known:
            assert min(part[3] for part in parts if part[1]) == min(known)
            assert max(part[4] for part in parts if part[1]) == max(known)


def test_columns_whose_sums_may_overflow_are_found() -> None:
    assert can_be_summed(pl.Series([1, None, -5]))
    assert can_be_summed(pl.Series([None], dtype=pl.Int64))
    assert not can_be_summed(pl.Series([2**62, 1]))
    assert not can_be_summed(pl.Series([-(2**62), 1]))


def test_keys_of_several_batches_are_one_dictionary() -> None:
    first = EncodedKeys(
        (EncodedColumn.of(pl.Series(["x", None, "y"])), EncodedColumn.of(pl.Series([1, 1, 2])))
    )
    second = EncodedKeys((EncodedColumn.of(pl.Series(["z"])), EncodedColumn.of(pl.Series([9]))))
    both = concat_keys(["k0", "k1"], [first, second])
    (_, one), (start, other) = both.parts
    codes = np.concatenate([np.sort(one.codes(3)), other.codes(1) + start])
    keys = list(zip(*both.decode(codes), strict=True))
    assert sorted(map(str, keys)) == sorted(map(str, [("x", 1), (None, 1), ("y", 2), ("z", 9)]))
