"""Configs of an application's group."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from compat_tests.case import await_group_configs

DEAD_AFTER_MS = 6000
"""Silence after which members are missed where one is killed. Others may be silent for longer, on a slow machine."""


def configure(bootstrap: str, group: str, name: str, value: str) -> None:
    """Set a config of a group, and wait until each node knows it."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    await_group_configs(bootstrap, group, {name: value})
