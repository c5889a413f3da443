"""Signs the requests that coordinators forward to each other, and their responses; verifies both.

A forwarded request carries no token and no cookie of its user, only the user's name. Its header `penstock-forwarded`
says who sends it to whom, for whom, when, with which body and which nonce; `penstock-signature` signs this header, the
method, the address and the headers that the API reads. The response is signed with the signature of its request.

Guarantees: the API sees a forwarded request only if a process with the key of the state directory made it for this
coordinator, at most `_VALID_SECONDS` ago, and once; a forwarded response is relayed only if such a process made it for
this request.
Does not guarantee that bodies are secret: that is what TLS is for.
On failure: `UserError` PEER_NOT_VERIFIED.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

from penstock.coordination.shared_key import SharedKey
from penstock.errors import UserError

FORWARDED, SIGNATURE = b"penstock-forwarded", b"penstock-signature"
#: how much older or newer than this process's clock a request may be
_VALID_SECONDS = 60.0
#: headers that the API reads, of requests and of responses
_SIGNED_OF_REQUEST = (b"accept", b"content-type", b"idempotency-key")
_SIGNED_OF_RESPONSE = (b"content-type", b"penstock-epoch", b"penstock-coordinator")
Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Envelope:
    """What a coordinator says of a request that it forwards; `user`: the name of who sent it there, if it has one."""

    sender: str
    receiver: str
    user: str | None
    role: str
    sent_at: float
    nonce: str
    body_digest: str


@dataclass(frozen=True)
class SignedRequest:
    """A verified request: its envelope, and its signature, with which the response is signed."""

    envelope: Envelope
    signature: str


class PeerRequests:
    """The requests between one coordinator and the others of its state directory."""

    def __init__(self, key: SharedKey, me: str, clock: Callable[[], float] = time.time) -> None:
        self._key, self._me, self._clock = key, me, clock
        #: nonces of valid requests, and when they were sent
        self._seen: dict[str, float] = {}
        #: nonces of what was sent before are not known here
        self._started_at = clock()

    def sign_request(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        receiver: str,
        user: str | None,
        role: str,
    ) -> dict[bytes, bytes]:
        """Return the headers that make a request one of this coordinator."""
        digest = hashlib.sha256(body).hexdigest()
        envelope = Envelope(self._me, receiver, user, role, self._clock(), secrets.token_hex(16), digest)
        forwarded = json.dumps(asdict(envelope)).encode()
        signature = self._key.sign("request", *_parts(forwarded, method, target, dict(headers)))
        return {FORWARDED: forwarded, SIGNATURE: signature.encode()}

    def verify_request(self, method: str, target: bytes, headers: Headers) -> SignedRequest:
        """Verify a request without its body, whose digest is in the envelope."""
        found = dict(headers := list(headers))
        forwarded, signature = found.get(FORWARDED, b""), found.get(SIGNATURE, b"").decode("latin-1")
        is_right = self._key.verifies(signature, "request", *_parts(forwarded, method, target, found))
        if not is_right or any(_count(headers, name) > 1 for name in (FORWARDED, *_SIGNED_OF_REQUEST)):
            raise not_verified("its signature is not made with the key of this state directory")
        envelope = Envelope(**json.loads(forwarded))
        if envelope.receiver != self._me:
            raise not_verified(f"it is for {envelope.receiver}, and this coordinator is {self._me}")
        now = self._clock()
        if abs(now - envelope.sent_at) > _VALID_SECONDS:
            raise not_verified(f"it was sent {now - envelope.sent_at:.0f} s ago by this machine's clock")
        if envelope.sent_at < self._started_at:
            raise not_verified(
                "it was sent before this coordinator started, which may have received it before"
            )
        while self._seen and abs(now - next(iter(self._seen.values()))) > _VALID_SECONDS:  # nearly in order
            del self._seen[next(iter(self._seen))]
        if envelope.nonce in self._seen:
            raise not_verified("it was received before")
        self._seen[envelope.nonce] = envelope.sent_at
        return SignedRequest(envelope, signature)

    def sign_response(self, request: str, status: int, headers: Headers, body: bytes) -> str:
        """Sign the response to the request with this signature."""
        return self._key.sign("response", request, *_response_parts(status, dict(headers), body))

    def verifies_response(
        self, signature: str, request: str, status: int, headers: Headers, body: bytes
    ) -> bool:
        """Whether a response is that of a coordinator to the request with this signature."""
        parts = _response_parts(status, dict(headers), body)
        return self._key.verifies(signature, "response", request, *parts)


def _count(headers: Headers, name: bytes) -> int:
    return sum(one == name for one, _ in headers)


def _parts(forwarded: bytes, method: str, target: bytes, headers: Mapping[bytes, bytes]) -> list[bytes]:
    return [forwarded, method.encode(), target, *(headers.get(name, b"") for name in _SIGNED_OF_REQUEST)]


def _response_parts(status: int, headers: Mapping[bytes, bytes], body: bytes) -> list[bytes]:
    return [b"%d" % status, *(headers.get(name, b"") for name in _SIGNED_OF_RESPONSE), body]


def not_verified(why: str) -> UserError:
    """The error for a request that claims to come from a coordinator."""
    return UserError(
        "PEER_NOT_VERIFIED",
        "a forwarded request does not come from a coordinator of this state directory",
        detail=f"{why[0].upper()}{why[1:]}.",
        hint="Coordinators of one state directory share its file coordinators.key; set the clocks of their hosts.",
    )
