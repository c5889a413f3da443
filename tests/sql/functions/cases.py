"""All calls that Spark and Penstock evaluate, with equal results."""

from __future__ import annotations

from tests.sql.functions.texts import JSON, PATTERNS, TEXTS, WEB
from tests.sql.functions.values import LISTS, NUMBERS, READ, TIMES

CASES = (TEXTS, PATTERNS, NUMBERS, TIMES, READ, JSON, WEB, LISTS)
#: functions whose results differ on purpose
NOT_COMPARED = {
    "size": "Spark returns -1 for NULL",
    "cardinality": "Spark returns -1 for NULL",
}
