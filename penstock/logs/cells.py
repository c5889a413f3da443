"""Text in columns of cells of fixed width, filled up with NUL: how generated lines are made without a loop.

Receives texts and columns of cells; hands columns to take from, and the bytes of all lines put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Texts: TypeAlias = npt.NDArray[np.void]


def texts(texts: Iterable[str]) -> Texts:
    """Texts as fixed-width cells, filled up with NUL."""
    cells: npt.NDArray[Any] = np.array([text.encode() for text in texts])
    return cells.view(f"V{cells.itemsize}")


def beside(*parts: str | Texts) -> Texts:
    """Cells put together from constant texts and other cells."""
    size = next(len(part) for part in parts if not isinstance(part, str))
    whole = _side_by_side(
        [np.repeat(texts([part]), size) if isinstance(part, str) else part for part in parts]
    )
    return whole.view(f"V{whole.itemsize}")


def joined(columns: Sequence[Texts]) -> memoryview:
    """The rows of the columns one after the other, without the NULs."""
    cells: npt.NDArray[np.uint8] = _side_by_side(columns).view(np.uint8)
    return memoryview(cells[cells != 0])


def _side_by_side(columns: Sequence[Texts]) -> Texts:
    whole = np.empty(len(columns[0]), np.dtype([(f"f{i}", cells.dtype) for i, cells in enumerate(columns)]))
    for i, cells in enumerate(columns):
        whole[f"f{i}"] = cells
    return whole
