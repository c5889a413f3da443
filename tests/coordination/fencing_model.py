"""A model of two engines on one state directory and one sink, and a search of all its states.

`search` takes what fences the writers (`Protection`). It returns the number of reachable states, or the shortest trace
to a state that violates a guarantee.

Each step is one operation of a file system or of the coordination store, and steps of the two engines interleave in
every order: an engine may be paused between any two of its steps for any time. An engine may crash at any step, and a
lease may expire at any time. The reader of the sink removes files of committed epochs, and old records and manifests
are removed, so a writer cannot rely on finding an existing file. (A file that is removed before its epoch is committed
would be written again after any crash, even of a single engine: the search found that first.)

The guarantees:
- an epoch record never changes (no epoch has two contents);
- an epoch's manifest is committed once, and follows from the records;
- the sink's reader sees every epoch once, in order, with the recorded content;
- an epoch has a manifest only if it was delivered to the sink (no result is lost);
- an engine of the highest generation is never fenced (one engine can always continue).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Protection:
    """What fences one writer from another.

    `generations`: temporary files are in a directory of their generation, which a later generation removes.
    `exclusive`: a file is committed by `link`, which refuses an existing name (else by `rename`, which does not).
    `lease`: before each write the engine checks its lease.
    `checks_higher`: after creating its directory an engine looks for one of a higher generation.
    `reads_last`: the state is read after the directories of lower generations are removed, not before.
    `every`: epochs from one manifest to the next; the state of those in between is lost with the engine.
    `skips_delivered`: an epoch is not delivered again if the record of the next one exists.
    """

    generations: bool = True
    exclusive: bool = True
    lease: bool = False
    checks_higher: bool = True
    reads_last: bool = True
    every: int = 1
    skips_delivered: bool = True


class Engine(NamedTuple):
    """An engine: its next step (`at`), and its state (`chain`): the contents of the epochs before this one."""

    at: str = "idle"
    generation: int = 0
    chain: tuple[int, ...] = ()
    content: int = 0
    holds_sink: bool = False


class System(NamedTuple):
    """The engines, everything outside them, and the history (`*_ever`, `delivered`), which no engine can see."""

    engines: tuple[Engine, Engine]
    holder: int = -1
    generations_granted: int = 0
    state_directories: frozenset[int] = frozenset()
    sink_directories: frozenset[int] = frozenset()
    records: tuple[int, ...] = ()
    manifests: tuple[tuple[int, ...] | None, ...] = ()
    files: frozenset[int] = frozenset()
    records_ever: tuple[int, ...] = ()
    manifests_ever: int = 0
    delivered: tuple[tuple[int, int], ...] = ()


class Violation(Exception):
    """A guarantee is violated."""


@dataclass(frozen=True)
class Found:
    """The result of the search: `trace` has the steps of the shortest run that violates a guarantee, or is None."""

    states: int
    complete: int
    violation: str | None = None
    trace: tuple[str, ...] | None = None


def search(protection: Protection, *, epochs: int = 2, generations: int = 3) -> Found:
    """Visit every reachable state, breadth first."""
    start = System(
        (Engine(), Engine()), records=(0,) * epochs, manifests=(None,) * epochs, records_ever=(0,) * epochs
    )
    reached_from: dict[System, tuple[System | None, str]] = {start: (None, "")}
    pending, complete = deque([start]), 0
    while pending:
        system = pending.popleft()
        complete += any(engine.at == "done" for engine in system.engines)
        try:
            for step, after in next_steps(system, protection, generations):
                if after not in reached_from:
                    reached_from[after] = (system, step)
                    pending.append(after)
        except Violation as violation:
            return Found(
                len(reached_from), complete, str(violation), (*_trace(reached_from, system), str(violation))
            )
    return Found(len(reached_from), complete)


def _trace(reached_from: dict[System, tuple[System | None, str]], system: System | None) -> list[str]:
    steps: list[str] = []
    while system is not None:
        system, step = reached_from[system]
        steps.append(step)
    return steps[-2::-1]


def next_steps(system: System, protection: Protection, generations: int) -> Iterator[tuple[str, System]]:
    """Yield every step that is possible next, with the state after it."""
    if system.holder >= 0:
        yield "the lease expires", system._replace(holder=-1)
    for epoch in sorted(system.files):
        # with an interval the reader may remove a file once a later epoch has one
        if epoch >= system.manifests_ever and (protection.every == 1 or epoch + 1 >= len(system.delivered)):
            continue
        yield f"the reader removes epoch {epoch}", system._replace(files=system.files - {epoch})
    for who, engine in enumerate(system.engines):
        name = "AB"[who]
        if engine.at == "idle":
            if system.holder < 0 and system.generations_granted < generations:
                number = system.generations_granted + 1
                taken = system._replace(holder=who, generations_granted=number)
                yield f"{name} acquires the lease", _replace_engine(taken, who, Engine("claim", number))
            continue
        yield f"{name} crashes", _replace_engine(system, who, Engine())
        if engine.at != "done":
            step = f"{name} (generation {engine.generation}, epoch {len(engine.chain)}): {engine.at}"
            try:
                for after in STEPS[engine.at](system, who, engine, protection):
                    yield step, after
            except Violation as violation:
                raise Violation(f"{step}: {violation}") from None


def _replace_engine(system: System, who: int, engine: Engine) -> System:
    engines = (engine, system.engines[1]) if who == 0 else (system.engines[0], engine)
    return system._replace(engines=engines)


def _fenced(system: System, who: int, engine: Engine) -> Iterator[System]:
    if engine.generation >= system.generations_granted:
        raise Violation(f"generation {engine.generation} is fenced, and it is the highest")
    yield _replace_engine(system, who, Engine())


# -- taking over ---------------------------------------------------------------------------------


def claim(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """Create the generation's directory for temporary files."""
    directories = system.state_directories | {engine.generation} if protection.generations else frozenset()
    yield _replace_engine(system._replace(state_directories=directories), who, engine._replace(at="look"))


