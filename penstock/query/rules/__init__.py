"""The rules of the optimizer: pure functions, in the order in which they are applied.

`LOGICAL` rules rewrite an app, `PHYSICAL` rules a plan. None changes results.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.query.logical import App
from penstock.query.physical import Plan
from penstock.query.rules.drop_exchanges import drop_exchanges
from penstock.query.rules.merge_steps import merge_steps
from penstock.query.rules.pre_reduce import pre_reduce
from penstock.query.rules.push_filters import push_filters
from penstock.query.rules.push_projections import push_projections
from penstock.query.rules.share_equal import share_equal

LOGICAL: tuple[Callable[[App], App], ...] = (share_equal, push_filters)
PHYSICAL: tuple[Callable[[Plan], Plan], ...] = (push_projections, merge_steps, pre_reduce, drop_exchanges)
