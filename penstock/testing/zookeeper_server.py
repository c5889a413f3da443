"""Start a real ZooKeeper on the loopback interface for tests, from the Debian package `zookeeper`.

With a PEM file of a certificate and its key it listens for TLS too, and requires a client's certificate that is signed
by the same.

Guarantees: after a stop or a kill it restarts with its data.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.spark.java import java_home
from penstock.testing.ports import free_port

_JAR = Path(os.environ.get("PENSTOCK_ZOOKEEPER_JAR", "/usr/share/java/zookeeper.jar"))
#: TLS needs more of netty than Debian's jar names
_CLASS_PATH = os.pathsep.join(
    str(_JAR.with_name(f"{name}.jar")) for name in (_JAR.stem, "netty-codec", "netty-resolver")
)
_START_SECONDS = 60.0
_CONFIGURATION = """\
dataDir={folder}/data
clientPort={port}
clientPortAddress={address}
tickTime=200
minSessionTimeout=400
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
"""
_TLS = """\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPort={port}
secureClientPortAddress={address}
ssl.keyStore.location={pem}
ssl.keyStore.type=PEM
ssl.trustStore.location={pem}
ssl.trustStore.type=PEM
"""


def why_not() -> str | None:
    """Why no ZooKeeper can be started here; None when one can."""
    if not _JAR.exists():
        return f"ZooKeeper is not installed: there is no {_JAR} (Debian: apt-get install zookeeper)"
    return None


class ZooKeeperServer:
    """A server in an empty folder, on the loopback address or another one of this machine. To be stopped at the end."""

    def __init__(
        self,
        folder: Path,
        address: str = "127.0.0.1",
        *,
        tls: Path | None = None,
        settings: str = "",
        java_options: Sequence[str] = (),
    ) -> None:
        self._folder, self._address = folder, address
        self._port, self._tls_port = free_port(address), free_port(address)
        self._java_options = java_options
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        text = _CONFIGURATION.format(folder=folder, port=self._port, address=address) + settings
        if tls is not None:
            text += _TLS.format(port=self._tls_port, address=address, pem=tls)
        (folder / "zoo.cfg").write_text(text)

    @property
    def hosts(self) -> str:
        """The server's `address:port`."""
        return f"{self._address}:{self._port}"

    @property
    def tls_hosts(self) -> str:
        """The server's `address:port` for TLS."""
        return f"{self._address}:{self._tls_port}"

    @property
    def pid(self) -> int:
        """The id of its process, for tests that pause it."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        java = shutil.which("java") or f"{java_home()}/bin/java"
        options = ["-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    java,
                    *options,
                    *self._java_options,
                    "-cp",
                    _CLASS_PATH,
                    main,
                    str(self._folder / "zoo.cfg"),
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError((self._folder / "server.log").read_text()[-2000:])
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill it, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self._address, self._port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.makefile("rb").read()
        except OSError:
            return False
