"""The process of a case whose engine is to be killed: `python -m tests.golden.dying CASE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.golden import case, variants
from tests.golden.cases import CASES

if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    one = CASES[name]
    assert isinstance(one, variants.Killed)
    with case.within(folder):
        one.die(case.given_of(folder), folder)
