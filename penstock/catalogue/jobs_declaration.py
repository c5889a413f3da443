"""The data that a file declares about jobs: SQL, and what Python gives to it. `jobs_app` explains and runs it.

It imports nothing that builds jobs, so finding declarations in a file does not need what runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loading these takes time that an engine without jobs need not spend
    from penstock.catalogue.messages import Deliver
    from penstock.query.stream import Stream
    from penstock.sql.scope import UserFunction


@dataclass(frozen=True, eq=False)
class JobsDeclaration:
    """Streams and jobs as a file declares them."""

    name: str
    sql: str = ""
    streams: Mapping[str, Stream] = field(default_factory=dict)
    queries: Mapping[str, Stream] = field(default_factory=dict)
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    deliver: Mapping[str, Deliver] = field(default_factory=dict)
    #: the file that has the SQL, for errors
    file: str | None = None
