"""Where events come from: the contract of a log, and the logs that keep it."""

from penstock.logs.calls import CallLog
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.files import FileLog
from penstock.logs.generated import GeneratedLog
from penstock.logs.kafka import KafkaLog
from penstock.logs.redis_streams import RedisLog
from penstock.logs.replicated import ReplicatedLog

__all__ = [
    "CallLog",
    "Chunk",
    "FileLog",
    "GeneratedLog",
    "KafkaLog",
    "Log",
    "Partition",
    "RedisLog",
    "ReplicatedLog",
    "Span",
]
