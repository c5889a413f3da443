"""Descriptions of queries drawn at random, legal ones only, and the streams that are built of them."""

from tests.transparency.queries.columns import STREAMS, Query
from tests.transparency.queries.stateless import STATELESS
from tests.transparency.queries.streams import built
from tests.transparency.queries.together import STATEFUL, after_another, alone, compositions

__all__ = ["Query", "STREAMS", "built", "STATELESS", "STATEFUL", "alone", "after_another", "compositions"]
