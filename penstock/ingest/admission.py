"""Decides which connections a gateway holds open: pure bookkeeping, without sockets.

A connection is *waiting* until it has said who it is, with the token that is required, then *established*.

- Whoever connects without a word takes a waiting place only. There are few; a new connection takes that of the
  oldest. A sender that speaks at once is through long before, however many others are silent.
- Established connections are limited in total and for each address. Nobody takes the place of one.
- All together leave descriptors to the log's files.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.errors import ExternalError


@dataclass(frozen=True)
class Bounds:
    """How many connections there may be."""

    most: int = 2048
    most_per_address: int = 1024
    most_waiting: int = 512
    most_waiting_per_address: int = 128


@dataclass(eq=False)
class Place:
    """The place of one connection. `close` closes it."""

    address: str
    close: Callable[[], None] = field(repr=False)


class Admission:
    """The places of all connections. `room`: how many there may be by the limit of descriptors."""

    def __init__(self, bounds: Bounds, room: Callable[[], int]) -> None:
        self.bounds, self._room = bounds, room
        #: in the order of their arrival
        self._waiting: dict[Place, None] = {}
        self._established: set[Place] = set()
        self._waiting_by_address: Counter[str] = Counter()
        self._established_by_address: Counter[str] = Counter()
        #: waiting connections whose place was taken
        self.displaced = 0

    @property
    def waiting(self) -> int:
        """How many connections have not proved who they are."""
        return len(self._waiting)

    @property
    def established(self) -> int:
        """How many have."""
        return len(self._established)

    def admit(self, place: Place) -> bool:
        """Give a new connection a waiting place, if need be that of an older one; False if there is none."""
        address, bounds, room = place.address, self.bounds, self._room()
        share = max(room // 3, 1)  # those that wait never take most of the descriptors
        if self._waiting_by_address[address] >= min(bounds.most_waiting_per_address, share):
            self._displace(address)
        elif len(self._waiting) >= min(bounds.most_waiting, share):
            self._displace(self._waiting_by_address.most_common(1)[0][0])
        if len(self._waiting) + len(self._established) >= room and not self.displace_oldest():
            return False
        self._waiting[place] = None
        self._waiting_by_address[address] += 1
        return True

    def check_room(self, address: str) -> None:
        """Raise unless another connection from an address may be established."""
        if len(self._established) >= self.bounds.most:
            raise _too_many_error(f"the gateway has {self.bounds.most} connections", "--most-connections")
        if self._established_by_address[address] >= self.bounds.most_per_address:
            raise _too_many_error(
                f"there are {self.bounds.most_per_address} connections from {address}", "--most-per-address"
            )

    def establish(self, place: Place) -> None:
        """Make a waiting connection an established one."""
        if place in self._established:
            return
        self.check_room(place.address)
        if place not in self._waiting:
            raise _too_many_error("its place was taken by a newer connection", "--most-connections")
        self.leave(place)
        self._established.add(place)
        self._established_by_address[place.address] += 1

    def leave(self, place: Place) -> None:
        """Forget a connection that is closed."""
        if place in self._waiting:
            del self._waiting[place]
            _count_down(self._waiting_by_address, place.address)
        elif place in self._established:
            self._established.remove(place)
            _count_down(self._established_by_address, place.address)

    def displace_oldest(self) -> bool:
        """Close the connection that has waited longest; False if none waits."""
        if not self._waiting:
            return False
        self._close(next(iter(self._waiting)))
        return True

    def _displace(self, address: str) -> None:
        self._close(next(place for place in self._waiting if place.address == address))

    def _close(self, place: Place) -> None:
        self.leave(place)
        self.displaced += 1
        place.close()


def name_address(host: str) -> str:
    """The address that limits count: an IPv6 host has a whole /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _count_down(counts: Counter[str], address: str) -> None:
    counts[address] -= 1
    if not counts[address]:
        del counts[address]


def _too_many_error(primary: str, option: str) -> ExternalError:
    return ExternalError("TOO_MANY_CONNECTIONS", primary, hint=f"Start the gateway with a larger {option}.")
