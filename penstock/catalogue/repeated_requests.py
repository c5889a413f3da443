"""Statements that are said again because nobody knows whether they were heard: they are carried out once. Pure.

Receives the request they are said under, a name that whoever says them has made up; hands the command that keeps what
was answered, in the same entry of the log as what was done, and the answers when the request comes again. The
catalogue has the answers of the latest requests. Of questions among the statements the rows are not kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from penstock.catalogue.accepted import Accepted
from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import Answered, RememberAnswers
from penstock.errors import UserError

_REQUEST = re.compile(r"[\x21-\x7e]{1,100}")


def answering(request: str, text: str, answers: Sequence[Answered], number: int) -> RememberAnswers:
    """The command that keeps what is answered to a request, under the number it is kept with."""
    kept = tuple(replace(answer, rows=()).numbered(number) for answer in answers)
    return RememberAnswers(request, _digest(text), kept)


def repeated(request: str, text: str, catalogue: Catalogue) -> Accepted | None:
    """What was answered to a request; None the first time."""
    if not _REQUEST.fullmatch(request):
        raise UserError(
            "BAD_REQUEST",
            "this cannot name a request",
            hint="Use up to 100 visible characters of ASCII, without blanks.",
        )
    if request not in catalogue.answered:
        return None
    kept = catalogue.answered[request]
    if kept.digest != _digest(text):
        raise UserError(
            "REQUEST_REUSED",
            "something else was said under this name of a request",
            hint="Give every request a name of its own; use it again only to say the same again.",
        )
    return Accepted(catalogue, answers=list(kept.answers))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
