"""A log is handed over from one node of a machine to another, and one of the two is killed by SIGKILL at each step: a
stock producer with acks=all loses nothing, and has nothing twice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.client import Client, ClientError
from kbroker.client.reassignments import alter_reassignments
from kbroker.types import TopicPartition as Partition
from tests.cli.test_cores import ROOT, machine, two_cores
from tests.node.process_harness import TO_THE_END
from tests.patience import LONG, eventually

STEPS = (("make_dir", "link", "write_bytes"), ("sync_dir", "rename", "sync_parent"))
"""Operations of the disk in their order: the new replica makes a directory, the old one fills it, the new one takes it.
In two halves, for a node that dies five times within a minute is not started again."""

KILLER = """
import os, signal
from kbroker.log.disk import OsDisk

renamed = []


def reached(step):
    try:
        with open(os.environ["KILL_AT"]) as file:
            if file.read() != step:
                return
        os.unlink(os.environ["KILL_AT"])
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def watch(name):
    original = getattr(OsDisk, name)

    def call(self, path, *args, **options):
        step = None
        target = args[0] if name == "link" else path
        if "orders-0." in target and "-delete" in target and not (name == "rename" and "-delete" in args[0]):
            step = name
        elif name == "sync_dir" and path in renamed:
            step = "sync_parent"
            renamed.remove(path)
        if step:
            reached(step + " before")
        result = original(self, path, *args, **options)
        if step == "rename":
            renamed.append(os.path.dirname(path))
        if step:
            reached(step + " after")
        return result

    setattr(OsDisk, name, call)


for name in ("make_dir", "link", "write_bytes", "sync_dir", "rename"):
    watch(name)
"""


class Load:
    """An idempotent producer that writes all the while, and what it was told."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.failed: list[Any] = []
        self.sent = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": 600_000,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.offset()] = message.value()

    def write(self, count: int, size: int) -> None:
        for _ in range(count):
            value = b"%d-" % self.sent + b"x" * size
            self._producer.produce("orders", value, partition=0, on_delivery=self._told)
            self.sent += 1
            self._producer.poll(0.001)

    def _run(self) -> None:
        while not self._stop.is_set():
            if len(self._producer) < 200:
                self.write(1, 100)
            else:
                self._producer.poll(0.01)

    def begin(self) -> None:
        self.write(3000, 1000)
        assert self._producer.flush(LONG) == 0
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(LONG) == 0


def move(bootstrap: str, target: int) -> bool:
    """Have the partition moved; whether a controller has taken it."""
    try:
        with Client(bootstrap) as client:
            alter_reassignments(client, {Partition("orders", 0): (target,)})
        return True
    except (ClientError, OSError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("half", STEPS)
def test_a_kill_at_each_step_loses_nothing(tmp_path: Path, half: tuple[str, ...]) -> None:
    steps = [f"{step} {when}" for step in half for when in ("before", "after")]
    kill_at = tmp_path / "kill-at"
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(KILLER)
    environment = {"PYTHONPATH": f"{tmp_path / 'python'}:{ROOT}", "KILL_AT": str(kill_at)}
    with machine(tmp_path, *two_cores(), environment=environment) as it:
        bootstrap = ",".join(it.await_ready())
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topic = NewTopic("orders", num_partitions=1, replica_assignment=[[1]], config={"segment.bytes": str(1 << 20)})
        admin.create_topics([topic])["orders"].result(LONG)
        load = Load(bootstrap)
        load.begin()
        try:
            for number, step in enumerate(steps):
                target = 2 - number % 2
                kill_at.write_text(step)
                eventually(lambda target=target: move(bootstrap, target), f"{step}: a controller", LONG)  # type: ignore[misc]
                eventually(lambda: not kill_at.exists(), f"{step}: a kill", LONG)

                def is_there(target: int = target) -> bool:
                    try:
                        found = admin.list_topics("orders", timeout=5).topics["orders"].partitions[0]
                    except Exception:
                        return False  # nobody answers while both start
                    return (found.leader, list(found.replicas)) == (target, [target])

                eventually(is_there, f"{step}: the move to end", LONG)
        finally:
            load.end()
        assert not load.failed and len(load.acknowledged) == load.sent
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "check.crcs": True, **TO_THE_END})
        consumer.assign([TopicPartition("orders", 0, 0)])
        found: dict[int, bytes] = {}
        while (message := consumer.poll(LONG)) is not None and message.error() is None:
            found[message.offset() or 0] = message.value() or b""
        consumer.close()
        assert found == load.acknowledged
        assert [int(value.split(b"-")[0]) for _, value in sorted(found.items())] == list(range(load.sent))
        assert it.log.count("was handed over by broker") >= len(steps) // 2, it.log[-4000:]
