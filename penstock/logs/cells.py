"""Builds lines without a loop from columns of text in cells of fixed width, padded with NUL.

Receives texts and columns of cells; returns columns to take from, and the bytes of all lines put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.logs.draw import Ints

Texts: TypeAlias = npt.NDArray[np.void]

#: lines made in one go: few enough that their columns stay in the cache
_LINES_A_TIME = 8192


def to_cells(words: Iterable[str]) -> Texts:
    """Convert texts to fixed-width cells, padded with NUL."""
    cells: npt.NDArray[Any] = np.array([text.encode() for text in words])
    return cells.view(f"V{cells.itemsize}")


def concatenate_cells(*parts: str | Texts) -> Texts:
    """Put cells together from constant texts and other cells."""
    size = next(len(part) for part in parts if not isinstance(part, str))
    whole = _concatenate(
        [np.repeat(to_cells([part]), size) if isinstance(part, str) else part for part in parts]
    )
    return whole.view(f"V{whole.itemsize}")


def join_rows(columns: Sequence[Texts]) -> memoryview:
    """Join the rows of the columns, without the NULs."""
    cells: npt.NDArray[np.uint8] = _concatenate(columns).view(np.uint8)
    return memoryview(cells[cells != 0])


def _concatenate(columns: Sequence[Texts]) -> Texts:
    whole = np.empty(len(columns[0]), np.dtype([(f"f{i}", cells.dtype) for i, cells in enumerate(columns)]))
    for i, cells in enumerate(columns):
        whole[f"f{i}"] = cells
    return whole


def join_blocks(
    block: Callable[[int, int, Ints], memoryview], partition: int, first: int, instants: Ints
) -> bytes:
    """The lines of a partition from the offset `first`, one for each instant; `block` makes those of some instants."""
    starts = range(0, len(instants), _LINES_A_TIME)
    return b"".join([block(partition, first + at, instants[at : at + _LINES_A_TIME]) for at in starts])
