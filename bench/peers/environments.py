"""The peers' environments: a virtual one each, made with pip when asked, under the user's cache.

Receives a peer; hands the interpreter to run its program with, or the reason why there is none.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench.benchmark import ShowProgress
from bench.dataset import cache_root
from bench.peers.roster import Peer
from penstock.errors import PenstockError
from penstock.spark.java import java_home

_READY = "ready"


def place_of(peer: Peer, root: Path | None = None) -> Path:
    """Where a peer's environment is; those with the same packages share one."""
    name = peer.packages[0].partition("==")[0].removeprefix("apache-")
    return (root or cache_root().parent / "peers") / name


def interpreter(peer: Peer, root: Path | None = None) -> Path | str:
    """The Python to run a peer with, or why it cannot be run here, as a text."""
    if peer.java:
        try:
            java_home()
        except PenstockError as error:
            return f"it needs Java: {error.primary}"
    if not peer.packages:
        return Path(sys.executable)
    if peer.newest_python is not None and sys.version_info[:2] > peer.newest_python:
        newest = ".".join(map(str, peer.newest_python))
        return (
            f"it has packages for Python up to {newest}, here is {sys.version_info[0]}.{sys.version_info[1]}"
        )
    place = place_of(peer, root)
    if not (place / _READY).exists():
        return "it is not installed here; --install does it"
    return place / "bin" / "python"


def install(peer: Peer, show_progress: ShowProgress, root: Path | None = None) -> str | None:
    """Make a peer's environment unless it is there; the reason if that is not possible."""
    found = interpreter(peer, root)
    if isinstance(found, Path) or "--install" not in found:
        return None if isinstance(found, Path) else found
    place = place_of(peer, root)
    show_progress(f"{peer.title}: installing {', '.join(peer.packages)}")
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(place)], [*pip, "--no-input", *peer.packages]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            shutil.rmtree(place, ignore_errors=True)
            return f"it could not be installed: {last[0] if last else 'pip failed'}"
    (place / _READY).touch()
    return None
