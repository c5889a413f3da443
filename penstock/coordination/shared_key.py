"""Signs what the coordinators of one state directory tell each other, with a secret that lies in that directory.

    STATE/coordinators.key   a random secret, made by the first coordinator; only its owner can read it

A coordinator reads the state directory anyway, so there is nothing to configure. Whoever can write the coordination
store, the network or another coordinator's former port does not have the secret.

Guarantees: only a process that can read the file makes a signature that `verifies` accepts; signatures are compared in
constant time, and parts cannot be shifted into each other.
Does not guarantee that a signed text is new: who needs that signs a nonce.
On failure: those of `token_file`.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from penstock.state.durable import write_once
from penstock.token_file import token_in

KEY_FILE = "coordinators.key"


class SharedKey:
    """The secret of a state directory."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, *parts: str | bytes) -> str:
        """Sign some parts for a purpose: a signature for another purpose or with other parts is another one."""
        mac = hmac.new(self._secret, digestmod="sha256")
        for part in (purpose, *parts):
            content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
            mac.update(b"%d:" % len(content) + content)
        return mac.hexdigest()

    def verifies(self, signature: str, purpose: str, *parts: str | bytes) -> bool:
        """Whether the signature is the one that `sign` makes."""
        return hmac.compare_digest(
            self.sign(purpose, *parts).encode(), signature.encode("utf-8", "surrogateescape")
        )


def shared_key(state: Path) -> SharedKey:
    """The key of a state directory, made if there is none; of several processes that make one, one does."""
    file = state / KEY_FILE
    if not file.exists():
        write_once(file, secrets.token_hex(32).encode())
    return SharedKey(token_in(file).encode())
