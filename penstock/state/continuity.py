"""Compare the state that a manifest names with what a query can use of it. Pure.

Each state has an id. Its identity tells whether the query's state of the same id is the same one. State is kept,
dropped, or starts empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile, zip_longest

from penstock.errors import InternalError
from penstock.state.manifest import Manifest

#: prefix of the id of the state of an output's ranking
_OUTPUT = "out-"
#: the id of state that belongs to one job names the number of the job
_ALONE = re.compile(r"j(\d+)\.")
#: the number of ids in a message
_LISTED = 20


@dataclass(frozen=True)
class Identities:
    """The states of a query by id: their identities; by kind of operator, the versions of their forms where they are
    not the first; and the former versions that can be read too."""

    states: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    readable: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    #: the numbers of the jobs that each state belongs to; None: the query has no jobs that come and go
    jobs: Mapping[str, frozenset[int]] | None = None
    #: states that commands have released
    released: frozenset[str] = frozenset()

    @cached_property
    def live_jobs(self) -> frozenset[int]:
        """The numbers of all jobs."""
        return frozenset().union(*(self.jobs or {}).values())

    @cached_property
    def job_ranges(self) -> Mapping[str, str]:
        """The numbers of each state's jobs, as a manifest has them; left out where the id names the job."""
        several = {id_: numbers for id_, numbers in (self.jobs or {}).items() if not _ALONE.match(id_)}
        return {id_: _format_ranges(numbers) for id_, numbers in several.items()}


@dataclass(frozen=True)
class Continuity:
    """What becomes of each state, by its id."""

    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    def dropping(self, ids: Collection[str]) -> Continuity:
        """The same, with some of the kept states dropped."""
        kept = tuple(id_ for id_ in self.kept if id_ not in ids)
        return Continuity(kept, tuple(sorted({*self.dropped, *ids})), tuple(sorted({*self.new, *ids})))

    def describe(self) -> str:
        """One line that names every state. A ranking is computed again from its totals, so it does not start empty."""
        new = tuple(id_ for id_ in self.new if not id_.startswith(_OUTPUT))
        parts = {"kept": self.kept, "dropped": self.dropped, "starts empty": new}
        return "; ".join(f"{what}: {_list_ids(ids)}" for what, ids in parts.items())


def compare(manifest: Manifest, query: Identities, *, same_query: bool = True) -> Continuity:
    """What becomes of the state of a manifest under a query. State without an identity, as in format 1, is compared by
    its id alone if it is the `same_query`. State of jobs that a command has dropped is not counted as dropped."""
    held, unknown = _state_ids(manifest), None if same_query else ""
    kept = {
        id_
        for id_ in held
        if id_ in query.states and manifest.identities.get(id_, unknown) in (None, query.states[id_])
    }
    dropped = [id_ for id_ in held - kept if _is_missed(id_, manifest, query)]
    return Continuity(tuple(sorted(kept)), tuple(sorted(dropped)), tuple(sorted(query.states.keys() - kept)))


def drop_stale_rankings(manifest: Manifest, query: Identities) -> Manifest:
    """Drop the rankings that are another query's or another job's, with their last results: a command has altered,
    reset or replaced the job of that name. They are computed again from the totals that they rank, and so are all of a
    manifest of format 1, which records neither."""
    rankings = {id_: one for id_, one in query.states.items() if id_.startswith(_OUTPUT)}
    stale = {
        id_
        for id_, identity in rankings.items()
        if id_ in manifest.identities
        and (manifest.identities[id_], manifest.jobs.get(id_)) != (identity, query.job_ranges.get(id_))
    }
    unknown = (rankings.keys() & manifest.collections.keys()) - manifest.identities.keys()
    if unknown:
        known = {id_: group for id_, group in manifest.collections.items() if id_ not in unknown}
        manifest = replace(manifest, collections=known)
    return drop_states(manifest, frozenset(stale)) if stale else manifest


def drop_states_of_removed_jobs(manifest: Manifest, query: Identities) -> Manifest:
    """Drop the state of jobs that commands have dropped, altered or emptied; raise if any other state would be lost."""
    gone = manifest.collections.keys() - query.states.keys()
    if not gone:
        return manifest
    missed = [id_ for id_ in sorted(gone) if _is_missed(id_, manifest, query)]
    if missed:
        raise InternalError(
            "PLAN_DROPS_STATE",
            "the next epoch would drop state of jobs that no command has dropped",
            detail=", ".join(missed),
            hint="Nothing is lost: use the Penstock that wrote the state.",
        )
    return drop_states(manifest, frozenset(gone))


