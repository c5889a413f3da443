"""Access logs: usual lines, unusual ones, and agreement with a plain reading of the format line by line."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode import CombinedLog, Cookie, combined_log
from penstock.errors import UserError
from tests.decode.exactly_once import check_cuts, decode, reasons

LINE = (
    b'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" '
    b'200 512 "http://r/" "Mozilla" "session=u7"'
)
AT = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)
SESSIONS = combined_log(extra=[Cookie("session")])
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def parse_plainly(line: bytes) -> dict[str, object] | None:
    """Parse one line of SESSIONS with Python's `re`; None for a bad one. This states the rules a second time."""
    try:
        text = line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return None
    field = r'((?:[^"\\]|\\.)*)'
    whole = re.fullmatch(rf'{field}"{field}"{field}"{field}"{field}"{field}"{field}"{field}"', text, re.S)
    if whole is None:
        return None
    head, request, numbers, referer, _, agent, _, cookies = whole.groups()
    start = re.fullmatch(
        r"([^ ]+) ([^ ]*) (.*) \[(\d\d)/([A-Za-z]{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)\] ",
        head,
        re.S | re.A,
    )
    if start is None or start[5].capitalize() not in MONTHS or int(start[11]) > 23 or int(start[12]) > 59:
        return None
    shift = timedelta(hours=int(start[11]), minutes=int(start[12])) * (1 if start[10] == "+" else -1)
    try:  # second 60 is the next minute's first
        month, second = MONTHS.index(start[5].capitalize()) + 1, int(start[9])
        time = datetime(
            int(start[6]), month, int(start[4]), int(start[7]), int(start[8]), second % 60, tzinfo=UTC
        )
        time += timedelta(seconds=60 * (second == 60)) - shift
    except ValueError:
        return None
    if second > 60:
        return None
    counts = numbers.strip(" ").split(" ", 1)
    if len(counts) < 2 or not all(re.fullmatch(r"-|[+-]?[0-9]+", count) for count in counts):
        return None
    request_parts = re.fullmatch(r"([A-Za-z]+) (.*?)(?: (HTTP/[0-9.]+))?", request, re.S)
    value = re.search(r"(?:^|;) *session=([^;]*)", cookies)
    return {
        "host": start[1],
        "ident": None if start[2] == "-" else start[2],
        "user": None if start[3] == "-" else start[3],
        "time": time,
        "method": request_parts[1] if request_parts else None,
        "path": request_parts[2] if request_parts else None,
        "protocol": request_parts[3] if request_parts else None,
        "status": None if counts[0] == "-" else int(counts[0]),
        "bytes": None if counts[1] == "-" else int(counts[1]),
        "referer": None if referer == "-" else referer,
        "agent": None if agent == "-" else agent,
        "session": value[1] if value else None,
    }


def splice(parts: list[bytes]) -> bytes:
    return b"".join(parts).replace(b"\n", b"")


nasty = st.sampled_from(
    [
        b'"',
        b"\\",
        b'\\"',
        b'\\\\"',
        b" ",
        b"-",
        b"[",
        b"] ",
        b"\r",
        b"\x00",
        b"\xff",
        "é".encode(),
        b"x^",
        b";",
        b"GET / HTTP/1.1",
        b"session=",
        b"; session=z",
        b" HTTP/2.0",
        b"\xef\xbb\xbf",
        b"x\x01",
        b"\x1f\x8b",
        b'""',
    ]
)
harmless = st.sampled_from(
    [
        b'\\"',
        rb"\\",
        b" ",
        b"-",
        b"[",
        b"\r",
        b"\x00",
        "é".encode(),
        b"; ",
        b"session=",
        b"x",
        b"HTTP/1.1",
        b"#",
    ]
)


