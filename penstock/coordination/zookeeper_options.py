"""Reads how to authenticate at a ZooKeeper and to encrypt, from the file that PENSTOCK_ZOOKEEPER_FILE names.

    user = "penstock"
    password = "..."
    mechanism = "DIGEST-MD5"      # with SASL; without it, ZooKeeper's own digest authentication
    ca = "/etc/penstock/ca.pem"   # TLS: what the server's certificate must be signed by
    certificate = "..."           # of this client, if the server requires one, and its key
    key = "..."

All are optional. Neither a password nor a path is part of an address, because addresses are options of processes and
records of HA units. Processes that an engine starts inherit the variable.

Guarantees: only the owner can read the file. With a user or a certificate, every node is created for its user alone.
On failure: `UserError` BAD_ZOOKEEPER_FILE, MISSING_PACKAGE; those of `token_file`.
"""

from __future__ import annotations

import importlib.util
import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kazoo.security import CREATOR_ALL_ACL

from penstock.errors import UserError
from penstock.token_file import read_private_file

VARIABLE = "PENSTOCK_ZOOKEEPER_FILE"


@dataclass(frozen=True)
class ZooKeeperOptions:
    """How to connect to a ZooKeeper."""

    user: str | None = None
    password: str | None = None
    mechanism: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    @property
    def authenticates(self) -> bool:
        """Whether the server knows who this client is, so that nodes can be its own."""
        return self.user is not None or self.mechanism is not None or self.certificate is not None

    def arguments(self) -> dict[str, Any]:
        """The arguments of a kazoo client."""
        chosen: dict[str, Any] = {}
        if self.authenticates:
            chosen["default_acl"] = CREATOR_ALL_ACL
        if self.mechanism is not None:
            secret = {"username": self.user, "password": self.password} if self.user else {}
            chosen["sasl_options"] = {"mechanism": self.mechanism, **secret}
        elif self.user is not None:
            chosen["auth_data"] = [("digest", f"{self.user}:{self.password}")]
        if self.ca is not None:
            chosen |= {"use_ssl": True, "verify_certs": True, "check_hostname": True, "ca": self.ca}
            chosen |= {"certfile": self.certificate, "keyfile": self.key}
        return chosen


def zookeeper_options() -> ZooKeeperOptions:
    """The options that the environment names; none if it names no file."""
    name = os.environ.get(VARIABLE)
    return ZooKeeperOptions() if not name else read_options(Path(name))


def read_options(file: Path) -> ZooKeeperOptions:
    """Read and check a file of options."""
    try:
        content = tomllib.loads(read_private_file(file))
    except tomllib.TOMLDecodeError as failure:
        raise _bad_file(file, f"It is not TOML: {failure}.") from failure
    known = {field.name for field in fields(ZooKeeperOptions)}
    for name, value in content.items():
        if name not in known or not isinstance(value, str) or not value:
            raise _bad_file(file, f"{name} is not one of the options {', '.join(sorted(known))} with a text.")
    options = ZooKeeperOptions(**content)
    if (options.user is None) != (options.password is None):
        raise _bad_file(file, "user and password belong together.")
    if (options.certificate is None) != (options.key is None):
        raise _bad_file(file, "certificate and key belong together.")
    if options.ca is None and options.certificate is not None:
        raise _bad_file(file, "A certificate needs ca: that by which the server's certificate is verified.")
    for path in filter(None, (options.ca, options.certificate, options.key)):
        if not os.access(path, os.R_OK):
            raise _bad_file(file, f"{path} cannot be read.")
    if options.mechanism is not None and importlib.util.find_spec("puresasl") is None:
        raise UserError(
            "MISSING_PACKAGE",
            "SASL authentication at a ZooKeeper needs the package pure-sasl",
            hint="pip install 'kazoo[sasl]', or leave mechanism out for digest authentication.",
        )
    return options


def _bad_file(file: Path, why: str) -> UserError:
    return UserError(
        "BAD_ZOOKEEPER_FILE",
        f"the file {file} that {VARIABLE} names cannot be used",
        detail=why,
        hint='As in: user = "penstock", password = "...", ca = "/etc/penstock/ca.pem", one in each line.',
    )
