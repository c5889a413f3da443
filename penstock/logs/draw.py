"""Draws random numbers as functions of a counter: the same on every machine, in whatever order.

Receives a seed, a partition and offsets; returns 64-bit draws, and ranks that follow a power law.

Invariants:
- Only integer arithmetic and IEEE + - * / are used, never libm or `numpy.random`, whose last digits and
  streams differ between machines and versions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def mixed(words: Words) -> Words:
    """splitmix64's finisher: every bit of the input moves every bit of the output."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def draws(seed: int, partition: int, first: int, count: int) -> Words:
    """One 64-bit draw for each offset from `first`."""
    return draws_at(seed, partition, np.arange(first, first + count, dtype=np.int64))


def draws_at(seed: int, partition: int, offsets: Ints) -> Words:
    """One 64-bit draw for each of these offsets."""
    key = mixed(np.array([(seed * _GAMMA) & _MASK], dtype=np.uint64))
    key = mixed(key ^ np.uint64((partition * 0xD1B54A32D192ED03 + 1) & _MASK))
    return mixed(key + (offsets.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA))


def below(words: Words, bound: int) -> Ints:
    """Draws scaled to 0..bound-1, from their upper half."""
    return (((words >> _HALF) * np.uint64(bound)) >> _HALF).astype(np.int64)


class PowerLaw:
    """Ranks 0..size-1, rank r with a weight of (r + 1) ** -exponent; a draw takes constant time (alias)."""

    def __init__(self, size: int, exponent: float) -> None:
        shares = _weights(size, exponent)
        shares = shares * (size / _total(shares))
        self.size = size
        self._keep, self._other = _alias(shares.tolist())

    def ranks(self, words: Words) -> Ints:
        """One rank for each draw: the upper half picks a column, the lower half one of its two ranks."""
        column = below(words, self.size)
        keep = (words & _LOW) < self._keep.take(column)
        ranks: Ints = np.where(keep, column, self._other.take(column))
        return ranks


@lru_cache(maxsize=8)
def power_law(size: int, exponent: float) -> PowerLaw:
    """The table for these parameters, built once in a process."""
    return PowerLaw(size, exponent)


def _total(values: Floats) -> float:
    return float(np.cumsum(values)[-1])  # one after the other: the same rounding everywhere


def _weights(size: int, exponent: float) -> Floats:
    """(r + 1) ** -exponent by series, with exactly rounded operations only."""
    mantissa, power = np.frexp(np.arange(1, size + 1, dtype=np.float64))
    small = mantissa < 0.7071067811865476
    mantissa, power = np.where(small, mantissa * 2, mantissa), power - small
    z = (mantissa - 1) / (mantissa + 1)
    square, log = z * z, np.zeros(size)
    for odd in range(23, 0, -2):
        log = log * square + 1 / odd
    exact_log2 = 0.6931471805599453
    x = -exponent * (2 * z * log + power * exact_log2)
    whole = np.floor(x / exact_log2 + 0.5)
    rest, result = x - whole * exact_log2, np.ones(size)
    for term in range(18, 0, -1):
        result = 1 + rest / term * result
    weights: Floats = np.ldexp(result, whole.astype(np.int64))
    return weights


def _alias(shares: list[float]) -> tuple[Words, Ints]:
    """Walker's table by Vose's method: how much of each column is its own, and whose the rest is."""
    other = list(range(len(shares)))
    own = [1.0] * len(shares)
    poor = [i for i, share in enumerate(shares) if share < 1.0]
    rich = [i for i, share in enumerate(shares) if share >= 1.0]
    while poor and rich:
        i, j = poor.pop(), rich[-1]
        own[i], other[i] = shares[i], j
        shares[j] = (shares[j] + shares[i]) - 1.0
        if shares[j] < 1.0:
            poor.append(rich.pop())
    keep = np.array([int(share * 4294967296.0) for share in own], dtype=np.uint64)
    return keep, np.array(other, dtype=np.int64)
