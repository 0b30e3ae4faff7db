"""A client that asks only the brokers that were reached, and that are who the metadata says they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kbroker.client.cluster import Client
from kbroker.client.security import ClientSecurity
from kbroker.types import TopicPartition


class ReachedClient(Client):
    """A client that asks no other brokers, so that no answer waits for them. Their partitions have no leader here."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        reached: Collection[int],
        *,
        client_id: str,
        timeout: float,
        security: ClientSecurity | None,
    ) -> None:
        super().__init__(bootstrap, client_id=client_id, timeout=timeout, security=security)
        self._reached = frozenset(reached)

    def all_nodes(self, deadline: float | None = None) -> list[int]:
        """The ids of the brokers that were reached."""
        return [node_id for node_id in super().all_nodes(deadline) if node_id in self._reached]

    def leader(self, partition: TopicPartition) -> int | None:
        """The answer of the base, None for a leader that was not reached."""
        leader = super().leader(partition)
        return leader if leader in self._reached else None
