"""A certificate for 127.0.0.1, which openssl makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from penstock.server.http_server import Tls


def make_certificate(folder: Path) -> Tls:
    """Make a certificate and its key in a folder."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return Tls(folder / "cert.pem", folder / "key.pem")
