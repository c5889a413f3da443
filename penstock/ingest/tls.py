"""Creates TLS contexts: the gateway presents a certificate, agents verify its authority and host.

Receives files in PEM; returns contexts of the standard library's `ssl`. Loaded only where TLS is used: an agent
without it does not load the library.
"""

from __future__ import annotations

import ssl

from penstock.errors import UserError


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Create the context of a gateway: TLS 1.2 or later with a certificate (and its chain) and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # connections are few and long
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise UserError(
            "BAD_CERTIFICATE",
            f"{certificate} and {key} are not a certificate and its key",
            detail=str(error),
            hint="Use PEM for both, and a key without password.",
        ) from None
    return context


def client_context(authorities: str | None) -> ssl.SSLContext:
    """Create the context of an agent: trust the authorities in a file, or the system's without one."""
    try:
        context = ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise UserError(
            "BAD_CERTIFICATE",
            f"{authorities} has no certificates",
            detail=str(error),
            hint="Use PEM: the certificate of the authority, or the gateway's own if it is self-signed.",
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
