"""A shop's invoices, with cancellations as retractions: what sells, what is bought together, what is returned?

    penstock demo retail
    penstock demo retail --log '../shared/data/online_retail.csv.gz' --drain

The input is lines of invoices; a cancellation is a line with a negative quantity. Outputs:
- `best`: the products with the most units of each day, less those cancelled that day;
- `together`: the pairs of products that most customers have bought within a day, as of each day. A line counts +1, a
  cancellation -1, and a pair the product of the two, so a cancellation within the day retracts its pairs;
- `taken_back`: each cancellation with the customer's latest purchases of the product, which it retracts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from penstock.demos.generator import Draws, format_time, generate_log
from penstock.logs import Log, Profile

COLUMNS: dict[str, pl.DataType] = {
    **dict.fromkeys(["invoice", "product", "description"], ps.String()),
    "quantity": ps.Int64(),
    "at": ps.Datetime("us", "UTC"),
    "price": ps.Float64(),
    **dict.fromkeys(["customer", "country"], ps.String()),
}
TAKEN: dict[str, pl.DataType] = {
    **dict.fromkeys(["customer", "product", "cancellation", "invoice"], ps.String()),
    "quantity": ps.Int64(),
}


def taken_back(bought: list[list[Any]], line: dict[str, Any], emit: Callable[[Any], None]) -> list[list[Any]]:
    """Emit what a cancellation retracts, with a null invoice if there is no purchase.

    State: the purchases that are not retracted, as [invoice, quantity], oldest first.
    """
    if line["quantity"] > 0:
        return [*bought, [line["invoice"], line["quantity"]]]
    cancelled = {"customer": line["customer"], "product": line["product"], "cancellation": line["invoice"]}
    left = -line["quantity"]
    while left > 0:
        invoice, quantity = bought.pop() if bought else (None, left)
        back = min(left, quantity)
        emit({**cancelled, "invoice": invoice, "quantity": back})
        left -= back
        if quantity > back:
            bought.append([invoice, quantity - back])
    return bought


def build(
    log: Log, results: str | Path = "out/retail", *, lateness: str = "2s", best: int = 10, header: bool = True
) -> ps.App:
    """The application over a log of invoices' lines."""
    decoder = ps.Delimited(COLUMNS, has_header=header, times={"at": "%Y-%m-%d %H:%M:%S"})
    lines = ps.stream("invoices", log, decoder, time="at", lateness=lateness)
    units = lines.key_by("product").window("1d").sum("quantity", "units").top(best)

    signed = lines.filter(col("customer").is_not_null()).select(
        "customer", "product", sign=pl.when(col("quantity") > 0).then(1).otherwise(-1).cast(ps.Int64)
    )
    pairs = signed.key_by("customer").join(
        signed.key_by("customer"),
        within="1d",
        where=col("product") != col("product_right"),
        distinct_pairs=True,
    )
    sides = (col("product"), col("product_right"))
    bundles = pairs.select(
        one=pl.min_horizontal(*sides), other=pl.max_horizontal(*sides), times=col("sign") * col("sign_right")
    )
    together = bundles.key_by("one", "other").running("1d").sum("times", "times").top(best)

    known = lines.filter(col("customer").is_not_null()).select("customer", "product", "invoice", "quantity")
    back = known.key_by("customer", "product").apply_rows(taken_back, TAKEN, [])
    outputs = {"best": units, "together": together, "taken_back": back}
    return ps.app(
        "retail", *(ps.output(name, rows, ps.jsonl(Path(results) / name)) for name, rows in outputs.items())
    )


def line(draw: Draws, number: int, micros: int) -> str:
    """After the header: a customer buys or, one time in twenty, cancels."""
    if number < 2:
        return ",".join(COLUMNS)
    product, customer = draw.low(40), draw.low(200)
    cancelled = draw.below(20) == 0
    quantity = (1 + draw.below(6)) * (-1 if cancelled else 1)
    invoice = f"{'C' if cancelled else ''}{500_000 + number // 7}"
    at = format_time(micros, seconds=True)
    return f"{invoice},P{product},Thing {product},{quantity},{at},{1 + product / 4},{customer}.0,Spain"


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """Ten days of invoices, all there at once: `rate` is in the time of the invoices, not of the clock."""
    each = rate or 0.1
    return generate_log(line, rate=each, profile=profile, live=False, total=round(each * 864_000))


app = build(generated())
