"""A share group for the console to show: two workers that hold different records, one of them for the second time."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from compat_tests.console.world import make_topics
from kbroker.client import Client
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic
from kbroker.wire.record_batch import Record
from tests.patience import LONG, eventually

_LOCK_MS = "600000"
"""The broker under test lets locks be as long (`compat_tests.conftest.LONG_LOCKS`)."""


class Packing:
    """The first worker holds the parcels 0, 2 and 3; the second 1, which the first gave back, and 4 and 5."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        run = uuid.uuid4().hex[:6]
        self.group, self.topic = f"packers-{run}", f"parcels-{run}"
        self._workers: list[Any] = []
        confluent_kafka = pytest.importorskip("confluent_kafka")
        make_topics(bootstrap, NewTopic(self.topic, 1, 1))
        with Client(bootstrap) as client:
            settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": _LOCK_MS}
            changes = [ConfigChange(name, Operation.SET, value) for name, value in settings.items()]
            alter_configs(client, ResourceType.GROUP, self.group, changes)
            self._produce(client, 4)
            first = self._worker("packer-1")
            first.acknowledge_offset(self.topic, 0, 1, confluent_kafka.AcknowledgeType.RELEASE)
            first.commit_sync(LONG)
            self._produce(client, 2)
            self._worker("packer-2")

    def _produce(self, client: Client, count: int) -> None:
        refused: list[object] = []
        producer = Producer(client, self.topic, [0], on_refused=refused.append)
        for number in range(count):
            producer.send(Record(0, time.time_ns() // 1_000_000, None, b"parcel"), number)
        producer.flush()
        assert refused == []

    def _worker(self, name: str) -> Any:
        """A worker with its first records."""
        from confluent_kafka import ShareConsumer

        settings = {"group.id": self.group, "client.id": name, "share.acknowledgement.mode": "explicit"}
        stays = {"max.poll.interval.ms": 3_600_000}
        worker = ShareConsumer({"bootstrap.servers": self._bootstrap, **settings, **stays})
        self._workers.append(worker)
        worker.subscribe([self.topic])
        eventually(lambda: worker.poll(0.5), f"{name} gets something")
        return worker

    def finish(self) -> None:
        """Accept what the first worker holds."""
        for offset in (0, 2, 3):
            self._workers[0].acknowledge_offset(self.topic, 0, offset)
        self._workers[0].commit_sync(LONG)

    def close(self) -> None:
        """Have the workers leave."""
        for worker in self._workers:
            worker.close()
