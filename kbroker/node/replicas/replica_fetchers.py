"""Follows the partitions that other brokers lead: a fetcher for each leader, and the leaders that seem to be dead."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

import trio

from kbroker.node.replicas.leader_session import Key
from kbroker.node.replicas.replica_fetcher import LeaderFetcher

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.partition_events import CheckpointRequests, Progress
    from kbroker.node.replicas.partition_table import PartitionTable
    from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
    from kbroker.node.replicas.replication_throttles import ReplicationThrottles
    from kbroker.runtime.env import Env, Network

SUSPICION_SECONDS = 0.3
"""Time that a Metadata request waits for a new leader when the old one has just closed its connections."""


class ReplicaFetchers:
    """The fetchers, in step with the metadata (``node.replicas.metadata_follower`` calls)."""

    def __init__(
        self,
        *,
        env: Env,
        network: Network,
        config: BrokerConfig,
        table: PartitionTable,
        progress: Progress,
        log_dirs: ReplicaLogDirs,
        checkpoints: CheckpointRequests,
        throttles: ReplicationThrottles,
        broker_epoch: Callable[[], int],
        address: Callable[[int], tuple[str, int] | None],
        start_soon: Callable[..., None],
    ) -> None:
        """``address`` gives where a broker is, None if that is not known; ``network`` reaches it."""
        self.env = env
        self.network = network
        self.config = config
        self.table = table
        self.progress = progress
        self.log_dirs = log_dirs
        self.checkpoints = checkpoints
        self.throttles = throttles
        self.broker_epoch = broker_epoch
        self.start_soon = start_soon
        self._address = address
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._by_key: dict[Key, LeaderFetcher] = {}
        self._epochs: dict[Key, tuple[Partition, int]] = {}
        self._homeless: dict[Key, Partition] = {}
        """Partitions whose leader has no known address."""
        self._suspects: dict[int, float] = {}
        """Leaders that seem to have died a moment ago, with the time until which that is believed."""
        self._cleared = trio.Event()
        self._to_start: list[LeaderFetcher] = []
        self._running: dict[LeaderFetcher, None] = {}
        """Includes fetchers that have nothing left to follow, until they have noticed."""
        self._wake = trio.Event()

    def follow(self, partition: Partition) -> None:
        """Follow a partition from the leader that its state names, unless that is so already."""
        key = partition.topic_partition
        state = partition.state
        if key in self._by_key and self._epochs[key] == (partition, state.leader_epoch):
            return
        self.unfollow(partition)
        if state.leader < 0 or partition.read_only:
            return
        self._epochs[key] = partition, state.leader_epoch
        address = self._address(state.leader)
        if address is None:
            self._homeless[key] = partition
            return
        fetcher = self._fetchers.get(state.leader)
        if fetcher is None:
            fetcher = self._fetchers[state.leader] = LeaderFetcher(self, state.leader, *address)
            self._to_start.append(fetcher)
            self._wake.set()
        self._by_key[key] = fetcher
        fetcher.add(partition)

    def unfollow(self, partition: Partition) -> None:
        """The partition is led here, or is not here any more."""
        key = partition.topic_partition
        self._homeless.pop(key, None)
        self._epochs.pop(key, None)
        fetcher = self._by_key.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)

    def brokers_changed(self) -> None:
        """Addresses may have become known, or others."""
        for leader in list(self._suspects):
            broker = self.table.image.brokers.get(leader)
            if broker is None or broker.fenced:
                self.clear(leader)
        moved = list(self._homeless.values())
        for leader, fetcher in list(self._fetchers.items()):
            address = self._address(leader)
            if address is not None and address != fetcher.address:
                moved += fetcher.followed
                for partition in fetcher.followed:
                    self.unfollow(partition)
                del self._fetchers[leader]
        for partition in moved:
            self._homeless.pop(partition.topic_partition, None)
            self.follow(partition)

    def ended(self, fetcher: LeaderFetcher) -> None:
        """The fetcher has nothing left to follow, or the node stops."""
        self._running.pop(fetcher, None)
        if self._fetchers.get(fetcher.leader) is fetcher:
            del self._fetchers[fetcher.leader]
            self.clear(fetcher.leader)

    # --- leaders that may be dead -----------------------------------------------------------------------------

    def suspect(self, leader: int) -> None:
        """Mark a leader as suspect for a while: it closed or refused a connection."""
        self._suspects[leader] = self.env.now() + SUSPICION_SECONDS

    def clear(self, leader: int) -> None:
        """A leader answers, or leads no more."""
        if self._suspects.pop(leader, None) is not None:
            self._cleared.set()
            self._cleared = trio.Event()

    async def until_clear(self) -> frozenset[int]:
        """Wait a moment if the metadata name leaders that seem to be dead; the leaders that were waited for.

        Clients lose their connections when this node does and ask at once who leads now. Told what was true before,
        they believe it for a second or so, long after there is a new leader.
        """
        await trio.lowlevel.checkpoint()  # notice first what has just happened to connections
        waited_for: frozenset[int] = frozenset()
        while self._suspects:
            left = max(self._suspects.values()) - self.env.now()
            if left <= 0:
                self._suspects.clear()
                break
            waited_for |= self._suspects.keys()
            with trio.move_on_after(left):
                await self._cleared.wait()
        return waited_for

    async def run(self) -> None:
        """Run the fetchers, for as long as the node runs."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            while True:
                self._wake = trio.Event()
                while self._to_start:
                    fetcher = self._to_start.pop(0)
                    self._running[fetcher] = None
                    nursery.start_soon(fetcher.run)
                await self._wake.wait()

    async def _keep_time(self) -> None:
        """End requests that take longer than ``replica.socket.timeout.ms``.

        The time-out is the same for all, so a request that is sent while this sleeps is not too slow before it wakes.
        """
        timeout = self.config.replica_socket_timeout_ms / 1000
        while True:
            if not self._running:
                await self._wake.wait()
            now = self.env.now()
            for fetcher in self._running:
                if fetcher.answer_by <= now:
                    fetcher.give_up()
            left = (fetcher.answer_by for fetcher in self._running if fetcher.answer_by > now)
            await trio.sleep_until(min(min(left, default=inf), now + timeout))