def add_identities(manifest: Manifest, query: Identities) -> Manifest:
    """Add the identities, versions and jobs of the states that the manifest names."""
    held = {*manifest.collections, *map(output_state_id, manifest.last_results)}
    return replace(
        manifest,
        identities={id_: one for id_, one in query.states.items() if id_ in held},
        versions={id_: one for id_, one in query.versions.items() if id_ in held},
        jobs={id_: one for id_, one in query.job_ranges.items() if id_ in held},
    )


def _is_missed(id_: str, manifest: Manifest, query: Identities) -> bool:
    """Whether losing a state would be an error: no command has dropped the job that it belongs to."""
    if id_ in query.released:
        return False
    if query.jobs is None:
        return True
    if id_.startswith(_OUTPUT):  # a ranking is computed again from its totals
        return False
    alone = _ALONE.match(id_)
    numbers = manifest.jobs.get(id_, alone and alone[1])
    return numbers is None or bool(_parse_ranges(numbers) & query.live_jobs)


def _format_ranges(numbers: Iterable[int]) -> str:
    """Numbers as a short text, such as 1-500,502."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _parse_ranges(text: str) -> frozenset[int]:
    ranges = [part.partition("-") for part in text.split(",") if part]
    return frozenset(n for first, _, last in ranges for n in range(int(first), int(last or first) + 1))


def find_unreadable(manifest: Manifest, query: Identities) -> dict[str, str]:
    """The states in a form that the query's operators cannot read, by id, and how the form differs."""
    found: dict[str, str] = {}
    for id_ in sorted(_state_ids(manifest) & query.states.keys()):
        then, now = manifest.versions.get(id_, {}), query.versions.get(id_, {})
        for kind in sorted(then.keys() | now.keys()):
            was, is_ = then.get(kind, 1), now.get(kind, 1)
            if was != is_ and was not in query.readable.get(id_, {}).get(kind, ()):
                found[id_] = f"the form of {kind} is version {was}, this Penstock reads version {is_}"
    return found


def drop_states(manifest: Manifest, ids: frozenset[str]) -> Manifest:
    """The manifest without these states."""
    return replace(
        manifest,
        collections={id_: group for id_, group in manifest.collections.items() if id_ not in ids},
        last_results={
            name: one for name, one in manifest.last_results.items() if output_state_id(name) not in ids
        },
        identities={id_: one for id_, one in manifest.identities.items() if id_ not in ids},
        versions={id_: one for id_, one in manifest.versions.items() if id_ not in ids},
        jobs={id_: one for id_, one in manifest.jobs.items() if id_ not in ids},
    )


def drop_states_of_jobs(manifest: Manifest) -> Manifest:
    """The manifest without the state of jobs that commands created, which is no part of an app's plan."""
    ids = {id_ for id_ in _state_ids(manifest) if id_ in manifest.jobs or _ALONE.match(id_)}
    return drop_states(manifest, frozenset(ids))


def rename_ids(manifest: Manifest, ids: Mapping[str, str]) -> Manifest:
    """Replace former ids by the present ones."""
    collections = {ids.get(id_, id_): group for id_, group in manifest.collections.items()}
    return replace(manifest, collections=collections)


def output_state_id(name: str) -> str:
    """The id of the state of an output's ranking."""
    return f"{_OUTPUT}{name}"


def _state_ids(manifest: Manifest) -> set[str]:
    """The ids of the state in a manifest: operators with a run, and outputs with a last result."""
    operators = {id_ for id_, group in manifest.collections.items() if any(group.values())}
    return operators | {output_state_id(name) for name in manifest.last_results}


def _list_ids(ids: tuple[str, ...]) -> str:
    more = len(ids) - _LISTED
    return ", ".join([*ids[:_LISTED], *([f"and {more} more"] if more > 0 else [])]) or "nothing"


def first_difference(former: str, present: str) -> str:
    """The first difference of two summaries of queries. A summary lists outputs, each a path of steps."""
    for then, now in zip_longest(former.split("; "), present.split("; ")):
        if then == now:
            continue
        if then is None or now is None:
            return f"it holds no {now}" if then is None else f"this one has no {then}"
        before, after = then.split(" -> "), now.split(" -> ")
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
        if not same:
            return f"it holds: {then}; this one is: {now}"
        steps = [" -> ".join(rest[same : same + 1]) or "nothing more" for rest in (before, after)]
        return f"after {before[same - 1]!r} it has: {steps[0]}; this one has: {steps[1]}"
    return (
        f"both are {_shorten(present)}, but their state differs: a column's type, an option of an operator or the "
        "application's name"
    )


def _shorten(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
