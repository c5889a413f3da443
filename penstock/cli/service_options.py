"""Turns the options of a service into a server: address, token, certificate, limits; joins other coordinators."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.catalogue.coordinators import Coordinator, Coordinators
from penstock.catalogue.jobs_app import JobsApp
from penstock.catalogue.master_placement import Roster
from penstock.cli.dashboard_address import dashboard_address
from penstock.coordination.address import open_store
from penstock.coordination.shared_key import shared_key
from penstock.errors import PenstockError, UserError
from penstock.query.logical import App
from penstock.server.api import Service
from penstock.server.audit import FILE
from penstock.server.host import Host
from penstock.server.http_server import Server, Tls
from penstock.server.limits import Limits
from penstock.server.middleware import PAGES
from penstock.server.peer_requests import PeerRequests
from penstock.server.security import check_token_for_address, is_loopback, parse_address
from penstock.server.statement_guard import StatementGuard
from penstock.server.structured_log import log
from penstock.server.tokens import Tokens
from penstock.state.directory import StateDirectory


@dataclass(frozen=True)
class Door:
    """Where a service listens and which requests it accepts."""

    host: str
    port: int
    tokens: Tokens | None
    tls: Tls | None
    limits: Limits
    #: whether requests need no token; else a service without a token file makes one for itself
    no_token: bool = False

    @staticmethod
    def of(
        listen: str,
        token_file: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        rate: float,
        subscribers: int,
        no_token: bool = False,
    ) -> Door:
        """The door that options describe."""
        host, port = parse_address(listen)
        if no_token and token_file is not None:
            raise UserError(
                "BAD_OPTION", "--token-file and --no-token exclude each other", hint="Leave one out."
            )
        tokens = None if token_file is None else Tokens.of_file(token_file)
        check_token_for_address(host, tokens)
        limits = Limits(
            requests_per_second=rate,
            request_burst=max(1, round(2 * rate)),
            subscribers=subscribers,
            connections=max(Limits.connections, 2 * subscribers),
        )
        return Door(host, port, tokens, _check_tls(tls_cert, tls_key), limits, no_token)

    def server(
        self, hosted: Host, pages: Callable[[Service], None] | None = None, audit_file: str = FILE
    ) -> Server:
        """A server of a host, at this door; `pages` adds the dashboard to the API."""
        tokens = self.tokens
        if tokens is None and not self.no_token:
            tokens = own_tokens(hosted.state)
        service = Service(hosted, self.limits, tokens, audit_file)
        if pages is not None:
            pages(service)
        return Server(service, self.host, self.port, self.tls)

    def warn(self) -> None:
        """Warn about what others could read on the network."""
        if self.tls is None and not is_loopback(self.host):
            log("token and rows travel unencrypted; --tls-cert and --tls-key give https", logging.WARNING)
        if self.no_token:
            log("--no-token: every user and program of this machine may administer", logging.WARNING)


@dataclass(frozen=True)
class ServiceSettings:
    """What a service serves, and where."""

    app: App | JobsApp
    state: Path
    door: Door
    guard: StatementGuard
    #: adds the dashboard to the API, if it is served
    pages: Callable[[Service], None] | None = None
    for_seconds: float | None = None
    #: the coordination store at which it shares the management of jobs, if any, and its name there
    coordination: str | None = None
    name: str | None = None

    def log_listening(self, server: Server) -> None:
        dashboard = None if self.pages is None else f"{server.url}{PAGES}/"
        facts = token_facts(server.service.tokens)
        log("listening", url=server.url, dashboard=dashboard, state=str(self.state), **facts)
        if dashboard is not None and sys.stdout.isatty():
            print(f"dashboard: {dashboard_address(server, on_terminal=True)}", flush=True)
        self.door.warn()


def own_tokens(state: Path) -> Tokens:
    """The token that a service makes for itself, in a state directory."""
    StateDirectory(state).read_facts()  # refuses a foreign directory before a file is left in it
    return Tokens.of_directory(state)


def token_facts(tokens: Tokens | None) -> dict[str, Any]:
    """What a log says of tokens: whether requests need one, and where that of the service itself is."""
    file = None if tokens is None or not tokens.is_own else str(tokens.file)
    return {"token": tokens is not None, **({} if file is None else {"token_file": file})}


@contextlib.contextmanager
def join_coordinators(
    where: str, server: Server, hosted: Host, me: Coordinator, door: Door
) -> Iterator[Coordinators]:
    """Be one of the coordinators at a coordination store, within a `with` block."""
    jobs = hosted.program

    def log_change(before: Roster, after: Roster) -> None:
        names = list(jobs.catalogue.jobs)
        log(
            "coordinators",
            alive=sorted(after.others | {after.me}),
            carried=len(after.managed_jobs(names)),
            taken_over=after.gained_jobs(before, names)[:100],
        )

    def log_problem(error: PenstockError) -> None:
        log("coordination store", logging.WARNING, condition=error.condition, error=error.text())

    facts = StateDirectory(hosted.state).read_existing_facts()
    key = shared_key(hosted.state)
    coordinators = Coordinators(open_store(where), facts.id, me, key, watcher=log_change, problem=log_problem)
    with coordinators:
        jobs.questions.show_managers(lambda job: coordinators.roster.manager_of(job))
        hosted.peers = coordinators
        server.service.share_jobs(
            coordinators, PeerRequests(key, me.name), None if door.tls is None else door.tls.certificate
        )
        yield coordinators


def _check_tls(certificate: Path | None, key: Path | None) -> Tls | None:
    if certificate is None and key is None:
        return None
    for path in (certificate, key):
        if path is None or not path.is_file():
            raise UserError(
                "BAD_OPTION", "https needs --tls-cert and --tls-key", detail=f"There is no file {path}."
            )
    assert certificate is not None
    assert key is not None
    return Tls(certificate, key)
