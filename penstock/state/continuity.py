"""Compare the state that a manifest names with what a query can use of it. Pure.

Receives a manifest, and by its id the identity of each state that a query keeps; returns what is kept, what would be
dropped and what starts empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile, zip_longest

from penstock.errors import InternalError
from penstock.state.manifest import Manifest

#: begins the id of what the ranking of an output keeps
_OUTPUT = "out-"
#: the ids of what belongs to one job alone, whose number they name
_ALONE = re.compile(r"j(\d+)\.")
#: so many ids are listed in a message
_LISTED = 20


@dataclass(frozen=True)
class Identities:
    """The identity of each state that a query keeps, by its id; and of the forms in which operators keep it, by id and
    kind, the versions where they are not the first, and the former versions that can be read too."""

    states: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    readable: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    #: where commands make and drop jobs: of each state, the numbers of the jobs it belongs to; None: no jobs come or go
    jobs: Mapping[str, frozenset[int]] | None = None
    #: states that commands have released
    released: frozenset[str] = frozenset()

    @cached_property
    def living(self) -> frozenset[int]:
        """The numbers of all jobs there are."""
        return frozenset().union(*(self.jobs or {}).values())

    @cached_property
    def spelled_jobs(self) -> Mapping[str, str]:
        """The numbers of each state's jobs, as a manifest names them; an id that begins with one needs no other."""
        several = {id_: numbers for id_, numbers in (self.jobs or {}).items() if not _ALONE.match(id_)}
        return {id_: _spelled(numbers) for id_, numbers in several.items()}


@dataclass(frozen=True)
class Continuity:
    """What becomes of each state, by its id."""

    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    def also_without(self, ids: Collection[str]) -> Continuity:
        """The same, with some of what is kept dropped."""
        kept = tuple(id_ for id_ in self.kept if id_ not in ids)
        return Continuity(kept, tuple(sorted({*self.dropped, *ids})), tuple(sorted({*self.new, *ids})))

    def describe(self) -> str:
        """A line that names all of it."""
        parts = {"kept": self.kept, "dropped": self.dropped, "starts empty": self.new}
        return "; ".join(f"{what}: {_listed(ids)}" for what, ids in parts.items())


def compare(manifest: Manifest, query: Identities, *, same_query: bool = True) -> Continuity:
    """What becomes of the state of a manifest under a query. State whose identity was not written down, as in format 1,
    is known by its id alone, if it is the `same_query`. Where jobs come and go, state of jobs that are gone is no loss:
    a command said so."""
    held, unknown = _held(manifest), None if same_query else ""
    kept = {
        id_
        for id_ in held
        if id_ in query.states and manifest.identities.get(id_, unknown) in (None, query.states[id_])
    }
    dropped = [id_ for id_ in held - kept if _is_missed(id_, manifest, query)]
    return Continuity(tuple(sorted(kept)), tuple(sorted(dropped)), tuple(sorted(query.states.keys() - kept)))


def keep_known(manifest: Manifest, query: Identities) -> Manifest:
    """The manifest without what belonged to jobs that commands have dropped, altered or emptied since; raises if it
    would be without the state of any other."""
    gone = manifest.collections.keys() - query.states.keys()
    if not gone:
        return manifest
    missed = [id_ for id_ in sorted(gone) if _is_missed(id_, manifest, query)]
    if missed:
        raise InternalError(
            "PLAN_DROPS_STATE",
            "the next epoch would drop state of jobs that nobody dropped",
            detail=", ".join(missed),
            hint="Nothing is lost: use the Penstock that wrote the state.",
        )
    return drop_states(manifest, frozenset(gone))


def identify(manifest: Manifest, query: Identities) -> Manifest:
    """The manifest with the identities, versions and jobs of the states that it names."""
    held = {*manifest.collections, *map(state_of_output, manifest.answers)}
    return replace(
        manifest,
        identities={id_: one for id_, one in query.states.items() if id_ in held},
        versions={id_: one for id_, one in query.versions.items() if id_ in held},
        jobs={id_: one for id_, one in query.spelled_jobs.items() if id_ in held},
    )


def _is_missed(id_: str, manifest: Manifest, query: Identities) -> bool:
    """Whether nobody said that a state may go."""
    if id_ in query.released:
        return False
    if query.jobs is None:
        return True
    if id_.startswith(
        _OUTPUT
    ):  # the last answer of a job that is paused or altered; its operators make it anew
        return False
    alone = _ALONE.match(id_)
    spelled = manifest.jobs.get(id_, alone and alone[1])
    return spelled is None or bool(_numbers(spelled) & query.living)


def _spelled(numbers: Iterable[int]) -> str:
    """Numbers in few letters: 1-500,502."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _numbers(spelled: str) -> frozenset[int]:
    ranges = [part.partition("-") for part in spelled.split(",") if part]
    return frozenset(n for first, _, last in ranges for n in range(int(first), int(last or first) + 1))


def find_unreadable(manifest: Manifest, query: Identities) -> dict[str, str]:
    """By its id, each state of a form that the query's operators do not read, and how it differs."""
    found: dict[str, str] = {}
    for id_ in sorted(_held(manifest) & query.states.keys()):
        then, now = manifest.versions.get(id_, {}), query.versions.get(id_, {})
        for kind in sorted(then.keys() | now.keys()):
            was, is_ = then.get(kind, 1), now.get(kind, 1)
            if was != is_ and was not in query.readable.get(id_, {}).get(kind, ()):
                found[id_] = f"of {kind} it is version {was}, this Penstock knows version {is_}"
    return found


def drop_states(manifest: Manifest, ids: frozenset[str]) -> Manifest:
    """The manifest without these states."""
    return replace(
        manifest,
        collections={id_: group for id_, group in manifest.collections.items() if id_ not in ids},
        answers={name: one for name, one in manifest.answers.items() if state_of_output(name) not in ids},
        identities={id_: one for id_, one in manifest.identities.items() if id_ not in ids},
        versions={id_: one for id_, one in manifest.versions.items() if id_ not in ids},
        jobs={id_: one for id_, one in manifest.jobs.items() if id_ not in ids},
    )


def rename_ids(manifest: Manifest, ids: Mapping[str, str]) -> Manifest:
    """The manifest with the ids that have become of former ones."""
    collections = {ids.get(id_, id_): group for id_, group in manifest.collections.items()}
    return replace(manifest, collections=collections)


def state_of_output(name: str) -> str:
    """The id under which the ranking of an output keeps its state."""
    return f"{_OUTPUT}{name}"


def _held(manifest: Manifest) -> set[str]:
    """The ids of what there is: operators with a run, and outputs whose last answer is known."""
    operators = {id_ for id_, group in manifest.collections.items() if any(group.values())}
    return operators | {state_of_output(name) for name in manifest.answers}


def _listed(ids: tuple[str, ...]) -> str:
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
