"""Jobs that can be left out of some epochs by themselves, and jobs whose state is to begin empty. Pure.

Receives compiled jobs and the names of those that may lose events; hands the names of those that can, so that no other
job is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import Command, EmptyJob
from penstock.catalogue.compiled_job import Compiled
from penstock.catalogue.planner import Placed, planned
from penstock.query.physical import Plan
from penstock.state.manifest import Manifest


def planned_resting(name: str, jobs: Sequence[Placed], names: Collection[str]) -> Plan:
    """The plan of these jobs in which those of these names rest that run and can. One that waits reads what it will
    need when it runs again."""
    running = {one.job.name for one in jobs if one.life == "running"}
    needed = _needed([one.job for one in jobs], names)
    rests = {one.job.name for one in jobs if not one.job.stateless} & set(names)
    rested = frozenset(rests & running - needed)
    plan = planned(name, [replace(one, life="paused") if one.job.name in rested else one for one in jobs])
    waiting = {one.job.name: one.recovery for one in jobs if one.job.name not in running}
    return replace(plan, rested=rested, needed=needed, waiting=waiting)


def _needed(jobs: Sequence[Compiled], names: Collection[str]) -> frozenset[str]:
    """Of these names those of jobs that another reads, however far away."""
    if not names:
        return frozenset()
    reads = {job.name: job.reads | job.previous.keys() for job in jobs}
    needed = [name for name in reads if name not in names]
    kept = set(needed)
    while needed:
        new = reads.get(needed.pop(), frozenset()) - kept
        kept |= new
        needed += new
    return frozenset(kept.intersection(names))


def emptying(names: Collection[str], then: Catalogue, now: Catalogue) -> list[Command]:
    """The commands that have jobs begin anew which are what they were then."""
    same = [n for n in names if n in now.jobs and now.jobs[n].number == then.jobs[n].number]
    return [EmptyJob(name) for name in same]


def bytes_of(names: Collection[str], plan: Plan, manifest: Manifest) -> Mapping[str, int]:
    """The bytes of the state that jobs have for themselves; what they share with others is not counted."""
    assert plan.jobs is not None
    numbers = {output.job: name for name, output in plan.outputs.items() if name in names}
    found: dict[str, int] = {}
    for sub, owner in plan.jobs.owners.items():
        if owner in numbers:
            runs = {
                run.name: run.bytes
                for entries in manifest.collections.get(sub, {}).values()
                for run in entries
            }
            found[numbers[owner]] = found.get(numbers[owner], 0) + sum(runs.values())
    return found
