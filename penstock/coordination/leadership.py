"""Leading an HA unit: from the address of a coordination store to a lease, and back.

Receives the address, the unit's name and what its state directory has seen; hands the lease of whoever is to write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from penstock.coordination.address import store_at
from penstock.coordination.contract import TIMEOUT_SECONDS
from penstock.coordination.lease import Lease, acquire
from penstock.errors import ExternalError

#: how long a candidate waits before it looks whether it is still wanted
_PATIENCE_SECONDS = 0.5


def office(unit: str) -> str:
    """Where the record of a unit's leader lies."""
    return f"units/{unit}/leader"


@contextlib.contextmanager
def leading(
    address: str,
    unit: str,
    *,
    above: Callable[[], int],
    session_seconds: float = TIMEOUT_SECONDS,
    wanted: Callable[[], bool] = lambda: True,
) -> Iterator[Lease | None]:
    """Lead a unit for the length of a block; waits until no other does. None when it is no longer `wanted`."""
    store = store_at(address)
    try:
        while wanted():
            session = store.session(session_seconds)
            try:
                lease = None
                while lease is None and wanted() and session.held():
                    lease = acquire(store, office(unit), session, above=above, seconds=_PATIENCE_SECONDS)
                if lease is None:
                    continue  # our own session ended while we waited
                yield lease
                if lease.held():
                    with contextlib.suppress(ExternalError):
                        lease.resign()
                return
            finally:
                session.close()
        yield None
    finally:
        store.close()
