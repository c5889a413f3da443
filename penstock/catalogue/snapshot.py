"""A catalogue as bytes: a line of JSON and its checksum. Pure.

Guarantees: what is unpacked is the catalogue that was packed, in the same order; a changed byte is found.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from penstock.catalogue.catalogue import Catalogue, JobEntry, StreamEntry
from penstock.catalogue.command import Answered, CodeReference, RememberAnswers, SinkCall, semantics_of
from penstock.catalogue.lifecycle import Master

FORMAT = 1


def packed(catalogue: Catalogue) -> bytes:
    """The catalogue as bytes."""
    body = {
        "format": FORMAT,
        "streams": [_stream(entry) for entry in catalogue.streams.values()],
        "jobs": [_job(entry) for entry in catalogue.jobs.values()],
        "last": catalogue.last,
        "former": sorted(catalogue.former),
        "said": dict(catalogue.said),
        "answered": {name: _answers(kept) for name, kept in catalogue.answered.items()},
        **({"removed": sorted(catalogue.removed)} if catalogue.removed else {}),
    }
    text = json.dumps(body, separators=(",", ":")).encode()
    return b"%s\n%08x\n" % (text, zlib.crc32(text))


def unpacked(content: bytes) -> Catalogue:
    """The catalogue that was packed; ValueError if a byte is not as it was."""
    text, _, check = content.rstrip(b"\n").rpartition(b"\n")
    if not check or zlib.crc32(text) != int(check, 16):
        raise ValueError("the checksum does not match")
    body = json.loads(text)
    if body["format"] != FORMAT:
        raise ValueError(f"its format is {body['format']}, this Penstock knows {FORMAT}")
    return Catalogue(
        {stream[0]: _stream_entry(*stream) for stream in body["streams"]},
        {job["name"]: _entry(job) for job in body["jobs"]},
        body["last"],
        frozenset(body["former"]),
        body["said"],
        {name: _kept(name, *said) for name, said in body.get("answered", {}).items()},  # older ones have none
        frozenset(body.get("removed", ())),
    )


def _answers(kept: RememberAnswers) -> list[Any]:
    return [kept.digest, [answer.to_json() for answer in kept.answers]]


def _kept(name: str, digest: str, answers: list[Any]) -> RememberAnswers:
    return RememberAnswers(name, digest, tuple(map(Answered.from_json, answers)))


def _stream(entry: StreamEntry) -> list[Any]:
    return [entry.name, entry.text, entry.known_as, *([] if entry.code is None else [entry.code.facts])]


def _stream_entry(name: str, text: str, known_as: str, code: Mapping[str, Any] | None = None) -> StreamEntry:
    return StreamEntry(name, text, known_as, CodeReference.of(code))


def _job(entry: JobEntry) -> dict[str, Any]:
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


def _entry(job: dict[str, Any]) -> JobEntry:
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
