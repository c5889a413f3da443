"""All cases, by name."""

from __future__ import annotations

from tests.golden.case import Case
from tests.golden.cases import aggregates, custom, dealing, keyed, meetings, tops, windows

_ALL = (
    Case("time-windows", windows.time_windows),
    Case("emissions", windows.emissions),
    Case("event-windows", windows.event_windows),
    Case("last-and-distinct", keyed.last_and_distinct),
    Case("patterns", keyed.patterns),
    Case("row-functions", keyed.row_functions),
    Case("joins", meetings.joins),
    Case("lookups", meetings.lookups),
    Case("products", meetings.products),
    Case("tops", tops.tops),
    Case("custom-operators", custom.custom_operators),
    Case("user-aggregates", custom.user_aggregates),
    Case("aggregates-in-windows", aggregates.in_windows),
    Case("aggregates-running", aggregates.running),
    Case("aggregates-of-events", aggregates.of_events),
    Case("partitioned", dealing.partitioned),
    Case("united", dealing.united, stateless=frozenset({"late"})),
)
CASES = {case.name: case for case in _ALL}
