"""Make the program of what a file defines: an app, or a declaration of jobs."""

from __future__ import annotations

from pathlib import Path

from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.jobs_app import JobsApp
from penstock.catalogue.program import Program
from penstock.query.logical import App


def program_of(
    app: App | AppPlan | JobsApp,
    state: Path,
    *,
    follows: bool = False,
    shared: bool = False,
) -> Program:
    """The program of an app, or of jobs, on a state directory. `follows`: another process executes the epochs;
    `shared`: other processes accept commands too."""
    if isinstance(app, JobsApp):
        return app.on(state, follows=follows, shared=shared)
    plan = AppPlan.of(app) if isinstance(app, App) else app
    return Program(plan.plan.name, state, app=plan, follows=follows, shared=shared)
