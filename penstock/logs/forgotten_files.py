"""Remembers files of which all was read, in a few bytes each, so that they are not read again: those that are gone and
forgotten and may come back, and copies that were left out.

A fingerprint stands for a name and a text: its length, its first and its last bytes. Offsets keep all of them as one
text, under a name that no partition has.

Guarantees: the newest `MOST_FORGOTTEN` are recognised, compressed or not, if nothing was added to them. Their names may
differ in the number that a rotation adds.
Does not guarantee: anything of older ones, or of one that has grown meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable
from hashlib import blake2b

from penstock.logs.file_identity import Identity

#: where the identities of a stream keep the fingerprints
KEY = "*"
#: how many files are recognised, after those whose whole identity is kept
MOST_FORGOTTEN = 2_000
#: the size of a fingerprint: one new file in a billion is like one of them by chance
_BYTES = 5


class ForgottenFiles:
    """The fingerprints of files, oldest first."""

    def __init__(self, text: str = "") -> None:
        try:
            raw = base64.b64decode(text, validate=True)
        except binascii.Error:
            raw = b""
        found = (raw[at : at + _BYTES] for at in range(0, len(raw), _BYTES))
        self._fingerprints = dict.fromkeys(one for one in found if len(one) == _BYTES)
        self._text: str | None = None

    def add(self, identities: Iterable[Identity]) -> None:
        """Remember files; forget the oldest ones for them."""
        for identity in identities:
            fingerprint = _fingerprint(identity)
            self._fingerprints.pop(fingerprint, None)
            self._fingerprints[fingerprint] = None
            self._text = None
        for oldest in list(self._fingerprints)[:-MOST_FORGOTTEN] if self._text is None else ():
            del self._fingerprints[oldest]

    def has(self, identity: Identity) -> bool:
        """Whether a file with this content was forgotten. One with little content may be another."""
        return not identity.is_weak and _fingerprint(identity) in self._fingerprints

    def to_text(self, also: Iterable[Identity] = ()) -> str:
        """The form in which offsets keep them, and some more; empty if there are none."""
        more = b"".join(_fingerprint(identity) for identity in also)
        if self._text is None or more:
            self._text = base64.b64encode(b"".join(self._fingerprints) + more).decode()
        text, self._text = self._text, None if more else self._text
        return text


def _fingerprint(identity: Identity) -> bytes:
    name = re.sub(r"(\.\d+)?(\.gz)?$", "", os.path.basename(identity.path), count=1)
    facts = f"{identity.length} {identity.prefix.crc} {identity.edge_crc} {name}"
    return blake2b(facts.encode(errors="surrogateescape"), digest_size=_BYTES).digest()
