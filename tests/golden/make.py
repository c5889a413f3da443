"""Makes the archives of golden state: `python -m tests.golden.make [CASE ...]`.

The archives of `format-1` were made with the code of commit bf88a4a, whose state directories have format 1. They are
never made again: later versions must open what that commit wrote. To add a case to them, check that commit out beside
this tree, copy `tests/golden` there, and run this program there.

For a further release (when the state format changes, or a new operator has to be held) name its directory, and commit
what it writes:

    python -m tests.golden.make --release format-2 [CASE ...]

Every archive holds its own input and the rows of an undisturbed run, so that a test needs no old code. Made again, an
archive holds the same rows; its bytes differ, since runs and state directories have random names. It refuses to write
over an archive that is there, unless told `--again`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
import pyarrow as pa

from tests.golden import archive, case
from tests.golden.cases import CASES
from tests.golden.given import made_lines


def main(arguments: list[str] | None = None) -> None:
    """Make the archives of some cases, or of all that a release has not."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description=__doc__)
    parser.add_argument("cases", nargs="*", help="which cases; all if none is named")
    parser.add_argument("--release", default="format-1", help="the directory of the archives")
    parser.add_argument("--again", action="store_true", help="replace archives that are there")
    given = parser.parse_args(arguments)
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # where Spark's workers find the cases
    for name in given.cases or CASES:
        target = archive.path_of(given.release, name)
        if target.exists() and not given.again:
            print(f"{target.name} is there")
            continue
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            facts = case.make(CASES[name], made_lines(), Path(folder))
            (Path(folder) / "about.json").write_text(json.dumps(facts | _made_with(), indent=1) + "\n")
            print(f"{target.name}: {archive.pack(Path(folder), target):,} bytes")


def _made_with() -> dict[str, object]:
    """The newest commit that changed the product, and the libraries."""
    newest = ["git", "log", "-1", "--format=%h", "--", ":/penstock"]
    commit = subprocess.run(newest, capture_output=True, text=True, check=True)
    versions = {"polars": pl.__version__, "pyarrow": pa.__version__, "python": platform.python_version()}
    return {"penstock": _version(), "commit": commit.stdout.strip(), **versions}


def _version() -> str:
    from penstock import __version__

    return __version__


if __name__ == "__main__":
    main(sys.argv[1:])
