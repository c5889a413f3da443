"""Applies the controller to a real unit: measures its engines, decides, and changes scheme and checkpoint interval.

Measurements and recoveries are in the unit's record; the last loads and the last decision are stored beside it. So the
next coordinator continues where the previous one stopped. If a user has chosen the scheme, the estimates are still
updated, and nothing is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from penstock.ha.controller import ControllerState, decide, initial_state
from penstock.ha.cost import weights_of
from penstock.ha.decision import Decision
from penstock.ha.estimate import estimate
from penstock.ha.history import LOADS_KEPT, History, Load, Measured, Measurement, Recovered, outlook
from penstock.ha.launch import Launch
from penstock.ha.process_usage import ProcessUsage, measure_usage
from penstock.ha.schemes import SCHEMES, SEMANTICS, Scheme, Semantics
from penstock.ha.settings import CHECKPOINT_CHOICES, ControllerSettings
from penstock.ha.unit import Recovery, Unit, UnitEngine, UnitRecord

#: how often it decides
TURN_SECONDS = 2.0
#: loads older than this are dropped
_STALE_SECONDS = 600.0
#: epochs that a follower is usually behind: the one under way, and the one that is being read
_USUAL_EPOCHS = 2
#: a follower that has not caught up by then counts as always so far behind
_CATCH_UP_SECONDS = 60.0
#: changes that are retained for the status
_MAX_CHANGES = 20


def settings_of(launch: Launch) -> ControllerSettings:
    """The controller settings with which the unit was started."""
    recovery = launch.recovery
    every = recovery.get("checkpoint_every", launch.settings.get("checkpoint_every", 1))
    schemes = tuple(Scheme(name) for name in recovery.get("schemes", Scheme))
    return ControllerSettings(
        threshold_seconds=recovery.get("threshold_seconds", 10.0),
        semantics=Semantics(recovery.get("semantics", "precise")),
        lease_seconds=launch.lease_seconds,
        heartbeat_seconds=launch.lease_seconds / 4,
        weights=weights_of(recovery.get("costs", "all-costs")),
        checkpoint_choices=CHECKPOINT_CHOICES if every == "auto" else (int(every),),
        schemes=schemes,
        cool_down_seconds=recovery.get("cool_down_seconds", 30.0),
        one_leader=True,
    )


class UnitController:
    """The controller of one unit, in the active coordinator."""

    def __init__(
        self,
        unit: Unit,
        report: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.time,
        used: Callable[[int], ProcessUsage] = measure_usage,
    ) -> None:
        self._unit, self._report, self._clock, self._used = unit, report, clock, used
        self.settings = settings_of(unit.launch)
        self._turn_seconds = unit.launch.recovery.get("turn_seconds", TURN_SECONDS)
        stored = unit.controller()
        self._loads = tuple(Load(**one) for one in stored.get("loads", ()))
        self._changes: list[Any] = list(stored.get("changes", ()))
        self._started_at = stored.get("began", clock())
        self._cpu: dict[int, tuple[float, float]] = {}
        #: followers that execute epochs: since when, or None once they have caught up
        self._following: dict[str, float | None] = {}
        self._next_at = 0.0
        self._last_load_at = 0.0
        self._last: Decision | None = None

    def look(self, record: UnitRecord, engines: Mapping[str, UnitEngine]) -> Decision | None:
        """When it is time, measure and decide; returns the decision."""
        now = self._clock()
        if now < self._next_at:
            return None
        self._next_at = now + self._turn_seconds
        self.settings = replace(self.settings, semantics=self._find_semantics(record, engines))
        load = self._measure_load(record, engines, now)
        if load is not None:
            self._loads = (*self._loads[1 - LOADS_KEPT :], load)
        self._loads = tuple(one for one in self._loads if now - one.at < _STALE_SECONDS)
        if any(one.estimated_seconds is None for one in record.recoveries):
            record = self._unit.change(lambda current: self._add_estimates(current))
        decision = self._decide(record, now)
        primary = engines.get(record.leader or "")
        if record.controlled and decision.changed and primary is not None and primary.phase == "primary":
            self._unit.switch_scheme(decision.chosen, checkpoint_every=decision.checkpoint_every)
            self._report(f"controller: {decision.describe()}")
            self._changes = [*self._changes[1 - _MAX_CHANGES :], [now, decision.describe()]]
        self._last = decision
        self._unit.save_controller(
            {
                "began": self._started_at,
                "settings": {
                    "threshold_seconds": self.settings.threshold_seconds,
                    "semantics": str(self.settings.semantics),
                    "costs": self.settings.weights.to_plain(),
                },
                "decision": decision.to_plain(),
                "changes": self._changes,
                "loads": [asdict(one) for one in self._loads],
            }
        )
        return decision

    def history(self, record: UnitRecord) -> History:
        """The history of all measurements of the unit."""
        # the end of a process may be noticed at once; the loss of a machine only by its lease
        least = {"detect": self.settings.lease_seconds}
        found: list[Measurement] = [
            Measured(name, value)
            for name, values in record.measured.items()
            for value in values
            if value >= least.get(name, 0.0)
        ]
        found += [
            Recovered(Scheme(one.scheme), one.expected_seconds, one.first_result_after)
            for one in record.recoveries
            if one.expected_seconds and one.failed_at is not None and one.first_result_after is not None
        ]
        return initial_state(self.settings, 0.0).history.fold([*found, *self._loads])

    def _decide(self, record: UnitRecord, now: float) -> Decision:
        changed_at = record.switches[-1][0] if record.switches else self._started_at
        settings = self.settings
        if not record.controlled:  # a user has chosen
            settings = replace(settings, checkpoint_choices=(record.checkpoint_every,))
        state = ControllerState(record.scheme, record.checkpoint_every, changed_at, self.history(record))
        _, decision = decide(state, (), settings, now)
        if record.controlled:
            return decision
        suits = decision.of(record.scheme)
        return replace(
            decision,
            chosen=record.scheme,
            checkpoint_every=record.checkpoint_every,
            reason="chosen by the user, not by the controller",
            suits=suits is None or suits.estimate.seconds <= settings.threshold_seconds,
        )

    def _find_semantics(self, record: UnitRecord, engines: Mapping[str, UnitEngine]) -> Semantics:
        """The semantics to estimate with: epochs are repeated if any output needs them."""
        requested = Semantics(self._unit.launch.recovery.get("semantics", "precise"))
        primary = engines.get(record.leader or "")
        if not SEMANTICS[requested].loses_events:
            return requested
        repeats = self.settings.semantics is not requested if primary is None else primary.repeats
        return Semantics.precise if repeats else requested

    # -- estimates of recoveries -----------------------------------------------------------------

    def _add_estimates(self, record: UnitRecord) -> UnitRecord:
        """The record with an estimate for every recovery."""
        return replace(
            record,
            recoveries=tuple(
                one if one.estimated_seconds is not None else self._add_estimate(one, record)
                for one in record.recoveries
            ),
        )

    def _add_estimate(self, one: Recovery, record: UnitRecord) -> Recovery:
        """A recovery with the estimate of the last decision, or else with one from the current loads."""
        scheme = Scheme(one.scheme)
        known = None if self._last is None else self._last.of(scheme)
        if known is not None:
            estimated = known.estimate
        elif self._loads:
            estimated = estimate(
                scheme,
                record.checkpoint_every,
                self.settings.semantics,
                self.history(replace(record, recoveries=(), measured={})),
                outlook(self._loads, self.settings.ahead_seconds),
                self.settings.margin,
                one_leader=True,
            )
        else:
            return one
        return replace(one, estimated_seconds=estimated.seconds, expected_seconds=estimated.step_seconds)

    # -- measurements ---------------------------------------------------------------------------

    def _measure_load(self, record: UnitRecord, engines: Mapping[str, UnitEngine], now: float) -> Load | None:
        """The leader's load since the last turn; None if it has reported nothing new."""
        primary = engines.get(record.leader or "")
        cpu = {name: self._measure_cores(engine.pid, now) for name, engine in engines.items()}
        if primary is None or primary.phase != "primary" or primary.load is None:
            return None
        if primary.load.at == self._last_load_at:
            return None
        self._last_load_at = primary.load.at
        cores = cpu[record.leader or ""]
        if cores is None:
            return None
        memory = self._used(primary.pid).memory_bytes + primary.cached_bytes
        load = primary.load.to_load(now, cores, memory)  # by this clock: the leader's may differ
        follow = {name for name, engine in engines.items() if engine.phase == "following"}
        self._following = {name: since for name, since in self._following.items() if name in follow}
        others = [engine.phase for name, engine in engines.items() if name != record.leader]
        if "starting" in others or any(name not in engines for name in record.pending):
            load = replace(load, settling=True)
        for name, engine in engines.items():
            if name == record.leader or engine.phase not in ("ready", "following"):
                continue
            facts = SCHEMES[record.scheme]
            if facts.runs_epochs:
                if engine.phase != "following":  # it loads the state, and has no epoch yet
                    load = replace(load, settling=True)
                    continue
                behind = max(primary.epoch - engine.epoch, 0)
                load = replace(load, lag_seconds=behind * load.epoch_seconds)
                if not self._has_caught_up(name, behind, now):
                    load = replace(load, settling=True)
            elif (idle := cpu[name]) is not None:
                used = self._used(engine.pid).memory_bytes
                load = replace(load, idle_cpu_cores=idle, idle_memory_bytes=used)
        return load

    def _has_caught_up(self, name: str, behind: int, now: float) -> bool:
        """Whether a follower has caught up with the leader since it started: then its lag is the usual one."""
        since = self._following.setdefault(name, now)
        if since is not None and (behind <= _USUAL_EPOCHS or now - since > _CATCH_UP_SECONDS):
            self._following[name] = since = None
        return since is None

    def _measure_cores(self, pid: int, now: float) -> float | None:
        """The cores that a process and its children have used since the last turn; None at the first."""
        used = self._used(pid).cpu_seconds
        before = self._cpu.get(pid)
        self._cpu[pid] = used, now
        if before is None or now <= before[1]:
            return None
        return max(used - before[0], 0.0) / (now - before[1])
