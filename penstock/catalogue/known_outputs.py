"""Remember the outputs of an app beside its state, for commands that have the state directory and not the app.

DIR/outputs.json   the names of the outputs and streams of the app that was started last
"""

from __future__ import annotations

import json
from pathlib import Path

from penstock.catalogue.catalogue import Catalogue
from penstock.query.physical import Plan
from penstock.state.generation import FencedDirectory

_FILE = "outputs.json"


def remember_outputs(state: Path, app: Plan, fenced_directory: FencedDirectory) -> None:
    """Write down the names of an app's outputs and streams, unless they are there; FENCED if another engine leads."""
    content = json.dumps({"outputs": list(app.outputs), "streams": list(app.scans)}).encode()
    path = state / _FILE
    if not path.exists() or path.read_bytes() != content:
        fenced_directory.write_whole(path, content)


def known_outputs(state: Path) -> Catalogue:
    """The catalogue of the app that was started last, before the first command; empty if there was none."""
    path = state / _FILE
    if not path.exists():
        return Catalogue()
    body = json.loads(path.read_bytes())
    return Catalogue.of_app(dict.fromkeys(body["outputs"]), body["streams"])
