"""The controller at work on a real unit: what its engines measured in, a scheme out.

Receives the unit's record and members at every look of the coordinator; hands the unit another scheme or checkpoint
interval where the controller says so, and people what it thinks of every scheme.

Everything measured lies in the unit's record, recoveries too; the last loads and the last decision lie beside it. So a
coordinator that comes after another goes on where that one was. Where people have chosen the scheme, the estimates are
kept up all the same, and nothing is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from penstock.ha.controller import ControllerState, begun, decide
from penstock.ha.cost import weights_of
from penstock.ha.decision import Decision
from penstock.ha.estimate import estimate
from penstock.ha.history import LOADS_KEPT, History, Load, Measured, Measurement, Recovered, outlook
from penstock.ha.launch import Launch
from penstock.ha.processes import Taken, taken
from penstock.ha.schemes import SCHEMES, SEMANTICS, Scheme, Semantics
from penstock.ha.settings import CHECKPOINT_CHOICES, ControllerSettings
from penstock.ha.unit import Member, Recovery, Unit, UnitRecord

#: how often it decides, in seconds
TURN_SECONDS = 2.0
#: loads older than this say nothing about now, in seconds
_STALE_SECONDS = 600.0
#: epochs that an engine which repeats them usually lacks: the one under way, and the one that is being read
_USUAL_EPOCHS = 2
#: one that has not caught up by then is one that is always so far behind, in seconds
_CATCH_UP_SECONDS = 60.0
#: changes that are kept for people
_MAX_CHANGES = 20


def settings_of(launch: Launch) -> ControllerSettings:
    """What the user asks of recoveries, as the unit was started with."""
    asked = launch.recovery
    every = asked.get("checkpoint_every", launch.settings.get("checkpoint_every", 1))
    schemes = tuple(Scheme(name) for name in asked.get("schemes", Scheme))
    return ControllerSettings(
        threshold_seconds=asked.get("threshold_seconds", 10.0),
        semantics=Semantics(asked.get("semantics", "precise")),
        lease_seconds=launch.lease_seconds,
        heartbeat_seconds=launch.lease_seconds / 4,
        weights=weights_of(asked.get("costs", "all-costs")),
        checkpoint_choices=CHECKPOINT_CHOICES if every == "auto" else (int(every),),
        schemes=schemes,
        cool_down_seconds=asked.get("cool_down_seconds", 30.0),
        one_leader=True,
    )


class Steering:
    """The controller of one unit, in the coordinator at work."""

    def __init__(
        self,
        unit: Unit,
        tell: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.time,
        used: Callable[[int], Taken] = taken,
    ) -> None:
        self._unit, self._tell, self._clock, self._used = unit, tell, clock, used
        self.settings = settings_of(unit.launch)
        self._turn_seconds = unit.launch.recovery.get("turn_seconds", TURN_SECONDS)
        kept = unit.controller()
        self._loads = tuple(Load(**one) for one in kept.get("loads", ()))
        self._changes: list[Any] = list(kept.get("changes", ()))
        self._began = kept.get("began", clock())
        self._cpu: dict[int, tuple[float, float]] = {}
        #: engines that run the leader's epochs: since when, until they have caught up
        self._following: dict[str, float | None] = {}
        self._next_at = 0.0
        self._last_load_at = 0.0
        self._last: Decision | None = None

    def look(self, record: UnitRecord, members: Mapping[str, Member]) -> Decision | None:
        """Take in what is new and, when it is time, decide; what was decided."""
        now = self._clock()
        if now < self._next_at:
            return None
        self._next_at = now + self._turn_seconds
        self.settings = replace(self.settings, semantics=self._find_semantics(record, members))
        load = self._measure_load(record, members, now)
        if load is not None:
            self._loads = (*self._loads[1 - LOADS_KEPT :], load)
        self._loads = tuple(one for one in self._loads if now - one.at < _STALE_SECONDS)
        if any(one.estimated_seconds is None for one in record.recoveries):
            record = self._unit.change(lambda current: self._add_estimates(current))
        decision = self._decide(record, now)
        primary = members.get(record.leader or "")
        if record.controlled and decision.changed and primary is not None and primary.phase == "primary":
            self._unit.switch_scheme(decision.chosen, checkpoint_every=decision.checkpoint_every)
            self._tell(f"controller: {decision.told()}")
            self._changes = [*self._changes[1 - _MAX_CHANGES :], [now, decision.told()]]
        self._last = decision
        self._unit.save_controller(
            {
                "began": self._began,
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
        """Everything measured of the unit."""
        # that a process was seen to end is luck: of a machine that is lost only the lease tells
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
        return begun(self.settings, 0.0).history.fold([*found, *self._loads])

    def _decide(self, record: UnitRecord, now: float) -> Decision:
        changed_at = record.switches[-1][0] if record.switches else self._began
        settings = self.settings
        if not record.controlled:  # people have chosen
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
            reason="chosen by people, not by the controller",
            suits=suits is None or suits.estimate.seconds <= settings.threshold_seconds,
        )

    def _find_semantics(self, record: UnitRecord, members: Mapping[str, Member]) -> Semantics:
        """What to reckon with: epochs are repeated if one output wants them, whatever the others may lose."""
        asked = Semantics(self._unit.launch.recovery.get("semantics", "precise"))
        primary = members.get(record.leader or "")
        if not SEMANTICS[asked].loses_events:
            return asked
        repeats = self.settings.semantics is not asked if primary is None else primary.repeats
        return Semantics.precise if repeats else asked

    # -- what was reckoned with ------------------------------------------------------------------

    def _add_estimates(self, record: UnitRecord) -> UnitRecord:
        """The record with what had been estimated beside every recovery."""
        return replace(
            record,
            recoveries=tuple(
                one if one.estimated_seconds is not None else self._add_estimate(one, record)
                for one in record.recoveries
            ),
        )

    def _add_estimate(self, one: Recovery, record: UnitRecord) -> Recovery:
        """A recovery with the estimate of the last decision before it; else with one from what there is."""
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

    # -- what the engines take -------------------------------------------------------------------

    def _measure_load(self, record: UnitRecord, members: Mapping[str, Member], now: float) -> Load | None:
        """What the primary did since the last look; None when it has said nothing new."""
        primary = members.get(record.leader or "")
        cpu = {name: self._measure_cores(member.pid, now) for name, member in members.items()}
        if primary is None or primary.phase != "primary" or primary.load is None:
            return None
        if primary.load.at == self._last_load_at:
            return None
        self._last_load_at = primary.load.at
        cores = cpu[record.leader or ""]
        if cores is None:
            return None
        memory = self._used(primary.pid).memory_bytes + primary.cached_bytes
        load = primary.load.to_load(now, cores, memory)  # by our clock: theirs may be off
        follow = {name for name, member in members.items() if member.phase == "following"}
        self._following = {name: since for name, since in self._following.items() if name in follow}
        others = [member.phase for name, member in members.items() if name != record.leader]
        if "starting" in others or any(name not in members for name in record.pending):
            load = replace(load, settling=True)
        for name, member in members.items():
            if name == record.leader or member.phase not in ("ready", "following"):
                continue
            facts = SCHEMES[record.scheme]
            if facts.runs_epochs:
                if member.phase != "following":  # it is taking the state over, and has no epoch yet
                    load = replace(load, settling=True)
                    continue
                behind = max(primary.epoch - member.epoch, 0)
                load = replace(load, lag_seconds=behind * load.epoch_seconds)
                if not self._has_caught_up(name, behind, now):
                    load = replace(load, settling=True)
            elif (idle := cpu[name]) is not None:
                used = self._used(member.pid).memory_bytes
                load = replace(load, idle_cpu_cores=idle, idle_memory_bytes=used)
        return load

    def _has_caught_up(self, name: str, behind: int, now: float) -> bool:
        """Whether a follower has come up with the primary since it began: then it is behind only as it usually is."""
        since = self._following.setdefault(name, now)
        if since is not None and (behind <= _USUAL_EPOCHS or now - since > _CATCH_UP_SECONDS):
            self._following[name] = since = None
        return since is None

    def _measure_cores(self, pid: int, now: float) -> float | None:
        """The cores that a process and what it started have used since the last look; None at the first."""
        used = self._used(pid).cpu_seconds
        before = self._cpu.get(pid)
        self._cpu[pid] = used, now
        if before is None or now <= before[1]:
            return None
        return max(used - before[0], 0.0) / (now - before[1])
