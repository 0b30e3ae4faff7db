"""Whole batches that were taken out of a log can be put back, if the log lacks their offsets."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from kbroker.log.disk import OsDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.tools.cli import main
from kbroker.wire.batch_header import walk_headers
from tests.log.log_helpers import NOW, TP, append, missing, read_all

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)
VALUES = [(number, b"%d" % number + b"v" * 100) for number in range(20)]


def start(path: Path, *, leaves_holes: bool) -> tuple[LogManager, PartitionLog]:
    manager = LogManager.open(
        [path], OsDisk(), now_ms=NOW, log_config=lambda tp: CONFIG, rng=random.Random(1), leaves_holes=leaves_holes
    )
    return manager, manager.create_log(TP, None, CONFIG)


@pytest.mark.parametrize("leaves_holes", [True, False], ids=["hole", "cut"])
def test_what_is_whole_of_it_is_put_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], leaves_holes: bool
) -> None:
    manager, log = start(tmp_path, leaves_holes=leaves_holes)
    for _, value in VALUES:
        append(log, [value])
    manager.checkpoint({TP: len(VALUES)})
    manager.release()
    path = sorted((tmp_path / str(TP)).glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    headers = list(walk_headers(bytes(data)))
    position, lost = headers[1][0], headers[1][1].base_offset
    data[position + 80] ^= 1
    path.write_bytes(data)
    manager, log = start(tmp_path, leaves_holes=leaves_holes)
    assert lost in missing(log)
    manager.close()
    assert main(["scrub", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert f"{TP}: DAMAGED" in told and f"  offsets {lost} to " in told and "; set aside as " in told
    aside = sorted(str(each) for each in (tmp_path / str(TP)).glob("*.set-aside"))
    assert main(["put-back", "--list", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    listed = document["files"]
    assert [each["start_offset"] for each in document["missing"]] == [lost]
    assert [each["path"] for each in listed] == aside
    assert all(each["reason"] for each in listed)
    assert sum(len(each["offsets"]) for each in listed) == (0 if leaves_holes else len(VALUES) - lost - 1)
    assert main(["put-back", "--list", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "whole batches:" in out and f"offsets {lost} to " in out
    # Somebody mends the one batch.
    mended = next(each for each in aside if f".{position}." in each or each.endswith(f".{position}.set-aside"))
    content = bytearray(Path(mended).read_bytes())
    content[80] ^= 1
    Path(mended).write_bytes(content)
    assert main(["put-back", *aside]) == 0
    assert "in the log again" in capsys.readouterr().out
    manager, log = start(tmp_path, leaves_holes=leaves_holes)
    assert read_all(log) == VALUES
    assert not log.is_damaged
    assert main(["put-back", *aside]) == 1
    assert "stop its node first" in capsys.readouterr().err
    manager.close()
    assert main(["scrub", str(tmp_path)]) == 0, "nothing is missing any more"
    assert main(["put-back", *aside]) == 0
    assert "has all that is whole" in capsys.readouterr().out
    manager, log = start(tmp_path, leaves_holes=leaves_holes)
    assert read_all(log) == VALUES
    manager.close()
