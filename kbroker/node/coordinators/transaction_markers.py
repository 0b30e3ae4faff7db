"""Writes the markers that end transactions into the partitions that this node leads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.cores.replication.purgatory import Results
from kbroker.cores.transactions.transaction import TransactionMarker
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.coordinators.group_driver import GroupDriver
from kbroker.raft_metadata.topics import CONSUMER_OFFSETS_TOPIC
from kbroker.types import TopicPartition
from kbroker.wire.control_batch import build_end_txn_marker

if TYPE_CHECKING:
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)


class MarkerWriter:
    """Writes markers for WriteTxnMarkers of other nodes' coordinators, and for this node's own."""

    def __init__(self, env: Env, replica_manager: ReplicaManager, groups: GroupDriver, timeout_ms: int) -> None:
        self._env = env
        self._manager = replica_manager
        self._groups = groups
        self._timeout_ms = timeout_ms

    def write(
        self,
        marker: TransactionMarker,
        partitions: Iterable[TopicPartition],
        on_done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Append the marker to each partition; ``on_done`` is called with each one's error, often at once."""
        now_ms = self._env.wall_clock_ms()
        batch = build_end_txn_marker(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        errors: dict[TopicPartition, ErrorCode] = {}
        waiting: list[tuple[Partition, int]] = []
        for key in partitions:
            try:
                end_offset = self._append(key, bytearray(batch), marker, now_ms)
            except ApiError as error:
                errors[key] = error.code
                continue
            except Exception:
                # The other partitions get theirs. For this one the coordinator gets an answer, and asks again.
                logger.exception("the marker of producer %d could not be written to %s", marker.producer_id, key)
                errors[key] = ErrorCode.UNKNOWN_SERVER_ERROR
                continue
            partition = self._manager.partitions[key]
            if partition.state.high_watermark >= end_offset and partition.acknowledges_at_once(1):
                errors[key] = ErrorCode.NONE
            else:
                waiting.append((partition, end_offset))
        if not waiting:
            on_done(errors)
            return

        def replicated(results: Results) -> None:
            for key, error in results.items():
                assert isinstance(key, TopicPartition)
                errors[key] = ErrorCode.NONE if error is None else error
            on_done(errors)

        self._manager.watch_stored(waiting, replicated, self._timeout_ms)

    def _append(self, key: TopicPartition, batch: bytearray, marker: TransactionMarker, now_ms: int) -> int:
        partition = self._manager.find(*key)
        if partition is None or partition.offline:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if key.topic == CONSUMER_OFFSETS_TOPIC:
            return self._groups.end_transaction(
                key.partition, batch, marker.producer_id, marker.commit, marker.transaction_version
            )
        info = partition.append_as_coordinator(batch, now_ms, transaction_version=marker.transaction_version)
        return info.last_offset + 1
