"""An error to which it is added what was being worked on: it is the same error otherwise."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.errors import is_transient
from penstock.query.steps import locate_error
from penstock.state.run_file import unwritable_error


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_an_error_that_passes_still_passes(number: int) -> None:
    """A full disk in a stage ended the engine, which waits for it everywhere else."""
    error = unwritable_error(Path("runs"), OSError(number, os.strerror(number)))
    located = locate_error(error, "app.py:7", "a stage in epoch 3")
    assert located.condition == error.condition
    assert is_transient(located) is is_transient(error)
    assert "a stage in epoch 3" in located.text()
