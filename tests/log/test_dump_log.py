"""Apache Kafka's own tool reads what we wrote, record by record, and finds nothing wrong with the indexes."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from kbroker.log.disk import OsDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.types import Uuid
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import Record, build_batch
from tests.conftest import FAST_START
from tests.log.log_helpers import NOW, TP
from tests.patience import LONG


def dump(home: Path, *arguments: str) -> str:
    tool = ["java", *FAST_START, "-cp", f"{home}/libs/*", "org.apache.kafka.tools.DumpLogSegments", *arguments]
    done = subprocess.run(tool, capture_output=True, text=True, check=False, timeout=2 * LONG)
    # Without a configuration log4j says so on standard error; everything else there is a complaint.
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stderr, done.stderr
    return done.stdout


def fill(log: PartitionLog, count: int, seed: int = 1) -> list[tuple[int, bytes]]:
    rng = random.Random(seed)
    written: list[tuple[int, bytes]] = []
    sequence = 0
    for index in range(count):
        values = [b"%d-%d-" % (index, part) + b"v" * rng.randrange(200) for part in range(rng.randint(1, 20))]
        data = build_batch(
            [Record(0, NOW + index * 10 + rng.randrange(30), b"k", value) for value in values],
            compression=rng.choice(list(CompressionType)),
            producer_id=4711,
            producer_epoch=0,
            base_sequence=sequence,
        )
        sequence += len(values)
        info = log.append_as_leader(bytearray(data), index // 100, now_ms=NOW)
        written += [(info.first_offset + part, value) for part, value in enumerate(values)]
    return written


@pytest.mark.kafka
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_the_tool_reads_our_files(tmp_path: Path, kafka_home: Path, stop: str) -> None:
    config = LogConfig(segment_bytes=150_000, index_interval_bytes=1000)

    def start() -> LogManager:
        return LogManager.open([tmp_path], OsDisk(), now_ms=NOW, log_config=lambda tp: config)

    manager = start()
    written = fill(manager.create_log(TP, Uuid(bytes(range(16))), config), 400)
    if stop == "killed":
        manager.release()
        manager = start()  # recovery builds the indexes of the last segment, and the snapshots, anew
    log = manager.get_log(TP)
    assert log is not None
    log.truncate_to(log.log_end_offset - 100, now_ms=NOW)
    end = log.log_end_offset
    manager.close()

    directory = tmp_path / str(TP)
    names = sorted(path.name for path in directory.iterdir())
    logs = [name for name in names if name.endswith(".log")]
    assert len(logs) >= 2
    files = ",".join(str(directory / name) for name in logs)
    output = dump(kafka_home, "--deep-iteration", "--print-data-log", "--skip-record-metadata", "--files", files)
    found = re.findall(r"key: k payload: (\S+)", output)
    assert found == [value.decode() for offset, value in written if offset < end]
    assert output.count("isvalid: true") > 10
    assert "isvalid: false" not in output

    indexes = [str(directory / name) for name in names if name.endswith((".index", ".timeindex"))]
    assert len(indexes) == 2 * len(logs)
    output = dump(kafka_home, "--verify-index-only", "--files", ",".join(indexes))
    for complaint in ("Mismatches", "mismatch", "Found timestamp", "out of order", "sanity check"):
        assert complaint not in re.sub(r"\S+index passed sanity check\.", "", output), output
    output = dump(kafka_home, "--index-sanity-check", "--files", ",".join(indexes))
    assert output.count("passed sanity check") == len(indexes)
    assert re.search(r"offset: \d+ position: \d+", dump(kafka_home, "--files", indexes[0]))

    snapshots = [str(directory / name) for name in names if name.endswith(".snapshot")]
    output = dump(kafka_home, "--files", ",".join(snapshots))
    assert output.count("producerId: 4711") == len(snapshots)
    assert (directory / "leader-epoch-checkpoint").read_text().startswith("0\n4\n0 0\n1 ")
    assert (directory / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
