"""Everything that an engine leaves on a machine is private: another user reads and changes nothing, at any umask."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
NOBODY = 65534
#: an engine with state, results, dead letters, commands, code, a cache, sockets and coordinators; it waits at its end
ENGINE = """
import sys
from pathlib import Path
from penstock.catalogue.program import Program
from penstock.coordination.address import open_store
from penstock.coordination.shared_key import shared_key
from penstock.engine.job_server import JobServer
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog
from penstock.cli.load_app import load

folder = Path(sys.argv[1])
(folder / "in").mkdir()
lines = "".join('{"user": "u%d", "n": %d, "at": "2026-01-01T00:00:%02dZ"}\\n' % (n % 7, n, n % 60) for n in range(200))
(folder / "in" / "a.log").write_text(lines + "this is no event\\n")
(folder / "jobs.sql").write_text(f'''
CREATE STREAM s FROM files('{folder}/in/*.log')
    FORMAT json(user STRING, n INT, at TIMESTAMP) EVENT TIME at LATENESS 1 SECONDS;
CREATE JOB counts AS SELECT user, COUNT(*) AS n FROM s GROUP BY user WINDOWING 10 SECONDS;
''')
state = folder / "state"
program = load(folder / "jobs.sql").on(state)
engine = InlineEngine(program, state, cache=folder / "cache" / "one", checkpoint_every=int(sys.argv[2]))
store = open_store(str(folder / "store"))
session = store.start_session(60.0)
session.join("group", "one", b"facts")
store.create("a/b", b"1")
shared_key(state)
with JobServer(program, state):
    for number in range(4):
        program.execute(f"CREATE JOB j{number} AS SELECT n FROM s")
        with open(folder / "in" / "a.log", "a") as more:
            more.write(lines + "this is no event\\n")
        engine.step()
    print("ready", flush=True)
    sys.stdin.read()
"""
#: as another user: all that can be read, changed or entered below some folders
INTRUDER = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for folder in sys.argv[1:]:
    for place, folders, files in os.walk(folder):
        for name in files + folders:
            path = os.path.join(place, name)
            if os.access(path, os.W_OK) or (name in files and os.access(path, os.R_OK)):
                print(path)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="private-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "tmp").mkdir(mode=0o777)
    (folder / "tmp").chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=[1, 3])
def engine(folder: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """An engine that has run some epochs under umask 000 and is still up."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(folder), str(request.param)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        umask=0,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield
    process.communicate("")


def _places(folder: Path) -> list[Path]:
    return [folder / name for name in ("state", "cache", "store", "tmp")]


def test_all_that_an_engine_writes_is_private_at_any_umask(folder: Path, engine: None) -> None:
    found = [
        path for place in _places(folder) for path in (place, *place.rglob("*")) if path != folder / "tmp"
    ]
    names = {path.name for path in found}
    assert {"manifests", "epochs", "runs", "dead", "results", "commands", "coordinators.key"} <= names
    assert any(path.suffix == ".socket" for path in found)
    assert any(path.suffix == ".arrow" for path in found)
    for path in found:
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode):
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(status.st_mode) == wanted, (
                f"{path} has mode {stat.S_IMODE(status.st_mode):04o}"
            )


@pytest.mark.may_skip("root, who alone can become another user")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_read_and_change_nothing(folder: Path, engine: None) -> None:
    found = subprocess.run(
        [sys.executable, "-c", INTRUDER, *map(str, _places(folder))],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd="/",
    )
    assert found.stdout == ""
