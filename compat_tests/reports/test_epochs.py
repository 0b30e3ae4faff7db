"""Reports about leader epochs: what a consumer learns with which it sees that a log was cut."""

from __future__ import annotations

import pytest

from compat_tests.brokers import Broker
from compat_tests.reports.asked import EARLIEST, LATEST, MAX_TIMESTAMP, Asked
from kbroker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.patience import eventually

FENCED, UNKNOWN = 74, 75


def ends(asked: Asked, topic: str, epoch: int, current: int = -1) -> tuple[int, int, int]:
    """Error, epoch and end offset that OffsetForLeaderEpoch tells of an epoch."""
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    found = asked.ask(request, 4).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.fixture
def led(asked: Asked, broker: Broker) -> tuple[str, list[int]]:
    """A topic of which each of three epochs, others between them, has two records; the three epochs."""
    topic, epochs = asked.topic_with(), []
    for first in (0, 2, 4):
        asked.write(topic, first, first + 1)
        epochs.append(asked.batches(topic, first)[0][0].partition_leader_epoch)
        asked.again(broker, crash=True)  # the epoch of a time without a leader lies between
        eventually(lambda: asked.offset(topic, LATEST).error == 0)
    assert epochs[0] + 1 < epochs[1] < epochs[2] - 1
    return topic, epochs


def test_epochs_of_offsets(asked: Asked, led: tuple[str, list[int]]) -> None:
    topic, (first, second, third) = led
    now = asked.offset(topic, LATEST).epoch
    assert now > third
    assert [asked.offset(topic, each)[2:] for each in (EARLIEST, 1, 2, 5, MAX_TIMESTAMP)] == [
        (0, first),
        (1, first),
        (2, second),
        (5, third),
        (5, third),
    ]
    assert [ends(asked, topic, each) for each in (first, first + 1, second, third, now, now + 1)] == [
        (0, first, 2),
        (0, first, 2),
        (0, second, 4),
        (0, third, 6),
        (0, now, 6),
        (0, -1, -1),
    ]
    assert [ends(asked, topic, third, each)[0] for each in (now - 1, now, now + 1)] == [FENCED, 0, UNKNOWN]
    answers = [asked.fetch(topic, 6, last_fetched_epoch=each).diverging_epoch for each in (second, third, now)]
    assert [(each.epoch, each.end_offset) for each in answers] == [(second, 4), (-1, -1), (-1, -1)]
    asked.write(topic, 6)
    assert asked.delete_records(topic, 3) == 3
    assert [asked.offset(topic, each)[2:] for each in (EARLIEST, 2)] == [(3, second), (3, second)]
    assert [ends(asked, topic, each) for each in (first, second, third)] == [
        (0, first, 3),
        (0, second, 4),
        (0, third, 6),
    ]
    assert asked.delete_records(topic, 6) == 6
    assert [ends(asked, topic, each) for each in (first, second, third, now)] == [
        (0, first, 6),
        (0, second, 6),
        (0, third, 6),
        (0, now, 7),
    ]
