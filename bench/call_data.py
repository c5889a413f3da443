"""The call records that the operators are measured on.

Parameters of the generated calls; `dataset` makes the files from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from penstock.logs.calls import CallLog

TIMES = ("start", "end", "ts")
#: who calls in the closing line
CLOSING_CALLER = "0"
_CLOSING = round(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


@dataclass(frozen=True)
class CallParameters:
    """Parameters of the calls. `rate` and `rotate_seconds` are in event time.

    At 10,000 calls a second by a million callers, a call has two others of its caller in the minute before.
    """

    name: ClassVar[str] = "calls"
    closing_line: ClassVar[bytes] = (
        f"{CLOSING_CALLER},0,{_CLOSING},{_CLOSING},0,0.0,0.0,{_CLOSING}\n".encode()
    )

    events: int
    servers: int = 4
    rate: float = 10_000
    callers: int = 1_000_000
    districts: int = 1_000
    seed: int = 1
    rotate_seconds: int = 10

    def log(self) -> CallLog:
        """The log that generates the lines."""
        return CallLog(
            partitions=self.servers,
            seed=self.seed,
            callers=self.callers,
            districts=self.districts,
            rate=self.rate,
            total=self.events,
            live=False,
        )
