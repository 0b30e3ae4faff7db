"""The decisions of the transaction coordinator, one by one, for both versions of the protocol."""

from __future__ import annotations

import pytest

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.cores.transactions.records import transaction_record
from kbroker.cores.transactions.transaction import MAX_EPOCH, TV_0, TV_2, TransactionState
from kbroker.errors import ErrorCode as E
from tests.transactions.transaction_harness import P0, P1, P2, TIMEOUT_MS, Shard, code

S = TransactionState
BOTH = pytest.mark.parametrize("version", [TV_0, TV_2])


@pytest.fixture
def shard() -> Shard:
    return Shard()


# -- InitProducerId ------------------------------------------------------------------------------


def test_a_new_id_gets_a_producer_id_with_epoch_0_and_the_next_producer_the_next_epoch(shard: Shard) -> None:
    assert shard.init() == (1000, 0)
    assert shard.init() == (1000, 1)
    assert shard.init("y") == (1001, 0)
    assert shard.state().state is S.EMPTY


def test_a_producer_in_recovery_gets_the_next_epoch_and_the_same_once_more_if_it_asks_again(shard: Shard) -> None:
    producer = shard.init()
    recovered = shard.init(expected=producer)
    assert recovered == (1000, 1)
    assert shard.init(expected=producer) == recovered
    # Another producer of the id fences both.
    assert shard.init() == (1000, 2)
    assert code(lambda: shard.init(expected=producer)) is E.PRODUCER_FENCED
    assert code(lambda: shard.init(expected=recovered)) is E.PRODUCER_FENCED
    assert code(lambda: shard.init(expected=(7, 2))) is E.PRODUCER_FENCED


def test_recovery_of_an_id_that_is_not_known_gives_a_new_producer(shard: Shard) -> None:
    assert shard.init(expected=(7, 3)) == (1000, 0)


@BOTH
def test_a_new_producer_aborts_what_the_last_one_left_open_and_waits_for_that(version: int) -> None:
    shard = Shard(version)
    producer = shard.init()
    shard.add(producer)
    shard.holds_markers = True
    assert code(shard.init) is E.CONCURRENT_TRANSACTIONS
    assert shard.state().state is S.PREPARE_ABORT
    assert code(shard.init) is E.CONCURRENT_TRANSACTIONS  # until the markers are written
    (markers,) = shard.markers
    assert not markers.commit and markers.partitions == (P0,)
    assert (markers.producer_id, markers.producer_epoch, markers.transaction_version) == (1000, 1, version)
    assert code(lambda: shard.add(producer)) is E.CONCURRENT_TRANSACTIONS
    shard.write_markers()
    assert shard.state().state is S.COMPLETE_ABORT
    assert code(lambda: shard.add(producer)) is E.PRODUCER_FENCED
    assert shard.init() == (1000, 2)


# -- partitions ----------------------------------------------------------------------------------


def test_partitions_are_added_and_verified_by_their_producer_alone(shard: Shard) -> None:
    producer = shard.init()
    assert code(lambda: shard.add((7, 0))) is E.INVALID_PRODUCER_ID_MAPPING
    assert code(lambda: shard.add((1000, 1))) is E.PRODUCER_FENCED
    assert code(lambda: shard.add(producer, transactional_id="unknown")) is E.INVALID_PRODUCER_ID_MAPPING
    assert shard.verify(producer, P0) == [E.TRANSACTION_ABORTABLE]
    shard.add(producer, P0)
    written = len(shard.log)
    shard.add(producer, P0)
    assert len(shard.log) == written  # it is there already
    assert shard.verify(producer, P0, P1) == [E.NONE, E.TRANSACTION_ABORTABLE]
    assert code(lambda: shard.verify((1000, 1), P0)) is E.PRODUCER_FENCED
    assert code(lambda: shard.verify((7, 0), P0)) is E.INVALID_PRODUCER_ID_MAPPING
    shard.add(producer, P1)
    assert shard.state().partitions == {P0, P1}


def test_what_is_not_committed_is_neither_seen_nor_changed_again(shard: Shard) -> None:
    producer = shard.init()
    shard.held = True
    shard.add(producer)
    assert shard.verify(producer, P0) == [E.TRANSACTION_ABORTABLE]
    assert code(lambda: shard.add(producer, P1)) is E.CONCURRENT_TRANSACTIONS
    assert code(lambda: shard.end(producer)) is E.CONCURRENT_TRANSACTIONS
    assert code(shard.init) is E.CONCURRENT_TRANSACTIONS
    shard.commit()
    assert shard.verify(producer, P0) == [E.NONE]


def test_a_record_that_cannot_be_stored_changes_nothing(shard: Shard) -> None:
    producer = shard.init()
    before = shard.state()
    shard.fails_with = E.NOT_ENOUGH_REPLICAS
    shard.add(producer)
    assert shard.state() == before
    shard.fails_with = None
    shard.add(producer)
    assert shard.state().state is S.ONGOING


