"""The format of a state directory, and the refusal of one that a newer Penstock wrote.

1    ids of operators are made of the names of classes
2    ids are made of kinds; a manifest has the identity of each operator's state
"""

from __future__ import annotations

from typing import Any

from penstock.errors import UserError

FORMAT = 2
#: the key of the format in files; a file without it has format 1
KEY = "format"


def refuse_newer(what: str, content: dict[str, Any]) -> None:
    """Raise if the content of a file has a format that this Penstock does not know."""
    found = content.get(KEY, 1)
    if found > FORMAT:
        raise UserError(
            "STATE_OF_NEWER_FORMAT",
            f"{what} was written by a newer Penstock",
            detail=f"its format is {found}, this Penstock knows up to {FORMAT}",
            hint="Use the newer Penstock, or another directory.",
        )
