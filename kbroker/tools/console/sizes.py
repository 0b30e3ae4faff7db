"""Sizes of partitions, from those brokers that answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from kbroker.client import ApiNotServed, Client, ClientError, ResponseError
from kbroker.client.patience import patience
from kbroker.client.topics import add_sizes, sizes_request
from kbroker.tools.diagnosis.facts import DamagedReplica, damaged_replicas
from kbroker.types import TopicPartition

_PATIENCE: Final = 1.5
"""Seconds that one broker is waited for: a page must not wait for one that is down."""


@dataclass(slots=True)
class Sizes:
    """``of``: partition -> broker -> bytes, None if they may not be seen, for the reason in ``problem``."""

    of: dict[TopicPartition, dict[int, int]] | None = field(default_factory=dict)
    problem: str = ""
    silent: dict[int, str] = field(default_factory=dict)
    """Brokers that are listed and do not answer, with what was tried."""

    failed: list[tuple[int, str]] = field(default_factory=list)
    """Log directories that have failed, with their brokers."""

    damaged: list[DamagedReplica] = field(default_factory=list)

    def of_leader(self, partition: TopicPartition, leader: int | None) -> int | None:
        """Bytes on the leader's disk; 0 for a partition without a directory, None if that is not to be known."""
        if self.of is None or leader is None or leader in self.silent:
            return None
        return self.of.get(partition, {}).get(leader, 0)

    def of_brokers(self) -> Mapping[int, int]:
        """Broker -> bytes of all its replicas."""
        found: dict[int, int] = {}
        for on_brokers in (self.of or {}).values():
            for broker, size in on_brokers.items():
                found[broker] = found.get(broker, 0) + size
        return found


def ask_sizes(client: Client, partitions: Collection[TopicPartition] | None = None) -> Sizes:
    """Ask each broker for itself, of some partitions or of all: one that is down harms only its own."""
    request = sizes_request(partitions)
    found: dict[TopicPartition, dict[int, int]] = {}
    sizes = Sizes(found)
    for broker in client.all_nodes():
        try:
            with patience(client, _PATIENCE):
                response = client.ask_node(broker, request)
            add_sizes(found, broker, response)
        except (ApiNotServed, ResponseError) as error:
            return Sizes(None, str(error), sizes.silent)
        except ClientError as error:
            sizes.silent[broker] = str(error)
            continue
        sizes.failed += [(broker, each.log_dir) for each in response.results if each.error_code]
        sizes.damaged += [damaged for each in response.results for damaged in damaged_replicas(broker, each)]
    return sizes
