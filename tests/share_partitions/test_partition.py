"""A share partition's records in delivery: the rules one by one, and what holds whatever members do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbroker.cores.share_partitions.acknowledging import AcknowledgementBatch
from kbroker.cores.share_partitions.dead_letters import DeadLetterReason, DeadLetters
from kbroker.cores.share_partitions.partition import Acquired, OffsetRange, SharePartition, Write
from kbroker.cores.share_state import DeliveryState, SharePartitionState, StateBatch
from kbroker.errors import ApiError, ErrorCode
from tests.share_partitions.share_fixture import ACCEPT, GAP, LOADED, REJECT, RELEASE, RENEW, Fixture
from tests.with_each import examples


def by_offset(partition: SharePartition) -> dict[int, tuple[object, ...]]:
    """All that is known of each offset."""
    return {
        offset: (run.state, run.next_state, run.member_id, run.locked_until_ms, run.delivery_count)
        for run in partition.runs()
        for offset in range(run.first, run.last + 1)
    }


def refused(code: ErrorCode, fixture: Fixture, *arguments: Any) -> None:
    """An acknowledgement that is refused, and changes nothing."""
    before = by_offset(fixture.partition)
    with pytest.raises(ApiError) as caught:
        fixture.acknowledge(*arguments)
    assert caught.value.code is code and by_offset(fixture.partition) == before


def test_stored_batches_go_out_whole_unless_the_limit_is_exact() -> None:
    assert Fixture().fetch(max_records=15) == [Acquired(0, 19, 1)]
    fixture = Fixture()
    assert fixture.fetch(max_records=15, exact=True) == [Acquired(0, 14, 1)]
    assert fixture.fetch("b", max_records=3, exact=True) == [Acquired(15, 17, 1)]
    assert fixture.partition.next_fetch_offset() == fixture.partition.end_offset == 18


def test_ranges_are_about_as_long_as_the_batch_size() -> None:
    assert Fixture().fetch(batch_size=25)[:2] == [Acquired(0, 29, 1), Acquired(30, 59, 1)]


def test_nobody_gets_what_another_holds() -> None:
    fixture = Fixture()
    assert fixture.fetch("a", 20) == [Acquired(0, 19, 1)]
    assert fixture.fetch("b", 20) == [Acquired(20, 39, 1)]
    for wrong in (("a", 20, 20, ACCEPT), ("b", 10, 25, ACCEPT), ("nobody", 0, 0, RELEASE)):
        refused(ErrorCode.INVALID_RECORD_STATE, fixture, *wrong)
    refused(ErrorCode.INVALID_REQUEST, fixture, "a", 0, 40, ACCEPT)
    refused(ErrorCode.INVALID_REQUEST, fixture, "a", 0, 3, ACCEPT, ACCEPT)
    refused(ErrorCode.INVALID_REQUEST, fixture, "a", 0, 0, 7)
    refused(ErrorCode.INVALID_REQUEST, fixture, "a", 3, 2, ACCEPT)


def test_the_start_moves_over_finished_records_only() -> None:
    fixture = Fixture()
    fixture.fetch()
    state = fixture.done("a", 5, 9, ACCEPT)
    assert state == SharePartitionState(1, 2, 0, 5, (StateBatch(5, 9, 2, 1),))
    assert (fixture.partition.start_offset, fixture.partition.delivery_complete_count) == (0, 5)
    fixture.done("a", 0, 2, GAP, REJECT, ACCEPT)
    assert (fixture.partition.start_offset, fixture.partition.delivery_complete_count) == (3, 5)
    fixture.done("a", 3, 4, RELEASE)
    assert fixture.partition.start_offset == fixture.partition.next_fetch_offset() == 3
    assert fixture.fetch("b") == [Acquired(3, 4, 2)]
    fixture.done("b", 3, 4, ACCEPT)
    fixture.done("a", 10, 99, ACCEPT)
    assert fixture.partition.start_offset == fixture.partition.end_offset == 100
    assert fixture.partition.delivery_complete_count == 0


def test_nothing_is_decided_before_it_is_kept() -> None:
    fixture = Fixture()
    fixture.fetch(max_records=10)
    write = fixture.acknowledge("a", 0, 4, RELEASE)
    assert write is not None and fixture.partition.next_fetch_offset() == 10
    refused(ErrorCode.INVALID_RECORD_STATE, fixture, "a", 4, 4, ACCEPT)
    fixture.partition.finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, fixture.now_ms)
    assert fixture.partition.next_fetch_offset() == 10, "the member holds it as before"
    fixture.done("a", 0, 9, ACCEPT)
    assert fixture.partition.start_offset == 10


def test_a_request_that_is_wrong_in_part_changes_nothing() -> None:
    fixture = Fixture()
    fixture.fetch("a", 10)
    fixture.fetch("b", 10)
    batches = [AcknowledgementBatch(0, 3, (ACCEPT,)), AcknowledgementBatch(2, 2, (RELEASE,))]
    with pytest.raises(ApiError):
        fixture.partition.acknowledge("a", batches, fixture.now_ms)
    with pytest.raises(ApiError):
        fixture.partition.acknowledge("a", [*batches[:1], AcknowledgementBatch(10, 10, (ACCEPT,))], fixture.now_ms)
    assert fixture.partition.delivery_complete_count == 0
    assert [run.state for run in fixture.partition.runs()] == [DeliveryState.ACQUIRED] * 2


def test_a_lock_that_ends_gives_the_record_back_at_once() -> None:
    fixture = Fixture(record_lock_duration_ms=100)
    fixture.fetch(max_records=10)
    assert fixture.partition.next_deadline() == 1100
    assert fixture.partition.expire_locks(1099) is None
    write = fixture.partition.expire_locks(1100)
    assert write is not None and write.state.batches == (StateBatch(0, 9, 0, 1),)
    assert fixture.fetch("b", 10) == [Acquired(0, 9, 2)]
    refused(ErrorCode.INVALID_RECORD_STATE, fixture, "a", 0, 9, ACCEPT)


def test_a_word_that_comes_after_another_member_has_ended_the_record_changes_nothing() -> None:
    """Once the start offset has passed the record, it is not refused, either (as in Kafka's ``SharePartition``)."""
    fixture = Fixture(record_lock_duration_ms=100)
    fixture.fetch("a", 10)
    fixture.now_ms += 100
    fixture.partition.expire_locks(fixture.now_ms)
    assert fixture.fetch("b", 10) == [Acquired(0, 9, 2)]
    fixture.done("b", 0, 9, ACCEPT)
    assert fixture.partition.start_offset == 10
    assert fixture.fetch("b", 5, exact=True) == [Acquired(10, 14, 1)]
    for kind in (ACCEPT, RELEASE, REJECT, RENEW):
        assert fixture.acknowledge("a", 0, 9, kind) is None
    refused(ErrorCode.INVALID_RECORD_STATE, fixture, "a", 0, 14, ACCEPT)
    refused(ErrorCode.INVALID_REQUEST, fixture, "a", 0, 9, 7)
    fixture.done("b", 10, 14, ACCEPT)
    assert fixture.partition.start_offset == 15
    again = Fixture(LOADED._replace(start_offset=10))
    assert again.acknowledge("a", 0, 9, ACCEPT) is None


def test_a_lock_that_ends_while_its_end_is_kept_is_not_waited_for_again() -> None:
    """The timer would otherwise wait for a time that has passed, again and again."""
    fixture = Fixture(record_lock_duration_ms=100)
    fixture.fetch("a", 10)
    fixture.acknowledge("a", 0, 4, ACCEPT)
    fixture.now_ms += 50
    fixture.fetch("b", 10)
    assert fixture.partition.next_deadline(fixture.now_ms) == 1100
    fixture.now_ms = 1100
    fixture.partition.expire_locks(fixture.now_ms)
    assert fixture.partition.next_deadline(fixture.now_ms) == 1150
    fixture.now_ms = 1150
    fixture.partition.expire_locks(fixture.now_ms)
    assert fixture.partition.next_deadline(fixture.now_ms) is None


def test_a_lock_that_ends_while_its_end_is_kept_is_over_if_that_fails() -> None:
    fixture = Fixture(record_lock_duration_ms=100)
    fixture.fetch(max_records=10)
    write = fixture.acknowledge("a", 0, 9, ACCEPT)
    assert write is not None and fixture.partition.expire_locks(2000) is None
    fixture.partition.finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, 2000)
    assert fixture.partition.next_fetch_offset() == 0


