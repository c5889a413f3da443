"""Adds the dashboard to a service: its pages below `/ui`, on the same port and behind the same gate.

NiceGUI has one application in a process, so only one service of a process can have a dashboard.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from penstock.dashboard.backend import Backend
from penstock.dashboard.login import add_login_pages
from penstock.errors import InternalError
from penstock.server.api import Service
from penstock.server.middleware import PAGES

_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#12263a"/>'
    '<path d="M7 8h18M7 8c0 12 9 8 9 17M16 8c0 9 0 9 0 17M25 8c0 12-9 8-9 17" stroke="#3bc9db" stroke-width="2.4" '
    'fill="none" stroke-linecap="round"/></svg>'
)


def mount_dashboard(service: Service) -> None:
    """Add the dashboard to a service that does not listen yet."""
    from nicegui import core, ui  # takes a second to import: only a service with pages waits for it

    from penstock.dashboard.elasticity import elasticity
    from penstock.dashboard.job import job
    from penstock.dashboard.logs import logs
    from penstock.dashboard.overview import overview
    from penstock.dashboard.recovery import recovery

    if core.app.config.has_run_config:
        raise InternalError("DASHBOARD_TAKEN", "another service of this process has the dashboard")
    backend = Backend(service)
    add_login_pages(service)

    @service.api.get(PAGES, include_in_schema=False)
    async def pages() -> Response:
        return RedirectResponse(f"{PAGES}/", 303)

    @service.api.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(_ICON, media_type="image/svg+xml")

    @ui.page("/")
    def _overview(request: Request) -> None:
        overview(backend, request)

    @ui.page("/jobs/{name}")
    async def _job(request: Request, name: str) -> None:
        await job(backend, request, name)

    @ui.page("/elasticity")
    def _elasticity(request: Request) -> None:
        elasticity(backend, request)

    @ui.page("/recovery")
    def _recovery(request: Request) -> None:
        recovery(backend, request)

    @ui.page("/logs")
    def _logs(request: Request) -> None:
        logs(backend, request)

    ui.run_with(
        service.api,
        mount_path=PAGES,
        title="Penstock",
        favicon=_ICON,
        dark=None,
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=5.0,
    )
    service.has_pages = True
