"""What an engine runs: a plan for life, or one that commands change from one epoch to the next.

Receives the number of the newest command that an epoch takes in; hands the plan of that epoch. Everything about an
epoch follows from its offsets, which say that number: so a repeated epoch runs the plan it ran before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import polars as pl

from penstock.errors import PenstockError
from penstock.query.code_digests import digest_plan
from penstock.query.physical import OutputPlan, Plan, ScanPlan
from penstock.query.resting import owned
from penstock.query.resting import resting as rested
from penstock.state.generation import FencedDirectory
from penstock.state.manifest import Manifest

#: starts the log of a stream of this name, unless it is; raises if it cannot be read
StartLog = Callable[[str, ScanPlan], None]


class Program(Protocol):
    """What an engine runs."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def fingerprint(self) -> str:
        """What the shape of its state depends on for life."""

    @property
    def former_fingerprint(self) -> str:
        """The same in a state directory of format 1."""

    @property
    def code(self) -> Mapping[str, str]:
        """The digests of its user's code, by names: equal in engines that may be replicas of each other."""

    @property
    def summary(self) -> str:
        """It, in a line."""

    @property
    def commands(self) -> int:
        """The number of the newest command there is; 0 before the first."""

    def begun(self, *, follows: bool = False, fenced_directory: FencedDirectory | None = None) -> None:
        """Told once, first of all: the state directory is ours now. `follows`: another engine decides what there is to
        run, until this one is told that it leads. What it decides then is written on this `fenced_directory`."""

    def opened(self, state: str, start_log: StartLog, taken: int = 0) -> None:
        """Told once, before anything runs, the name of the state it runs on, how the logs of streams that come later
        are started, and how many commands recorded epochs take in: the sinks are opened. For one that follows, these
        are the epochs that it has done."""

    def caught_up(self, commands: int) -> None:
        """Told, while it follows, before an epoch that takes in so many commands: the sinks of new jobs are opened."""

    def led(self, taken: int) -> None:
        """Told, if it followed, that this engine decides from now on, and how many commands recorded epochs take in."""

    def closed(self) -> None:
        """Told once, after everything: the sinks are closed."""

    def plan(
        self, commands: int, without: Mapping[int, bool] | None = None, resting: Collection[str] = ()
    ) -> Plan:
        """The plan once the commands up to this number are carried out; `without` some jobs, which have failed: each
        with whether its state goes too. Outputs that rest have no events come to what is their own; `Plan.rested`
        says which have such. Nothing is different for other outputs."""

    def flushed(self, after: int, through: int) -> frozenset[int]:
        """The jobs that commands after one number, up to another, ask for their open windows."""

    def previous(self, epoch: int, commands: int, plan: Plan) -> Mapping[str, bytes]:
        """What jobs told in the epoch before this one, where the plan has others that read it (Arrow)."""

    def failed(self, epoch: int, commands: int, errors: Mapping[int, PenstockError]) -> None:
        """Told that jobs failed in an epoch, before that is carried out without them. Kept for good."""

    def paused(self, commands: int, errors: Mapping[int, PenstockError]) -> None:
        """Told that jobs of the catalogue after so many commands are to be paused, from a later epoch on."""

    def failures(self, epoch: int, commands: int) -> Mapping[int, bool]:
        """The jobs without which an epoch that takes in so many commands is carried out, and of each whether its state
        goes too: where it failed even without events, or cannot be made any more."""

    def forgotten(
        self, commands: int, plan: Plan, outputs: Collection[str], manifest: Manifest
    ) -> tuple[Manifest, Mapping[str, int]]:
        """Have the own state of outputs of a plan begin empty: the manifest without it, where that is how; else it is
        gone from a later epoch on. And its bytes, where they are known."""

    def delivered(
        self, epoch: int, commands: int, rows: Mapping[str, pl.DataFrame], last: Mapping[str, int]
    ) -> None:
        """Told what an epoch that takes in so many commands came to, after its sinks have it and before it is
        committed; and how many of an output's rows, at their end, are its last answer, where that is not all."""

    def forget_commands_before(self, commands: int) -> None:
        """Forget the commands before this number: no epoch with fewer executes or repeats any more."""


class Fixed:
    """A plan for life: it has no commands."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.name, self.fingerprint, self.summary = plan.name, plan.fingerprint, plan.summary
        self.former_fingerprint = plan.former_fingerprint
        self.commands = 0

    @cached_property
    def code(self) -> Mapping[str, str]:
        return digest_plan(self._plan)

    def begun(self, *, follows: bool = False, fenced_directory: FencedDirectory | None = None) -> None:
        pass

    def opened(self, state: str, start_log: StartLog, taken: int = 0) -> None:
        for output in self._plan.outputs.values():
            open_sinks(output, state)

    def caught_up(self, commands: int) -> None:
        pass

    def led(self, taken: int) -> None:
        pass

    def closed(self) -> None:
        for output in self._plan.outputs.values():
            close_sinks(output)

    def plan(
        self, commands: int, without: Mapping[int, bool] | None = None, resting: Collection[str] = ()
    ) -> Plan:
        return rested(self._plan, resting) if resting else self._plan

    def forgotten(
        self, commands: int, plan: Plan, outputs: Collection[str], manifest: Manifest
    ) -> tuple[Manifest, Mapping[str, int]]:
        own = owned(self._plan, outputs)
        kept = {name: group for name, group in manifest.collections.items() if name not in own}
        found: dict[str, int] = {}
        for sub, leads in own.items():
            runs = {
                run.name: run.bytes for group in manifest.collections.get(sub, {}).values() for run in group
            }
            for output in leads:
                found[output] = found.get(output, 0) + sum(runs.values())
        return replace(manifest, collections=kept), found

    def flushed(self, after: int, through: int) -> frozenset[int]:
        return frozenset()

    def previous(self, epoch: int, commands: int, plan: Plan) -> Mapping[str, bytes]:
        return {}

    def failed(self, epoch: int, commands: int, errors: Mapping[int, PenstockError]) -> None:
        raise AssertionError("a plan for life has no jobs that fail alone")

    def paused(self, commands: int, errors: Mapping[int, PenstockError]) -> None:
        raise AssertionError("a plan for life has no jobs to pause")

    def failures(self, epoch: int, commands: int) -> Mapping[int, bool]:
        return {}

    def delivered(
        self, epoch: int, commands: int, rows: Mapping[str, pl.DataFrame], last: Mapping[str, int]
    ) -> None:
        pass

    def forget_commands_before(self, commands: int) -> None:
        pass


def open_sinks(output: OutputPlan, state: str) -> None:
    """Open an output's sinks; an output of another state directory is another job: its epochs are not ours."""
    for sink in output.sinks:
        sink.open(f"{output.name}@{state}", dict(output.schema))


def close_sinks(output: OutputPlan) -> None:
    """Close an output's sinks, whatever they say."""
    for sink in output.sinks:
        with contextlib.suppress(Exception):
            sink.close()