def test_renewal_begins_the_lock_anew() -> None:
    fixture = Fixture(record_lock_duration_ms=100)
    fixture.fetch(max_records=10)
    fixture.now_ms = 1050
    assert fixture.acknowledge("a", 2, 3, RENEW) is None
    write = fixture.partition.expire_locks(1100)
    assert write is not None and write.state.batches == (StateBatch(0, 1, 0, 1), StateBatch(4, 9, 0, 1))
    assert fixture.partition.next_deadline() == 1150
    fixture.settings = fixture.settings._replace(renew_enabled=False)
    refused(ErrorCode.INVALID_RECORD_STATE, fixture, "a", 2, 3, RENEW)


def test_a_record_is_delivered_as_often_as_the_limit_says() -> None:
    fixture = Fixture(delivery_count_limit=2)
    fixture.fetch(max_records=10)
    fixture.done("a", 0, 9, RELEASE)
    assert fixture.fetch(max_records=10) == [Acquired(0, 9, 2)]
    fixture.done("a", 0, 9, RELEASE)
    assert fixture.partition.start_offset == 10


def test_a_record_that_comes_back_often_does_not_spoil_its_neighbours() -> None:
    fixture = Fixture(delivery_count_limit=6)
    sizes = []
    for _ in range(5):
        (acquired,) = fixture.fetch(max_records=10)
        sizes.append(acquired.last_offset - acquired.first_offset + 1)
        fixture.done("a", acquired.first_offset, acquired.last_offset, RELEASE)
    assert sizes == [10, 10, 10, 5, 2]
    assert fixture.fetch(max_records=10) == [Acquired(0, 0, 6)], "the last attempt of each record is its own"
    fixture.done("a", 0, 0, REJECT)
    assert fixture.partition.start_offset == 1


