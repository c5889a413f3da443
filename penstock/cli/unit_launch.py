"""Turns the options of `run --ha` and `serve --ha` into the description of how a unit's engines start (`Launch`)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.catalogue.jobs_app import JobsApp
from penstock.cli.options import LIMITS, as_interval, as_seconds
from penstock.errors import UserError
from penstock.ha.cost import weights_of
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme, Semantics
from penstock.ha.unit import unit_name
from penstock.query.logical import App
from penstock.settings import Settings
from penstock.state.directory import SHARED


@dataclass(frozen=True)
class UnitOptions:
    """The options of a unit, as text."""

    scheme: Scheme | None = None
    coordination: str | None = None
    lease_timeout: str = "2s"
    straggler_time: str = "5s"
    recovery_time: str | None = None
    cost: str | None = None
    semantics: Semantics = Semantics.precise
    checkpoint_every: str = "1"

    def check(self) -> None:
        """Refuse options that contradict each other."""
        every = as_interval(self.checkpoint_every)
        as_seconds(self.lease_timeout, "--lease-timeout")
        if self.recovery_time is None and (self.cost is not None or every is None):
            raise UserError(
                "BAD_OPTION",
                "--cost and --checkpoint-every auto are for the controller",
                hint="Add --recovery-time, such as 10s.",
            )
        if self.recovery_time is not None and self.scheme is not None:
            raise UserError(
                "BAD_OPTION",
                "--scheme and --recovery-time exclude each other: with the latter the controller chooses",
                hint="Leave out --scheme or --recovery-time.",
            )

    def launch(
        self, app: App | JobsApp, file: Path | None, settings: Settings, *, served: bool = False
    ) -> Launch:
        """How the engines of an app's unit start with these settings."""
        every = as_interval(self.checkpoint_every)
        return Launch(
            unit=unit_name(app.name, settings.state),
            coordination=_store(self.coordination or settings.state / SHARED / "coordination"),
            file="" if file is None else str(file.resolve()),
            folder=os.getcwd(),
            master=settings.master,
            slices=settings.slices,
            epoch_seconds=settings.epoch_seconds,
            drain=settings.drain,
            lease_seconds=as_seconds(self.lease_timeout, "--lease-timeout"),
            served=served,
            recovery=self._recovery(every),
            settings={
                "checkpoint_every": every or 1,
                "checkpoint_varies": every is None,
                "straggler_seconds": as_seconds(self.straggler_time, "--straggler-time"),
            }
            | _configured(settings),
        )

    def _recovery(self, every: int | None) -> dict[str, Any]:
        """The settings of recoveries."""
        recovery: dict[str, Any] = {"semantics": str(self.semantics), "checkpoint_every": every or "auto"}
        if self.recovery_time is not None:
            recovery["threshold_seconds"] = as_seconds(self.recovery_time, "--recovery-time")
        if self.cost is not None:
            weights_of(self.cost)
            recovery["costs"] = self.cost
        return recovery


def _configured(settings: Settings) -> dict[str, Any]:
    """The settings that --conf has changed."""
    default = Settings()
    return {
        name: value
        for name in ("spark", *LIMITS)
        if (value := getattr(settings, name)) != getattr(default, name)
    }


def _store(where: str | Path) -> str:
    """The address of a coordination store, independent of the working directory."""
    return where if isinstance(where, str) and "://" in where else str(Path(where).resolve())


def refuse_executors(*options: object) -> None:
    """Refuse options that change the number of executors, which a unit does not support yet."""
    if any(options):
        raise UserError(
            "BAD_OPTION",
            "an HA unit cannot change its executors yet",
            hint="Leave out --executors, --elastic and --manager, or --ha.",
        )


def refuse_reduced(stream: str | None) -> None:
    """Refuse a reduced stream, which a unit cannot read yet."""
    if stream is not None:
        raise UserError("BAD_OPTION", "an HA unit cannot read reduced streams yet")
