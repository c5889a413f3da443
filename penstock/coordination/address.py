"""Opens a coordination store by its address: a directory, or `zk://host:port,host:port/root`."""

from __future__ import annotations

from penstock.coordination.contract import Store
from penstock.coordination.files import FileStore
from penstock.errors import UserError


def open_store(address: str) -> Store:
    """Open the store at an address."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return FileStore(address)
    if scheme == "file":
        return FileStore(rest)
    if scheme != "zk":
        raise UserError(
            "BAD_ADDRESS",
            f"{address!r} is no coordination store",
            hint="Name a directory, or zk://host:port/root for a ZooKeeper.",
        )
    if "@" in rest:
        raise UserError(
            "BAD_ADDRESS",
            "an address of a coordination store has no user and no password",
            hint='Put them into a file that only you can read, as user = "..." and password = "...", and name it in '
            "PENSTOCK_ZOOKEEPER_FILE.",
        )
    try:
        from penstock.coordination.zookeeper import ZooKeeperStore  # only ZooKeeper needs kazoo
        from penstock.coordination.zookeeper_options import zookeeper_options
    except ImportError as failure:
        raise UserError(
            "MISSING_PACKAGE",
            "a coordination store on ZooKeeper needs the package kazoo",
            hint="pip install 'penstock[zookeeper]', or name a directory that all engines share.",
        ) from failure
    return ZooKeeperStore(rest, options=zookeeper_options())
