"""Errors of a local cluster, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cluster import processes
from penstock.cluster.facts import lock_cluster
from penstock.errors import ExternalError, UserError


def test_a_directory_that_cannot_be_written_is_reported() -> None:
    with pytest.raises(ExternalError, match="CLUSTER_UNWRITABLE"), lock_cluster(Path("/proc/no/cluster")):
        pass


def test_a_system_without_proc_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes.check_system()
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    with pytest.raises(UserError, match="CLUSTER_NEEDS_LINUX"):
        processes.check_system()
