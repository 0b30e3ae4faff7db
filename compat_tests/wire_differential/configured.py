"""Properties that are set by raw requests, and waited for."""

from __future__ import annotations

from compat_tests.case import await_group_configs
from compat_tests.wire_differential.dialogue import Dialogue
from kbroker.wire.messages import configs

GROUP = 32
"""The type of a resource."""


def configure(kind: int, name: str, **values: str) -> configs.IncrementalAlterConfigsRequest:
    """A request that sets properties of a resource; ``_`` stands for the dots of their names."""
    pairs = [
        configs.IncrementalAlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()
    ]
    resource = configs.IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=pairs)
    return configs.IncrementalAlterConfigsRequest(resources=[resource])


def configured(talk: Dialogue, group: str, **values: str) -> None:
    """Set properties of a group, and wait until the broker goes by them.

    Apache Kafka tells of a change a moment before all its parts have it, and publishes one after the other.
    """
    for name in (group, f"after-{group}"):
        assert not talk.ask(configure(GROUP, name, **values), 1).responses[0].error_code
        await_group_configs(talk.bootstrap, name, {key.replace("_", "."): value for key, value in values.items()})
