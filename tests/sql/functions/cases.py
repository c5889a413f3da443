"""All that is asked of Spark and of Penstock, which must answer alike."""

from __future__ import annotations

from tests.sql.functions.texts import JSON, PATTERNS, TEXTS, WEB
from tests.sql.functions.values import LISTS, NUMBERS, READ, TIMES

CASES = (TEXTS, PATTERNS, NUMBERS, TIMES, READ, JSON, WEB, LISTS)
#: functions Spark has only under conditions of its own, or answers with an error where Penstock says NULL
NOT_ASKED = {
    "size": "Spark says -1 for NULL",
    "cardinality": "Spark says -1 for NULL",
}
