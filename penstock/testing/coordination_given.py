"""What tests of a coordination store are given: the store, the same store as another process opens it, a path nobody
uses, and processes that can be killed.

Receives an address that `opened` turns into a store, also in other processes; hands fixtures to pytest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from penstock.coordination.contract import Store
from penstock.testing.coordination_children import Child

#: a session that ends only when it is closed
LONG_SECONDS = 30.0


class StoreGiven:
    """Fixtures; who inherits them defines `opened` and the fixture `address`."""

    @staticmethod
    def opened(address: str) -> Store:
        """A store object of its own."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, address: str) -> Iterator[Store]:
        store = self.opened(address)
        yield store
        store.close()

    @pytest.fixture
    def other(self, address: str) -> Iterator[Store]:
        """The same store, as another process would open it."""
        store = self.opened(address)
        yield store
        store.close()

    @pytest.fixture
    def path(self) -> str:
        """A path nobody else uses."""
        return f"test/{uuid.uuid4().hex}"

    @pytest.fixture
    def child(self, address: str) -> Iterator[Callable[..., Child]]:
        """Starts processes that do something with the store; they are killed at the end."""
        begun: list[Child] = []

        def begin(work: Callable[..., None], *arguments: object) -> Child:
            begun.append(Child(work, self.opened, address, *arguments))
            return begun[-1]

        yield begin
        for process in begun:
            process.kill()
