"""Execute a request once that is sent again because the sender does not know whether it arrived. Pure.

The sender names its request. A command that keeps the replies is in the same entry of the log as what the request did,
and the catalogue has the replies to the latest requests. Of questions among the statements the rows are not kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from penstock.catalogue.acceptance import Acceptance
from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import RememberReplies, Reply
from penstock.errors import UserError

_REQUEST = re.compile(r"[\x21-\x7e]{1,100}")


def remember_replies(request: str, text: str, replies: Sequence[Reply], number: int) -> RememberReplies:
    """The command that keeps the replies to a request; `number`: that of its entry."""
    kept = tuple(replace(reply, rows=()).with_number(number) for reply in replies)
    return RememberReplies(request, _digest(text), kept)


def find_replies(request: str, text: str, catalogue: Catalogue) -> Acceptance | None:
    """The replies to a request that was accepted before; None the first time."""
    if not _REQUEST.fullmatch(request):
        raise UserError(
            "BAD_REQUEST",
            "this cannot name a request",
            hint="Use up to 100 visible characters of ASCII, without blanks.",
        )
    if request not in catalogue.replies:
        return None
    kept = catalogue.replies[request]
    if kept.digest != _digest(text):
        raise UserError(
            "REQUEST_REUSED",
            "another request was sent under this name",
            hint="Name every request differently; use a name again only to send the same request again.",
        )
    return Acceptance(catalogue, replies=list(kept.replies))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
