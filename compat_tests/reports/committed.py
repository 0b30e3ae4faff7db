"""Committed offsets of groups by raw requests, plain and within transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.reports.asked import Asked
from compat_tests.transactions.wire_world import Producer
from kbroker.wire.messages.groups import DescribeGroupsRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.messages.transactions import AddOffsetsToTxnRequest
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.patience import eventually

UNSTABLE = 88


def new_group(asked: Asked) -> str:
    """The name of a group that nobody has used; its coordinator is ready."""
    name = asked.new_id().replace("id-", "group-")
    eventually(lambda: asked.ask(DescribeGroupsRequest(groups=[name]), 0).groups[0].error_code not in (14, 15, 16))
    return name


def commit(asked: Asked, group: str, topic: str, offset: int, keep_ms: int | None = None, **fields: Any) -> int:
    """OffsetCommit of partition 0, in version 4 if it says how long it is kept; the error."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    named = OffsetCommitRequestTopic(name=topic, topic_id=asked.topic_ids[topic], partitions=[partition])
    version = 9 if keep_ms is None else 4
    request = OffsetCommitRequest(
        group_id=group, topics=[named], retention_time_ms=-1 if keep_ms is None else keep_ms, **fields
    )
    return int(asked.ask(request, version).topics[0].partitions[0].error_code)


def stage(asked: Asked, producer: Producer, group: str, topic: str, offset: int, **fields: Any) -> int:
    """Commit an offset of partition 0 within a transaction; the error."""
    add = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    eventually(lambda: asked.ask(add, 3).error_code == 0)
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        **fields,
    )
    return int(asked.ask_verified(request, 3).topics[0].partitions[0].error_code)


def fetched(asked: Asked, group: str, topic: str, by_id: bool = False, stable: bool = False) -> tuple[int, int]:
    """Error and committed offset of partition 0 by its topic's name or id."""
    named = OffsetFetchRequestTopics(name=topic, topic_id=asked.topic_ids[topic], partition_indexes=[0])
    one = OffsetFetchRequestGroup(group_id=group, topics=[named])
    answer = asked.ask(OffsetFetchRequest(groups=[one], require_stable=stable), 10 if by_id else 9).groups[0]
    if answer.error_code:
        return answer.error_code, -1
    found = answer.topics[0].partitions[0]
    return found.error_code, found.committed_offset


def delete(asked: Asked, group: str, topic: str) -> int:
    """OffsetDelete of partition 0; the error."""
    named = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answer = asked.ask(OffsetDeleteRequest(group_id=group, topics=[named]), 0)
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)


def eventually_stable(asked: Asked, group: str, topic: str) -> int:
    """The committed offset, once no transaction holds it."""
    seen: list[tuple[int, int]] = []

    def settled() -> bool:
        seen.append(fetched(asked, group, topic, stable=True))
        return seen[-1][0] != UNSTABLE

    eventually(settled)
    assert seen[-1][0] == 0, seen[-1]
    return seen[-1][1]


Scenario = Callable[[Asked, str, str], None]