def look(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """List the directories: is there one of a higher generation?"""
    if protection.checks_higher and any(other > engine.generation for other in system.state_directories):
        yield from _fenced(system, who, engine)
    else:
        chain = () if protection.reads_last else _latest(system)
        yield _replace_engine(system, who, engine._replace(at="clear", chain=chain))


def clear(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """Remove the directories of lower generations, one at a time."""
    lower = [other for other in system.state_directories if other < engine.generation]
    if lower:
        yield _replace_engine(
            system._replace(state_directories=system.state_directories - {min(lower)}), who, engine
        )
    else:
        yield _replace_engine(system, who, engine._replace(at="read"))


def read(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """Read the state only now, after lower generations are fenced."""
    chain = _latest(system) if protection.reads_last else engine.chain
    yield _replace_engine(system, who, _next(system, engine._replace(chain=chain)))


def _latest(system: System) -> tuple[int, ...]:
    return next((chain for chain in reversed(system.manifests) if chain is not None), ())


def _next(system: System, engine: Engine) -> Engine:
    if len(engine.chain) == len(system.records):
        if [epoch for epoch, _ in system.delivered] != list(range(len(system.records))):
            raise Violation("an engine has finished, and the sink's reader has not seen every epoch")
        return engine._replace(at="done", content=0)
    return engine._replace(at="record", content=0)


# -- an epoch ------------------------------------------------------------------------------------


def _may_write(
    system: System, who: int, protection: Protection, directories: frozenset[int], generation: int
) -> bool:
    if protection.lease and system.holder != who:
        return False
    return not protection.generations or generation in directories


def record(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """Look for the epoch's record; write a temporary one if there is none."""
    epoch = len(engine.chain)
    if system.records[epoch]:
        then = "look ahead" if protection.every > 1 and protection.skips_delivered else "take sink"
        yield _replace_engine(system, who, engine._replace(at=then, content=system.records[epoch]))
    elif _may_write(system, who, protection, system.state_directories, engine.generation):
        yield _replace_engine(system, who, engine._replace(at="link record"))
    else:
        yield _replace_engine(system, who, Engine())


def link_record(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    if protection.generations and engine.generation not in system.state_directories:
        yield from _fenced(system, who, engine)
        return
    epoch = len(engine.chain)
    content = system.records[epoch]
    if not content or not protection.exclusive:
        content = engine.generation  # each generation would record another content
        if system.records_ever[epoch] not in (0, content):
            raise Violation(f"epoch {epoch} has two contents")
        system = system._replace(
            records=_put(system.records, epoch, content),
            records_ever=_put(system.records_ever, epoch, content),
        )
    yield _replace_engine(system, who, engine._replace(at="take sink", content=content))


def look_ahead(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """Skip delivery if the next epoch is recorded: whoever recorded it had delivered this one."""
    after = len(engine.chain) + 1
    is_delivered = after < len(system.records) and system.records[after]
    yield _replace_engine(system, who, engine._replace(at="commit" if is_delivered else "take sink"))


def take_sink(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """As `claim`, for the sink, before the first write to it."""
    if engine.holds_sink or not protection.generations:
        yield _replace_engine(system, who, engine._replace(at="deliver"))
    else:
        directories = system.sink_directories | {engine.generation}
        yield _replace_engine(
            system._replace(sink_directories=directories),
            who,
            engine._replace(at="look at sink", holds_sink=True),
        )


def look_at_sink(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    if any(other > engine.generation for other in system.sink_directories):
        yield from _fenced(system, who, engine)
    else:
        yield _replace_engine(system, who, engine._replace(at="clear sink"))


def clear_sink(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    lower = [other for other in system.sink_directories if other < engine.generation]
    if lower:
        yield _replace_engine(
            system._replace(sink_directories=system.sink_directories - {min(lower)}), who, engine
        )
    else:
        yield _replace_engine(system, who, engine._replace(at="deliver"))


def deliver(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """Look for the epoch's file in the sink; write a temporary one if there is none."""
    if len(engine.chain) in system.files:
        yield _replace_engine(system, who, engine._replace(at="commit"))
    elif _may_write(system, who, protection, system.sink_directories, engine.generation):
        yield _replace_engine(system, who, engine._replace(at="link file"))
    else:
        yield _replace_engine(system, who, Engine())


def link_file(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    if protection.generations and engine.generation not in system.sink_directories:
        yield from _fenced(system, who, engine)
        return
    epoch = len(engine.chain)
    if epoch not in system.files or not protection.exclusive:
        if epoch != len(system.delivered):
            raise Violation(f"the sink's reader sees epoch {epoch} after {len(system.delivered)} epochs")
        if engine.content != system.records_ever[epoch]:
            raise Violation(f"the sink's reader sees another content of epoch {epoch}")
        system = system._replace(
            files=system.files | {epoch}, delivered=(*system.delivered, (epoch, engine.content))
        )
    yield _replace_engine(system, who, engine._replace(at="commit"))


def commit(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """Write a temporary manifest; or keep the state in memory, between two manifests."""
    done = len(engine.chain) + 1
    if done % protection.every and done < len(system.records):
        yield _replace_engine(
            system, who, _next(system, engine._replace(chain=(*engine.chain, engine.content)))
        )
    elif _may_write(system, who, protection, system.state_directories, engine.generation):
        yield _replace_engine(system, who, engine._replace(at="link manifest"))
    else:
        yield _replace_engine(system, who, Engine())


def link_manifest(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    epoch, chain = len(engine.chain), (*engine.chain, engine.content)
    if protection.generations and engine.generation not in system.state_directories:
        yield from _fenced(system, who, engine)
    elif system.manifests[epoch] is not None and protection.exclusive:
        yield _replace_engine(system, who, Engine())  # EPOCH_COMMITTED_TWICE
    else:
        if epoch < system.manifests_ever:
            raise Violation(f"epoch {epoch} has two manifests")
        if chain != system.records_ever[: epoch + 1]:
            raise Violation(f"the manifest of epoch {epoch} does not follow from the records")
        if epoch >= len(system.delivered):
            raise Violation(f"epoch {epoch} has a manifest, and was never delivered")
        system = system._replace(manifests=_put(system.manifests, epoch, chain), manifests_ever=epoch + 1)
        yield _replace_engine(system, who, engine._replace(at="remove old state", chain=chain, content=0))


def remove_old_state(system: System, who: int, engine: Engine, protection: Protection) -> Iterator[System]:
    """Remove an old manifest and its record, one name at a time; the newest manifest and its record stay."""
    newest = len(engine.chain) - 1
    for epoch in range(newest):
        if system.manifests[epoch] is not None:
            yield _replace_engine(system._replace(manifests=_put(system.manifests, epoch, None)), who, engine)
            return
        if system.records[epoch]:
            yield _replace_engine(system._replace(records=_put(system.records, epoch, 0)), who, engine)
            return
    yield _replace_engine(system, who, _next(system, engine))


def _put(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])


STEPS = {
    step.__name__.replace("_", " "): step
    for step in (
        claim, look, clear, read, record, link_record, look_ahead, take_sink, look_at_sink, clear_sink,
        deliver, link_file, commit, link_manifest, remove_old_state,
    )
}  # fmt: skip
