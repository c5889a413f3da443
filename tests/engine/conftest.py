"""What tests of the engine share."""

from __future__ import annotations

import pytest

from tests.engine.dying import Death


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    """Says where the engine dies."""
    return Death(monkeypatch)
