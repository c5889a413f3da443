"""`penstock token`: prints the token that a service or a gateway has made for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.engine.job_client import running_state
from penstock.errors import ExternalError
from penstock.state.service_token import FILE, read_service_token, renew_service_token


def token(
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The state directory of the service, or the directory of the gateway.",
            show_default="that of the only running engine",
        ),
    ] = None,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew", help="Replace the token; the former one and its sessions end within a second."
        ),
    ] = False,
    header: Annotated[
        bool,
        typer.Option(
            "--header", help="Print it as the header of a request: penstock token --header | curl -H @- URL."
        ),
    ] = False,
) -> None:
    """Print the token that a service or a gateway without --token-file has made for itself.

    Only the user of the service can read it. Pass it on through a pipe: everybody sees the arguments of a process.
    """
    directory = running_state(state)
    file = directory / FILE
    if not file.exists():
        raise ExternalError(
            "NO_TOKEN",
            f"there is no token in {directory}",
            detail="A service or a gateway makes one when it starts without --token-file and --no-token.",
            hint="Name the directory of one with --state DIR.",
        )
    if renew:
        renew_service_token(directory)
    print(f"{'Authorization: Bearer ' if header else ''}{read_service_token(file)}")
