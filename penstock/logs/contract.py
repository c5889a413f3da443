"""The contract of logs: partitions of records with offsets, in which a span always reads as the same records.

Receives spans; returns raw bytes of whole records to the decoders, in chunks.

Guarantees of every log:
- The same span read twice, in any process on any machine that reaches the log, returns the same bytes.
- Records of a partition come in the order of their offsets; a span holds whole records only.
- A partition keeps its id for life (a rename or a rotation does not change it).
Does not guarantee: any order between partitions, or that pruned offsets can still be read.
On failure: `ExternalError`; nothing is skipped silently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.errors import ExternalError
from penstock.moved import former_names


@dataclass(frozen=True)
class Partition:
    """One ordered sequence of a log, as seen now.

    `latest` is the offset after the last whole record. `finished` means that nothing will ever be added.
    """

    id: str
    earliest: int
    latest: int
    finished: bool = False


@dataclass(frozen=True)
class Span:
    """The records of a partition from offset `start` (included) to `end` (excluded).

    `copy`: of a replicated log, the copy that every task reads it from. `identity`: by what the log recognises the
    partition up to `end`, where it keeps identities.
    """

    partition: str
    start: int
    end: int
    copy: int | None = None
    identity: str | None = None


@dataclass(frozen=True)
class Chunk:
    """Whole records of one partition: `data` starts at offset `start`; every record ends with a newline.

    Of a log that is not dense, `offsets` has the offset of each record, and `start` is at most the first of them.
    `damage`, when set, is why the log cannot return all that it should have here (a truncated
    archive): the engine adds it to the dead letters.
    """

    partition: str
    start: int
    data: bytes
    damage: str | None = None
    offsets: npt.NDArray[np.int64] | None = field(default=None, compare=False)


@former_names(begun_late="started_late")
class Log(ABC):
    """A replayable source. Picklable: tasks read it on whatever machine they run."""

    #: what an offset counts: bytes of a file, or records
    unit: Literal["bytes", "records"] = "bytes"
    #: of a replicated log, the partitions that have more records than it lists: some engine of the unit lacks them
    withheld: frozenset[str] = frozenset()
    #: of a replicated log, the partitions read without their first records, which an unreachable copy may have
    started_late: frozenset[str] = frozenset()
    #: whether every offset has its unit; offsets of a log that is not dense only grow from record to record
    dense: bool = True

    @property
    def unit_bytes(self) -> int:
        """How many bytes a unit is about."""
        return 1 if self.unit == "bytes" else 200

    def units(self, partition: str, start: int, end: int) -> int:
        """About how many units lie between two offsets."""
        return end - start

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Called once when an engine starts, before anything else.

        Receives what an earlier start returned (None the first time) and the offsets reached so far;
        returns what to remember. The engine keeps it in the state directory and ships it with
        the log, so that a span of an earlier run reads the same again. Most logs remember nothing.
        """
        return {}

    def resumed(self, memory: Mapping[str, object]) -> None:  # noqa: B027 - most logs remember nothing
        """Read as another engine does that has started the log and remembers this, without a start of its own."""

    @abstractmethod
    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        """The partitions there are now. `offsets` is how far each known one has been read.

        The order in which partitions are first listed breaks ties of event time between them, for good:
        it should depend on their names, not on how much they hold."""

    def recognise(self, identities: Mapping[str, str]) -> None:  # noqa: B027 - most logs know partitions by their ids
        """Called before `start` and `partitions`, with the identities that were kept with the offsets."""

    def identify(self, offsets: Mapping[str, int]) -> Mapping[str, str]:
        """The identities to keep with these offsets: by what the log recognises each partition, as far as it was read,
        and some that the offsets no longer name. Most logs need none."""
        return {}

    def forgettable(self, offsets: Mapping[str, int]) -> Collection[str]:
        """The partitions that are gone and were read to their ends before the offsets of the last `prune`: offsets need
        not name them any more."""
        return ()

    def count_doubts(self) -> int:
        """How often it had to decide by a rule, since the start, what its records do not tell; warnings say what."""
        return 0

    def closed(self) -> bool:
        """Whether no partition will ever be added and all that exist come to an end."""
        return False

    @abstractmethod
    def cut(self, partition: str, start: int, units: int) -> int:
        """The end of a span that starts at `start` and holds about `units`: a record boundary,
        at most `latest`, and beyond `start` whenever there is at least one whole record."""

    @abstractmethod
    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        """The records of a span, in order, in chunks of about `chunk_bytes`."""

    def common_name(self, partition: str) -> str:
        """The name of a partition in every copy of the log: its id, unless other copies have another id for it."""
        return partition

    def known_as(self, partition: str) -> str | None:
        """The name that users know a partition by, where equal names in two copies should mean equal partitions."""
        return None

    def as_copy(self, offsets: Mapping[str, int]) -> tuple[list[Partition], Mapping[str, ExternalError]]:
        """As `partitions`, for one of several copies: the offsets may be beyond what this one has yet. And the
        partitions of which it will never have what comes next, with the reason."""
        return self.partitions(offsets), {}

    def short_of(self, partition: str, offset: int) -> ExternalError | None:
        """The error for one of several copies that has not reached an offset which was read, if no other has either
        and none may ever reach it: the partition may have been reset. None if that cannot be."""
        return None

    def route(self, partition: str) -> int | None:
        """Of a replicated log, the copy from which to read the span that was cut last."""
        return None

    def prune(self, offsets: Mapping[str, int]) -> None:  # noqa: B027 - most logs are not ours to shorten
        """Called when nothing before these offsets will be read again. The log may remove it."""

    def stopped(self) -> None:  # noqa: B027 - most logs run nothing of their own
        """Called when the engine that started this log stops reading it for now."""

    def forsake(self) -> None:  # noqa: B027 - most logs keep nothing for a reader
        """Called when this reader will not return: the log may remove what it retains for it."""

    def settings(self) -> Mapping[str, object]:
        """What distinguishes it from other logs of its class: its arguments, by the names that its user knows.
        They stay the same while the log is read."""
        return {"reads": self.describe()}

    @abstractmethod
    def describe(self) -> str:
        """One line for people: what this log is."""