# -- EndTxn, version 1 -----------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_version_1_keeps_the_epoch_and_knows_a_repeated_end_by_its_state(commit: bool) -> None:
    shard = Shard(TV_0)
    producer = shard.init()
    assert code(lambda: shard.end(producer, commit)) is E.INVALID_TXN_STATE  # nothing has begun
    shard.add(producer, P0, P1)
    shard.holds_markers = True
    shard.end(producer, commit)
    assert shard.state().state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert code(lambda: shard.end(producer, commit)) is E.CONCURRENT_TRANSACTIONS
    assert code(lambda: shard.verify(producer, P0)) is E.CONCURRENT_TRANSACTIONS
    shard.write_markers()
    assert shard.state().state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert shard.state().partitions == frozenset() and shard.state().producer_epoch == 0
    assert shard.end(producer, commit) == (-1, -1)
    assert code(lambda: shard.end(producer, not commit)) is E.INVALID_TXN_STATE
    assert code(lambda: shard.end((1000, 1), commit)) is E.PRODUCER_FENCED
    shard.add(producer)
    assert shard.state().state is S.ONGOING
    assert [(m.commit, m.partitions, m.producer_epoch) for m in shard.markers] == [(commit, (P0, P1), 0)]


# -- EndTxn, version 2 -----------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_version_2_ends_each_transaction_with_the_next_epoch(shard: Shard, commit: bool) -> None:
    producer = shard.init()
    shard.add(producer)
    following = shard.end(producer, commit)
    assert following == (1000, 1)
    assert [(m.producer_epoch, m.transaction_version, m.commit) for m in shard.markers] == [(1, TV_2, commit)]
    # A retry of the request gets the same answer, and a late record of the transaction no place in the next.
    assert shard.end(producer, commit) == following
    assert code(lambda: shard.end(producer, not commit)) is E.INVALID_TXN_STATE
    assert code(lambda: shard.verify(producer, P0)) is E.PRODUCER_FENCED
    assert code(lambda: shard.add(producer)) is E.PRODUCER_FENCED
    shard.add(following)


@pytest.mark.parametrize(
    ("state", "commit", "retry", "expected"),
    [
        (S.EMPTY, False, True, E.PRODUCER_FENCED),
        (S.EMPTY, False, False, E.NONE),
        (S.EMPTY, True, True, E.PRODUCER_FENCED),
        (S.EMPTY, True, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, False, True, E.NONE),
        (S.COMPLETE_ABORT, False, False, E.NONE),
        (S.COMPLETE_ABORT, True, True, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, True, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, False, True, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, False, False, E.NONE),
        (S.COMPLETE_COMMIT, True, True, E.NONE),
        (S.COMPLETE_COMMIT, True, False, E.INVALID_TXN_STATE),
    ],
)
def test_version_2_tells_a_retry_from_the_end_of_nothing(
    shard: Shard, state: TransactionState, commit: bool, retry: bool, expected: E
) -> None:
    shard.init()
    producer = shard.init()
    if state is not S.EMPTY:
        shard.add(producer)
        producer = shard.end(producer, state is S.COMPLETE_COMMIT)
    assert shard.state().state is state
    markers = len(shard.markers)
    asked = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch - retry)
    assert code(lambda: shard.end(asked, commit)) is expected
    assert len(shard.markers) == markers  # there is nothing that could be marked
    if expected is E.NONE and not retry:
        assert shard.state().state is S.COMPLETE_ABORT and shard.state().producer_epoch == producer.producer_epoch + 1


def test_while_version_2_decides_only_the_retry_is_told_to_wait(shard: Shard) -> None:
    producer = shard.init()
    shard.add(producer)
    shard.holds_markers = True
    shard.end(producer)
    assert code(lambda: shard.end(producer)) is E.CONCURRENT_TRANSACTIONS
    assert code(lambda: shard.add((1000, 1))) is E.CONCURRENT_TRANSACTIONS
    assert code(lambda: shard.verify((1000, 1), P0)) is E.CONCURRENT_TRANSACTIONS


# -- epochs come to their end ------------------------------------------------------------------------


def at_epoch(shard: Shard, epoch: int) -> ProducerIdAndEpoch:
    """Have the id in the state that so many initializations lead to."""
    shard.init()
    late = shard.state()._replace(producer_epoch=epoch)
    shard.run(CoordinatorResult(None, [transaction_record(late, shard.version)]))
    return ProducerIdAndEpoch(1000, epoch)


