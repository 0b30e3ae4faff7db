"""Rewrites a node's own requests for controllers of earlier releases."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from kbroker.wire.messages.alter_partition import AlterPartitionRequest
from kbroker.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

R = TypeVar("R")


def for_version(request: R, version: int) -> R:
    """The request itself, or as much of it as this version of its API can express."""
    if isinstance(request, AlterPartitionRequest) and version < 3:
        return _without_broker_epochs(request)  # type: ignore[return-value]
    if isinstance(request, BrokerHeartbeatRequest) and version < 1 and request.offline_log_dirs:
        # Such a controller knows no directories: leaders move when the broker has lost all of them, and ends.
        return dataclasses.replace(request, offline_log_dirs=[])
    return request


def _without_broker_epochs(request: AlterPartitionRequest) -> AlterPartitionRequest:
    topics = [
        dataclasses.replace(
            topic,
            partitions=[
                dataclasses.replace(
                    partition,
                    new_isr=[member.broker_id for member in partition.new_isr_with_epochs],
                    new_isr_with_epochs=[],
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return dataclasses.replace(request, topics=topics)
