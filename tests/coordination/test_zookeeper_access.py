"""A ZooKeeper that is shared with others: nodes are the store's own, and connections are encrypted and verified."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from penstock.coordination.address import open_store
from penstock.coordination.contract import Store
from penstock.coordination.lease import acquire
from penstock.coordination.zookeeper import ZooKeeperStore
from penstock.coordination.zookeeper_options import VARIABLE, ZooKeeperOptions, read_options
from penstock.errors import PenstockError
from penstock.testing.zookeeper_server import ZooKeeperServer, why_not

process = pytest.mark.process
DIGEST = 'user = "penstock"\npassword = "a password"\n'


def _options_file(folder: Path, text: str) -> Path:
    file = folder / "zookeeper.toml"
    file.touch(mode=0o600)
    file.write_text(text)
    return file


def _condition(text: str, folder: Path) -> str:
    with pytest.raises(PenstockError) as refused:
        read_options(_options_file(folder, text))
    return refused.value.condition


@pytest.fixture
def store(zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv(VARIABLE, str(_options_file(tmp_path, DIGEST)))
    store = open_store(f"zk://{zookeeper.hosts}/{tmp_path.name}/deep")
    yield store
    store.close()


def _all_nodes(client: KazooClient, node: str) -> list[str]:
    below = [f"{node}/{name}" for name in client.get_children(node)]
    return [node, *(found for one in below for found in _all_nodes(client, one))]


@process
def test_another_client_can_neither_read_nor_write_nor_remove_anything(
    store: Store, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    session = store.start_session(30.0)
    assert store.create("units/clicks/plan", b"secret") == 0
    assert session.join("members/all", "one", b"facts")
    assert acquire(store, "units/clicks/leader", session, seconds=30) is not None
    other, owner = KazooClient(zookeeper.hosts), KazooClient(zookeeper.hosts)
    other.start(timeout=60)
    other.add_auth("digest", "penstock:another password")
    owner.start(timeout=60)
    owner.add_auth("digest", "penstock:a password")
    try:
        nodes = _all_nodes(owner, f"/{tmp_path.name}")
        assert len(nodes) > 10
        for node in nodes:
            for attempt in (
                lambda node=node: other.get(node),
                lambda node=node: other.get_children(node),
                lambda node=node: other.set(node, b"forged"),
                lambda node=node: other.create(f"{node}/forged", b""),
                lambda node=node: other.set_acls(node, OPEN_ACL_UNSAFE),
            ):
                with pytest.raises(NoAuthError):
                    attempt()
            if node.count("/") > 1:
                with pytest.raises(NoAuthError):
                    other.delete(node)
    finally:
        for client in (other, owner):
            client.stop()
            client.close()
    found = store.get("units/clicks/plan")
    assert found is not None
    assert found.value == b"secret"
    session.close()


@process
def test_another_user_is_told_that_the_store_refuses_it(
    store: Store, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    hosts = f"{zookeeper.hosts}/{tmp_path.name}/deep"
    with pytest.raises(PenstockError) as refused:
        ZooKeeperStore(hosts, options=ZooKeeperOptions(user="penstock", password="a wrong word"))
    assert refused.value.condition == "STORE_REFUSED"
    assert "a wrong word" not in refused.value.text()
    store.create("units/clicks/plan", b"secret")
    nobody = ZooKeeperStore(hosts)
    with pytest.raises(PenstockError) as refused:
        nobody.get("units/clicks/plan")
    assert refused.value.condition == "STORE_REFUSED"
    nobody.close()


@process
def test_a_root_that_everybody_can_use_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    hosts = f"{zookeeper.hosts}/{tmp_path.name}"
    ZooKeeperStore(hosts).create("a", b"1")
    with pytest.raises(PenstockError) as refused:
        ZooKeeperStore(hosts, options=ZooKeeperOptions(user="penstock", password="a password"))
    assert refused.value.condition == "STORE_OPEN"
    assert "setAcl -R" in refused.value.text()


def _certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate for the loopback address, in one file with its key."""
    file = folder / f"{name}.pem"
    options = [
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        f"{file}.key",
        "-out",
        str(file),
    ]
    subprocess.run(
        ["openssl", "req", *options, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    both = folder / f"{name}-both.pem"
    both.write_text(Path(f"{file}.key").read_text() + file.read_text())
    return both


@process
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_connections_are_encrypted_and_both_sides_show_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    ours, other = _certificate(tmp_path, "ours"), _certificate(tmp_path, "other")
    server = ZooKeeperServer(
        tmp_path / "zookeeper",
        tls=ours,
        settings="authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n",
    )
    server.start()
    try:
        text = f'ca = "{ours}"\ncertificate = "{ours}"\nkey = "{ours}"\n'
        monkeypatch.setenv(VARIABLE, str(_options_file(tmp_path, text)))
        store = open_store(f"zk://{server.tls_hosts}/penstock")
        session = store.start_session(30.0)
        assert acquire(store, "leader", session, seconds=30) is not None
        without = ZooKeeperStore(f"{server.hosts}/penstock")
        with pytest.raises(PenstockError, match="STORE_REFUSED"):
            without.get("leader")
        session.close()
        for one in (without, store):
            one.close()
        for wrong in (
            ZooKeeperOptions(ca=str(other), certificate=str(ours), key=str(ours)),
            ZooKeeperOptions(ca=str(ours), certificate=str(other), key=str(other)),
            ZooKeeperOptions(ca=str(ours)),
        ):
            with pytest.raises(PenstockError, match="STORE_UNAVAILABLE"):
                ZooKeeperStore(f"{server.tls_hosts}/penstock", options=wrong, answer_seconds=3.0)
    finally:
        server.stop()


_JAAS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_penstock="a password";
};
"""


@process
@pytest.mark.slow
@pytest.mark.may_skip("pure-sasl, which is not locked")
def test_a_client_authenticates_by_sasl(tmp_path: Path) -> None:
    pytest.importorskip("puresasl", reason="pip install 'kazoo[sasl]'")
    if reason := why_not():
        pytest.skip(reason)
    (tmp_path / "jaas").write_text(_JAAS)
    server = ZooKeeperServer(
        tmp_path / "zookeeper",
        settings="authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n",
        java_options=[f"-Djava.security.auth.login.config={tmp_path / 'jaas'}"],
    )
    server.start()
    try:
        options = read_options(_options_file(tmp_path, f'{DIGEST}mechanism = "DIGEST-MD5"\n'))
        store, other = ZooKeeperStore(server.hosts, options=options), ZooKeeperStore(server.hosts)
        assert store.create("a", b"1") == 0
        with pytest.raises(PenstockError, match="STORE_REFUSED"):
            other.get("a")
        for one in (store, other):
            one.close()
    finally:
        server.stop()


def test_options_are_read_from_a_private_file_alone(tmp_path: Path) -> None:
    assert read_options(_options_file(tmp_path, DIGEST)).user == "penstock"
    (tmp_path / "zookeeper.toml").chmod(0o640)
    assert _condition(DIGEST, tmp_path) == "TOKEN_FILE_OPEN"


@pytest.mark.parametrize(
    "text",
    [
        'user = "penstock"',
        'password = "a password"',
        "user = 1",
        'colour = "red"',
        'user = "',
        'certificate = "a.pem"\nkey = "a.key"',
        'ca = "/does/not/exist.pem"',
    ],
)
def test_options_that_cannot_be_used_are_refused(tmp_path: Path, text: str) -> None:
    assert _condition(text, tmp_path) == "BAD_ZOOKEEPER_FILE"


def test_an_address_has_no_password() -> None:
    with pytest.raises(PenstockError) as refused:
        open_store("zk://penstock:secret@127.0.0.1:1/penstock")
    assert refused.value.condition == "BAD_ADDRESS"
    assert "secret" not in refused.value.text()
