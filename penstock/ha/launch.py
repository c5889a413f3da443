"""How the engines of an HA unit start: reads and writes the file `STATE/ha/unit.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock.coordination.contract import TIMEOUT_SECONDS
from penstock.errors import InternalError
from penstock.state.directory import SHARED
from penstock.state.durable import write_whole
from penstock.state.run_file import unwritable_error


@dataclass(frozen=True)
class Launch:
    """How the engines of a unit start: the content of `STATE/ha/unit.json`."""

    unit: str
    coordination: str
    #: the file with the app or the jobs; "": all jobs come over HTTP
    file: str
    folder: str
    master: str = "local[*]"
    slices: int | None = None
    epoch_seconds: float = 1.0
    drain: bool = False
    lease_seconds: float = TIMEOUT_SECONDS
    #: whether a service serves the results of jobs or of an app
    served: bool = False
    #: settings of recoveries: `threshold_seconds`, `costs`, `semantics`, `checkpoint_every` (see `ha.unit_controller`)
    recovery: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_launch(root: Path) -> Launch | None:
    """The launch of the unit on a state directory; None if there is no unit."""
    path = root / SHARED / "unit.json"
    try:
        known = {one.name for one in fields(Launch)}
        plain = json.loads(path.read_bytes())
        return Launch(**{name: value for name, value in plain.items() if name in known})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, AttributeError) as failure:
        raise InternalError("STATE_DAMAGED", f"{path} is damaged", detail=repr(failure)) from failure


def write_launch(root: Path, launch: Launch) -> None:
    """Store the launch; engines start with it from now on."""
    path = root / SHARED / "unit.json"
    try:
        write_whole(path, json.dumps(asdict(launch), indent=1).encode())
    except OSError as failure:
        raise unwritable_error(path, failure) from failure
