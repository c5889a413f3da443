"""`./run test` puts the files of the tests into memory and leaves none of them behind. Pytest is a stub script here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).resolve().parents[2] / "run"
#: prints where it would put files, and waits until its input ends
PYTEST = """#!/bin/sh
[ "$2" = pytest ] || exit 0
echo "$TMPDIR" "$PENSTOCK_TEST_DISK"
touch "$TMPDIR/left"
read -r answer
exit 7
"""
SECONDS = 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout whose .venv is ready."""
    shutil.copy(SCRIPT, tmp_path / "run")
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for tool in ("python", "ruff", "mypy", "lint-imports"):
        (tools / tool).write_text(PYTEST if tool == "python" else "#!/bin/sh\n")
        (tools / tool).chmod(0o755)
    sums = subprocess.run(["cksum"], input=b"", capture_output=True, check=True).stdout.decode()
    (tmp_path / ".venv" / "penstock-ready").write_text(f"{tmp_path}\n{sums}")
    return tmp_path


@contextmanager
def running(root: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[str], Path, Path]]:
    """Run the stub; yield its process and its directories in memory and on disk."""
    run = subprocess.Popen(
        [root / "run", "test"],
        env=os.environ | {"TMPDIR": str(root)} | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdin is not None
    assert run.stdout is not None
    try:
        memory, disk = map(Path, run.stdout.readline().split())
        if memory.parent != Path("/dev/shm"):
            pytest.skip("not enough memory to have the tests' files there")
        yield run, memory, disk
    finally:
        run.stdin.close()
        run.wait(SECONDS)
        run.stdout.close()


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_concurrent_runs_have_directories_of_their_own_and_leave_nothing(root: Path) -> None:
    with running(root) as (first, one, _):
        with running(root) as (second, other, _):
            assert one != other
            assert len(str(one)) < 25, "sockets below it need short names"
            assert one.stat().st_mode & 0o777 == 0o711, "a server with a user of its own gets to its files"
        assert second.returncode == 7, "the exit code is that of the tests"
        assert until(lambda: not other.exists())
        assert (one / "left").exists()
    assert first.returncode == 7
    assert until(lambda: not one.exists())


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_runs_that_are_killed_leave_nothing(root: Path, signal_number: signal.Signals) -> None:
    with running(root) as (run, memory, _):
        run.send_signal(signal_number)
        assert run.wait(SECONDS) == -signal_number, "what ends the script ends the tests"
    assert until(lambda: not memory.exists())


def test_directories_of_ended_runs_are_removed(root: Path) -> None:
    left = Path("/dev/shm") / f"penstest.left-{os.getpid()}"
    with running(root) as (_, used, _):
        left.mkdir()
        (left / "file").touch()
        for folder in (left, used):
            os.utime(folder, (0, 0))
        with running(root):
            assert not left.exists()
            assert used.exists()


def test_the_disk_is_where_temporary_files_are_or_else_in_the_checkout(root: Path) -> None:
    inside = root / ".test-disk"
    on_disk = subprocess.run(["stat", "-f", "-c", "%T", root], capture_output=True, text=True).stdout.strip()
    with running(root) as (_, _, disk):
        assert disk == (inside if on_disk == "tmpfs" else root)
    for folder in ("/dev/shm", str(root / "none"), str(root / "run")):
        shutil.rmtree(inside, ignore_errors=True)
        with running(root, TMPDIR=folder) as (_, _, disk):
            assert disk == inside
            assert inside.is_dir()
