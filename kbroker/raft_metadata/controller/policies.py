"""The policies that a controller asks before it creates a topic or changes configs (KIP-108, KIP-133)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kbroker.value_types import NamedTuple


class CreateTopicPolicy(Protocol):
    """Judges a topic that is to be created. `ApiError` POLICY_VIOLATION if it may not be."""

    def __call__(
        self,
        topic: str,
        num_partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
        configs: Mapping[str, str],
    ) -> None: ...


class AlterConfigPolicy(Protocol):
    """Judges changes of a resource's configs; None is a removal. `ApiError` POLICY_VIOLATION if they may not be."""

    def __call__(self, resource_type: int, resource_name: str, configs: Mapping[str, str | None]) -> None: ...


class Policies(NamedTuple):
    """The policies of a controller; None for none."""

    create_topic: CreateTopicPolicy | None = None
    alter_config: AlterConfigPolicy | None = None
    on_request: Callable[[], None] | None = None
    """Called before an operation is decided on that may ask them, once for all that it names."""


NO_POLICIES = Policies()
