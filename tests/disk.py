"""Where the disk is, for tests whose files must be on one: `./run test` has the others in memory, if there is enough.

Files are identified by inodes. A disk gives that of a removed file to the next one; memory never does, so that
a mistake there would not show.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

#: a directory on a disk; None where `./run test` did not name one
DISK = os.environ.get("PENSTOCK_TEST_DISK")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """The fixture of pytest, on a disk."""
    if DISK is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="penstock-test-", dir=DISK, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
