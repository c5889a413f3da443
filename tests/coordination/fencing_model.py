"""A model of two engines on one state directory and one sink, and a search through all it can do.

Receives what protects the writers (`Protection`); hands the number of states there are, or the shortest way to a state
in which a promise is broken.

Each step is one operation of a file system or of the coordination store, so an engine may be paused between any two of
them, for as long as it likes: that is what the order of steps means. Crashes may come at any step, and a lease may run
out at any time, whoever holds it. The reader of the sink takes away files of committed epochs, and old records and
manifests are recycled, so that "it is there already" cannot be relied on. (A file taken away before its epoch is
committed would be written again after any crash, of one engine alone: the search found that first.)

The promises:
- an epoch record, once in force, is never another (no epoch has two contents);
- an epoch's manifest is put in place once, and follows from the records;
- the sink's reader meets every epoch once, in order, with the recorded content;
- a manifest stands only for an epoch that the sink holds (no result is lost);
- an engine of the highest generation is never turned away (somebody can go on).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Protection:
    """What stands between two writers.

    `generations`: drafts lie in a directory of their generation, which whoever takes over removes.
    `exclusive`: a name is put in place by `link`, which refuses one that is there (else by `rename`, which does not).
    `lease`: before each write the engine looks whether its lease has run out.
    `looks_up`: after making its directory an engine looks for a higher one.
    `reads_last`: the state is read when the directories of lower generations are gone, not before.
    `every`: epochs from one manifest to the next; of those in between the state dies with its engine.
    `looks_ahead`: a recorded epoch that has a recorded successor is not offered to the sink again.
    """

    generations: bool = True
    exclusive: bool = True
    lease: bool = False
    looks_up: bool = True
    reads_last: bool = True
    every: int = 1
    looks_ahead: bool = True


class Engine(NamedTuple):
    """Where an engine is. `chain` is the state it works on: the contents of the epochs before this one."""

    at: str = "idle"
    generation: int = 0
    chain: tuple[int, ...] = ()
    content: int = 0
    holds_sink: bool = False


class World(NamedTuple):
    """Everything outside the engines, and what has ever been (`*_ever`, `met`), which nobody can look at."""

    engines: tuple[Engine, Engine]
    holder: int = -1
    given: int = 0
    state_drafts: frozenset[int] = frozenset()
    sink_drafts: frozenset[int] = frozenset()
    records: tuple[int, ...] = ()
    manifests: tuple[tuple[int, ...] | None, ...] = ()
    files: frozenset[int] = frozenset()
    records_ever: tuple[int, ...] = ()
    manifests_ever: int = 0
    met: tuple[tuple[int, int], ...] = ()


class Broken(Exception):
    """A promise is broken."""


@dataclass(frozen=True)
class Found:
    """What the search came to: `way` is the shortest to a broken promise, step by step; None if there is none."""

    states: int
    complete: int
    broken: str | None = None
    way: tuple[str, ...] | None = None


def search(protection: Protection, *, epochs: int = 2, generations: int = 3) -> Found:
    """Visit every state that can be reached, nearest first."""
    begin = World(
        (Engine(), Engine()), records=(0,) * epochs, manifests=(None,) * epochs, records_ever=(0,) * epochs
    )
    came: dict[World, tuple[World | None, str]] = {begin: (None, "")}
    waiting, complete = deque([begin]), 0
    while waiting:
        world = waiting.popleft()
        complete += any(engine.at == "done" for engine in world.engines)
        try:
            for step, after in moves(world, protection, generations):
                if after not in came:
                    came[after] = (world, step)
                    waiting.append(after)
        except Broken as broken:
            return Found(len(came), complete, str(broken), (*_way(came, world), str(broken)))
    return Found(len(came), complete)


def _way(came: dict[World, tuple[World | None, str]], world: World | None) -> list[str]:
    steps: list[str] = []
    while world is not None:
        world, step = came[world]
        steps.append(step)
    return steps[-2::-1]


def moves(world: World, protection: Protection, generations: int) -> Iterator[tuple[str, World]]:
    """Every step that can be next, with where it leads."""
    if world.holder >= 0:
        yield "the lease runs out", world._replace(holder=-1)
    for epoch in sorted(world.files):
        # with an interval a file may be taken once a later epoch has one
        if epoch >= world.manifests_ever and (protection.every == 1 or epoch + 1 >= len(world.met)):
            continue
        yield f"the reader takes epoch {epoch} away", world._replace(files=world.files - {epoch})
    for who, engine in enumerate(world.engines):
        name = "AB"[who]
        if engine.at == "idle":
            if world.holder < 0 and world.given < generations:
                number = world.given + 1
                taken = world._replace(holder=who, given=number)
                yield f"{name} takes the lease", _moved(taken, who, Engine("claim", number))
            continue
        yield f"{name} crashes", _moved(world, who, Engine())
        if engine.at != "done":
            step = f"{name} (generation {engine.generation}, epoch {len(engine.chain)}): {engine.at}"
            try:
                for after in STEPS[engine.at](world, who, engine, protection):
                    yield step, after
            except Broken as broken:
                raise Broken(f"{step}: {broken}") from None


def _moved(world: World, who: int, engine: Engine) -> World:
    engines = (engine, world.engines[1]) if who == 0 else (world.engines[0], engine)
    return world._replace(engines=engines)


def _fenced(world: World, who: int, engine: Engine) -> Iterator[World]:
    if engine.generation >= world.given:
        raise Broken(f"generation {engine.generation} is turned away, and there is none above it")
    yield _moved(world, who, Engine())


# -- taking over ---------------------------------------------------------------------------------


def claim(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """mkdir of the generation's directory for drafts."""
    drafts = world.state_drafts | {engine.generation} if protection.generations else frozenset()
    yield _moved(world._replace(state_drafts=drafts), who, engine._replace(at="look"))


