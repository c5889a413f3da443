"""How the engines of an HA unit are started, as options of `run` and `serve` say it.

Receives options as they were given; hands a `Launch`, or refuses what makes no sense.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.catalogue.jobs_app import JobsApp
from penstock.cli.options import as_interval, as_seconds
from penstock.errors import UserError
from penstock.ha.cost import weights_of
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme, Semantics
from penstock.ha.unit import unit_name
from penstock.query.logical import App
from penstock.state.directory import SHARED


@dataclass(frozen=True)
class UnitOptions:
    """What can be said of a unit, as it was given."""

    scheme: Scheme | None = None
    coordination: str | None = None
    lease_timeout: str = "2s"
    straggler_time: str = "5s"
    recovery_time: str | None = None
    cost: str | None = None
    semantics: Semantics = Semantics.precise
    checkpoint_every: str = "1"

    def check(self) -> None:
        """Refuse what makes no sense together."""
        every = as_interval(self.checkpoint_every)
        if self.recovery_time is None and (self.cost is not None or every is None):
            raise UserError(
                "BAD_OPTION",
                "--cost and --checkpoint-every auto are for the controller",
                hint="Add --recovery-time, such as 10s.",
            )
        if self.recovery_time is not None and self.scheme is not None:
            raise UserError(
                "BAD_OPTION",
                "either you choose the scheme or the controller does",
                hint="Leave out --scheme or --recovery-time.",
            )

    def launch(
        self,
        app: App | JobsApp,
        file: Path | None,
        place: Path,
        *,
        master: str,
        slices: int | None,
        epoch_seconds: float,
        spark: dict[str, str],
        drain: bool = False,
        served: bool = False,
    ) -> Launch:
        """How the engines of an app's unit on a state directory are started."""
        every = as_interval(self.checkpoint_every)
        return Launch(
            unit=unit_name(app.name, place),
            coordination=_store(self.coordination or place / SHARED / "coordination"),
            file="" if file is None else str(file.resolve()),
            folder=os.getcwd(),
            master=master,
            slices=slices,
            epoch_seconds=epoch_seconds,
            drain=drain,
            lease_seconds=as_seconds(self.lease_timeout, "--lease-timeout"),
            served=served,
            recovery=self._recovery(every),
            settings={
                "checkpoint_every": every or 1,
                "checkpoint_varies": every is None,
                "straggler_seconds": as_seconds(self.straggler_time, "--straggler-time"),
            }
            | ({"spark": spark} if spark else {}),
        )

    def _recovery(self, every: int | None) -> dict[str, Any]:
        """What a unit is told about recoveries."""
        asked: dict[str, Any] = {"semantics": str(self.semantics), "checkpoint_every": every or "auto"}
        if self.recovery_time is not None:
            asked["threshold_seconds"] = as_seconds(self.recovery_time, "--recovery-time")
        if self.cost is not None:
            weights_of(self.cost)
            asked["costs"] = self.cost
        return asked


def _store(where: str | Path) -> str:
    """Where a coordination store is, wherever that is asked."""
    return where if isinstance(where, str) and "://" in where else str(Path(where).resolve())


def refuse_executors(*said: object) -> None:
    """A unit's engines keep the executors they have: refuse options that would change them."""
    if any(said):
        raise UserError(
            "BAD_OPTION",
            "a unit of engines does not change its executors yet",
            hint="Leave out --executors, --elastic and --manager, or --ha.",
        )


def refuse_reduced(stream: str | None) -> None:
    """No unit reads what agents have reduced."""
    if stream is not None:
        raise UserError("BAD_OPTION", "a unit of engines does not read reduced streams yet")
