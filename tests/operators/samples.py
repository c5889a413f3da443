"""One of everything that enters the identity of state, with settings of every type that it may have.

`SAMPLES` has an instance for every kind; `variants` gives other values of each setting.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import polars as pl

import penstock.operators as operators
from penstock.operators.aggregate import Aggregation
from penstock.operators.count_join import CountJoin
from penstock.operators.count_windows import CountWindows
from penstock.operators.custom import CustomOperator
from penstock.operators.custom_runner import CustomRunner
from penstock.operators.distinct import Distinct
from penstock.operators.functions.count_sum import Avg, Count, CountValues, Sum
from penstock.operators.functions.distinct import ApproxCountDistinct, CountDistinct
from penstock.operators.functions.extremes import Earliest, Latest, Max, Min
from penstock.operators.functions.first_last import Collect, First, Last
from penstock.operators.functions.from_partials import FromPartials
from penstock.operators.functions.moments import Stddev, Variance
from penstock.operators.functions.quantiles import ApproxQuantile, Median, Quantile
from penstock.operators.functions.summary import Summary
from penstock.operators.functions.user import User, UserFunction
from penstock.operators.group_top import GroupTop
from penstock.operators.identity import settings_of
from penstock.operators.interval_join import IntervalJoin
from penstock.operators.job_windows import (
    JobAggregation,
    JobGapAggregation,
    JobSlidingAggregation,
    JobWindows,
)
from penstock.operators.join_columns import JoinColumns, JoinCondition
from penstock.operators.landmark_windows import LandmarkWindows
from penstock.operators.last_n import LastN
from penstock.operators.lookup import Lookup
from penstock.operators.on_change import OnChangeAggregation
from penstock.operators.partitioners import ByFunction, ByRange
from penstock.operators.pattern import Pattern
from penstock.operators.pattern_steps import PatternStep
from penstock.operators.periodic import PeriodicAggregation
from penstock.operators.product import Product
from penstock.operators.product_last import LastProduct
from penstock.operators.rebalance import Rebalance
from penstock.operators.row_fold import RowFold
from penstock.operators.running import RunningAggregation
from penstock.operators.session_windows import SessionWindows
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.strict import Ordering
from penstock.operators.time_windows import TimeWindow
from penstock.operators.top_k import TopK


class Throttle(CustomOperator):
    """A user's operator, with parameters of several types."""

    def __init__(self, most: int = 3, per: timedelta = timedelta(minutes=1)) -> None:
        self.most, self.per, self.weights = most, per, {"a": 1.5}
        self.table = pl.DataFrame({"x": [1]})


def fold(state: Any, row: Any, emit: Any) -> Any:
    return state


def halves(keys: pl.DataFrame) -> pl.Series:
    return pl.Series([0] * keys.height)


def add(values: pl.Series) -> float:
    return float(values.sum())


WINDOW = TimeWindow(60_000_000, 10_000_000, 5)
TUMBLING = TimeWindow(60_000_000, 60_000_000)
SUM = dataclasses.replace(Sum("total", "bytes"), of=pl.Int64())
COLUMNS = JoinColumns(
    (("user", pl.String()), ("at", pl.Datetime("us", "UTC"))), (("n", "n_right", pl.Int64()),), ("user",)
)
CONDITION = JoinCondition('[(col("n")) > (dyn int: 1)]', pl.col("n") > 1)
TOP = TopK(3, "total", ("user",), running=False)
STEPS = (PatternStep("a", pl.col("n") > 1), PatternStep("b", pl.col("n") == pl.col("a.n"), absent=True))
MEAN = UserFunction("mean", add, max, float, None, pl.Float64())

