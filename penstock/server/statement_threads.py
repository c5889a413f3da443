"""Execute statements in a few threads of their own, and bound how many wait.

Checks of statements wait for each other, up to their deadline. In threads of their own they keep no request waiting
that reads results, and a caller who sends many keeps no place from others.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from penstock.errors import UserError
from penstock.server.limits import Limits
from penstock.server.tokens import CALLER

P = ParamSpec("P")
T = TypeVar("T")
_THREADS = 4


class StatementThreads:
    """The threads, and how many statements each caller has under way. For the event loop of one server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-statement")
        self._under_way: Counter[str] = Counter()

    async def run(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a function in one of the threads, in the context of the caller; TOO_MANY_REQUESTS if too many wait."""
        caller = CALLER.get()
        name = "" if caller is None else f"{caller.name} {caller.address}"
        limits = self._limits
        own, every = self._under_way[name], self._under_way.total()
        if every >= limits.statements or own >= limits.statements_per_caller:
            raise UserError(
                "TOO_MANY_REQUESTS",
                f"{own} statements of this caller, and {every} in all, are under way",
                hint=f"At most {limits.statements_per_caller} and {limits.statements} may be. Wait for their replies.",
            )
        self._under_way[name] += 1
        call = functools.partial(contextvars.copy_context().run, function, *arguments, **options)
        execution = asyncio.get_running_loop().run_in_executor(self._threads, call)
        execution.add_done_callback(lambda _: self._count_down(name))
        return await asyncio.shield(execution)

    def close(self) -> None:
        """Start no more; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count_down(self, name: str) -> None:
        self._under_way[name] -= 1
        if not self._under_way[name]:
            del self._under_way[name]
