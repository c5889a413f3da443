"""ORDER BY and LIMIT: the rows of every window ranked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sql.harness import history, run, windows


def test_order_by_and_limit_rank_the_rows_of_every_window() -> None:
    groups = []
    for start in (90, 120, 150):
        group = [
            (product, len(rows), sum(row["price"] for row in rows))
            for (at, product), rows in windows(history(), 30, "product").items()
            if at == start
        ]
        groups.append(group)
    text = "SELECT product FROM clicks GROUP BY product {} WINDOWING 30 SECONDS"

    def top_products(clauses: str) -> list[str]:
        return [row["product"] for row in run(text.format(clauses), history())]

    def best(key: Callable[[tuple[str, int, float]], Any], k: int) -> list[str]:
        return [one[0] for group in groups for one in sorted(group, key=key)[:k]]

    assert top_products("ORDER BY SUM(price) DESC LIMIT 2") == best(lambda one: -one[2], 2)
    assert top_products("SORT BY SUM(price) LIMIT 1") == best(lambda one: one[2], 1)
    assert top_products("ORDER BY COUNT(*) DESC, product LIMIT 3") == best(lambda one: (-one[1], one[0]), 3)
    assert top_products("ORDER BY AVG(price) - 1 DESC") == best(lambda one: -one[2] / one[1], 9)
    assert top_products("HAVING COUNT(*) > 7 ORDER BY 1") == [
        one[0] for group in groups for one in group if one[1] > 7
    ]
    assert top_products("ORDER BY product DESC LIMIT 1") == [max(one[0] for one in group) for group in groups]
    assert top_products("LIMIT 2") == best(lambda one: one[0], 2)


def test_ties_of_a_ranking_are_ordered_by_the_keys_in_order_by() -> None:
    rows = [{"ts": 1, "product": product, "store": store} for product, store in ("ab", "ba", "aa", "bb")]
    text = "SELECT product, store FROM clicks GROUP BY product, store ORDER BY COUNT(*), store WINDOWING 1 MINUTE"
    assert [row["product"] + row["store"] for row in run(text, rows)] == ["aa", "ba", "ab", "bb"]
