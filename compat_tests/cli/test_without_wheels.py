"""A node without the packages lz4, zstandard and google-re2, which have no wheel for 3.15, serves stock clients."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.spark.older import made
from tests.gate.steps import ROOT

PACKAGES = (
    "trio", "crc32c", "cramjam", "backports.zstd", "construct", "pyre2", "xxhash", "rich", "argcomplete",
)  # fmt: skip
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WITHOUT = (
    "import importlib.util as u, re2; assert not u.find_spec('lz4') and not u.find_spec('zstandard'); re2.contains"
)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    python = made("without-wheels", PACKAGES)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(ROOT)
    subprocess.run([python, "-c", WITHOUT], check=True, env=environment, cwd=tmp_path)
    command = [str(python), "-m", "kbroker", "start", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=tmp_path) as node:
        assert node.stdout is not None
        try:
            assert select.select([node.stdout], [], [], 60)[0], "it does not start within a minute"
            ready = re.search(rb"ready: \S*:(\d+)", node.stdout.readline())
            assert ready is not None
            yield int(ready[1])
        finally:
            node.terminate()


def test_all_codecs_and_a_subscription_by_pattern(port: int) -> None:
    servers = {"bootstrap.servers": f"127.0.0.1:{port}"}
    values = {f"{codec} {number}".encode() * 300 for codec in CODECS for number in range(3)}
    for codec in CODECS:
        producer = Producer({**servers, "compression.type": codec, "linger.ms": 50})
        for value in values:
            if value.startswith(codec.encode()):
                producer.produce(f"packed-{codec}", value)
        assert producer.flush(60) == 0
    consumer = Consumer({
        **servers, "group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe(["^packed-[a-z0-9]+$"])
    found: set[bytes | None] = set()
    deadline = time.monotonic() + 90
    while found != values and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.add(message.value())
    consumer.close()
    assert found == values
