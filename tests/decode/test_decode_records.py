"""What every decoder does before it parses: cut records, and make unreadable ones dead letters."""

from __future__ import annotations

from penstock.decode import Pattern
from tests.decode.exactly_once import decode, reasons

ANY = Pattern("(?P<text>.*)")


def test_empty_lines_are_bad_and_counted() -> None:
    decoded = decode(ANY, b"a\n\nb\n\r\nc\r\n")
    assert decoded.good.rows() == [(0, "a"), (2, "b"), (4, "c")]
    assert reasons(decoded) == {1: "empty line", 3: "empty line"}


def test_a_line_that_is_not_utf8_is_a_dead_letter_with_replacements() -> None:
    decoded = decode(ANY, b"a\nb\xffc\n" + "é\n".encode())
    assert decoded.good.rows() == [(0, "a"), (2, "é")]
    assert decoded.bad.rows() == [(1, "not UTF-8 at byte 1", "b\ufffdc")]


def test_many_undecodable_lines_among_many_good_ones() -> None:
    decoded = decode(ANY, b"".join(b"\xfe\n" if i % 700 == 0 else b"ok\n" for i in range(5_000)))
    assert decoded.bad["_row"].to_list() == list(range(0, 5_000, 700))


def test_latin1_is_decoded_on_request() -> None:
    assert decode(Pattern("(?P<text>.*)", encoding="latin-1"), b"caf\xe9\x85\n").good["text"].to_list() == [
        "café\x85"
    ]


def test_records_over_the_limit_are_dead_letters_and_a_megabyte_is_not() -> None:
    decoded = decode(ANY, b"a" * (1 << 20) + b"\n" + b"b" * ((1 << 20) + 1) + b"\nc\n")
    assert decoded.good["text"].str.len_bytes().to_list() == [1 << 20, 1]
    assert reasons(decoded) == {1: "record of 1048577 bytes is longer than 1048576 bytes"}
    assert decoded.bad["raw"].str.len_bytes().to_list() == [4096]


def test_zero_bytes_and_lone_returns_are_text() -> None:
    assert decode(ANY, b"a\x00b\nc\rd\r\r\n").good["text"].to_list() == ["a\x00b", "c\rd\r"]


def test_first_bytes_that_look_like_a_compressed_file_are_text() -> None:
    for start in (b"x^", b"x\x01", b"x\x9c", b"\x1f\x8b", b"(\xb5/\xfd", b"BZh"):
        decoded = decode(Pattern("(?P<text>.*)", encoding="latin-1"), start + b"\nb\n")
        assert decoded.good["text"].to_list() == [start.decode("latin-1"), "b"]


def test_a_byte_order_mark_is_nothing_at_the_start_of_a_partition_only() -> None:
    raw = b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n"
    assert decode(ANY, raw).good["text"].to_list() == ["a", "\ufeffb"]
    assert decode(ANY, raw, start=9).good["text"].to_list() == ["\ufeffa", "\ufeffb"]


def test_an_empty_chunk_gives_empty_frames() -> None:
    decoded = decode(ANY, b"")
    assert decoded.good.height == decoded.bad.height == 0


def test_no_requested_column_still_counts_the_records() -> None:
    assert decode(ANY, b"a\n\nb\n", []).good["_row"].to_list() == [0, 2]
