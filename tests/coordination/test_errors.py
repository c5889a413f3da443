"""Errors of coordination stores: a missing package, a damaged record."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.coordination.address import open_store
from penstock.coordination.files import FileStore
from penstock.coordination.lease import acquire, read_lease
from penstock.errors import InternalError, UserError


def test_a_store_on_zookeeper_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.coordination.zookeeper", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(UserError, match=r"MISSING_PACKAGE.*penstock\[zookeeper\]"):
        open_store("zk://127.0.0.1:1/penstock")


@pytest.mark.parametrize("record", [b"no JSON", b"[]", b'{"generation": "many", "session": null}'])
def test_an_unreadable_lease_record_is_reported(record: bytes, tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.create("office", record)
    session = store.start_session(60.0)
    for attempt in (lambda: read_lease(store, "office"), lambda: acquire(store, "office", session)):
        with pytest.raises(InternalError, match="LEASE_DAMAGED"):
            attempt()
    session.close()
