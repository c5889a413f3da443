"""Spark's speculative execution and the slice stage: a slow task is copied to another machine, the epoch does not wait
for it, and nothing is written twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cluster import LocalCluster
from penstock.testing.inline import run_inline
from penstock.testing.three_ways import rows_below
from tests.cluster import speculated

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux answers on all of 127.0.0.0/8")
def test_a_slow_slice_task_is_copied_and_counts_once(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    url = cluster.up(workers=2, pin="none", apart=True)
    folder = tmp_path / "run"
    folder.mkdir()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.cluster.speculated", str(folder), url],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=350,
            check=False,
        )
    finally:
        cluster.down()
    assert ended.returncode == 0, ended.stderr[-4000:]
    seen = json.loads((folder / "seen.json").read_text())
    attempts = [path.name for path in (folder / "attempts").iterdir()]
    for minute in (2, 5):
        assert f"first-{minute}" in attempts
        tries = [name for name in attempts if name.startswith(f"{minute}-")]
        assert len(tries) >= 2, "the slow task was not copied"
    assert seen["longest"] < speculated.SLOW_SECONDS, "an epoch waited for the slow task"
    assert seen["events"] == len(speculated.lines())
    assert seen["missing"] == []
    run_inline(speculated.build(tmp_path / "straight", None), tmp_path / "state", slices=1)
    assert rows_below(folder / "out") == rows_below(tmp_path / "straight")
