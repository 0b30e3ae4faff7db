"""Steps that tests of share groups take: a topic and its group are made, records written, read and accepted."""

from __future__ import annotations

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from compat_tests.brokers import Broker
from compat_tests.case import await_everywhere, await_group_configs
from compat_tests.share_groups.members import Delivery, ShareMembers
from tests.patience import LONG


def make(broker: Broker, name: str, *values: str, partitions: int = 1, **configs: str) -> None:
    """A topic with records, and the configs of the group of the same name, which begins with the first record."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result()
    await_everywhere(broker.bootstrap, name)
    configure(broker, name, auto_offset_reset="earliest", **configs)
    write(broker, name, *values, partitions=partitions)


def configure(broker: Broker, group: str, **configs: str) -> None:
    """Set configs of a group, and wait until each node knows them."""
    settings = {
        f"{'' if key.startswith('errors_') else 'share.'}{key.replace('_', '.')}": value
        for key, value in configs.items()
    }
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    await_group_configs(broker.bootstrap, group, settings)


def write(broker: Broker, topic: str, *values: str, partitions: int = 1) -> None:
    """Records in one batch of each partition, which all are there at once."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000})  # until it is flushed
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(LONG) == 0


def read(members: ShareMembers, member: str, count: int) -> list[Delivery]:
    """At least so many records, of one poll or of several; what comes is accepted before the next."""
    found: list[Delivery] = []
    end = time.monotonic() + LONG
    while len(found) < count:
        assert time.monotonic() < end, f"{member} has {found}, not {count}"
        got = members.poll(member, 500)
        found += got
        if len(found) < count:
            accept(members, member, got)
    return found


def accept(members: ShareMembers, member: str, got: list[Delivery]) -> None:
    if got:
        members.acknowledge(member, got)
        assert not any(members.commit(member).values())
