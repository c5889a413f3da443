"""Encode a catalogue as bytes: a line of JSON and its checksum. Pure.

Guarantees: decoding returns the catalogue that was encoded, in the same order, and detects a changed byte.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from penstock.catalogue.catalogue import Catalogue, JobEntry, StreamEntry
from penstock.catalogue.command import CodeReference, RememberReplies, Reply, SinkCall, semantics_of
from penstock.catalogue.lifecycle import Master

FORMAT = 1


def encode_catalogue(catalogue: Catalogue) -> bytes:
    body = {
        "format": FORMAT,
        "streams": [_stream_to_json(entry) for entry in catalogue.streams.values()],
        "jobs": [_job_to_json(entry) for entry in catalogue.jobs.values()],
        "last": catalogue.last_number,
        "former": sorted(catalogue.dropped_streams),
        "said": dict(catalogue.texts),
        "answered": {name: _replies_to_json(kept) for name, kept in catalogue.replies.items()},
        **({"removed": sorted(catalogue.dropped_outputs)} if catalogue.dropped_outputs else {}),
    }
    text = json.dumps(body, separators=(",", ":")).encode()
    return b"%s\n%08x\n" % (text, zlib.crc32(text))


def decode_catalogue(content: bytes) -> Catalogue:
    """The catalogue that was encoded; ValueError if a byte has changed."""
    text, _, check = content.rstrip(b"\n").rpartition(b"\n")
    if not check or zlib.crc32(text) != int(check, 16):
        raise ValueError("the checksum does not match")
    body = json.loads(text)
    if body["format"] != FORMAT:
        raise ValueError(f"its format is {body['format']}, this Penstock knows {FORMAT}")
    return Catalogue(
        {stream[0]: _stream_from_json(*stream) for stream in body["streams"]},
        {job["name"]: _job_from_json(job) for job in body["jobs"]},
        body["last"],
        frozenset(body["former"]),
        body["said"],
        # older snapshots have none
        {name: _replies_from_json(name, *kept) for name, kept in body.get("answered", {}).items()},
        frozenset(body.get("removed", ())),
    )


def _replies_to_json(kept: RememberReplies) -> list[Any]:
    return [kept.digest, [reply.to_json() for reply in kept.replies]]


def _replies_from_json(name: str, digest: str, replies: list[Any]) -> RememberReplies:
    return RememberReplies(name, digest, tuple(map(Reply.from_json, replies)))


def _stream_to_json(entry: StreamEntry) -> list[Any]:
    return [entry.name, entry.text, entry.unique_name, *([] if entry.code is None else [entry.code.facts])]


def _stream_from_json(
    name: str, text: str, unique_name: str, code: Mapping[str, Any] | None = None
) -> StreamEntry:
    return StreamEntry(name, text, unique_name, CodeReference.of(code))


def _job_to_json(entry: JobEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "select": entry.select,
        "sinks": [sink.to_json() for sink in entry.sinks],
        "parameters": dict(entry.parameters),
        "number": entry.number,
        "created": entry.created,
        "private": entry.private,
        "lost": entry.lost,
        "life": entry.master.life,
        "version": entry.master.version,
        "error": entry.master.error,
        "recovery": entry.recovery,
        "code": None if entry.code is None else entry.code.facts,
    }


def _job_from_json(job: dict[str, Any]) -> JobEntry:
    return JobEntry(
        job["name"],
        job["select"],
        tuple(map(SinkCall.from_json, job["sinks"])),
        job["parameters"],
        job["number"],
        Master(job["name"], job["life"], job["version"], job["error"]),
        job["created"],
        job["private"],
        job["lost"],
        semantics_of(job),
        CodeReference.of(job.get("code")),  # older ones have none
    )