def test_a_full_window_takes_no_new_records_but_those_that_came_back() -> None:
    fixture = Fixture(max_record_locks=30)
    assert fixture.fetch(max_records=500) == [Acquired(0, 29, 1)]
    assert not fixture.partition.can_acquire() and fixture.fetch("b") == []
    fixture.done("a", 5, 6, RELEASE)
    assert fixture.partition.can_acquire() and fixture.fetch("b") == [Acquired(5, 6, 2)]


def test_gaps_of_what_was_kept_are_read_and_handed_out_after_a_load() -> None:
    kept = (StateBatch(3, 4, 2, 1), StateBatch(8, 9, 0, 2), StateBatch(15, 16, 4, 5))
    fixture = Fixture(LOADED._replace(batches=kept))
    assert fixture.partition.next_fetch_offset() == 0 and fixture.partition.delivery_complete_count == 4
    expected = [Acquired(0, 2, 1), Acquired(5, 7, 1), Acquired(8, 9, 3), Acquired(10, 14, 1), Acquired(17, 99, 1)]
    assert fixture.fetch() == expected


def test_offsets_that_the_log_does_not_have_are_passed_over() -> None:
    fixture = Fixture(LOADED._replace(batches=(StateBatch(5, 9, 0, 1),)))
    fixture.log = [OffsetRange(20, 29)]
    assert fixture.fetch() == [Acquired(20, 29, 1)]
    assert fixture.partition.start_offset == 20
    fixture.log = [OffsetRange(40, 49)]
    assert fixture.fetch("b") == [Acquired(40, 49, 1)]
    fixture.done("a", 20, 29, ACCEPT)
    assert fixture.partition.start_offset == 40


def test_the_start_of_the_log_takes_records_along() -> None:
    fixture = Fixture()
    fixture.fetch("a", 20)
    fixture.done("a", 2, 3, ACCEPT)
    write = fixture.acknowledge("a", 0, 1, ACCEPT)
    assert write is not None
    fixture.partition.on_log_start(15)
    fixture.partition.finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, fixture.now_ms)
    assert (fixture.partition.start_offset, fixture.partition.delivery_complete_count) == (15, 0)
    assert fixture.acknowledge("a", 0, 14, ACCEPT) is None, "too late, and no error"
    assert fixture.done("a", 10, 19, ACCEPT).batches == (StateBatch(15, 19, 2, 1),)
    fixture.partition.on_log_start(70)
    assert fixture.fetch() == [Acquired(70, 99, 1)]