SAMPLES: tuple[Any, ...] = (
    Aggregation(("user",), TUMBLING, (SUM, Count("rows", None))),
    CustomRunner(
        ("user",), Throttle(), ("n",), {"": {"n": pl.Int64()}, "late": {"t": pl.List(pl.String())}}, "epoch"
    ),
    OnChangeAggregation(("user",), WINDOW, (SUM,), running=True),
    CountJoin(("user",), ("who",), COLUMNS, 5, CONDITION),
    CountWindows(("user",), (SUM,), 10, 5, forget_after=7),
    Distinct(("user",), None, ("n", "m")),
    GroupTop((), TOP, (("total", pl.Decimal(10, 2)),)),
    JobGapAggregation(("_job",), WINDOW, (SUM,)),
    JobSlidingAggregation(("_job",), WINDOW, (SUM,)),
    JobAggregation(("_job", "k0"), JobWindows(((1, 60, 0),)), (SUM,)),
    JobWindows(((1, 60, 0), (2, 30, 1))),
    IntervalJoin(("user",), ("who",), COLUMNS, 5, 6, CONDITION, "left"),
    COLUMNS,
    CONDITION,
    LandmarkWindows(("user",), (SUM,), 9),
    LastN(("user",), 3, ("n",)),
    Lookup(("user",), ("who",), COLUMNS, "inner", "gone"),
    Ordering(("user",), ("n",)),
    ByRange("user", ("f", "m")),
    ByFunction(halves, 2),
    Pattern(("user",), STEPS, 30, ("n",)),
    *STEPS,
    Product(("a",), ("b",), 1, 2, CONDITION),
    LastProduct(("a",), ("b",), 4, 1, None),
    Rebalance(("a",), ("user",)),
    RowFold(("user",), fold, "fold", {"seen": [1, 2.5, None, True]}, ("n",), {"n": pl.Int64()}, 10),
    RunningAggregation(("user",), TUMBLING, (SUM,)),
    SessionWindows(("user",), (SUM,), 30, 60),
    SlidingAggregation(("user",), WINDOW, (SUM,)),
    TOP,
    PeriodicAggregation(("user",), WINDOW, (SUM,), 10),
    WINDOW,
    Count("rows", None),
    CountValues("n", "bytes", pl.Int64()),
    SUM,
    Avg("mean", "bytes", pl.Float64()),
    CountDistinct("users", "user", pl.String()),
    ApproxCountDistinct("users", "user", pl.String(), 14),
    First("first", "n", pl.Int8()),
    Last("last", "n", pl.Date()),
    Collect("all", "n", pl.Struct({"a": pl.Array(pl.Int8(), 2)})),
    Min("least", "n", pl.Duration("ms")),
    Max("most", "n", pl.Enum(["a", "b"])),
    Earliest("from", None),
    Latest("to", None),
    Variance("var", "n", pl.Int64()),
    Stddev("sd", "n", pl.Int64()),
    Quantile("p90", "n", pl.Int64(), 0.9),
    Median("mid", "n", pl.Int64()),
    ApproxQuantile("p99", "n", pl.Int64(), 0.99, 0.02),
    FromPartials("total", "bytes", pl.Int64(), SUM),
    Summary("a0", "v0", pl.Int64()),
    MEAN,
    User("mean", "n", pl.Int64(), function=MEAN),
)

#: one for each setting of each sample
SETTINGS = [(sample, name) for sample in SAMPLES for name in settings_of(sample)]


def kinds() -> Iterator[type]:
    """Every class of the package's that declares a kind itself."""
    seen: set[type] = set()
    for module in pkgutil.walk_packages(operators.__path__, "penstock.operators."):
        for one in vars(importlib.import_module(module.name)).values():
            known = not inspect.isclass(one) or one in seen or not one.__module__.startswith("penstock.")
            if not known and isinstance(vars(one).get("kind"), str):
                seen.add(one)
                yield one


def other(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case None:
            return "x"
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2
        case str():
            return f"{value}x"
        case tuple() if value:
            return (other(value[0]), *value[1:])
        case tuple():
            return ("x",)
        case list():
            return [*value, 0]
        case Mapping():
            return {**value, "another": next(iter(value.values()))}
        case pl.DataType():
            return pl.Float32() if value != pl.Float32() else pl.Float64()
        case pl.Expr():
            return value.alias("x")
        case Throttle():
            return Throttle(value.most + 1)
    if callable(value) and hasattr(value, "__name__"):
        return fold
    name, setting = next(iter(settings_of(value).items()))
    return dataclasses.replace(value, **{name: other(setting)})
