"""Jobs that can be left out of some epochs by themselves, and jobs whose state is to begin empty. Pure.

Receives compiled jobs and the names of those that may lose events; hands the names of those that can, so that no other
job is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.catalogue.app_plan import AppPlan, stages_owned
from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.command import Command, EmptyJob
from penstock.catalogue.planner import PlannedJob, plan_jobs
from penstock.query.physical import Plan
from penstock.state.manifest import Manifest


def plan_epoch(
    name: str,
    jobs: Sequence[PlannedJob],
    names: Collection[str],
    app: AppPlan | None = None,
    outputs: Sequence[JobEntry] = (),
) -> Plan:
    """The plan of these jobs, and of the `outputs` that share the plan of an app, in which those of these names rest
    that run and can. One that waits reads what it will need when it runs again."""
    active = {entry.name for entry in outputs if entry.master.life == "running"}
    running = {one.job.name for one in jobs if one.life == "running"}
    reads = {one.job.name: one.job.reads | one.job.previous.keys() for one in jobs}
    needed = _needed({**dict.fromkeys(active, frozenset[str]()), **reads}, names)
    rests = {one.job.name for one in jobs if not one.job.stateless} & set(names)
    idle_outputs = frozenset(rests & running - needed)
    part = None if app is None else _part_of(app, outputs, active, (active & set(names)) - needed)
    placed = [replace(one, life="paused") if one.job.name in idle_outputs else one for one in jobs]
    plan = plan_jobs(name, placed, part)
    waiting = {one.job.name: one.recovery for one in jobs if one.job.name not in running}
    waiting |= {entry.name: entry.recovery for entry in outputs if entry.name not in active}
    released = (
        frozenset[str]() if app is None else app.plan.identities.states.keys() - plan.identities.states.keys()
    )
    return replace(
        plan,
        idle_outputs=idle_outputs | plan.idle_outputs,
        needed=needed,
        waiting=waiting,
        released=frozenset(released),
    )


def _part_of(app: AppPlan, outputs: Sequence[JobEntry], active: set[str], rests: set[str]) -> Plan | None:
    """What runs of an app."""
    if not outputs:
        return None
    part = app.part(active, rests | {entry.name for entry in outputs} - active)
    changed = {
        entry.name: entry.recovery
        for entry in outputs
        if entry.name in part.outputs and part.outputs[entry.name].recovery != entry.recovery
    }
    recoveries = {name: replace(part.outputs[name], recovery=recovery) for name, recovery in changed.items()}
    return replace(part, outputs={**part.outputs, **recoveries}) if changed else part


def _needed(reads: Mapping[str, Collection[str]], names: Collection[str]) -> frozenset[str]:
    """Of these names those of jobs that another reads, however far away."""
    if not names:
        return frozenset()
    needed = [name for name in reads if name not in names]
    kept = set(needed)
    while needed:
        new = set(reads.get(needed.pop(), ())) - kept
        kept |= new
        needed += new
    return frozenset(kept.intersection(names))


def empty_jobs(names: Collection[str], then: Catalogue, now: Catalogue) -> list[Command]:
    """The commands that have jobs begin anew which are what they were then."""
    same = [n for n in names if n in now.jobs and now.jobs[n].number == then.jobs[n].number]
    return [EmptyJob(name) for name in same]


def drop_state_in_app(
    plan: Plan, names: Collection[str], manifest: Manifest
) -> tuple[Manifest, dict[str, int]]:
    """The manifest without the state that only these outputs need, of an app whose plan this is; and its bytes."""
    own = stages_owned(plan, names)
    found: dict[str, int] = {}
    for stage, leads in own.items():
        runs = {
            run.name: run.bytes for group in manifest.collections.get(stage, {}).values() for run in group
        }
        for output in leads:
            found[output] = found.get(output, 0) + sum(runs.values())
    collections = {name: group for name, group in manifest.collections.items() if name not in own}
    return replace(manifest, collections=collections), found


def own_state_bytes(names: Collection[str], plan: Plan, manifest: Manifest) -> Mapping[str, int]:
    """The bytes of the state that jobs have for themselves; what they share with others is not counted."""
    numbers = {
        output.job: name for name, output in plan.outputs.items() if name in names and output.job is not None
    }
    found: dict[str, int] = {}
    for sub, owner in ({} if plan.jobs is None else plan.jobs.owners).items():
        if owner in numbers:
            runs = {
                run.name: run.bytes
                for entries in manifest.collections.get(sub, {}).values()
                for run in entries
            }
            found[numbers[owner]] = found.get(numbers[owner], 0) + sum(runs.values())
    return found
