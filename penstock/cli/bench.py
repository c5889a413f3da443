"""`penstock bench`: says where the benchmarks are. They left the package; this command goes with the next version."""

from __future__ import annotations

import typer

from penstock.errors import UserError


def bench(context: typer.Context) -> None:
    """Moved: benchmarks run from a checkout, with `./run bench NAME`."""
    given = " ".join(["./run bench", *context.args])
    raise UserError(
        "BENCH_MOVED",
        "benchmarks are not part of the installed package",
        detail="`penstock bench` is deprecated and goes with the next version.",
        hint=f"Run them from a checkout of Penstock: `{given}`.",
    )