def test_records_of_aborted_transactions_are_archived() -> None:
    fixture = Fixture()
    fixture.fetch("a", 20)
    write = fixture.partition.archive([OffsetRange(0, 9)], "a")
    assert write is not None and write.state.batches == (StateBatch(0, 9, 4, 1),)
    assert fixture.partition.start_offset == 10


def test_rejected_records_go_to_the_dead_letter_queue_first() -> None:
    fixture = Fixture(has_dead_letter_queue=True)
    fixture.fetch("a", 20)
    kept = fixture.done("a", 0, 9, REJECT)
    assert kept.batches == (StateBatch(0, 9, 3, 1),) and fixture.partition.start_offset == 0
    letters = [DeadLetters(0, 9, 1, DeadLetterReason.REJECTED)]
    assert fixture.partition.take_dead_letters() == letters
    assert fixture.partition.take_dead_letters() == []
    write = fixture.partition.archive_dead_letters(letters)
    assert write is not None and write.state.batches == (StateBatch(0, 9, 4, 1),)
    assert write.state.start_offset == 0 and fixture.partition.start_offset == 10
    again = Fixture(LOADED._replace(batches=kept.batches))
    assert again.partition.take_dead_letters() == letters, "a new leader goes on with it"


def test_records_that_are_delivered_too_often_go_there_too_and_the_reason_is_found_again() -> None:
    fixture = Fixture(has_dead_letter_queue=True, delivery_count_limit=2, record_lock_duration_ms=100)
    fixture.fetch("a", 10)
    fixture.done("a", 0, 9, RELEASE)
    fixture.fetch("a", 10)
    fixture.done("a", 0, 1, RELEASE)
    worn_out = DeadLetterReason.DELIVERED_TOO_OFTEN
    assert fixture.partition.take_dead_letters() == [DeadLetters(0, 1, 2, worn_out)]
    write = fixture.partition.expire_locks(2000)
    assert write is not None and write.state.batches == (StateBatch(2, 9, 3, 2),)
    assert fixture.partition.take_dead_letters() == [], "not before that is kept"
    fixture.partition.finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, 2000)
    assert fixture.partition.take_dead_letters() == [], "a new leader would not know of it"
    write = fixture.partition.keep_again()
    assert write is not None and write.state.batches == (StateBatch(2, 9, 3, 2),)
    assert fixture.partition.take_dead_letters() == [] and fixture.partition.keep_again() is None
    fixture.partition.finish(write, None, 2000)
    assert fixture.partition.take_dead_letters() == [DeadLetters(2, 9, 2, worn_out)]
    again = Fixture(LOADED._replace(batches=write.state.batches), delivery_count_limit=2)
    assert again.partition.take_dead_letters() == [DeadLetters(2, 9, 2, worn_out)]


def test_letters_of_a_change_that_is_being_kept_come_when_it_is() -> None:
    fixture = Fixture(has_dead_letter_queue=True)
    fixture.fetch("a", 10)
    first, second = fixture.acknowledge("a", 0, 4, REJECT), fixture.acknowledge("a", 5, 9, REJECT)
    assert first is not None and second is not None and fixture.partition.take_dead_letters() == []
    fixture.partition.finish(first, None, 1000)
    assert [(each.first_offset, each.last_offset) for each in fixture.partition.take_dead_letters()] == [(0, 4)]
    fixture.partition.finish(second, ErrorCode.COORDINATOR_NOT_AVAILABLE, 1000)
    assert fixture.partition.take_dead_letters() == [] and fixture.done("a", 5, 9, REJECT)
    assert [(each.first_offset, each.last_offset) for each in fixture.partition.take_dead_letters()] == [(5, 9)]


