"""Keeps the secret with which the processes of a local cluster and its drivers authenticate each other.

    DIR/spark.conf                        settings of Spark with the secret, for the cluster in DIR
    TMPDIR/penstock-UID/spark-PORT.conf   a link to it, by which drivers find it that know only the master's address

Guarantees: the secret is in files that only their user can read. It is in no argument of a process: Spark reads the
file, gives the secret to executors in their environment, and redacts it where it shows settings.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from pathlib import Path

from penstock.state.durable import make_private, write_whole
from penstock.state.private import check_private

FILE = "spark.conf"
_MASTER = re.compile(r"spark://127\.0\.0\.1:(\d+)")


def write_secret(directory: Path) -> Path:
    """Write settings with a new secret for a cluster; returns the file."""
    file = directory / FILE
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
        "spark.ui.killEnabled": "false",  # the pages of master and workers authenticate nobody
    }
    write_whole(file, "".join(f"{key} {value}\n" for key, value in settings.items()).encode())
    return file


def publish_secret(directory: Path, port: int) -> None:
    """Let drivers of this user find the secret by the port of the cluster's master."""
    link = _link(port)
    link.unlink(missing_ok=True)
    link.symlink_to(directory.resolve() / FILE)


def remove_secret(directory: Path, port: int | None) -> None:
    """Remove what was written for a cluster that is gone."""
    if (
        port is not None
        and (link := _link(port)).is_symlink()
        and link.readlink() == directory.resolve() / FILE
    ):
        link.unlink(missing_ok=True)
    (directory / FILE).unlink(missing_ok=True)


def find_secret(master: str) -> Path | None:
    """The settings with the secret of a master; None if Penstock has not started it."""
    match = _MASTER.fullmatch(master)
    if match is None or not (link := _link(int(match[1]))).exists():
        return None
    return link.resolve()


def _link(port: int) -> Path:
    folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    make_private(folder, durable=False)
    check_private(folder)
    return folder / f"spark-{port}.conf"