def test_after_the_last_epoch_version_2_goes_on_with_another_producer_id(shard: Shard) -> None:
    producer = at_epoch(shard, MAX_EPOCH - 1)
    shard.add(producer)
    following = shard.end(producer)
    assert following == (1001, 0)
    assert shard.markers[-1].producer_epoch == MAX_EPOCH  # which no client ever has
    assert shard.end(producer) == following  # the retry bears the id before
    shard.add(following)
    assert code(lambda: shard.end(producer)) is E.INVALID_PRODUCER_ID_MAPPING


@BOTH
def test_a_producer_that_is_fenced_at_its_last_epoch_leaves_the_id_to_another(version: int) -> None:
    shard = Shard(version)
    producer = at_epoch(shard, MAX_EPOCH - 1)
    shard.add(producer)
    assert code(shard.init) is E.CONCURRENT_TRANSACTIONS
    assert shard.markers[-1].producer_epoch == MAX_EPOCH
    following = shard.init()
    assert following == ((1001, 0) if version == TV_0 else (1001, 1))


def test_recovery_at_the_last_epoch_gives_another_id_also_when_asked_again(shard: Shard) -> None:
    producer = at_epoch(shard, MAX_EPOCH - 1)
    following = shard.init(expected=producer)
    assert following == (1001, 0)
    assert shard.init(expected=producer) == following
    assert code(lambda: shard.init(expected=(1000, 3))) is E.PRODUCER_FENCED


def test_without_a_producer_id_at_hand_an_exhausted_producer_is_asked_to_try_again(shard: Shard) -> None:
    producer = at_epoch(shard, MAX_EPOCH - 1)
    shard.add(producer)
    shard.ids = type(shard.ids)()
    shard.restart()
    assert code(lambda: shard.end(producer)) is E.COORDINATOR_LOAD_IN_PROGRESS
    shard.advance(TIMEOUT_MS + 10_001)
    assert shard.state().state is S.ONGOING  # no more could the timeout end it
    shard.ids.add_block(5000, 1)
    shard.advance(10_000)
    assert shard.state().state is S.COMPLETE_ABORT
    assert (shard.state().producer_id, shard.state().producer_epoch) == (5000, 0)


# -- time ------------------------------------------------------------------------------------------


@BOTH
def test_a_transaction_out_of_time_is_aborted_and_its_producer_fenced(version: int) -> None:
    shard = Shard(version)
    producer = shard.init()
    shard.add(producer)
    shard.advance(TIMEOUT_MS)
    assert shard.state().state is S.ONGOING
    shard.advance(10_000)
    assert shard.state().state is S.COMPLETE_ABORT and shard.state().producer_epoch == 1
    assert code(lambda: shard.add(producer)) is E.PRODUCER_FENCED
    # A client of version 2 cannot tell this from the answer to its abort that it missed.
    expected = E.PRODUCER_FENCED if version == TV_0 else E.NONE
    assert code(lambda: shard.end(producer, commit=False)) is expected
    assert code(lambda: shard.end(producer, commit=True)) is (
        E.PRODUCER_FENCED if version == TV_0 else E.INVALID_TXN_STATE
    )


