"""``kbroker scrub``: what it prints, and its exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kbroker.log import opening
from kbroker.log.disk import OsDisk
from kbroker.log.log_config import LogConfig
from kbroker.raft_metadata.raft.snapshot import encode_snapshot, snapshot_file_name
from kbroker.tools.cli import main
from kbroker.types import OffsetAndEpoch, TopicPartition
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.record_batch import Record, build_batch
from kbroker.wire.records.metadata import NoOpRecord
from tests.log.log_helpers import NOW, append


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    for partition in range(2):
        tp = TopicPartition("t", partition)
        log = opening.open_log(tmp_path / str(tp), tp, None, LogConfig(segment_bytes=300), OsDisk(), now_ms=NOW)
        for number in range(8):
            append(log, [b"%d" % number * 40])
        log.close()
    return tmp_path


def test_a_sound_log_dir(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scrub", str(log_dir), "--records"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("t-0: ok, offsets 0 to 8, 8 records in ")
    assert lines[1].startswith("t-1: ok")
    assert lines[2].startswith("2 partitions, 16 records, ")
    assert lines[2].endswith(": none damaged")


def test_damage(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log_dir / "t-1" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    assert main(["scrub", str(log_dir / "t-0"), str(log_dir / "t-1")]) == 1
    out = capsys.readouterr().out
    assert "t-0: ok" in out
    assert "t-1: DAMAGED" in out
    assert f"{path}: at byte" in out
    assert main(["scrub", "--json", str(log_dir)]) == 1
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [bool(entry["problems"]) for entry in entries] == [False, True]


def test_nothing_to_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scrub", str(tmp_path)]) == 1
    assert "there is no partition in it" in capsys.readouterr().err
    assert main(["scrub", str(tmp_path / "none")]) == 1
    assert "is no directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["scrub", "dump-log", "put-back"])
def test_a_directory_that_may_not_be_read_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    directory = tmp_path / "closed"
    (directory / f"t-0.{0:032x}-stray").mkdir(parents=True)
    directory.chmod(0)
    words = [command, str(directory if command != "put-back" else directory / f"t-0.{0:032x}-stray")]
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read all
    try:
        code = main(words)
    finally:
        os.seteuid(user)
        directory.chmod(0o700)
    told = capsys.readouterr().err.splitlines()
    assert (code, len(told)) == (1, 1) and "Permission denied" in told[0]


def test_a_damaged_metadata_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    whole = encode_snapshot([NoOpRecord()], now_ms=0, last_contained_log_timestamp=0)
    path = directory / snapshot_file_name(OffsetAndEpoch(7, 1))
    path.write_bytes(whole)
    assert main(["scrub", str(tmp_path)]) == 0
    for damaged in (b"", whole[:-1], whole[:130] + bytes([whole[130] ^ 1]) + whole[131:]):
        path.write_bytes(damaged)
        assert main(["scrub", str(tmp_path)]) == 1
        assert f"{path} is damaged: " in capsys.readouterr().out


def test_damage_in_the_last_segment_is_told_from_a_torn_end(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sorted((log_dir / "t-1").glob("*.log"))[-1]
    whole = path.read_bytes()
    following = int(path.name[:20]) + len(list(walk_headers(whole)))
    path.write_bytes(whole + batch_at(following) + batch_at(following + 1))
    assert main(["scrub", str(log_dir / "t-1")]) == 0
    path.write_bytes(whole + batch_at(following)[:-1])
    assert main(["scrub", str(log_dir / "t-1")]) == 0
    path.write_bytes(whole + b"\x07" * 99 + batch_at(following + 1))
    capsys.readouterr()
    assert main(["scrub", str(log_dir / "t-1")]) == 1
    assert f"to {following + 2}," in capsys.readouterr().out, "what follows the damage is verified, too"


def batch_at(offset: int) -> bytes:
    return build_batch([Record(0, NOW, None, b"more")], base_offset=offset)
