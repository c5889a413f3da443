"""Random descriptions of valid queries, and the streams that are built from them."""

from tests.transparency.queries.columns import STREAMS, Query
from tests.transparency.queries.combinations import STATEFUL, compositions, operator_pairs, single_operators
from tests.transparency.queries.stateless import STATELESS
from tests.transparency.queries.streams import build_stream

__all__ = [
    "Query",
    "STREAMS",
    "build_stream",
    "STATELESS",
    "STATEFUL",
    "single_operators",
    "operator_pairs",
    "compositions",
]