def mostly(good: st.SearchStrategy[bytes], other: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Draw fifteen good ones to one other, so that whole lines are often good."""
    return st.integers(0, 15).flatmap(lambda n: good if n else other)


pieces = mostly(st.lists(harmless, max_size=4).map(splice), st.lists(nasty, max_size=4).map(splice))
head = mostly(
    st.sampled_from(
        [b"1.2.3.4 - - ", b"h - bob ", b"h - bob smith ", b"[::1] - - ", b"a b - - ", b"xn - - ", b"h  - "]
    ),
    st.sampled_from([b" - - ", b"h - ", b"", b"h", b" h - - ", "hé - ü ".encode(), b"h - - - "]),
)
time = mostly(
    st.sampled_from(
        [b"17/May/2015:10:05:03 +0000", b"17/may/2015:10:05:60 -0730", b"29/Feb/2016:23:59:59 +2359"]
    ),
    st.sampled_from(
        [b"31/Feb/2015:10:05:03 +0000", b"7/May/2015:10:05:03 +00:00", b" 7/May/2015:10:05:03 +0000"]
    )
    | st.sampled_from(
        [b"17/Xyz/2015:10:05:03 +0000", b"17/May/2015:10:05:03 +2400", b"17/May/2015:10:05:03"]
    ),
)
request = st.one_of(
    st.sampled_from(
        [b"GET /a HTTP/1.1", b"POST /b HTTP/2.0", b"OPTIONS * HTTP/1.1", b"GET /", b"GET  HTTP/1.1"]
    ),
    st.sampled_from(
        [b"-", rb"\x16\x03\x01", b"GET /a b HTTP/1.1", b"GET /a HTTP/1.1 HTTP/1.1", b"GET HTTP/1.1"]
    ),
    st.sampled_from(
        [b"GET /aHTTP/1.1", b"POST/ HTTP/1.1", "é".encode(), " é".encode(), "GET é HTTP/1.1".encode()]
    ),
    pieces,
)
numbers = mostly(
    st.sampled_from([b"200 512", b"304 -", b"- -"]),
    st.sampled_from([b"200", b"abc 1", b"200 x", b"", b"99999999999 1", b"200 1 2"]),
)
session = (
    st.sampled_from([b"session=u1", b"a=b; session=u2; c=d", b"session=", b"xsession=q", b"-", b""]) | pieces
)


@st.composite
def log_line(draw: st.DrawFn) -> bytes:
    parts = [
        draw(head),
        b"[",
        draw(time),
        b'] "',
        draw(request),
        b'" ',
        draw(numbers),
        b' "',
        draw(pieces),
        b'" "',
    ]
    line = b"".join([*parts, draw(pieces), b'" "', draw(session), b'"', draw(st.sampled_from([b"", b"\r"]))])
    if draw(st.integers(0, 7)):
        return line
    at, width = draw(st.integers(0, len(line))), draw(st.sampled_from([0, 1, 5]))
    return line[:at] + draw(st.sampled_from([b"", b'"', b"\\", b"\xff", b" "])) + line[at + width :]


usual_line = st.integers(0, 99).map(lambda i: LINE.replace(b"u7", b"u%d" % i))
log_lines = st.lists(st.one_of(usual_line, log_line(), st.lists(nasty, max_size=5).map(splice)), max_size=12)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(log_lines)
def test_agrees_with_a_plain_parser_on_every_line(lines: list[bytes]) -> None:
    decoded = decode(SESSIONS, b"".join(line + b"\n" for line in lines), start=1)
    found = {row.pop("_row"): row for row in decoded.good.to_dicts()}
    expected = {row: read for row, line in enumerate(lines) if (read := parse_plainly(line)) is not None}
    assert {row: read for row, read in expected.items() if _in_range(read)} == found


def _in_range(read: dict[str, object]) -> bool:
    return read["status"] is None or abs(int(str(read["status"]))) < 2**31


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(log_lines, st.data())
def test_where_the_chunk_is_cut_changes_nothing(lines: list[bytes], data: st.DataObject) -> None:
    check_cuts(SESSIONS, lines, data.draw(st.integers(0, len(lines))))


@settings(max_examples=100, deadline=None)
@given(log_lines, st.sets(st.sampled_from(sorted(set(SESSIONS.schema()) - {"status", "bytes"}))))
def test_the_structure_decides_whatever_columns_are_requested(lines: list[bytes], columns: set[str]) -> None:
    raw = b"".join(line + b"\n" for line in lines)
    some, time_only = decode(SESSIONS, raw, columns, start=1), decode(SESSIONS, raw, ["time"], start=1)
    assert some.bad.equals(time_only.bad)


def test_a_usual_line_has_all_columns() -> None:
    good = decode(SESSIONS, LINE + b"\n").good
    assert good.rows() == [
        (0, "1.2.3.4", None, None, AT, "GET", "/a?b=1", "HTTP/1.1", 200, 512, "http://r/", "Mozilla", "u7")
    ]


def test_a_stray_quote_spoils_its_own_line_only() -> None:
    decoded = decode(SESSIONS, LINE + b'\nbroken "line\n' + LINE + b"\n")
    assert decoded.good["_row"].to_list() == [0, 2]
    assert reasons(decoded) == {1: "expected 8 quotes, found 1"}


def test_escaped_quotes_belong_to_the_field() -> None:
    line = LINE.replace(b"Mozilla", rb"say \"hi\" \\")
    assert decode(SESSIONS, line + b"\n").good["agent"].to_list() == [r"say \"hi\" \\"]


def test_a_line_of_a_million_escaped_quotes_is_decoded() -> None:
    line = LINE.replace(b"Mozilla", rb"\"" * 500_000)
    assert decode(SESSIONS, line + b"\n").good["agent"].str.len_bytes().to_list() == [1_000_000]


def test_lines_without_a_request_keep_their_row() -> None:
    lines = [LINE.replace(b"GET /a?b=1 HTTP/1.1", request) for request in (b"-", rb"\x16\x03\x01", b"")]
    good = decode(SESSIONS, b"\n".join(lines) + b"\n").good
    assert good["path"].to_list() == good["method"].to_list() == [None, None, None]
    assert good["session"].to_list() == ["u7"] * 3


def test_a_short_request_that_is_not_ascii_keeps_its_row() -> None:
    lines = [LINE.replace(b"GET /a?b=1 HTTP/1.1", request.encode()) for request in (" é", "é", "  é", "   é")]
    assert decode(SESSIONS, b"\n".join(lines) + b"\n").good["protocol"].to_list() == [None] * 4


def test_status_spoils_a_record_only_when_requested() -> None:
    raw = LINE.replace(b"200", b"abc") + b"\n"
    assert decode(SESSIONS, raw, ["path"]).good.height == 1
    assert reasons(decode(SESSIONS, raw, ["status"])) == {0: "column status: 'abc' is not Int32"}


def test_the_common_format_ends_with_its_numbers() -> None:
    line = b'h - bob [17/May/2015:10:05:03 +0200] "GET / HTTP/1.0" 304 -\r\n'
    good = decode(CombinedLog(common=True), line).good
    assert good.rows() == [(0, "h", None, "bob", AT - timedelta(hours=2), "GET", "/", "HTTP/1.0", 304, None)]


def test_extra_fields_come_under_their_names() -> None:
    decoder = combined_log(extra=["forwarded", Cookie("session")])
    line = LINE.replace(b'"session', b'"10.0.0.1" "lang=de; session')
    assert decode(decoder, line + b"\n", ["forwarded", "session"]).good.rows() == [(0, "10.0.0.1", "u7")]


def test_an_extra_field_cannot_take_the_name_of_another() -> None:
    with pytest.raises(UserError, match="BAD_SCHEMA"):
        combined_log(extra=["host"])


def test_an_unknown_column_is_the_users_error() -> None:
    with pytest.raises(UserError, match="UNKNOWN_COLUMN"):
        decode(SESSIONS, LINE + b"\n", ["pth"])


def test_a_decoder_can_be_sent_to_a_task() -> None:
    assert pickle.loads(pickle.dumps(SESSIONS)) == SESSIONS
