"""How far a follower may be behind before it takes over the leader's state instead of repeating epochs. Pure.

The leader keeps its newest manifests, and lets logs forget what lies before the oldest of them. A follower that has not
come that far may find its input gone, so it takes the state, and never the lease, from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import PenstockError

#: an engine's own loss of its place, or its own version of a file; what ends one that follows, and says nothing of
#: those that lead
_ITS_OWN = ("FENCED", "LEASE_LOST", "STORE_UNAVAILABLE", "REPLICA_RUNS_OTHER_CODE")
_FOLLOWING = ("FOLLOWS_OTHERWISE", "COMMANDS_GONE")
#: a follower this many epochs behind takes over the leader's state: that is quicker
MOST_BEHIND = 100


def must_resync(reached: int, recorded: Sequence[int], kept: Sequence[int], every: int = 1) -> bool:
    """Whether to take over the leader's state: by the last epoch we have done, and by those that have a record in the
    unit's book and a manifest of the leader's, both ascending. `every`: epochs from one manifest to the next.
    """
    records_gone = bool(recorded) and recorded[0] > reached + 1
    too_many = bool(recorded) and recorded[-1] - reached > max(MOST_BEHIND, 2 * every)
    input_gone = bool(kept) and kept[0] > max(reached, 0)
    return records_gone or too_many or input_gone


def was_left_behind(error: PenstockError) -> bool:
    """Whether a follower's error says that what it had to repeat is gone, or in no copy of the log that it reaches."""
    return error.condition in ("LOG_SPAN_GONE", "COPY_BEHIND", "COMMANDS_GONE")


def may_be_others(error: PenstockError, *, led: bool) -> bool:
    """Whether what an engine ends with may end further engines of the unit as well; `led`: it had come to lead."""
    return error.condition not in _ITS_OWN and (led or error.condition not in _FOLLOWING)
