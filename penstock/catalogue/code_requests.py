"""What can be requested of the Python of jobs: create or alter one of a file's query, deploy a file. Frozen.

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
    """Create a job of an attribute of a file."""

    name: str
    code: CodeBundle
    attribute: str


@dataclass(frozen=True)
class AlterFrom:
    """Give a job the query that an attribute of a file is. `rebuild`: a state of another shape is made again from the
    earliest events."""

    name: str
    code: CodeBundle
    attribute: str
    rebuild: bool = False


@dataclass(frozen=True)
class HaveFrom:
    """Have a job of an attribute of a file: created where there is none of its name, else altered."""

    name: str
    code: CodeBundle
    attribute: str
    rebuild: bool = False


@dataclass(frozen=True)
class Deploy:
    """Have the jobs of a file's app: those that are missing, and the others as they are there. `prune`: drop those that
    came with this file before and are not in it any more."""

    code: CodeBundle
    prune: bool = False


CodeRequest = CreateFrom | AlterFrom | HaveFrom | Deploy


def create_from(name: str, file: Path, attribute: str) -> CreateFrom:
    """Create a job of an attribute of a file, as the file is now."""
    return CreateFrom(name, read_bundle(file), attribute)


def alter_from(name: str, file: Path, attribute: str, *, rebuild: bool = False) -> AlterFrom:
    """Alter a job to an attribute of a file, as the file is now."""
    return AlterFrom(name, read_bundle(file), attribute, rebuild)


def deploy(file: Path, *, prune: bool = False) -> Deploy:
    """Have the jobs of a file's app, as the file is now."""
    return Deploy(read_bundle(file), prune)


def read_request(facts: Mapping[str, Any]) -> CodeRequest:
    """A request as JSON that names a file of this machine; the file is read here, by who is to execute it."""
    file = Path(facts["file"])
    match facts:
        case {"request": "create", "name": str() as name, "attribute": str() as attribute}:
            return create_from(name, file, attribute)
        case {"request": "alter", "name": str() as name, "attribute": str() as attribute}:
            return alter_from(name, file, attribute, rebuild=bool(facts.get("rebuild")))
        case {"request": "deploy"}:
            return deploy(file, prune=bool(facts.get("prune")))
    raise InternalError("BAD_REQUEST", "this is not a request about the code of jobs")


def text_of(request: CodeRequest) -> str:
    """A request as text, in which its code is its digest: what tells it from others."""
    facts = {name: value for name, value in asdict(request).items() if name != "code"}
    return json.dumps({"request": type(request).__name__, "code": request.code.digest, **facts})
