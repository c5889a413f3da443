"""A frame is parsed as it was encoded or not at all; any other bytes raise an error with a reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError, UserError
from penstock.ingest.frames import GAP, HEAD_BYTES, ZSTD, Frame, FrameError, parse_frame, parse_head
from penstock.ingest.intake import Hello, Intake, check_stream

LINES = st.lists(
    st.binary(max_size=80).map(lambda line: line.replace(b"\n", b"") + b"\n"), min_size=1, max_size=60
).map(b"".join)
FRAMES = st.builds(
    Frame.of,
    st.just("web1"),
    st.integers(0, 1 << 50),
    LINES,
    made_at=st.integers(0, 1 << 60),
    flags=st.sampled_from([0, GAP]),
)
HELLO = Hello("clicks", "web1", "secret")


@given(FRAMES)
def test_an_encoded_frame_is_parsed_to_an_equal_one(frame: Frame) -> None:
    data = frame.encoded()
    assert parse_frame(data) == (frame, len(data))
    assert parse_frame(b"before" + data + b"after", 6) == (frame, 6 + len(data))


@given(FRAMES, st.data())
def test_a_part_of_a_frame_waits_for_the_rest(frame: Frame, data: st.DataObject) -> None:
    encoded = frame.encoded()
    assert parse_frame(encoded[: data.draw(st.integers(0, len(encoded) - 1))]) is None


@settings(max_examples=300)
@given(FRAMES, st.data())
def test_one_flipped_bit_is_detected(frame: Frame, data: st.DataObject) -> None:
    encoded = bytearray(frame.encoded())
    offset = data.draw(st.integers(0, len(encoded) - 1))
    encoded[offset] ^= 1 << data.draw(st.integers(0, 7))
    try:
        parsed = parse_frame(encoded)
        assert parsed is None or parsed[0].lines() is None
    except FrameError:
        pass


@given(FRAMES, st.data())
def test_a_frame_can_be_cut_after_any_line(frame: Frame, data: st.DataObject) -> None:
    lines = frame.lines()
    offset = data.draw(
        st.sampled_from([n + 1 for n, byte in enumerate(lines[:-1]) if byte == 10] or [len(lines)])
    )
    if offset < len(lines):
        rest = frame.after(frame.first + offset)
        assert (rest.first, rest.lines(), rest.end) == (frame.first + offset, lines[offset:], frame.end)


def test_a_decompression_bomb_is_not_unpacked() -> None:
    bomb = zstandard.ZstdCompressor().compress(b"\n" * (200 << 20))
    frame = replace(Frame.of("web1", 0, b"x\n"), payload=bomb, codec=ZSTD)
    frame = replace(frame, payload_crc=__import__("zlib").crc32(bomb))
    with pytest.raises(FrameError, match="does not unpack to the length"):
        frame.lines()


def test_a_frame_that_is_too_large_is_refused_by_its_head() -> None:
    data = Frame.of("web1", 0, b"x" * 5000 + b"\n").encoded()
    with pytest.raises(FrameError, match="larger than 4000"):
        parse_head(data[: HEAD_BYTES + 4], most_bytes=4000)


@settings(max_examples=300)
@given(st.binary(max_size=400), st.booleans())
def test_garbage_is_refused_with_a_reason(garbage: bytes, after_hello: bool) -> None:
    intake = Intake()
    try:
        if after_hello:
            intake.feed(HELLO.encoded())
        intake.feed(garbage)
    except PenstockError:
        pass
    assert intake.buffered_bytes <= 4096


@given(st.lists(FRAMES, max_size=6), st.data())
def test_frames_are_found_however_the_bytes_are_cut(frames: list[Frame], data: st.DataObject) -> None:
    rest = HELLO.encoded() + b"".join(frame.encoded() for frame in frames)
    intake, parsed = Intake(), []
    while rest:
        size = data.draw(st.integers(1, 400))
        parsed += intake.feed(rest[:size])
        rest = rest[size:]
    assert parsed == [HELLO, *frames]


@given(st.lists(FRAMES, min_size=1, max_size=4), st.data())
def test_bytes_damaged_in_transit_never_pass_for_lines(frames: list[Frame], data: st.DataObject) -> None:
    """Bits are flipped, bytes lost or inserted: whatever is still accepted as a frame is one that was sent."""
    stream = bytearray(b"".join(frame.encoded() for frame in frames))
    for _ in range(data.draw(st.integers(1, 4))):
        offset = data.draw(st.integers(0, len(stream) - 1))
        match data.draw(st.sampled_from(["flip", "lose", "insert"])):
            case "flip":
                stream[offset] ^= data.draw(st.integers(1, 255))
            case "lose":
                del stream[offset : offset + data.draw(st.integers(1, 50))]
            case "insert":
                stream[offset:offset] = data.draw(st.binary(min_size=1, max_size=20))
        if not stream:
            return
    intake = Intake()
    intake.feed(HELLO.encoded())
    sent = {frame.lines() for frame in frames}
    try:
        for frame in intake.feed(bytes(stream)):
            assert isinstance(frame, Frame)
            assert frame.lines() in sent
    except PenstockError:
        pass


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x", ".hidden", "a b", "x" * 65, "a\0", "ä"])
def test_names_that_could_be_paths_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="BAD_STREAM_NAME"):
        check_stream(name)


def test_frames_of_several_threads_hold_their_own_lines() -> None:
    def pack(number: int) -> bool:
        lines = b"".join(b"%d %d %s\n" % (number, n, b"ab" * (n % 50)) for n in range(300))
        return all(Frame.of("p", 0, lines).content() == lines for _ in range(200))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(pack, range(8)))
