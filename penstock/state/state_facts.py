"""The content of penstock.json: what a state directory says of itself and of its query; and the format of its files.

1    ids of operators are made of the names of classes
2    ids are made of kinds; a manifest has the identity of each operator's state
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import UserError

#: the format that this Penstock writes
FORMAT = 2
#: the key of the format in files; a file without it has format 1
KEY = "format"


def refuse_newer(what: str, content: dict[str, Any]) -> None:
    """Raise if the content of a file has a format that this Penstock does not know."""
    found = content.get(KEY, 1)
    if found > FORMAT:
        raise UserError(
            "STATE_OF_NEWER_FORMAT",
            f"{what} was written by a newer Penstock",
            detail=f"its format is {found}, this Penstock knows up to {FORMAT}",
            hint="Use the newer Penstock, or another directory.",
        )


#: through which epochs which states count as dropped
DroppedStates = tuple[tuple[int, frozenset[str]], ...]


@dataclass(frozen=True)
class StateFacts:
    """What penstock.json says."""

    #: distinguishes this state from others, for sinks
    id: str
    #: the fingerprint of the query, and the query in a line
    query: str
    summary: str = "?"
    #: what each log remembers, by stream
    logs: Mapping[str, Any] = field(default_factory=dict)
    #: how many buckets the state has; None before the first engine
    buckets: int | None = None
    dropped: DroppedStates = ()
    #: the last epoch that a former query has recorded; -1 if there was none
    former_query_last_epoch: int = -1
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        """As penstock.json has it, without what is not there."""
        buckets = {} if self.buckets is None else {"buckets": self.buckets}
        dropped = [{"upto": through, "states": sorted(ids)} for through, ids in self.dropped]
        former = self.former_query_last_epoch
        return {
            KEY: self.format,
            "id": self.id,
            "query": self.query,
            "summary": self.summary,
            "logs": dict(self.logs),
            **buckets,
            **({"dropped": dropped} if dropped else {}),
            **({"former_query_upto": former} if former >= 0 else {}),
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> StateFacts:
        """What `to_json` returned; KeyError, TypeError or ValueError if it is something else."""
        return StateFacts(
            str(body.get("id", "")),
            str(body["query"]),
            str(body.get("summary", "?")),
            dict(body["logs"]),
            body.get("buckets"),
            tuple((int(one["upto"]), frozenset(one["states"])) for one in body.get("dropped", ())),
            int(body.get("former_query_upto", -1)),
            int(body[KEY]),
        )
