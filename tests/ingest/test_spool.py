"""A spool returns every whole line from any position, also after files were rolled, packed and opened again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.ingest.pipe_reader import Overflow
from penstock.ingest.spool import Spool


def read(spool: Spool, position: int = 0, most: int = 1000) -> bytes:
    chunks = []
    while (frame := spool.frame(position, most)) is not None:
        assert frame.raw_bytes <= most
        chunks.append(frame.lines())
        position = frame.end
    return b"".join(chunks)


STEPS = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=120).map(lambda data: ("append", data.replace(b"\x00", b"\n"))),
        st.sampled_from([("roll", b""), ("pack", b""), ("reopen", b""), ("pipe", b"one\ntwo\nthr")]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_every_whole_line_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes]]
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    spool, appended = Spool(directory, file_bytes=200), b""
    for step, data in steps:
        match step:
            case "append":
                spool.append(data)
            case "pipe":
                out, into = os.pipe()
                os.write(into, data)
                assert spool.append_from(out, 1 << 16) == len(data)
                os.close(out)
                os.close(into)
            case "roll":
                spool.roll()
            case "pack":
                spool.pack()
            case "reopen":
                producer = spool.producer
                spool = Spool(directory, file_bytes=200)  # as after kill -9: nothing was closed
                assert spool.producer == producer
        appended += data
        whole = appended[: appended.rfind(b"\n") + 1]
        assert spool.end == len(appended)
        assert read(spool) == whole
        for position in {n + 1 for n, byte in enumerate(whole) if byte == 10 and n % 7 == 0}:
            assert read(spool, position) == whole[position:]
    spool.release(appended.rfind(b"\n") + 1)
    assert spool.end == len(appended)
    spool.close()
    shutil.rmtree(directory)


def test_acknowledged_lines_are_removed_from_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, file_bytes=1000)
    for n in range(500):
        spool.append(b"line %d\n" % n)
    spool.pack()
    before = spool.disk_bytes
    spool.release(2000)
    assert spool.first <= 2000
    assert spool.disk_bytes < before
    spool.release(spool.end)
    assert spool.disk_bytes < 1100
    end = spool.end
    spool.close()
    assert Spool(tmp_path).end == end


def test_packing_saves_disk_space(tmp_path: Path) -> None:
    spool = Spool(tmp_path, file_bytes=10_000)
    appended = b"".join(b"10.0.0.%d GET /page/%d 200\n" % (n % 9, n) for n in range(3000))
    spool.append(appended)
    spool.roll()
    before = spool.disk_bytes
    while spool.pack():
        pass
    assert spool.disk_bytes < before / 3
    assert read(spool, most=5000) == appended


def test_after_a_reboot_no_position_is_used_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, boot="one")
    spool.append(b"a\nb\nhal")
    spool.close()
    spool = Spool(tmp_path, boot="two")
    spool.append(b"c\n")
    assert spool.found_end == 7
    assert spool.end > 1 << 32
    assert read(spool) == b"a\nb\nhal\nc\n"


def test_a_line_that_fits_no_frame_is_dropped(tmp_path: Path) -> None:
    spool = Spool(tmp_path, file_bytes=3000)
    for packed in (False, True):
        spool.append(b"short\n" + b"x" * 5000 + b"\nafter %d\n" % packed)
        spool.roll()
        if packed:
            spool.pack()
            spool.pack()
    assert read(spool) == b"short\nafter 0\nshort\nafter 1\n"


@pytest.mark.parametrize("pack", [False, True])
def test_a_full_spool_drops_its_oldest_lines(tmp_path: Path, pack: bool) -> None:
    spool = Spool(tmp_path, file_bytes=500)
    overflow = Overflow(spool, 2000, "drop-oldest")
    appended = b""
    for n in range(2000):
        assert overflow.has_room()
        line = b"%d line %d\n" % (n * n, n)
        appended += line
        spool.append(line)
        if pack and n % 50 == 0:
            spool.pack()
    remaining = read(spool)
    assert appended.endswith(remaining)
    assert spool.disk_bytes < 2600
    assert spool.dropped_until == spool.first == len(appended) - len(remaining)
    assert overflow.dropped_lines == appended.count(b"\n") - remaining.count(b"\n")


def test_a_declared_gap_is_distinguished_from_a_jump_after_a_reboot(tmp_path: Path) -> None:
    spool = Spool(tmp_path, boot="one")
    spool.append(b"a\n")
    spool.give_up(100)
    spool.append(b"b\n")
    spool.close()
    spool = Spool(tmp_path, boot="two")
    spool.append(b"c\n")
    assert [chunks[0] for position in (0, 2, 104) if (chunks := spool.lines(position))] == [0, 102, 2 << 32]
    assert spool.has_given_up(2, 102)
    assert not spool.has_given_up(104, 2 << 32)
    assert spool.bytes_after(2) == 4
    spool.close()


@pytest.mark.process
def test_a_full_disk_is_freed_of_acknowledged_lines(small_disk: Path) -> None:
    spool = Spool(small_disk)
    written = 0
    with pytest.raises(OSError, match="No space"):  # noqa: PT012
        while True:
            spool.append(b"%06d\n" % (written // 7) * 100)
            written += 700
    whole = spool.end - spool.end % 7
    rest = spool.end - whole
    spool.release(whole - 7)
    spool.free_space()
    assert spool.first == 0  # a line is not acknowledged yet
    spool.release(whole)
    spool.free_space()
    assert (spool.first, spool.end) == (whole, whole + rest)
    spool.append(b"x" * 1000 + b"\n")
    spool.close()
    assert Spool(small_disk).bytes_after(whole) == rest + 1001
