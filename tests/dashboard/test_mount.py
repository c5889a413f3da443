"""A process has at most one dashboard."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.process
def test_a_process_can_mount_the_dashboard_on_one_service_only() -> None:
    program = (
        "from types import SimpleNamespace\n"
        "from fastapi import FastAPI\n"
        "from nicegui import ui\n"
        "from penstock.dashboard.mount import mount_dashboard\n"
        "ui.run_with(FastAPI(), storage_secret='x')\n"
        "mount_dashboard(SimpleNamespace(api=FastAPI(), token=None))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode != 0
    assert "DASHBOARD_TAKEN" in done.stderr
