"""The aggregate functions, and their contract."""

from penstock.operators.functions.contract import AggregateFunction
from penstock.operators.functions.count_sum import avg, count, count_of, sum_
from penstock.operators.functions.distinct import approx_count_distinct, count_distinct
from penstock.operators.functions.extremes import earliest, latest, max_, min_
from penstock.operators.functions.first_last import add_sequence, collect, first, last
from penstock.operators.functions.moments import stddev, variance
from penstock.operators.functions.quantiles import approx_quantile, median, quantile
from penstock.operators.functions.user import aggregate_function

__all__ = [
    "AggregateFunction",
    "add_sequence",
    "count",
    "count_of",
    "sum_",
    "min_",
    "max_",
    "avg",
    "stddev",
    "variance",
    "first",
    "last",
    "earliest",
    "latest",
    "collect",
    "median",
    "quantile",
    "approx_quantile",
    "count_distinct",
    "approx_count_distinct",
    "aggregate_function",
]
