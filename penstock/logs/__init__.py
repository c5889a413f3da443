"""Sources of events: the contract of a log, and the logs that implement it."""

from penstock.logs.calls import CallLog
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.draw import Ints, draws
from penstock.logs.files import FileLog
from penstock.logs.generated import ORIGIN, GeneratedLog, MadeLog
from penstock.logs.kafka import KafkaLog
from penstock.logs.rates import Profile, Rate
from penstock.logs.redis_streams import RedisLog
from penstock.logs.replicated import ReplicatedLog

__all__ = [
    "ORIGIN",
    "CallLog",
    "Chunk",
    "FileLog",
    "GeneratedLog",
    "Ints",
    "KafkaLog",
    "Log",
    "MadeLog",
    "Partition",
    "Profile",
    "Rate",
    "RedisLog",
    "ReplicatedLog",
    "Span",
    "draws",
]
