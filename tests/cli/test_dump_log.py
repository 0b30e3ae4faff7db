"""kbroker dump-log over files written by the code that writes them in a broker."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.share_coordinator.records import Snapshot, snapshot_record, tombstone
from kbroker.cores.share_state import SharePartitionKey, StateBatch
from kbroker.tools.cli import main
from kbroker.types import Uuid, uuid_to_str
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import Record, build_batch
from tests.patience import LONG


def entries(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["dump-log", "--json", *options, str(path)])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    (tmp_path / "orders-0").mkdir()
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    path.write_bytes(
        build_batch([Record(0, 1000, b"k", "zwölf\n".encode(), (("h", b"\x00\xff"),)), Record(1, 1001, None, None)])
        + build_batch([Record(2, 2000, b"a", b"b")], base_offset=2, compression=CompressionType.LZ4)
    )
    return path


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_of_the_pipe_that_goes_away(segment: Path, options: list[str]) -> None:
    segment.write_bytes(segment.read_bytes() * 500)
    words = [sys.executable, "-m", "kbroker", "dump-log", *options, str(segment)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LONG) == 141


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_header_whose_name_is_not_utf_8(segment: Path, options: list[str]) -> None:
    segment.write_bytes(
        build_batch([Record(0, 1000, None, None, ((b"\xff".decode("utf-8", "surrogateescape"), b"x"),))])
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"}
    words = [sys.executable, "-m", "kbroker", "dump-log", *options, str(segment)]
    found = subprocess.run(words, capture_output=True, env=environment, timeout=LONG)
    assert (found.returncode, found.stderr) == (0, b"") and b"0xff" in found.stdout


def test_a_segment(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = entries(capsys, segment)
    assert code == 0
    assert [entry["kind"] for entry in found] == ["batch", "record", "record", "batch", "record"]
    assert found[0]["base_offset"] == 0 and found[0]["last_offset"] == 1 and found[0]["crc_ok"]
    assert found[1]["key"] == "k" and found[1]["value"] == "zwölf\n" and found[1]["headers"] == [["h", "0x00ff"]]
    assert found[2]["key"] is None and found[2]["value"] is None
    assert found[3]["compression"] == "lz4" and found[3]["position"] == found[0]["size"]
    assert entries(capsys, segment, "--batches")[1] == [found[0], found[3]]


def test_as_text(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", str(segment.parent), "--width", "3"]) == 0
    out = capsys.readouterr().out
    assert "batch 0..1  2 records" in out
    assert "key k  value zwö... (7 characters)" in out
    assert "1970-01-01T00:00:02.000Z" in out


@pytest.mark.parametrize("cut", [1, 11, 12, 60, 61])
def test_a_torn_tail_is_an_error(segment: Path, capsys: pytest.CaptureFixture[str], cut: int) -> None:
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:cut])
    code, found = entries(capsys, segment)
    assert code == 1
    assert found[-1]["kind"] == "error" and found[-1]["position"] == len(whole)


def test_a_flipped_bit_is_an_error(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)
    code, found = entries(capsys, segment)
    assert code == 1
    assert not found[0]["crc_ok"]
    assert main(["dump-log", str(segment)]) == 1
    assert "WRONG CHECKSUM" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["noise", "zeros", "cut out", "a length"])
def test_what_follows_damage_is_shown(segment: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    whole = segment.read_bytes()
    third = build_batch([Record(3, 3000, b"c", b"d")], base_offset=3)
    _, (first, _, _, second, _) = entries(capsys, segment)
    at, end = second["position"], len(whole)
    middle = {
        "noise": b"\x07" * (end - at),
        "zeros": bytes(end - at),
        "cut out": whole[at : at + 30],
        "a length": whole[at : at + 8] + b"\0\0\x99\x99" + whole[at + 12 :],
    }[damage]
    segment.write_bytes(whole[:at] + middle + third)
    code, found = entries(capsys, segment, "--batches")
    assert code == 1
    assert [entry["kind"] for entry in found] == ["batch", "error", "batch"]
    assert (found[1]["position"], found[1]["size"]) == (at, len(middle))
    assert f"up to {at + len(middle)} of" in found[1]["problem"] and "offsets 2 to 2 are missing" in found[1]["problem"]
    assert (found[0], found[2]["base_offset"]) == (first, 3)
    assert main(["dump-log", str(segment)]) == 1
    assert f"ERROR at byte {at}: the bytes up to" in capsys.readouterr().out


def test_a_log_that_is_there_twice(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment.write_bytes(segment.read_bytes() * 2)
    code, found = entries(capsys, segment, "--batches")
    assert code == 1 and [entry["kind"] for entry in found] == ["batch", "batch", "error", "error"]
    assert "cannot follow" in found[2]["problem"]


def test_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / f"{100:020d}.index"
    index.write_bytes(struct.pack(">iiii", 5, 4096, 9, 8192) + bytes(16))
    code, found = entries(capsys, index)
    assert code == 0
    assert [(entry.get("offset"), entry.get("position")) for entry in found[:2]] == [(105, 4096), (109, 8192)]
    assert found[2]["kind"] == "padding"
    index.write_bytes(struct.pack(">iiii", 9, 4096, 5, 8192) + b"x")
    assert entries(capsys, index)[0] == 1
    times = tmp_path / f"{100:020d}.timeindex"
    times.write_bytes(struct.pack(">qi", 1700000000000, 7))
    assert entries(capsys, times)[1][0]["offset"] == 107
    aborted = tmp_path / f"{100:020d}.txnindex"
    aborted.write_bytes(struct.pack(">hqqqq", 0, 1, 2, 3, 4))
    assert entries(capsys, aborted)[1][0]["last_stable_offset"] == 4


def test_checkpoints_and_unknown_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    (tmp_path / "unrelated.txt").write_text("x")
    code, found = entries(capsys, tmp_path)
    assert code == 0
    assert [entry["text"] for entry in found] == ["0", "1", "t 0 5"]
    assert entries(capsys, tmp_path / "unrelated.txt")[0] == 1
    assert main(["dump-log", str(tmp_path / "missing.log")]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_states_of_share_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = SharePartitionKey("workers", Uuid(b"sixteen bytes..."), 3)
    snapshot = Snapshot(2, 1, 7, 40, 5, created_ms=1000, written_ms=2000, batches=(StateBatch(41, 45, 2, 1),))
    records = [snapshot_record(key, snapshot), tombstone(key), CoordinatorRecord(b"\0\x09", b"")]
    (tmp_path / "__share_group_state-0").mkdir()
    path = tmp_path / "__share_group_state-0" / f"{0:020d}.log"
    path.write_bytes(build_batch([Record(index, 1000, *record) for index, record in enumerate(records)]))
    code, (_, whole, gone, unknown) = entries(capsys, path)
    assert code == 0
    assert whole["type"] == gone["type"] == "ShareSnapshot" and gone["value"] is None
    assert whole["key"] == {"group_id": "workers", "topic_id": uuid_to_str(key.topic_id), "partition": 3}
    assert whole["value"]["state_batches"] == [
        {"first_offset": 41, "last_offset": 45, "delivery_state": 2, "delivery_count": 1}
    ]
    assert "unknown record type 9" in unknown["undecodable"]
