"""A member of a share group, by confluent-kafka's share consumer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from compat_tests.case import await_group_configs
from tests.patience import LONG

Place = tuple[int, int]
"""Partition and offset."""


def configure(servers: str, group: str, **configs: str) -> None:
    """Have a group begin with the first records, and set its configs: ``a_b="1"`` stands for ``a.b=1``.

    Each of the servers knows them then.
    """
    settings = {"share.auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in configs.items()
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result()
    await_group_configs(servers, group, settings)


def member(servers: str, group: str, topic: str) -> Any:
    consumer = ShareConsumer(
        {"bootstrap.servers": servers, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    return consumer


def work(consumer: Any, count: int, is_bad: Callable[[bytes], bool] = lambda value: False) -> dict[Place, bytes]:
    """Take up so many records, whatever comes again: the bad ones are rejected, the others accepted."""
    found: dict[Place, bytes] = {}
    end = time.monotonic() + LONG
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count}: {sorted(found)}"
        for message in consumer.poll(0.5):
            value = message.value()
            found[message.partition(), message.offset()] = value
            consumer.acknowledge(message, AcknowledgeType.REJECT if is_bad(value) else AcknowledgeType.ACCEPT)
        consumer.commit_sync()
    return found
