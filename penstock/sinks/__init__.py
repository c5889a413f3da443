"""Where rows go: `jsonl`, `parquet`, `sqlite` and `console` make the sinks that a query is given."""

from penstock.sinks.console import Console
from penstock.sinks.console import Console as console
from penstock.sinks.contract import Sink
from penstock.sinks.files import JsonLines, Parquet
from penstock.sinks.files import JsonLines as jsonl
from penstock.sinks.files import Parquet as parquet
from penstock.sinks.sqlite import Sqlite
from penstock.sinks.sqlite import Sqlite as sqlite

__all__ = ["Sink", "JsonLines", "Parquet", "Sqlite", "Console", "jsonl", "parquet", "sqlite", "console"]
