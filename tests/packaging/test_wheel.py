"""The wheel has all files that the code reads, and works without a checkout.

It is built from a copy of the tree and installed into an environment of its own, which sees the packages that Penstock
needs where the tests' own interpreter has them. Nothing is downloaded.
"""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

from penstock.cli.demo import Name

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
#: files that a build needs besides the package
SOURCES = ("pyproject.toml", "README.md", "LICENSE")
NO_INDEX = ["--no-deps", "--no-index", "--disable-pip-version-check", "--quiet"]

#: how many lines a demo is run on
LINES = 200

#: the first lines of the generated log of a demo; its arguments are the demo's name and their number
LINES_OF = """
import sys
from importlib import import_module
from penstock.logs import Span

log = import_module(f"penstock.demos.{sys.argv[1]}").generated(None, "constant")
chunk = next(log.read(Span(log.partitions({})[0].id, 0, int(sys.argv[2]))))
sys.stdout.write(chunk.data.decode())
"""

#: every SQL file of the demos, by the jobs it declares
SQL_FILES = """
import json
from pathlib import Path
import penstock.demos
from penstock.cli.load_app import load

files = sorted(Path(penstock.demos.__file__).parent.glob("*.sql"))
print(json.dumps({file.name: [str(job) for job in load(file).explained()] for file in files}))
"""

OWN_APP = """
import penstock as ps
from penstock import col
from apps.pages import PREFIX, shortened
from apps.taxi import AREAS

clicks = ps.stream("clicks", ps.files("logs/*.log", finished=True), ps.combined_log(), time="time")
pages = clicks.filter(col("path").str.starts_with(PREFIX)).map_batches(shortened, {"page": ps.String()})
counts = pages.key_by("page").window(AREAS).count()
app = ps.app("own", ps.output("counts", counts, ps.jsonl("out/counts")))
"""
OWN_PAGES = """
import polars as pl

PREFIX = "/p"


def shortened(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.col("^_.*$"), page=pl.col("path").str.slice(0, 3))
"""
LINE = '10.0.0.1 - - [15/Nov/2026:09:00:{second:02} +0000] "GET /p{page}/x HTTP/1.1" 200 5 "-" "a"\n'


@dataclass(frozen=True)
class Installed:
    """An environment that has Penstock from the wheel, and a directory to work in."""

    folder: Path
    work: Path

    def run(self, *command: str) -> str:
        """Run a command of the environment; return its output. It must succeed."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=self.work,
            env={**known, "PYTHONNOUSERSITE": "1", "COLUMNS": "200", "TERM": "dumb"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def sources() -> set[str]:
    """Return the files of the package in the tree, as the wheel should name them."""
    found = (path for path in (ROOT / "penstock").rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves directories behind, and takes files from old ones."""
    copy, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "penstock", copy / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", *NO_INDEX, "--no-build-isolation", "-w", str(out), str(copy)]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = out.glob("penstock-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A new environment. It has the packages that Penstock needs through a path file; path files in their directory,
    such as that of a checkout installed to be edited, are not read there."""
    folder, work = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("work")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *NO_INDEX, str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = Installed(folder, work)
    site = Path(found.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    needed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "needed.pth").write_text("".join(f"{path}\n" for path in needed))
    return found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == sources()
    assert {"penstock/dashboard/pages.css", "penstock/demos/shop.sql", "penstock/py.typed"} <= names


def test_the_wheel_has_its_metadata_and_licence(wheel: Path) -> None:
    facts = metadata(wheel)
    assert facts["License-Expression"] == "Apache-2.0"
    assert facts["Author"] == "The Penstock authors"
    page = facts.get_payload(decode=True)
    assert page == (ROOT / "README.md").read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_penstock_comes_from_the_wheel(installed: Installed) -> None:
    for module in ("penstock", "penstock.demos"):
        file = installed.run("python", "-c", f"import {module}; print({module}.__file__)").strip()
        assert Path(file).is_relative_to(installed.folder)


def test_the_command_line_starts(installed: Installed) -> None:
    assert "Usage: penstock" in installed.run("penstock", "--help")
    shown = installed.run("penstock", "demo", "--help")
    assert [name for name in Name if name not in shown] == []


def test_the_pages_of_the_dashboard_have_their_style(installed: Installed) -> None:
    read = "import penstock.dashboard.frame; from importlib.resources import files; "
    read += "print((files('penstock.dashboard') / 'pages.css').read_text())"
    assert installed.run("python", "-c", read).strip() == (
        (ROOT / "penstock" / "dashboard" / "pages.css").read_text().strip()
    )


@pytest.mark.parametrize("name", Name)
def test_a_demo_reads_all_of_a_file(name: Name, installed: Installed) -> None:
    """In one process, without Spark."""
    lines = installed.work / f"{name}.txt"
    lines.write_text(installed.run("python", "-c", LINES_OF, name, str(LINES)))
    options = ["--log", str(lines), "--drain", "--no-ui", "--master", "inline", "--for", "120s"]
    if name in (Name.clickstream, Name.hibench):
        options += ["--cookie", "session"]  # a field of the generated access logs
    output = installed.run("penstock", "demo", name, *options)
    (events,) = re.findall(r"^events +([\d,]+), ", output, re.M)
    assert int(events) in (LINES, LINES - 1), "the first line may be a header"


def test_the_sql_files_of_the_demos_are_read(installed: Installed) -> None:
    jobs = json.loads(installed.run("python", "-c", SQL_FILES))
    assert set(jobs) == {path.name for path in (ROOT / "penstock" / "demos").glob("*.sql")}
    assert all(jobs.values())


@pytest.fixture
def own(installed: Installed) -> Installed:
    """The environment with a user's app.py beside an apps/ folder of the user, with module names of demos."""
    apps = installed.work / "apps"
    apps.mkdir(exist_ok=True)
    (installed.work / "app.py").write_text(OWN_APP)
    (apps / "__init__.py").write_text("")
    (apps / "pages.py").write_text(OWN_PAGES)
    (apps / "taxi.py").write_text('AREAS = "10s"\n')
    (installed.work / "logs").mkdir(exist_ok=True)
    lines = "".join(LINE.format(second=second, page=second % 3) for second in range(30))
    (installed.work / "logs" / "access.log").write_text(lines)
    return installed


def test_a_users_folder_named_apps_is_not_taken_for_the_demos(own: Installed) -> None:
    shown = own.run("penstock", "explain", "app.py")
    assert "map batches with shortened" in shown
    assert "windows of 10s" in shown
    assert "app.py:10" in shown


@pytest.mark.spark
def test_a_users_application_is_run(own: Installed) -> None:
    own.run("penstock", "run", "app.py", "--drain", "--master", "local[1]")
    files = sorted((own.work / "out" / "counts").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sum(row["count"] for row in rows) == 30
    assert {row["page"] for row in rows} == {"/p0", "/p1", "/p2"}


@pytest.mark.spark
def test_a_demo_is_run(installed: Installed) -> None:
    installed.run("penstock", "demo", "hibench", "--for", "5s", "--no-ui", "--master", "local[1]")
    results = installed.work / ".penstock" / "demo-hibench" / "results" / "identity"
    assert any(file.read_text().strip() for file in results.glob("*.jsonl"))
