"""A sink that appends to a stream of Redis: one entry a row, its field `row` a JSON object.

One script, which the server executes atomically, appends the rows of an epoch and writes epoch, generation and the
digests of the newest epochs (see `recent_epochs`) to the hash `{KEY}:penstock`.

Guarantees: readers see all rows of an epoch or none, once; rows of a lower generation are refused by the same script.
Does not guarantee: more than the server does. With `appendfsync everysec` a power loss loses the rows of a second
together with their epoch; without persistence, a restart loses everything.
On failure: `ExternalError` SINK_UNWRITABLE, or FENCED. A lost response does no harm: the epoch is delivered again, and
the hash has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from penstock.errors import ExternalError
from penstock.extras import extra
from penstock.logs.redis_streams import is_transient_error
from penstock.secret_store import redact, reveal
from penstock.sinks.contract import Sink, SinkEpoch
from penstock.sinks.portable import reorder_columns, to_portable
from penstock.sinks.recent_epochs import RECENT_EPOCHS, digest_in, other_epoch_error
from penstock.state.generation import fenced_error

if TYPE_CHECKING:
    import redis

_SECONDS = 60.0
#: returns {0, newest generation} when refused, {1, 0} when the epoch is there already, {2, 0} when written, {3, 0} when
#: another epoch of its number is there
_SCRIPT = """
local job, epoch, mine, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local digest, kept = ARGV[5], tonumber(ARGV[6])
local newest = tonumber(redis.call('HGET', KEYS[2], job .. ':generation') or 0)
if mine > 0 and newest > mine then return {0, newest} end
if mine > newest then redis.call('HSET', KEYS[2], job .. ':generation', mine) end
if #ARGV == 6 then return {2, 0} end
local recent = redis.call('HGET', KEYS[2], job .. ':recent') or ''
local known = string.match(';' .. recent, ';' .. ARGV[2] .. '=(%x+);')
if known and digest ~= '' and known ~= digest then return {3, 0} end
if tonumber(redis.call('HGET', KEYS[2], job .. ':epoch') or -1) >= epoch then return {1, 0} end
for at = 7, #ARGV do redis.call('XADD', KEYS[1], '*', 'epoch', epoch, 'row', ARGV[at]) end
if most > 0 then redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', most) end
redis.call('HSET', KEYS[2], job .. ':epoch', epoch)
if digest ~= '' then
  recent = recent .. ARGV[2] .. '=' .. digest .. ';'
  while select(2, string.gsub(recent, ';', ';')) > kept do recent = string.gsub(recent, '^[^;]*;', '') end
  redis.call('HSET', KEYS[2], job .. ':recent', recent)
end
return {2, 0}
"""


class RedisStream(Sink):
    """Rows in the stream at `key` of the Redis at `address`; with `most_entries`, about so many of the newest
    stay."""

    def __init__(self, address: str, key: str, *, most_entries: int = 0) -> None:
        self._address = address
        self.key = key
        self.most_entries = most_entries
        self._job = ""
        self._generation = 0
        self._columns: list[str] = []
        self._server: redis.Redis | None = None

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Connect, and check that the key is free or has a stream."""
        self.close()
        self._job, self._generation, self._columns = job, 0, list(schema)
        with self._translate_errors():
            kind: Any = self._connect().type(self.key)
        if kind not in (b"none", b"stream"):
            raise ExternalError(
                "SINK_UNWRITABLE",
                f"{self.describe()} is no stream",
                detail=f"At that key is a {kind.decode()}.",
                hint="Name another key.",
            )

    def newest_epoch(self) -> SinkEpoch | None:
        """The epoch in the hash."""
        with self._translate_errors():
            epoch, recent, generation = cast(
                "list[bytes | None]",
                self._connect().hmget(
                    f"{{{self.key}}}:penstock",
                    [f"{self._job}:{name}" for name in ("epoch", "recent", "generation")],
                ),
            )
        if epoch is None:
            return None
        return SinkEpoch(int(epoch), digest_in((recent or b"").decode(), int(epoch)), int(generation or 0))

    def take_over(self, generation: int) -> None:
        if generation != self._generation:
            self._run(-1, generation, [])
            self._generation = generation

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Append the rows and write the epoch. An epoch without rows leaves neither."""
        if rows.is_empty():
            return True
        plain = to_portable(reorder_columns(rows, self._columns))
        return self._run(epoch, self._generation, plain.write_ndjson().encode().splitlines())

    def close(self) -> None:
        if self._server is not None:
            with contextlib.suppress(Exception):
                self._server.close()
            self._server = None

    def describe(self) -> str:
        return f"stream {self.key} in Redis"

    def _run(self, epoch: int, generation: int, rows: list[bytes]) -> bool:
        with self._translate_errors():
            done: Any = self._connect().eval(
                _SCRIPT,
                2,
                self.key,
                f"{{{self.key}}}:penstock",
                *[self._job, str(epoch), str(generation), str(self.most_entries)],
                *[self._digest, str(RECENT_EPOCHS)],
                *rows,
            )
        if done[0] == 0:
            raise fenced_error(self.describe(), generation, done[1])
        if done[0] == 3:
            raise other_epoch_error(self.describe(), epoch)
        return bool(done[0] == 2)

    def _connect(self) -> redis.Redis:
        if self._server is None:
            library = extra("redis", "redis", "the Redis sink")
            self._server = library.Redis.from_url(
                reveal(self._address),
                socket_timeout=_SECONDS,
                socket_connect_timeout=10,
                health_check_interval=30,
            )
        return self._server

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        errors = extra("redis", "redis", "the Redis sink").exceptions
        try:
            yield
        except (errors.RedisError, OSError) as problem:
            raise ExternalError(
                "SINK_UNWRITABLE",
                f"could not write to {self.describe()}",
                detail=f"{redact(str(problem), self._address)}.",
                hint="Check that the server runs, has memory left and lets this user write. The rows wait for that; "
                "RESUME the job if it has failed.",
                is_transient=is_transient_error(problem),
            ) from problem
