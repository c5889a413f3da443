"""Generates click-stream lines, as a shop's web server would write them, from counters.

Receives a range of offsets of a partition and their event times; returns the bytes of their log lines, in
Apache's combined format with the session cookie as one more quoted field.

Invariants:
- A line depends on the settings, the partition, the offset and the event time, on nothing else.
- A whole block of lines is made from columns of cells, without a loop over them.
- A user keeps address, browser and session; popularity of users and pages follows power laws.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import ClassVar

import numpy as np

from penstock.logs.cells import Texts, concatenate_cells, join_blocks, join_rows, to_cells
from penstock.logs.draw import Ints, below, draws, mixed, power_law

_AGENTS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/141.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_1 like Mac OS X) Mobile/15E148",
    "Mozilla/5.0 (Linux; Android 16; Pixel 9) Chrome/141.0 Mobile",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 15_3) Version/19.0 Safari/605.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0",
    "Googlebot/2.1 (+http://www.google.com/bot.html)",
    "curl/8.14.1",
)
_AGENT_SHARES = (34, 24, 18, 12, 8, 3, 1)
_FRONT_PAGES = ("/", "/search", "/cart", "/products", "/login", "/checkout", "/account", "/help")
_POSTED = ("/login", "/checkout")
_SHOP = "http://shop.example"
_REFERER_SHARES = (
    ("-", 20),
    ("https://www.google.com/", 22),
    (f"{_SHOP}/", 15),
    (f"{_SHOP}/search", 15),
    (f"{_SHOP}/products", 10),
    (f"{_SHOP}/cart", 8),
)
_STATUS_SHARES = ((200, 3700), (304, 200), (404, 120), (302, 50), (500, 26))
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY_ZERO = datetime(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Clicks:
    """Who visits what. `zipf_users` and `zipf_pages` are the exponents of the power laws."""

    kind: ClassVar[str] = "click stream"
    file_name: ClassVar[str] = "clicks"
    line_bytes: ClassVar[int] = 190

    seed: int = 1
    users: int = 100_000
    pages: int = 1_000
    zipf_users: float = 1.05
    zipf_pages: float = 1.1
    disorder_seconds: float = 0.0

    def lines(self, partition: int, first: int, instants: Ints) -> bytes:
        """The lines of the offsets from `first`, one for each instant (microseconds since 1970)."""
        return join_blocks(self._block, partition, first, instants)

    def _block(self, partition: int, first: int, instants: Ints) -> memoryview:
        words = _words(self.users, self.pages)
        draw = draws(self.seed, partition, first, len(instants))
        second, third = mixed(draw + np.uint64(1)), mixed(draw + np.uint64(2))
        if self.disorder_seconds:
            reach = round(self.disorder_seconds * 1e6) + 1
            instants = instants - below(mixed(draw + np.uint64(3)), reach)
        users = power_law(self.users, self.zipf_users).ranks(draw)
        pages = power_law(self.pages, self.zipf_pages).ranks(second)
        columns = [
            words.addresses.take(users),
            _format_instants(instants),
            words.requests.take(pages),
            words.answers.take((third & np.uint64(4095)).astype(np.int64)),
            words.referers.take(below(third, len(words.referers))),
            words.agents.take(words.agent_of.take(users)),
            words.sessions.take(users),
        ]
        return join_rows(columns)


@dataclass(frozen=True)
class _Words:
    """The pieces that lines are put together from, each a column to take from."""

    addresses: Texts
    requests: Texts
    answers: Texts
    referers: Texts
    agents: Texts
    agent_of: Ints
    sessions: Texts


@lru_cache(maxsize=4)
def _words(users: int, pages: int) -> _Words:
    rank = np.arange(users)
    shares = np.repeat(np.arange(len(_AGENTS)), _AGENT_SHARES)
    numbers = to_cells([str(i) for i in range(256)])
    octets = [numbers.take(rank // 65_536 % 256), numbers.take(rank // 256 % 256), numbers.take(rank % 256)]
    digits = to_cells([str(i) for i in range(10)])
    paths = [*_FRONT_PAGES, *(f"/products/{i}" for i in range(1, pages + 1))][:pages]
    statuses = [status for status, share in _STATUS_SHARES for _ in range(share)]
    sizes = (300 + below(mixed(np.arange(4096, dtype=np.uint64)), 40_000)).tolist()
    referers = [page for page, share in _REFERER_SHARES for _ in range(share)]
    referers += [_SHOP + path for path in paths[:30]]
    return _Words(
        addresses=concatenate_cells("10.", octets[0], ".", octets[1], ".", octets[2], " - - "),
        requests=to_cells(f'"{"POST" if path in _POSTED else "GET"} {path} HTTP/1.1" ' for path in paths),
        answers=to_cells(_format_answer(*pair) for pair in zip(statuses, sizes, strict=True)),
        referers=to_cells(f'"{page}" ' for page in referers),
        agents=to_cells(f'"{agent}" ' for agent in _AGENTS),
        agent_of=shares.take(below(mixed(rank.astype(np.uint64)), len(shares))),
        sessions=concatenate_cells(
            '"session=u', *(digits.take(rank // 10**i % 10) for i in range(6, -1, -1)), '"\n'
        ),
    )


def _format_answer(status: int, size: int) -> str:
    return f"{status} {'-' if status == 304 else size if status == 200 else size % 700} "


@lru_cache(maxsize=1)
def _two_digits() -> Texts:
    return to_cells(f"{i:02d}" for i in range(60))


def _format_instants(instants: Ints) -> Texts:
    """Format instants as Apache writes them; each second is written out once."""
    two = _two_digits()
    seconds = instants // 1_000_000
    first, last = int(seconds.min()), int(seconds.max())
    if last - first < len(seconds):
        table, index = np.arange(first, last + 1), seconds - first
    else:
        table, index = np.unique(seconds, return_inverse=True)
    day = table // 86_400
    hour, minute, second = (two.take(table // unit % most) for unit, most in ((3600, 24), (60, 60), (1, 60)))
    days = to_cells(_format_day(int(number)) for number in range(int(day[0]), int(day[-1]) + 1)).take(
        day - day[0]
    )
    return concatenate_cells("[", days, ":", hour, ":", minute, ":", second, " +0000] ").take(index)


def _format_day(number: int) -> str:
    date = datetime.fromordinal(_DAY_ZERO + number)
    return f"{date.day:02d}/{_MONTHS[date.month - 1]}/{date.year}"
