"""Operators are tried with merges that take several epochs, as only large states have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.state import compact


@pytest.fixture(autouse=True, scope="package")
def _merges_take_several_epochs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "ROWS_AN_EPOCH", 4)
        patch.setattr(compact, "ROWS_FOR_ONE", 2)
        yield