def test_a_lock_that_ends_while_a_release_cannot_be_kept_makes_a_letter_that_is_kept_first() -> None:
    fixture = Fixture(has_dead_letter_queue=True, delivery_count_limit=1, record_lock_duration_ms=100)
    fixture.fetch("a", 10)
    write = fixture.acknowledge("a", 0, 9, ACCEPT)
    assert write is not None
    fixture.partition.finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, 2000)
    assert fixture.partition.take_dead_letters() == []
    write = fixture.partition.keep_again()
    assert write is not None and write.state.batches == (StateBatch(0, 9, 3, 1),)
    fixture.partition.finish(write, None, 2000)
    assert len(fixture.partition.take_dead_letters()) == 1


def test_letters_that_the_log_passes_over_are_nobodys() -> None:
    fixture = Fixture(has_dead_letter_queue=True)
    fixture.fetch("a", 20)
    fixture.done("a", 0, 9, REJECT)
    letters = fixture.partition.take_dead_letters()
    fixture.partition.on_log_start(5)
    write = fixture.partition.archive_dead_letters(letters)
    assert write is not None and write.state.batches == (StateBatch(5, 9, 4, 1),)
    assert fixture.partition.start_offset == 10
    assert fixture.partition.archive_dead_letters(letters) is None


def test_a_gap_is_no_dead_letter_and_neither_is_what_is_accepted() -> None:
    fixture = Fixture(has_dead_letter_queue=True)
    fixture.fetch("a", 10)
    fixture.done("a", 0, 3, GAP, ACCEPT, REJECT, RELEASE)
    assert fixture.partition.take_dead_letters() == [DeadLetters(2, 2, 1, DeadLetterReason.REJECTED)]


def test_a_state_that_makes_no_sense_is_not_loaded() -> None:
    for batches in ((StateBatch(5, 3, 0, 1),), (StateBatch(0, 5, 0, 1), StateBatch(5, 6, 0, 1))):
        with pytest.raises(ValueError, match="offsets"):
            Fixture(LOADED._replace(batches=batches))


