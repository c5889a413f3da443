"""Invoices with cancellations against plain Python."""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

import pytest

from penstock.catalogue.program import Program
from penstock.demos import retail, shop
from penstock.logs.contract import Span
from penstock.testing import ListLog
from penstock.testing.inline import InlineEngine
from tests.demos.kit import Row, assert_same_rows, data, killed_at, run_three_ways

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def floor(at: datetime) -> datetime:
    return EPOCH + (at - EPOCH) // DAY * DAY


def expected_rows(lines: list[str]) -> dict[str, list[Row]]:
    units: dict[datetime, Counter[str]] = defaultdict(Counter)
    by_customer: dict[str, list[tuple[datetime, str, int]]] = defaultdict(list)
    bought: dict[tuple[str, str], list[list[str | int]]] = defaultdict(list)
    back: list[Row] = []
    for invoice, product, _, quantity, at_text, _, customer, _ in csv.reader(lines):
        at = datetime.fromisoformat(at_text).replace(tzinfo=UTC)
        units[floor(at)][product] += int(quantity)
        if not customer:
            continue
        by_customer[customer].append((at, product, 1 if int(quantity) > 0 else -1))
        open_lines = bought[customer, product]
        # a unit at a time
        if int(quantity) > 0:
            open_lines += [[invoice, len(open_lines)]] * int(quantity)
            continue
        counts: dict[tuple[str | None, int], int] = Counter()
        for _ in range(-int(quantity)):
            one = open_lines.pop() if open_lines else [None, -1]
            counts[one[0], one[1]] += 1  # type: ignore[index]
        for (of, _), count in counts.items():
            back.append(
                {
                    "customer": customer,
                    "product": product,
                    "cancellation": invoice,
                    "invoice": of,
                    "quantity": count,
                }
            )
    deltas: dict[datetime, Counter[tuple[str, str]]] = defaultdict(Counter)
    for found in by_customer.values():
        for (at, product, sign), (later, other, other_sign) in combinations(found, 2):
            if product != other and later - at <= DAY:
                one, two = sorted([product, other])
                deltas[floor(later) + DAY][one, two] += sign * other_sign
    total: Counter[tuple[str, str]] = Counter()
    together: list[Row] = []
    before = None
    for tick in sorted(deltas):
        for pair, times in deltas[tick].items():
            total[pair] += times
        best = sorted(total.items(), key=lambda one: (-one[1], one[0]))[:10]
        if best != before:
            before = best
            for rank, ((one, other), times) in enumerate(best, 1):
                together.append({"as_of": tick, "rank": rank, "one": one, "other": other, "times": times})
    rows = []
    for start, counts in units.items():
        for rank, (product, count) in enumerate(
            sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:10], 1
        ):
            window = {"window_start": start, "window_end": start + DAY}
            rows.append({**window, "rank": rank, "product": product, "units": count})
    return {"best": rows, "together": together, "taken_back": back}


def compare(lines: list[str], folder: Path) -> None:
    rows = run_three_ways(
        lambda results: retail.build(ListLog(lines), results, header=False), folder, units=len(lines) // 6
    )
    expected = expected_rows(lines)
    for name, found in expected.items():
        assert_same_rows(rows[name], found)
        assert found


def test_invoices_match_plain_python_three_ways(tmp_path: Path) -> None:
    log = retail.generate_log(retail.line, rate=0.005, live=False, total=700, partitions=1)
    text = next(log.read(Span("p0", 0, 700))).data.decode()
    compare(text.splitlines()[2:], tmp_path)


@pytest.mark.may_skip("the real data")
def test_the_real_invoices_of_2010_match_plain_python(tmp_path: Path) -> None:
    with gzip.open(data("online_retail.csv.gz"), "rt") as file:
        lines = [file.readline().rstrip("\n") for _ in range(901)][1:]
    compare(lines, tmp_path)


def run_shop(lines: list[str], folder: Path, units: int, slices: int) -> None:
    app = shop.build(ListLog(lines))
    jobs = Program("shop", folder, streams=app.streams, begin=app.sql)
    engine = InlineEngine(jobs, folder, epoch_units=units, slices=slices)
    try:
        list(engine.steps())
    finally:
        engine.close()


def job_results(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all results of the jobs, in any order."""
    app = shop.build(ListLog([]))
    jobs = Program("shop", folder, streams=app.streams, begin=app.sql)
    engine = InlineEngine(jobs, folder)
    names = sorted(jobs.catalogue.jobs)
    found = {name: sorted(row for one in jobs.since(name, 0) for row in one.rows.rows()) for name in names}
    engine.close()
    return found


def test_the_jobs_of_the_shop_three_ways(tmp_path: Path) -> None:
    log = shop.generate_log(shop.event, rate=20, live=False, total=3_000, partitions=1)
    lines = next(log.read(Span("p0", 0, 3_000))).data.decode().splitlines()
    run_shop(lines, tmp_path / "straight", 1 << 40, 1)
    straight = job_results(tmp_path / "straight")
    assert all(straight[name] for name in ("micro_promotion", "product_bundling", "sale_prediction"))
    run_shop(lines, tmp_path / "cut", 500, 3)
    assert job_results(tmp_path / "cut") == straight
    for at, number in (("sliced", 1), ("emitted", 2)):
        with killed_at(at, number):
            run_shop(lines, tmp_path / "killed", 700, 2)
    run_shop(lines, tmp_path / "killed", 900, 4)
    assert job_results(tmp_path / "killed") == straight
