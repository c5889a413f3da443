"""Refuses to follow a leader that runs other code: the two engines would give different rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import UserError
from penstock.query.code_digests import find_differences
from penstock.query.describe_code import PYTHON

#: names in the message
_LISTED = 5


def check_replica(mine: Mapping[str, str], leaders: Mapping[str, str] | None) -> None:
    """Raise if a follower's code differs from the leader's; pass if the leader has not written its own."""
    if leaders is None or not (names := find_differences(mine, leaders)):
        return
    if names[0] == PYTHON:
        mine_is, leaders_is = mine.get(PYTHON, "none"), leaders.get(PYTHON, "none")
        detail = f"functions are compiled by {mine_is} here, by {leaders_is} there"
    else:
        functions = [name for name in names if ": " not in name] or names
        more = len(functions) - _LISTED
        listed = ", ".join(functions[:_LISTED])
        detail = f"what differs: {listed}" + (f" and {more} more" if more > 0 else "")
    raise UserError(
        "REPLICA_RUNS_OTHER_CODE",
        "this engine has loaded other code than the engine that it is to follow",
        detail=detail,
        hint="Put the same version of the file, and of what it imports, on every host and start this engine again. To "
        "change the code of a unit, stop it and start it again.",
    )