class Members(RuleBasedStateMachine):
    """Members that do anything, a persister that fails at times, a log whose start moves, leaders that change."""

    def __init__(self) -> None:
        super().__init__()
        self.fixture = Fixture(
            record_lock_duration_ms=50, delivery_count_limit=3, max_record_locks=40, has_dead_letter_queue=True
        )
        self.letters: list[DeadLetters] = []
        """On their way to the dead-letter queue."""
        self.lettered: set[int] = set()
        """Offsets that this leader has sent there."""
        self.kept: dict[int, StateBatch] = {}
        self.kept_start = 0
        self.accepted: set[int] = set()
        self.holders: dict[int, tuple[str, int]] = {}
        self.counts: dict[int, int] = {}
        self.writes: list[Write] = []
        self.pending_accepts: dict[int, set[int]] = {}

    @property
    def partition(self) -> SharePartition:
        return self.fixture.partition

    def keep(self, state: SharePartitionState) -> None:
        """Keep a write as a share coordinator does."""
        for batch in state.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                known = self.kept.get(offset)
                if known is None or (known.delivery_count, known.delivery_state) < batch[3:1:-1]:
                    self.kept[offset] = StateBatch(offset, offset, *batch[2:])
        self.kept_start = max(self.kept_start, state.start_offset)

    @rule(member=st.sampled_from("abc"), count=st.integers(1, 25), exact=st.booleans())
    def fetch(self, member: str, count: int, exact: bool) -> None:
        for first, last, delivery_count in self.fetch_of(member, count, exact):
            for offset in range(first, last + 1):
                assert offset not in self.accepted, "accepted, and handed out again"
                holder, until = self.holders.get(offset, ("", 0))
                assert until <= self.fixture.now_ms or not holder, f"{offset} has two holders"
                assert delivery_count > self.counts.get(offset, 0)
                self.counts[offset] = delivery_count
                self.holders[offset] = (member, self.fixture.now_ms + 50)

    def fetch_of(self, member: str, count: int, exact: bool) -> list[Acquired]:
        acquired = self.fixture.fetch(member, count, exact=exact)
        assert not exact or sum(each.last_offset - each.first_offset + 1 for each in acquired) <= count
        return acquired

    @rule(
        member=st.sampled_from("abc"),
        ahead=st.integers(-3, 12),
        kinds=st.lists(st.sampled_from((GAP, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW)), min_size=1, max_size=8),
    )
    def acknowledge(self, member: str, ahead: int, kinds: list[int]) -> None:
        first = max(0, self.partition.start_offset + ahead)
        try:
            write = self.fixture.acknowledge(member, first, first + len(kinds) - 1, *kinds)
        except ApiError:
            return
        for offset, kind in enumerate(kinds, first):
            if kind == RENEW and offset >= self.partition.start_offset:
                self.holders[offset] = (member, self.fixture.now_ms + 50)
        if write is not None:
            self.writes.append(write)

    @rule(member=st.sampled_from("abc"))
    def close_session(self, member: str) -> None:
        write = self.partition.release(member)
        if write is not None:
            self.writes.append(write)

    @precondition(lambda self: self.writes)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:
        write = self.writes.pop(data.draw(st.integers(0, len(self.writes) - 1)))
        if not fails:
            self.keep(write.state)
        self.partition.finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else None, self.fixture.now_ms)
        for batch in write.state.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                if not fails:
                    self.holders.pop(offset, None)
                    if batch.delivery_state == DeliveryState.ACKNOWLEDGED:
                        self.accepted.add(offset)

    @rule(ms=st.integers(1, 40), fails=st.booleans())
    def wait(self, ms: int, fails: bool) -> None:
        self.fixture.now_ms += ms
        write = self.partition.expire_locks(self.fixture.now_ms)
        if write is not None:
            if not fails:
                self.keep(write.state)
            self.partition.finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else None, self.fixture.now_ms)

    @rule()
    def keep_again(self) -> None:
        write = self.partition.keep_again()
        if write is not None:
            self.writes.append(write)

    @rule()
    def send_letters(self) -> None:
        """Each record that is given up goes to the dead-letter queue, once in the life of a leader."""
        new = self.partition.take_dead_letters()
        for first, last, *_ in new:
            offsets = set(range(first, last + 1))
            assert not offsets & self.lettered and not offsets & self.accepted
            assert all(self.kept[offset].delivery_state == DeliveryState.ARCHIVING for offset in offsets)
            self.lettered |= offsets
        self.letters += new

    @rule()
    def letters_are_written(self) -> None:
        write = self.partition.archive_dead_letters(self.letters)
        self.letters.clear()
        if write is not None:
            self.writes.append(write)

    @rule(by=st.integers(1, 5))
    def delete_records(self, by: int) -> None:
        start = min(self.partition.start_offset + by, 100)
        self.fixture.log = [each for each in self.fixture.log if each.last_offset >= start]
        self.partition.on_log_start(start)

    @rule()
    def change_leader(self) -> None:
        """Load again: only the kept state is known then."""
        self.writes.clear()
        self.letters.clear()
        self.lettered.clear()
        batches = tuple(self.kept[offset] for offset in sorted(self.kept) if offset >= self.kept_start)
        loaded = SharePartitionState(1, 2, self.kept_start, 0, batches)
        self.fixture.partition = SharePartition(loaded, self.kept_start, lambda: self.fixture.settings)
        if self.fixture.log:
            self.partition.on_log_start(self.fixture.log[0].first_offset)
        self.holders.clear()
        self.counts = {offset: batch.delivery_count for offset, batch in self.kept.items()}

    @invariant()
    def runs_are_in_order(self) -> None:
        position = self.partition.start_offset
        for run in self.partition.runs():
            assert run.first >= position and run.last >= run.first
            position = run.last + 1
        assert position <= max(self.partition.end_offset, self.partition.start_offset)

    @invariant()
    def counts_agree(self) -> None:
        done = sum(len(run) for run in self.partition.runs() if run.counts_as_done)
        assert self.partition.delivery_complete_count == done

    @invariant()
    def nothing_is_lost(self) -> None:
        """Below the start, all was accepted, given up or deleted; from there on, all can still be had."""
        free = {
            offset for run in self.partition.runs() if run.is_available for offset in range(run.first, run.last + 1)
        }
        next_offset = self.partition.next_fetch_offset()
        assert not free or next_offset <= min(free)
        for offset in range(self.partition.start_offset, next_offset):
            assert offset not in free


TestMembers = Members.TestCase
TestMembers.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
