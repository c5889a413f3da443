"""Leads an HA unit: acquires its lease in a coordination store, and resigns.

Receives the store's address, the unit's name and the newest generation of its state directory; returns the lease.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from penstock.coordination.address import open_store
from penstock.coordination.contract import TIMEOUT_SECONDS
from penstock.coordination.lease import Lease, acquire
from penstock.errors import ExternalError

#: how long a candidate waits before it checks whether it is still wanted
_ACQUIRE_SECONDS = 0.5


def leader_lease_path(unit: str) -> str:
    """The path of the lease of a unit's leader."""
    return f"units/{unit}/leader"


@contextlib.contextmanager
def lead_unit(
    address: str,
    unit: str,
    *,
    above: Callable[[], int],
    session_seconds: float = TIMEOUT_SECONDS,
    wanted: Callable[[], bool] = lambda: True,
) -> Iterator[Lease | None]:
    """Lead a unit during a `with` block; waits until no other engine leads. None when it is no longer `wanted`."""
    store = open_store(address)
    try:
        while wanted():
            session = store.start_session(session_seconds)
            try:
                lease = None
                while lease is None and wanted() and session.is_held():
                    lease = acquire(
                        store, leader_lease_path(unit), session, above=above, seconds=_ACQUIRE_SECONDS
                    )
                if lease is None:
                    continue  # our own session ended while we waited
                yield lease
                if lease.is_held():
                    with contextlib.suppress(ExternalError):
                        lease.resign()
                return
            finally:
                session.close()
        yield None
    finally:
        store.close()
