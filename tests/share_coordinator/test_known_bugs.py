"""Defects that Apache Kafka's share coordinator had: each must not be one here."""

from __future__ import annotations

import pytest

from kbroker.cores.share_state import SharePartitionKey, StateBatch, StateSummary
from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from tests.share_coordinator.test_coordinator import KEY, Log, refused, state


@pytest.mark.parametrize("epoch", [-1, -2])
def test_no_epoch_stands_for_any(epoch: int) -> None:
    """KAFKA-20743, KAFKA-20694: a leader, or a state, of epoch -1 was not fenced."""
    log = Log()
    log.initialize(state_epoch=3)
    log.read(leader_epoch=5)
    for wrong in (state(9, epoch=3, leader=epoch), state(9, epoch=epoch, leader=5)):
        assert "negative" in str(refused(ErrorCode.INVALID_REQUEST, log.core.write, KEY, wrong, 1))
    assert "negative" in str(refused(ErrorCode.INVALID_REQUEST, log.core.read, KEY, epoch, 1))
    assert "negative" in str(refused(ErrorCode.INVALID_REQUEST, log.core.initialize, KEY, epoch, 0, 1))
    assert log.core.read_summary(KEY) == StateSummary(3, 5, 0, 0)


def test_a_late_write_takes_nothing_back_whichever_record_keeps_it() -> None:
    """#23074, #23112: a write that came late took the start offset and the count of ended records back."""
    log = Log()
    log.initialize()
    for number in range(8):  # every fourth record is a snapshot
        log.write(state(10 + number, StateBatch(20, 20 + number, 2, 1), done=number + 1))
        log.write(state(3, StateBatch(3, 12, 0, 1), done=9))
        log.write(state(10 + number, StateBatch(20, 20, 0, 1), done=0))
        for core in (log.core, log.restarted()):
            assert core.read_summary(KEY) == StateSummary(1, 0, 10 + number, number + 1)
            read = core.read(KEY, 0, 1).response
            assert read.batches[-1] == StateBatch(20, 20 + number, 2, 1)
            assert all(batch.first_offset >= read.start_offset for batch in read.batches)


def test_a_topic_is_known_by_its_id() -> None:
    """#23119: ids were compared by identity. One of equal bytes is the same, one that is made anew is not."""
    log = Log()
    log.initialize()
    log.write(state(7))
    same = SharePartitionKey("".join(KEY.group_id), Uuid(bytes(bytearray(KEY.topic_id))), KEY.partition)
    assert log.core.read_summary(same).start_offset == 7
    anew = KEY._replace(topic_id=Uuid(bytes(reversed(KEY.topic_id))))
    log.topics[anew.topic_id] = log.topics[KEY.topic_id]
    assert log.core.read_summary(anew) == StateSummary(0, 0, -1, -1)


def test_no_job_is_left_of_an_earlier_time_as_coordinator() -> None:
    """KAFKA-20710: a periodic job of before went on beside the new one, when share groups were off and on again."""
    log = Log()
    log.initialize()
    first = log.core.next_deadline()
    assert first is not None
    log.core.on_unloaded()
    assert log.core.next_deadline() is None and log.core.on_deadline(first) is None
    log.core.on_loaded(first)
    second = log.core.next_deadline()
    assert second is not None and second > first and log.core.on_deadline(first) is None


@pytest.mark.parametrize("start_offset", [-1, 5])
def test_a_request_that_comes_late_begins_nothing_anew(start_offset: int) -> None:
    """#23190: what was kept meanwhile was lost. Apache Kafka lets one that names no offset do so still."""
    log = Log()
    log.initialize(start_offset=start_offset)
    log.write(state(5, StateBatch(6, 9, 2, 1)))
    log.initialize(start_offset=start_offset)
    assert log.read(leader_epoch=1).batches == (StateBatch(6, 9, 2, 1),)
    log.initialize(start_offset=7)
    assert log.read(leader_epoch=2)[2:] == (7, 0, ())