def test_the_clock_of_a_transaction_begins_with_its_first_partition(shard: Shard) -> None:
    producer = shard.init()
    shard.advance(10 * TIMEOUT_MS)
    shard.add(producer, P0)
    shard.advance(TIMEOUT_MS // 2)
    shard.add(producer, P1)
    assert shard.state().start_ms == shard.now_ms - TIMEOUT_MS // 2
    shard.advance(TIMEOUT_MS // 2 + 10_001)
    assert shard.state().state is S.COMPLETE_ABORT


def test_idle_ids_are_forgotten_in_time_and_open_ones_kept() -> None:
    shard = Shard(transactional_id_expiration_ms=5_000, remove_expired_interval_ms=1_000)
    open_producer = shard.init("open", timeout_ms=900_000)
    shard.add(open_producer, transactional_id="open")
    done = shard.init("done")
    shard.add(done, transactional_id="done")
    shard.end(done, transactional_id="done")
    shard.init("empty")
    shard.advance(4_000)
    assert len(shard.core) == 3
    shard.advance(1_000)
    assert set(shard.core.transactions) == {"open"}
    assert set(shard.loaded().transactions) == {"open"}
    assert code(lambda: shard.add(done, transactional_id="done")) is E.INVALID_PRODUCER_ID_MAPPING
    assert shard.init("done").producer_id not in (done.producer_id, open_producer.producer_id)


def test_a_shard_at_rest_asks_for_no_time(shard: Shard) -> None:
    assert shard.core.next_deadline() is None
    producer = shard.init()
    assert shard.core.next_deadline() == shard.now_ms + shard.settings.remove_expired_interval_ms
    shard.add(producer)
    assert shard.core.next_deadline() == shard.now_ms + shard.settings.abort_timed_out_interval_ms


# -- markers and restarts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR, E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_SERVER_ERROR]
)
def test_a_partition_that_cannot_take_its_marker_is_asked_until_it_can(shard: Shard, error: E) -> None:
    producer = shard.init()
    shard.add(producer, P0, P1)
    shard.marker_errors = {P1: error}
    shard.end(producer)
    assert shard.state().state is S.PREPARE_COMMIT
    shard.advance(99)
    assert len(shard.markers) == 1
    shard.advance(1)
    assert [m.partitions for m in shard.markers] == [(P0, P1), (P1,)]
    shard.marker_errors = {}
    shard.advance(100)
    assert shard.state().state is S.COMPLETE_COMMIT


@pytest.mark.parametrize("error", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_partition_that_has_gone_past_the_transaction_holds_it_up_no_longer(shard: Shard, error: E) -> None:
    producer = shard.init()
    shard.add(producer)
    shard.marker_errors = {P0: error}
    shard.end(producer)
    assert shard.state().state is S.COMPLETE_COMMIT


def test_that_it_is_complete_is_stored_again_when_that_failed(shard: Shard) -> None:
    producer = shard.init()
    shard.add(producer)
    shard.holds_markers = True
    shard.end(producer)
    shard.fails_with = E.NOT_ENOUGH_REPLICAS
    shard.write_markers()
    assert shard.state().state is S.PREPARE_COMMIT
    assert code(lambda: shard.add((1000, 1))) is E.CONCURRENT_TRANSACTIONS
    shard.fails_with = None
    shard.advance(100)
    assert shard.state().state is S.COMPLETE_COMMIT and len(shard.markers) == 1


@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_after_a_restart_what_was_decided_is_carried_out(version: int, commit: bool) -> None:
    shard = Shard(version)
    producer = shard.init()
    shard.add(producer, P0, P1)
    shard.holds_markers = True
    shard.end(producer, commit)
    shard.restart()
    shard.holds_markers = False
    shard.advance(0)
    assert shard.state().state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    first, second = shard.markers
    assert first == second


@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_that_has_lost_the_marker_of_the_last_transaction_gets_it_again(version: int, commit: bool) -> None:
    shard = Shard(version)
    producer = shard.init()
    shard.add(producer, P2)
    producer = ended(shard, producer, not commit)
    shard.add(producer, P0, P1)
    producer = ended(shard, producer, commit)
    shard.lost = {P1, P2}  # of what was decided about P2, nothing is known any more
    shard.restart()
    assert code(lambda: shard.add(producer, P0)) is E.CONCURRENT_TRANSACTIONS
    shard.advance(0)
    first, second = shard.markers[1:]
    assert second == first._replace(partitions=(P1,))
    assert shard.state().state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    shard.lost = {P0}
    shard.add(producer, P0)
    shard.restart()  # it is open
    shard.advance(0)
    assert len(shard.markers) == 3 and shard.state().state is S.ONGOING


def ended(shard: Shard, producer: ProducerIdAndEpoch, commit: bool) -> ProducerIdAndEpoch:
    """End the transaction. Returns the producer that goes on."""
    after = shard.end(producer, commit)
    return after if shard.version >= TV_2 else producer


def test_after_a_restart_an_open_transaction_goes_on_and_its_clock_runs(shard: Shard) -> None:
    producer = shard.init()
    shard.add(producer, P0)
    shard.restart()
    assert shard.verify(producer, P0) == [E.NONE]
    shard.add(producer, P1)
    shard.advance(TIMEOUT_MS + 10_001)
    assert shard.state().state is S.COMPLETE_ABORT
    assert shard.markers[-1].partitions == (P0, P1)


def test_a_transaction_that_began_by_a_clock_that_was_ahead_runs_out_of_time_as_any(shard: Shard) -> None:
    """The coordinator of before had it. The last stable offset would stand still for as long."""
    shard.now_ms += 3_600_000
    producer = shard.init()
    shard.add(producer)
    shard.now_ms -= 3_600_000
    shard.restart()
    shard.advance(TIMEOUT_MS - 1)
    assert shard.state().state is S.ONGOING
    shard.advance(2 * shard.settings.abort_timed_out_interval_ms)
    assert shard.state().state is S.COMPLETE_ABORT


def test_a_version_1_client_and_a_version_2_client_may_follow_one_another(shard: Shard) -> None:
    producer = shard.init()
    shard.add(producer, version=TV_0)
    shard.end(producer, version=TV_0)
    assert shard.state().producer_epoch == 0 and shard.markers[-1].transaction_version == TV_0
    shard.add(producer, version=TV_2)
    assert shard.end(producer, version=TV_2) == (1000, 1)
    shard.add((1000, 1), version=TV_0)
    shard.end((1000, 1), version=TV_0)
    assert shard.state().producer_epoch == 1
