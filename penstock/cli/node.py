"""`penstock ha node`: a host on which the engines of HA units are started."""

from __future__ import annotations

import signal
import socket
import threading
from types import FrameType
from typing import Annotated

import typer

from penstock.coordination.address import open_store
from penstock.ha.nodes import Node


def node(
    coordination: Annotated[
        str, typer.Option(help="The coordination store of the units: a directory, or zk://host:port/root.")
    ],
    name: Annotated[str, typer.Option(help="The node's name.", show_default="the host's")] = "",
) -> None:
    """Start engines of HA units on this host, as their coordinators ask, until Ctrl-C. Engines that were started go on.

    Whoever can write to the store can have any app of the shared file system run here.
    """
    store = open_store(coordination)
    one = Node(store, name or socket.gethostname(), tell=lambda line: print(line, flush=True))
    if threading.current_thread() is threading.main_thread():

        def received(number: int, frame: FrameType | None) -> None:
            one.stop()

        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, received)
    print(f"node {one.name}, coordination store {store.describe()}", flush=True)
    try:
        one.run()
    finally:
        store.close()
