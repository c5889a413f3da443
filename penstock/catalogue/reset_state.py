"""Reset the state of jobs: which commands, which part of a manifest, and how many bytes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.catalogue.app_plan import stages_owned
from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import Command, EmptyJob
from penstock.query.physical import Plan
from penstock.state.continuity import drop_states, output_state_id
from penstock.state.manifest import Manifest


def reset_commands(names: Collection[str], then: Catalogue, now: Catalogue) -> list[Command]:
    """The commands that reset those jobs of an earlier catalogue that are still the same."""
    return [EmptyJob(n) for n in names if n in now.jobs and now.jobs[n].number == then.jobs[n].number]


def drop_state_in_app(
    plan: Plan, names: Collection[str], manifest: Manifest
) -> tuple[Manifest, dict[str, int]]:
    """The manifest without the state that only these outputs of an app need, and the bytes of that state by output.
    `plan` is the app's. Rankings are computed again from totals that others need too."""
    own = stages_owned(plan, names)
    sizes: dict[str, int] = {}
    for stage, outputs in own.items():
        size = _state_bytes(stage, manifest)
        for output in outputs:
            sizes[output] = sizes.get(output, 0) + size
    return drop_states(manifest, frozenset({*own, *map(output_state_id, names)})), sizes


def own_state_bytes(names: Collection[str], plan: Plan, manifest: Manifest) -> Mapping[str, int]:
    """The bytes of the state that jobs have for themselves; what they share with others is not counted."""
    jobs = {
        output.job: name for name, output in plan.outputs.items() if name in names and output.job is not None
    }
    sizes: dict[str, int] = {}
    for stage, owner in ({} if plan.jobs is None else plan.jobs.owners).items():
        if owner in jobs:
            sizes[jobs[owner]] = sizes.get(jobs[owner], 0) + _state_bytes(stage, manifest)
    return sizes


def _state_bytes(stage: str, manifest: Manifest) -> int:
    """The bytes of the runs of a stage; buckets may share a run."""
    runs = manifest.collections.get(stage, {}).values()
    return sum({run.name: run.bytes for group in runs for run in group}.values())
