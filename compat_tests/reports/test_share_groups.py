"""Reports about share groups: records that are held while their log changes under them."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.coordinators import await_share_coordinators
from compat_tests.reports.asked import Asked
from compat_tests.reports.committed import new_group
from kbroker.types import uuid_to_str
from kbroker.wire.messages import share_fetch
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.share_groups import ShareGroupHeartbeatRequest
from tests.patience import eventually

ACCEPT, RELEASE = 1, 2
UNKNOWN_TOPIC_ID = 100
GROUP = 32


class ShareMember:
    """A member that reads partition 0 of a topic from its beginning."""

    def __init__(self, asked: Asked, topic: str, group: str) -> None:
        self.asked, self.topic, self.group = asked, topic, group
        self.name = uuid_to_str(asked.topic_ids[topic])
        self._session = 0
        change = IncrementalAlterableConfig(name="share.auto.offset.reset", value="earliest")
        resource = IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[change])
        assert asked.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
        self._epoch = 0
        eventually(self._has_partition)
        await_share_coordinators(asked.bootstrap, asked.topic_ids[topic])

    def _has_partition(self) -> bool:
        beat = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=self._epoch,
            subscribed_topic_names=[self.topic] if self._epoch == 0 else None,
        )
        answer = self.asked.ask(beat, 1)
        assert answer.error_code in (0, 14, 15, 16), answer
        self._epoch = answer.member_epoch or self._epoch
        return bool(answer.assignment and answer.assignment.topic_partitions)

    def fetch(self, max_records: int = 500, max_bytes: int = 1 << 20, **fields: Any) -> Any:
        """The answer of ShareFetch about the partition; None if it has nothing to say of it."""
        partition = share_fetch.FetchPartition(partition_index=0)
        topic = share_fetch.FetchTopic(topic_id=self.asked.topic_ids[self.topic], partitions=[partition])
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self._session,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=max_records,
            topics=[topic] if self._session == 0 else [],
            **fields,
        )
        answer = self.asked.ask(request, 2)
        assert answer.error_code == 0, answer
        self._session += 1
        return answer.responses[0].partitions[0] if answer.responses else None

    def acquired(self, **limits: int) -> list[tuple[int, int, int]]:
        """First and last offset of records that it gets, and how often they have been given."""
        got: list[Any] = []

        def fetched() -> bool:
            answer = self.fetch(**limits)
            assert answer is None or answer.error_code == 0, answer
            got[:] = [] if answer is None else answer.acquired_records
            return bool(got)

        eventually(fetched)
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in got]

    def acknowledge(self, first: int, last: int, kind: int = ACCEPT) -> int:
        """Say what became of records; the error."""
        batch = share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        partition = share_fetch.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        topic = share_fetch.AcknowledgeTopic(topic_id=self.asked.topic_ids[self.topic], partitions=[partition])
        request = share_fetch.ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.name, share_session_epoch=self._session, topics=[topic]
        )
        answer = self.asked.ask(request, 2)
        assert answer.error_code == 0, answer
        self._session += 1
        return int(answer.responses[0].partitions[0].error_code)


def new_member(asked: Asked, topic: str, group: str | None = None) -> ShareMember:
    """A member of a group of its own, or of the one that is named."""
    return ShareMember(asked, topic, group or new_group(asked))


@pytest.fixture
def topic(asked: Asked) -> str:
    """A topic of four batches of five records, at five seconds each."""
    name = asked.topic_with()
    for first in (0, 5, 10, 15):
        asked.write(name, *range(first, first + 5))
    return name


def test_a_groups_name_has_colons(asked: Asked, topic: str) -> None:
    member = new_member(asked, topic, f"a:b::{new_group(asked)}:0")
    assert member.acquired(max_records=5) == [(0, 4, 1)]
    assert member.acknowledge(0, 4) == 0
    assert member.acquired(max_records=5) == [(5, 9, 1)]


def test_a_record_is_larger_than_a_fetch(asked: Asked) -> None:
    topic = asked.topic_with()
    asked.write(topic, 1, value=bytes(50_000))
    member = new_member(asked, topic)
    assert member.acquired(max_bytes=1_000) == [(0, 0, 1)]


def test_held_records_are_deleted(asked: Asked, topic: str) -> None:
    member = new_member(asked, topic)
    assert member.acquired() == [(0, 19, 1)]
    assert asked.delete_records(topic, 12) == 12
    assert member.acknowledge(0, 6) == 0
    assert member.acknowledge(7, 13, RELEASE) == 0
    assert member.acquired() == [(12, 13, 2)]
    assert member.acknowledge(12, 19) == 0
    asked.write(topic, 20)
    assert member.acquired() == [(20, 20, 1)]


def test_records_that_nobody_holds_are_deleted(asked: Asked, topic: str) -> None:
    member = new_member(asked, topic)
    assert member.acquired(max_records=5) == [(0, 4, 1)]
    assert asked.delete_records(topic, 20) == 20
    asked.write(topic, 20, 21)
    assert member.acquired() == [(20, 21, 1)]
    assert member.acknowledge(0, 4) == 0
    assert member.acknowledge(20, 21) == 0


def test_the_topic_of_held_records_is_deleted(asked: Asked, topic: str) -> None:
    member = new_member(asked, topic)
    assert member.acquired(max_records=5) == [(0, 4, 1)]
    asked.delete_topic(topic)
    assert member.acknowledge(0, 4) == UNKNOWN_TOPIC_ID


def test_aborted_records_are_passed_over(asked: Asked) -> None:
    topic = asked.topic_with()
    producer = asked.init()
    for commit in (False, True, False, True):
        asked.add(producer, topic=topic)
        asked.produce(producer, topic, 0)
        asked.end(producer, commit, version=5)
    group = new_group(asked)
    change = IncrementalAlterableConfig(name="share.isolation.level", value="read_committed")
    resource = IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[change])
    assert asked.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
    member = new_member(asked, topic, group)
    got: list[tuple[int, int, int]] = []
    while len(got) < 2:
        got += member.acquired()
    assert got == [(1, 3, 1), (5, 7, 1)]  # the markers of the two that were aborted, and of the others, go with them
