"""The order of commands that several processes append to one log."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import AddStream, Command
from penstock.catalogue.command_log import CommandLog


def _stream(name: str) -> Command:
    return AddStream(name, "")


def _load_all(log: CommandLog) -> Catalogue:
    loaded = log.load(owned=False)
    catalogue = loaded.catalogue
    for entry in loaded.entries:
        for command in entry:
            catalogue = catalogue.after(command)
    return catalogue


def _follow(log: CommandLog) -> None:
    if log.news() is None:
        log.load(owned=False)


def test_every_entry_has_a_number_of_its_own_with_concurrent_writers_and_folding(tmp_path: Path) -> None:
    done, numbers = threading.Event(), list[int]()

    def write(writer: int) -> None:
        log = CommandLog(tmp_path)
        for n in range(25):
            while True:
                _follow(log)
                number = log.append([_stream(f"w{writer}_{n}")])
                if number is not None:
                    numbers.append(number)
                    break

    def fold() -> None:
        log, count, catalogue = CommandLog(tmp_path), 0, Catalogue()
        while not done.is_set():
            for (command,) in log.news() or ():
                catalogue, count = catalogue.after(command), count + 1
            if count:
                log.fold(count, catalogue)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    folder = threading.Thread(target=fold)
    for thread in (folder, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    folder.join()
    catalogue = _load_all(CommandLog(tmp_path))
    assert sorted(numbers) == list(range(1, 101)), "each number once"
    assert set(catalogue.streams) == {f"w{writer}_{n}" for writer in range(4) for n in range(25)}
    assert catalogue.last_number == 100, "nothing twice"
    assert not [name for name in os.listdir(tmp_path / "commands") if name.startswith(".")]


@pytest.mark.parametrize("folded", [0, 1, 2, 5])
def test_a_writer_that_was_paused_reuses_no_number(
    folded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, other = CommandLog(tmp_path), CommandLog(tmp_path)
    paused.append([_stream("a")])
    link = os.link

    def link_after_others(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        _follow(other)
        catalogue = Catalogue().after(_stream("a"))
        for n in range(5):
            assert other.append([_stream(f"b{n}")]) == n + 2
            catalogue = catalogue.after(_stream(f"b{n}")) if n + 2 <= folded else catalogue
        if folded:
            other.fold(folded, catalogue)
        link(source, target)

    monkeypatch.setattr(os, "link", link_after_others)
    assert paused.append([_stream("c")]) is None
    assert paused.append([_stream("c")]) is None, "it has not read the entries of the others"
    _follow(paused)
    assert paused.append([_stream("c")]) == 7
    catalogue = _load_all(CommandLog(tmp_path))
    assert [*catalogue.streams] == ["a", "b0", "b1", "b2", "b3", "b4", "c"]
    assert catalogue.last_number == 7


def test_a_log_that_was_emptied_is_loaded_again(tmp_path: Path) -> None:
    follower = CommandLog(tmp_path)
    for n in range(3):
        CommandLog(tmp_path).load()
        _follow(follower)
        follower.append([_stream(f"a{n}")])
    for path in (tmp_path / "commands").iterdir():
        path.unlink()
    assert follower.append([_stream("b")]) is None, "no gap is left"
    assert follower.news() is None
    assert not _load_all(follower).streams
    assert follower.append([_stream("b")]) == 1
