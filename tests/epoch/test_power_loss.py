"""After a power loss at any moment, each durable manifest names only runs that are whole; the engine continues."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.epoch import admission, runner, slice, stages
from penstock.epoch.kill_points import STEPS
from penstock.errors import PenstockError
from penstock.ha.seed import seed_state
from penstock.sinks.files import JsonLines
from penstock.state import durable
from penstock.state.directory import StateDirectory
from penstock.state.manifest import Manifest
from penstock.state.run_file import check_run
from penstock.testing.inline import InlineEngine
from tests.crash import UNITS, seconds
from tests.state.power_loss import VARIANTS, Disk, restore, watch


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a start: this process has synced no directory's name."""
    monkeypatch.setattr(durable, "_synced_names", set())


def _app(folder: Path) -> ps.App:
    counts = seconds().key_by("user").window(timedelta(seconds=30)).count()
    return ps.app("counts", ps.output("counts", counts, ps.jsonl(folder / "out")))


def _check(disk: Disk, state: Path) -> int:
    """Check the manifests of all images; returns how many there are."""
    found = 0
    for variant in VARIANTS:
        image = disk.image(*variant)
        for path, content in image.items():
            if path.parent.name == "manifests" and path.suffix == ".json":
                found += 1
                for run in Manifest.from_bytes(content).runs():
                    whole = (state / "runs" / run).read_bytes() if (state / "runs" / run).exists() else None
                    left = image.get(Path("runs") / run)
                    assert left, f"{path} names {run}, which is lost ({variant})"
                    assert whole is None or left == whole, f"{path} names {run}, which is torn ({variant})"
    return found


def _run(folder: Path, every: int, state: str = "state") -> None:
    engine = InlineEngine(_app(folder), folder / state, epoch_units=UNITS, checkpoint_every=every)
    for _ in engine.steps():
        engine.remove_old_state(2)
    engine.runner.checkpoint()
    engine.close()


@pytest.mark.parametrize("every", [1, 3])
def test_a_manifest_on_disk_names_only_runs_on_disk_at_every_moment(tmp_path: Path, every: int) -> None:
    state, found = tmp_path / "state", 0

    def look() -> None:
        nonlocal found
        found += _check(disk, state)

    with watch(state) as disk:
        disk.look = look
        _run(tmp_path, every)
        look()
    assert disk.syncs > 20
    assert found > 100


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
def test_an_engine_continues_from_what_a_power_loss_leaves_at_every_step(
    tmp_path: Path, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(tmp_path / "whole", every)
    wanted = JsonLines(tmp_path / "whole" / "out").read()
    left: dict[str, tuple[dict[Path, bytes], dict[Path, bytes]]] = {}
    steps = set[str]()

    def reach(step: str, epoch: int, _: int | None = None) -> None:
        steps.add(step)
        out = tmp_path / "lost" / "out"
        rows = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for variant in VARIANTS:
            if epoch == 5:
                image = disk.image(*variant)
                if (image, rows) not in left.values():
                    left[f"{step}-{'-'.join(variant)}"] = image, rows

    for module in (admission, runner, slice, stages):
        monkeypatch.setattr(module, "reached", reach)
    with watch(tmp_path / "lost" / "state") as disk:
        _run(tmp_path / "lost", every)
    assert steps == set(STEPS)
    monkeypatch.undo()
    for name, (image, rows) in left.items():
        restore(image, tmp_path / name / "state")
        restore(rows, tmp_path / name / "out")
        (tmp_path / name / "state").chmod(0o700)
        _run(tmp_path / name, every)
        assert JsonLines(tmp_path / name / "out").read().equals(wanted), name


@pytest.mark.parametrize("links", [True, False])
def test_the_seed_of_a_follower_is_on_disk_before_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    link = os.link

    def refuse(source: Path, to: Path, **where: Any) -> None:
        if str(source).endswith(".run"):
            raise OSError(95, "no links here")
        link(source, to, **where)

    engine = InlineEngine(_app(tmp_path), tmp_path / "state", epoch_units=UNITS)
    steps = engine.steps()
    for _ in range(3):
        next(steps)
    engine.close()
    leader, target = StateDirectory(tmp_path / "state"), tmp_path / "follower"
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    with watch(target) as disk:
        disk.look = partial(_check, disk, target)
        seed_state(target, leader)
        assert _check(disk, target) == len(VARIANTS)
    newest = StateDirectory(target).manifests.latest()
    assert newest.runs()
    for run in newest.runs():
        check_run(target / "runs" / run)


def test_a_run_that_is_lost_from_memory_is_in_no_manifest_on_disk(tmp_path: Path) -> None:
    engine = InlineEngine(_app(tmp_path), tmp_path / "state", epoch_units=UNITS, checkpoint_every=4)
    steps = engine.steps()
    for _ in range(2):
        next(steps)
    memory = Path(engine.runner._location.memory or "")
    for run in memory.rglob("*.run"):
        run.unlink()
    with pytest.raises(PenstockError, match="STATE_DAMAGED"):
        engine.runner.checkpoint()
    engine.close()
    assert StateDirectory(tmp_path / "state").manifests.epochs() == []
