"""Makes archives of golden state with the code of today: `python -m tests.golden.make [CASE ...]`.

It writes the archives of the format that this code writes, `format-N`, and those only that are missing: an archive that
is committed is never made again. So it is for new cases, and for all cases when the format changes.

The archives of `format-1` were made with the code of commit bf88a4a. To add a case to an earlier format, check out a
commit that wrote it beside this tree, copy `tests/golden` there, and run this program there.

Every archive holds the rows of an undisturbed run and its input, or the format's `input.tar.xz` does, so that a test
needs no old code. The rows and the digests of stored code are the same whenever an archive is made; its bytes differ,
since runs and state directories have random names and engines write down the time.
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

from tests.golden import archive, case, lives
from tests.golden.cases import CASES
from tests.golden.given import made_lines


def main(arguments: list[str] | None = None) -> None:
    """Make the archives of some cases, or of all, that the present format lacks."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden.make",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", help="which cases; all if none is named")
    given = parser.parse_args(arguments)
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # where Spark's workers find the cases
    for name in given.cases or CASES:
        target = archive.path_of(lives.CURRENT_FORMAT, name)
        if target.exists():
            print(f"{target.name} is there")
            continue
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            facts = case.make(CASES[name], made_lines(), Path(folder))
            (Path(folder) / "about.json").write_text(json.dumps(facts | _made_with(), indent=1) + "\n")
            print(f"{target.name}: {archive.pack_case(Path(folder), lives.CURRENT_FORMAT, name):,} bytes")


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
