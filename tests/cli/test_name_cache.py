"""Names that a shell was offered a moment ago."""

from __future__ import annotations

import argparse
import os
import stat
import time
from pathlib import Path

import pytest

from kbroker.tools.cli import completion
from kbroker.tools.cli.name_cache import SECONDS, directory, recall, remember

KEY = ("topics", "127.0.0.1:9092", None)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kbroker" / "names"


def test_names_are_remembered_for_a_minute(cache: Path) -> None:
    assert directory() == str(cache) and recall(KEY) is None
    remember(KEY, ["orders", "clicks"])
    [file] = cache.iterdir()
    written = file.stat()
    assert stat.S_IMODE(written.st_mode) == 0o600 and stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert recall(KEY, written.st_mtime + SECONDS) == ["orders", "clicks"]
    assert recall(KEY, written.st_mtime + SECONDS + 1) is None
    assert recall(KEY, written.st_mtime - 1) is None  # a clock that was set back
    assert recall(("groups", *KEY[1:]), written.st_mtime) is None
    remember(KEY, [])
    assert recall(KEY, file.stat().st_mtime) == []


def test_what_is_none_of_them_counts_as_none(cache: Path, tmp_path: Path) -> None:
    remember(KEY, ["orders"])
    [file] = cache.iterdir()
    for content in (b"", b"\xff\xfe\n", b"another key\norders\n", b"x" * (2 << 20)):
        file.write_bytes(content)
        assert recall(KEY, file.stat().st_mtime) is None
    file.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(f"{KEY!r}\nwicked\n")
    file.symlink_to(elsewhere)
    assert recall(KEY, time.time()) is None


def test_a_directory_that_cannot_be_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    remember(KEY, ["orders"])
    assert recall(KEY) is None


def test_the_files_are_bounded(cache: Path) -> None:
    for number in range(40):
        remember((*KEY, number), ["orders"])
        for age, file in enumerate(sorted(cache.iterdir(), key=lambda each: -each.stat().st_mtime)):
            os.utime(file, (time.time() - age,) * 2)
    assert len(list(cache.iterdir())) == 16
    assert recall((*KEY, 39), time.time() + 1) == ["orders"]
    remember((*KEY, "many"), ["x" * 1000] * 2000)
    assert recall((*KEY, "many"), time.time() + 1) is None


@pytest.mark.parametrize("missing", ["geteuid", "O_NOFOLLOW"])
def test_a_system_that_does_not_tell_whose_a_file_is_has_no_cache(
    missing: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(Windows)"""
    remember(KEY, ["orders"])
    with monkeypatch.context() as without:
        without.delattr(os, missing)
        assert recall(KEY) is None
        remember((*KEY, 1), ["orders"])
    assert recall(KEY) == ["orders"] and len(list(cache.iterdir())) == 1


def test_without_a_home_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    remember(KEY, ["orders"])
    assert recall(KEY) is None and not list(tmp_path.iterdir())


def test_a_file_that_was_not_written_whole_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, data[:-3]))
        remember(KEY, ["orders"])
    assert recall(KEY) is None and not list(cache.iterdir())


def test_that_there_are_no_names_is_not_remembered() -> None:
    told: list[list[str]] = [[], ["orders"]]
    arguments = argparse.Namespace(bootstrap_server="b", profile=None, command_config=None)
    asked = [list(completion.names_of("topics", arguments, lambda *_: told.pop(0))) for _ in range(3)]
    assert asked == [[], ["orders"], ["orders"]]
