"""Decode bytes to columns, by log format; records that do not fit become dead letters."""

from penstock.decode.call_lines import call_lines
from penstock.decode.combined_log import CombinedLog, Cookie, combined_log
from penstock.decode.contract import BAD_SCHEMA, ROW, Decoded, Decoder
from penstock.decode.delimited import Delimited
from penstock.decode.json_lines import JsonLines
from penstock.decode.pattern import Pattern

__all__ = [
    "BAD_SCHEMA",
    "ROW",
    "CombinedLog",
    "Cookie",
    "Decoded",
    "Decoder",
    "Delimited",
    "JsonLines",
    "Pattern",
    "call_lines",
    "combined_log",
]
