"""A batch's base offset and leader epoch, which no checksum covers: a wrong one is found by what else is known."""

from __future__ import annotations

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.fake_disk import FakeDisk
from kbroker.node.controller.broker_lifecycle import log_end
from kbroker.raft_metadata.controller.surviving_logs import LogEnd
from kbroker.wire.batch_header import walk_headers
from tests.log.log_helpers import NOW, append, looked_up, missing, open_log, read_all
from tests.log.test_damage import CONFIG, COUNT, ONE_SEGMENT, VALUES, logs, read_all_with_holes, written


@pytest.mark.parametrize("bit", [0, 1, 6, 14, 40])
def test_a_wrong_base_offset_at_the_end_of_a_sealed_segment_is_found_by_where_the_next_one_begins(bit: int) -> None:
    disk = written(clean=True)
    path, following = logs(disk)[:2]
    *_, (position, header) = walk_headers(disk.read_bytes(path))
    assert header.base_offset == int(following[-24:-4]) - 1
    disk.flip_bit(path, position * 8 + 56 - bit // 8 * 8 + bit % 8)  # no checksum covers it
    for looks_up in (False, True):
        log = open_log(disk.snapshot(), CONFIG, clean=True, recovery_point=COUNT, leaves_holes=True)
        with pytest.raises(ApiError) as caught:
            if looks_up:
                looked_up(log.offset_for_timestamp(NOW + header.base_offset))
            else:
                log.read(header.base_offset, 1 << 20)
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Nobody is given the records under other offsets than theirs, wherever the reading begins.
    log = open_log(disk, CONFIG, clean=True, recovery_point=COUNT, leaves_holes=True)
    assert read_all_with_holes(log) == [each for each in VALUES if each[0] != header.base_offset]
    assert missing(log) == {header.base_offset}


@pytest.mark.parametrize("bit", [8, 17, 30])
def test_a_wrong_leader_epoch_in_the_very_last_batch_is_put_right_after_a_kill(bit: int) -> None:
    """Nothing on the disk contradicts it. No batch has a later epoch than the partition."""
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for number, value in VALUES[:6]:
        append(log, [value], leader_epoch=1, timestamp=NOW + number)
    disk.kill()
    path = log.active_segment.path
    position = list(walk_headers(disk.read_bytes(path)))[-1][0]
    disk.flip_bit(path, (position + 12) * 8 + bit)
    log = open_log(disk, ONE_SEGMENT, leaves_holes=True)
    assert log.leader_epochs.latest > 5 and not log.is_damaged
    assert log_end(log, 5) == LogEnd(1, 0, 6, missing=1)  # a whole copy is better
    log.put_epochs_right(5)
    for _ in range(2):
        assert log.leader_epochs.entries == [(1, 0), (5, 5)]
        assert log_end(log, 5) == LogEnd(5, 5, 6)
        follower = open_log(FakeDisk(), ONE_SEGMENT)
        assert follower.append_as_follower(log.read_bytes(0, 1 << 20), now_ms=NOW, leader_epoch=5) is not None
        assert read_all(follower) == read_all(log) == VALUES[:6]
        disk.kill()
        log = open_log(disk, ONE_SEGMENT, leaves_holes=True)
        log.put_epochs_right(5)
    assert append(log, [b"goes on"], leader_epoch=6) == 6
