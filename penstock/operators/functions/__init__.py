"""Aggregate functions: every one the product offers, and the contract they keep."""

from penstock.operators.functions.contract import AggregateFunction
from penstock.operators.functions.count_sum import avg, count, sum_
from penstock.operators.functions.extremes import max_, min_
from penstock.operators.functions.instants import earliest, latest

__all__ = ["AggregateFunction", "count", "sum_", "min_", "max_", "avg", "earliest", "latest"]
