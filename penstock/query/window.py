"""A window: what cuts a keyed stream, as a description of its own kind (of time, of counts, ...).

It says which columns its rows begin with and which operator computes aggregates over it. Whatever can do that can stand
in a windowed stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import polars as pl

from penstock.errors import UserError
from penstock.operators.contract import Operator
from penstock.operators.functions import AggregateFunction
from penstock.origin import Origin

#: when answers are told: at the end of the window, whenever they change, or every so many microseconds
Emission = Literal["close", "change"] | int


class Window(ABC):
    """A way to cut a keyed stream into windows."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, pl.DataType]:
        """What stands in a row before the keys and the aggregates."""

    @abstractmethod
    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        """What computes these aggregates, whose types are known, over the windows of every key."""

    def emitting(self, emission: Emission, origin: Origin) -> Window:
        """The same windows, told at other times; raises where they cannot be."""
        if emission == "close":
            return self
        raise UserError(
            "BAD_EMIT",
            "these windows can tell their answers only when they close",
            where=str(origin),
            hint='Windows of time tell more often: .window("1m").emit(every="10s").',
        )
