"""Requests about Python jobs: create or alter a job from a query of a file, deploy a file. Frozen.

jobs.submit(create_from("hits", Path("app.py"), "query"))
jobs.submit(deploy(Path("app.py"), prune=True))
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.catalogue.code import CodeBundle, read_bundle
from penstock.errors import InternalError


@dataclass(frozen=True)
class CreateFrom:
    """Create a job from an attribute of a file."""

    name: str
    code: CodeBundle
    attribute: str


@dataclass(frozen=True)
class AlterFrom:
    """Alter a job to the query in an attribute of a file. `rebuild`: state of another shape is rebuilt from the
    earliest events."""

    name: str
    code: CodeBundle
    attribute: str
    rebuild: bool = False


@dataclass(frozen=True)
class CreateOrAlterFrom:
    """Create a job from an attribute of a file, or alter it if there is one of that name."""

    name: str
    code: CodeBundle
    attribute: str
    rebuild: bool = False


@dataclass(frozen=True)
class Deploy:
    """Create the jobs of a file's app that are missing, and alter the others. `prune`: drop jobs that an earlier deploy
    of this file created and that it no longer has."""

    code: CodeBundle
    prune: bool = False


CodeRequest = CreateFrom | AlterFrom | CreateOrAlterFrom | Deploy


def create_from(name: str, file: Path, attribute: str) -> CreateFrom:
    """Create a job from an attribute of a file, as the file is now."""
    return CreateFrom(name, read_bundle(file), attribute)


def alter_from(name: str, file: Path, attribute: str, *, rebuild: bool = False) -> AlterFrom:
    """Alter a job to an attribute of a file, as the file is now."""
    return AlterFrom(name, read_bundle(file), attribute, rebuild)


def deploy(file: Path, *, prune: bool = False) -> Deploy:
    """Deploy the app of a file, as the file is now."""
    return Deploy(read_bundle(file), prune)


def read_request(facts: Mapping[str, Any]) -> CodeRequest:
    """A request from JSON that names a file of this machine. The process that executes it reads the file."""
    file = Path(facts["file"])
    match facts:
        case {"request": "create", "name": str() as name, "attribute": str() as attribute}:
            return create_from(name, file, attribute)
        case {"request": "alter", "name": str() as name, "attribute": str() as attribute}:
            return alter_from(name, file, attribute, rebuild=bool(facts.get("rebuild")))
        case {"request": "deploy"}:
            return deploy(file, prune=bool(facts.get("prune")))
    raise InternalError("BAD_REQUEST", "this is not a request about the code of jobs")


def request_text(request: CodeRequest) -> str:
    """A request as text that identifies it, with its code as a digest. Answers are stored under it."""
    facts = {name: value for name, value in asdict(request).items() if name != "code"}
    # a stored name, from before the class had the name that it has now
    kind = "HaveFrom" if isinstance(request, CreateOrAlterFrom) else type(request).__name__
    return json.dumps({"request": kind, "code": request.code.digest, **facts})
