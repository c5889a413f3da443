"""Apache Flink, DataStream with Python functions: what a Python user writes where SQL does not reach.

    python flink_python.py patterns INPUT OUT.json

Counts of patterns are told by timers, every 30 s of event time and at the end; the ten best come from one task.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import flink_environment
from program import LATENESS, WINDOW, Rows, Task, best, main
from pyflink.common import Configuration, Duration, Encoder, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import Time, TumblingEventTimeWindows
from taxi_routes import Routes, trip_of

SETTINGS = {
    "python.fn-execution.bundle.size": "10000",
    "python.fn-execution.bundle.time": "1000",
    "python.execution-mode": "process",
}


def environment(task: Task) -> StreamExecutionEnvironment:
    settings = Configuration()
    further = SETTINGS | {"python.executable": sys.executable, "python.client.executable": sys.executable}
    for key, value in flink_environment.configured(task, further).items():
        settings.set_string(key, value)
    made = StreamExecutionEnvironment.get_execution_environment(settings)
    made.set_parallelism(task.cores)
    made.add_python_file(str(__file__).rpartition("/")[0])
    return made


def lines(task: Task, streams: StreamExecutionEnvironment) -> DataStream:
    paths = [str(part) for part in task.parts]
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    return streams.from_source(source, WatermarkStrategy.no_watermarks(), "lines")


def run(task: Task, streams: StreamExecutionEnvironment, told: DataStream) -> list[list[Any]]:
    """The rows of a job by way of files of JSON lines."""
    texts = told.map(lambda row: json.dumps(list(row)), Types.STRING())
    sink = FileSink.for_row_format(f"file://{task.place}/told", Encoder.simple_string_encoder()).build()
    texts.sink_to(sink)
    task.seconds = streams.execute(task.workload).get_net_runtime() / 1000
    found = sorted(path for path in (task.place / "told").rglob("*") if path.is_file())
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


# begin patterns windows clients
def clicks(task: Task, streams: StreamExecutionEnvironment) -> DataStream:
    kinds = Types.TUPLE([Types.LONG(), Types.STRING(), Types.STRING(), Types.STRING()])
    in_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(LATENESS))
    parsed = lines(task, streams).map(click, output_type=kinds)
    return parsed.assign_timestamps_and_watermarks(in_time.with_timestamp_assigner(Instants()))


def click(line: str) -> tuple[int, str, str, str]:
    quoted = line.split('"')
    stamp = datetime.strptime(quoted[0].partition("[")[2][:20], "%d/%b/%Y:%H:%M:%S").replace(tzinfo=UTC)
    host = line.partition(" ")[0]
    return int(stamp.timestamp()), host, quoted[1].split(" ")[1], quoted[7][len("session=") :]


class Instants(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[0]) * 1000


# end patterns windows clients
# begin patterns
class LastPages(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.STRING()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[str]:
        pages = [*self.last.get(), value[2]]
        self.last.update(pages[-2:])
        if len(pages) == 3:
            yield " > ".join(pages)


class Counts(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        every = WINDOW * 1000
        ctx.timer_service().register_event_time_timer(ctx.timestamp() // every * every + every - 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[tuple[str, int]]:
        yield ctx.get_current_key(), self.count.value()


class Best(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("best", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> None:
        held = dict(self.kept.value() or {})
        held[value[0]] = value[1]
        self.kept.update({pattern: count for _, pattern, count in best(held.items())})
        ctx.timer_service().register_event_time_timer(ctx.timestamp())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[tuple[int, int, str, int]]:
        for row in best(self.kept.value().items()):
            yield timestamp, *row


def patterns(task: Task) -> Rows:
    streams = environment(task)
    walks = clicks(task, streams).key_by(lambda event: event[3]).process(LastPages(), Types.STRING())
    counted = Types.TUPLE([Types.STRING(), Types.LONG()])
    counts = walks.key_by(lambda pattern: pattern).process(Counts(), counted)
    told = Types.TUPLE([Types.LONG(), Types.INT(), Types.STRING(), Types.LONG()])
    found = run(task, streams, counts.key_by(lambda _: 0).process(Best(), told))
    # end patterns
    last = max(row[0] for row in found)
    return [row[1:] for row in found if row[0] == last]


# begin windows
class Tally(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithStart(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterable[tuple[int, str, int]]:
        yield context.window().start // 1000, key, next(iter(elements))


class Ranked(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterable[tuple[int, int, str, int]]:
        for row in best((path, count) for _, path, count in elements):
            yield key, *row


def windows(task: Task) -> Rows:
    streams = environment(task)
    tumbling = TumblingEventTimeWindows.of(Time.seconds(WINDOW))
    counted = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
    by_page = clicks(task, streams).key_by(lambda event: event[2], Types.STRING()).window(tumbling)
    counts = by_page.aggregate(Tally(), WithStart(), Types.LONG(), counted)
    told = Types.TUPLE([Types.LONG(), Types.INT(), Types.STRING(), Types.LONG()])
    ranked = counts.key_by(lambda row: row[0], Types.LONG()).window(tumbling).process(Ranked(), told)
    return run(task, streams, ranked)


# end windows
# begin clients
class Span(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int, int]:
        return 0, 1 << 60, 0

    def add(self, value: Any, accumulator: Any) -> tuple[int, int, int]:
        count, first, last = accumulator
        return count + 1, min(first, value[0]), max(last, value[0])

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> tuple[int, int, int]:
        return acc_a[0] + acc_b[0], min(acc_a[1], acc_b[1]), max(acc_a[2], acc_b[2])


class OfHost(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterable[tuple[int, str, int, int, int]]:
        yield context.window().start // 1000, key, *next(iter(elements))


def clients(task: Task) -> Rows:
    streams = environment(task)
    held = Types.TUPLE([Types.LONG()] * 3)
    told = Types.TUPLE([Types.LONG(), Types.STRING(), *[Types.LONG()] * 3])
    by_host = clicks(task, streams).key_by(lambda event: event[1], Types.STRING())
    tumbling = by_host.window(TumblingEventTimeWindows.of(Time.seconds(WINDOW)))
    return run(task, streams, tumbling.aggregate(Span(), OfHost(), held, told))


# end clients
# begin taxi
class BestRoutes(KeyedProcessFunction):
    """The window lives in this object; the state has what a checkpoint needs, every thousand trips."""

    def open(self, runtime_context: Any) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("routes", Types.PICKLED_BYTE_ARRAY()))
        self.routes: Routes | None = None

    def process_element(self, value: Any, ctx: Any) -> Iterable[tuple[str, str, str]]:
        if self.routes is None:
            kept = self.kept.value()
            self.routes = Routes() if kept is None else pickle.loads(kept)
        trip = trip_of(value)
        told = None if trip is None else self.routes.took(trip)
        if self.routes.number % 1000 == 0:
            self.kept.update(pickle.dumps(self.routes))
        if told is not None:
            yield told


def taxi(task: Task) -> Rows:
    streams = environment(task)
    told = Types.TUPLE([Types.STRING()] * 3)
    return run(task, streams, lines(task, streams).key_by(lambda _: 0).process(BestRoutes(), told))


# end taxi
WORKLOADS = {name.__name__: name for name in (patterns, windows, clients, taxi)}

if __name__ == "__main__":
    main("flink-python", WORKLOADS, ["apache-flink"], flink_environment.SETTINGS | SETTINGS)