def look(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """A listing: is there a higher one?"""
    if protection.looks_up and any(other > engine.generation for other in world.state_drafts):
        yield from _fenced(world, who, engine)
    else:
        chain = () if protection.reads_last else _latest(world)
        yield _moved(world, who, engine._replace(at="clear", chain=chain))


def clear(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """Remove a lower one's drafts, one directory at a time."""
    lower = [other for other in world.state_drafts if other < engine.generation]
    if lower:
        yield _moved(world._replace(state_drafts=world.state_drafts - {min(lower)}), who, engine)
    else:
        yield _moved(world, who, engine._replace(at="read"))


def read(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """Only now find out where the state stands."""
    chain = _latest(world) if protection.reads_last else engine.chain
    yield _moved(world, who, _next(world, engine._replace(chain=chain)))


def _latest(world: World) -> tuple[int, ...]:
    return next((chain for chain in reversed(world.manifests) if chain is not None), ())


def _next(world: World, engine: Engine) -> Engine:
    if len(engine.chain) == len(world.records):
        if [epoch for epoch, _ in world.met] != list(range(len(world.records))):
            raise Broken("an engine has come to the end, and the sink's reader has not met every epoch")
        return engine._replace(at="done", content=0)
    return engine._replace(at="record", content=0)


# -- an epoch ------------------------------------------------------------------------------------


def _may_write(
    world: World, who: int, protection: Protection, drafts: frozenset[int], generation: int
) -> bool:
    if protection.lease and world.holder != who:
        return False
    return not protection.generations or generation in drafts


def record(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """Look for the epoch's record; write the draft of one if there is none."""
    epoch = len(engine.chain)
    if world.records[epoch]:
        then = "look ahead" if protection.every > 1 and protection.looks_ahead else "take sink"
        yield _moved(world, who, engine._replace(at=then, content=world.records[epoch]))
    elif _may_write(world, who, protection, world.state_drafts, engine.generation):
        yield _moved(world, who, engine._replace(at="link record"))
    else:
        yield _moved(world, who, Engine())


def link_record(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    if protection.generations and engine.generation not in world.state_drafts:
        yield from _fenced(world, who, engine)
        return
    epoch = len(engine.chain)
    content = world.records[epoch]
    if not content or not protection.exclusive:
        content = engine.generation  # what it says differs with who says it
        if world.records_ever[epoch] not in (0, content):
            raise Broken(f"epoch {epoch} has two contents")
        world = world._replace(
            records=_put(world.records, epoch, content), records_ever=_put(world.records_ever, epoch, content)
        )
    yield _moved(world, who, engine._replace(at="take sink", content=content))


def look_ahead(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """Whoever recorded the next epoch had delivered this one."""
    after = len(engine.chain) + 1
    told = after < len(world.records) and world.records[after]
    yield _moved(world, who, engine._replace(at="commit" if told else "take sink"))


def take_sink(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """As `claim`, for the sink, before the first write to it."""
    if engine.holds_sink or not protection.generations:
        yield _moved(world, who, engine._replace(at="deliver"))
    else:
        drafts = world.sink_drafts | {engine.generation}
        yield _moved(
            world._replace(sink_drafts=drafts), who, engine._replace(at="look at sink", holds_sink=True)
        )


def look_at_sink(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    if any(other > engine.generation for other in world.sink_drafts):
        yield from _fenced(world, who, engine)
    else:
        yield _moved(world, who, engine._replace(at="clear sink"))


def clear_sink(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    lower = [other for other in world.sink_drafts if other < engine.generation]
    if lower:
        yield _moved(world._replace(sink_drafts=world.sink_drafts - {min(lower)}), who, engine)
    else:
        yield _moved(world, who, engine._replace(at="deliver"))


def deliver(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """Look whether the sink holds the epoch; write the draft of its file if not."""
    if len(engine.chain) in world.files:
        yield _moved(world, who, engine._replace(at="commit"))
    elif _may_write(world, who, protection, world.sink_drafts, engine.generation):
        yield _moved(world, who, engine._replace(at="link file"))
    else:
        yield _moved(world, who, Engine())


def link_file(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    if protection.generations and engine.generation not in world.sink_drafts:
        yield from _fenced(world, who, engine)
        return
    epoch = len(engine.chain)
    if epoch not in world.files or not protection.exclusive:
        if epoch != len(world.met):
            raise Broken(f"the sink's reader meets epoch {epoch} after {len(world.met)} epochs")
        if engine.content != world.records_ever[epoch]:
            raise Broken(f"the sink's reader meets another content of epoch {epoch}")
        world = world._replace(files=world.files | {epoch}, met=(*world.met, (epoch, engine.content)))
    yield _moved(world, who, engine._replace(at="commit"))


def commit(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """Write the manifest's draft; or keep the state in memory, between two manifests."""
    done = len(engine.chain) + 1
    if done % protection.every and done < len(world.records):
        yield _moved(world, who, _next(world, engine._replace(chain=(*engine.chain, engine.content))))
    elif _may_write(world, who, protection, world.state_drafts, engine.generation):
        yield _moved(world, who, engine._replace(at="link manifest"))
    else:
        yield _moved(world, who, Engine())


def link_manifest(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    epoch, chain = len(engine.chain), (*engine.chain, engine.content)
    if protection.generations and engine.generation not in world.state_drafts:
        yield from _fenced(world, who, engine)
    elif world.manifests[epoch] is not None and protection.exclusive:
        yield _moved(world, who, Engine())  # EPOCH_COMMITTED_TWICE
    else:
        if epoch < world.manifests_ever:
            raise Broken(f"epoch {epoch} has two manifests")
        if chain != world.records_ever[: epoch + 1]:
            raise Broken(f"the manifest of epoch {epoch} does not follow from the records")
        if epoch >= len(world.met):
            raise Broken(f"epoch {epoch} has a manifest, and the sink has never had it")
        world = world._replace(manifests=_put(world.manifests, epoch, chain), manifests_ever=epoch + 1)
        yield _moved(world, who, engine._replace(at="recycle", chain=chain, content=0))


def recycle(world: World, who: int, engine: Engine, protection: Protection) -> Iterator[World]:
    """Remove an old manifest and its record, one name at a time; the newest manifest and its record stay."""
    newest = len(engine.chain) - 1
    for epoch in range(newest):
        if world.manifests[epoch] is not None:
            yield _moved(world._replace(manifests=_put(world.manifests, epoch, None)), who, engine)
            return
        if world.records[epoch]:
            yield _moved(world._replace(records=_put(world.records, epoch, 0)), who, engine)
            return
    yield _moved(world, who, _next(world, engine))


def _put(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])


STEPS = {
    step.__name__.replace("_", " "): step
    for step in (
        claim, look, clear, read, record, link_record, look_ahead, take_sink, look_at_sink, clear_sink,
        deliver, link_file, commit, link_manifest, recycle,
    )
}  # fmt: skip
