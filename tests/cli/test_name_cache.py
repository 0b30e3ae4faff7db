"""Names that a shell was offered a moment ago."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from kbroker.cli.name_cache import SECONDS, directory, recall, remember

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
