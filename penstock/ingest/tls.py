"""TLS between agents and the gateway: the gateway shows a certificate, agents check who signed it and for whom.

Receives files in PEM; hands contexts of the standard library's `ssl`. Loaded only where TLS is asked for: an agent
without it does not carry its weight.
"""

from __future__ import annotations

import ssl

from penstock.errors import UserError


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """For a gateway: TLS 1.2 or later with a certificate (and those that lead to its authority) and its key."""
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
            hint="Both in PEM, the key without a password.",
        ) from None
    return context


def client_context(authorities: str | None) -> ssl.SSLContext:
    """For an agent: believes who is signed by the authorities in a file, or by the system's without one."""
    try:
        context = ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise UserError(
            "BAD_CERTIFICATE",
            f"{authorities} holds no certificates",
            detail=str(error),
            hint="In PEM: that of the authority, or the gateway's own if it signed itself.",
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
