"""Describes charts as plain numbers: curves, lanes of states over time, stacked shares, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.simulate.axis import Numbers

_LEVEL = "#c53030"


@dataclass(frozen=True, eq=False)
class Curve:
    """A line through points; NaN is left out."""

    name: str
    values: Numbers
    colour: str
    dashed: bool = False
    dots: bool = False
    #: keeps each value until the next, instead of a straight line between them
    steps: bool = False


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves over a common axis: of numbers, of seconds from 0 on (`clock`), of any numbers at equal distances
    (`even`), or of numbers that are logarithmic like the values (`logarithmic`)."""

    title: str
    at: Numbers
    curves: Sequence[Curve]
    x_title: str = ""
    levels: Sequence[tuple[str, float]] = ()
    level_colour: str = _LEVEL
    #: (where, value, name, colour)
    dots: Sequence[tuple[float, float, str, str]] = ()
    percent: bool = False
    clock: bool = False
    even: bool = False
    logarithmic: bool = False
    #: what the axis of values must reach; None: the greatest value
    most: float | None = None
    high: float = 130.0


@dataclass(frozen=True, eq=False)
class Lanes:
    """States over time: a lane for each name, filled while the state holds."""

    title: str
    at: Numbers
    #: index of the lane at every instant
    places: Numbers
    names: Sequence[str]
    colours: Sequence[str]
    #: (when, colour)
    dots: Sequence[tuple[float, str]] = ()
    high: float = 132.0


@dataclass(frozen=True)
class Shares:
    """Bars of parts that make a whole, one for each label."""

    title: str
    labels: Sequence[str]
    #: (name, colour, share at each label)
    parts: Sequence[tuple[str, str, Sequence[float]]]
    x_title: str = ""
    legend: bool = True
    high: float = 150.0


@dataclass(frozen=True)
class Bars:
    """A bar for each name on a logarithmic axis, the greatest first."""

    title: str
    unit: str
    values: Mapping[str, float]
    colours: Mapping[str, str]


@dataclass(frozen=True)
class Mark:
    """An instant, drawn through all charts of a sheet."""

    at: float
    kind: str
    colour: str
    text: str


Chart = Curves | Lanes | Shares | Bars
