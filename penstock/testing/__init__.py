"""The testing kit, for Penstock's own tests and for users' tests, without a broker and without mocks.

`ListLog` and `ListSink` are the ends of a query. `run_inline` runs it in milliseconds without Spark; `three_ways` runs
it on Spark straight, in other epochs, and killed at every step. `ManualClock` is a clock that a test turns.
`LogContract`, `SinkContract` and `CoordinationContract` are suites that every log, sink and coordination store must
pass.
"""

from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink
from penstock.testing.manual_clock import ManualClock

__all__ = ["ListLog", "ListSink", "ManualClock", "run_inline"]
