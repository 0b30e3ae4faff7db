"""The node where nothing is Linux's own: no epoll, sendfile, preadv2 or fdatasync, as on a macOS laptop.

The command runs with all of these taken away, and a stock client fills it, reads it, and reads it again after kill -9.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import LONG, LONG_MS

ELSEWHERE = """
import os, select, socket, sys, types

import trio  # which has other ways there; here it needs its epoll

for name in ("sendfile", "preadv", "pwritev", "fdatasync", "posix_fadvise", "RWF_NOWAIT", "sched_setscheduler"):
    delattr(os, name)
del socket.MSG_MORE
without_epoll = types.ModuleType("select")
without_epoll.__dict__.update({name: value for name, value in vars(select).items() if "epoll" not in name.lower()})
sys.modules["select"] = without_epoll
sys.platform = "darwin"

from kbroker.tools.cli import main

sys.exit(main())
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="takes away what only Linux has")


@contextmanager
def started(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A node with that data, and its address."""
    with (directory / "stderr").open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", ELSEWHERE, "start", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=directory,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("kbroker ready: "), (directory / "stderr").read_text()
        yield process, line.split()[2]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_stock_client_is_served(tmp_path: Path) -> None:
    kafka = pytest.importorskip("kafka")
    values = [b"%06d" % number + bytes(1000) for number in range(3000)]

    def read(address: str) -> list[bytes]:
        consumer = kafka.KafkaConsumer(
            "t", bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=LONG_MS, group_id="g"
        )
        try:
            return [next(consumer).value for _ in values]
        finally:
            consumer.close(autocommit=False)

    with started(tmp_path) as (process, address):
        producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all")
        for value in values:
            producer.send("t", value)
        producer.flush(LONG)
        producer.close()
        assert read(address) == values
    assert process.returncode == -9
    with started(tmp_path) as (process, address):
        assert read(address) == values
        process.terminate()
        assert process.wait(2 * LONG) == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()
