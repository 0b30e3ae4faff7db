"""Random producers, faults and restarts against the coordinator's core.

What must hold whatever happens: the core is what its log says; every transaction gets one decision, the same in each
of its partitions and never another; what a client was told has happened has; only the last producer of an id may go
on; no epoch goes back.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.transactions.coordinator import MarkersToWrite
from kbroker.cores.transactions.records import transaction_record
from kbroker.cores.transactions.transaction import (
    MAX_EPOCH,
    TV_0,
    TV_2,
    VALID_PREVIOUS_STATES,
    Transaction,
    TransactionState,
)
from kbroker.errors import ApiError
from kbroker.errors import ErrorCode as E
from kbroker.types import TopicPartition
from tests.transactions.transaction_harness import P0, P1, P2, Shard, code
from tests.with_each import examples

S = TransactionState
IDS = ("x", "y")


class Machine(RuleBasedStateMachine):
    """``producers`` are (transactional id, producer id, epoch) that a client was given, current or not."""

    producers = Bundle("producers")

    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard(self.VERSION, transactional_id_expiration_ms=10_000_000, remove_expired_interval_ms=500_000)
        self.decided: dict[tuple[int, int, int], bool] = {}
        self.seen_markers = 0
        self.previous: dict[str, Transaction] = {}

    VERSION = TV_2

    def _step(self) -> None:
        """Look at what has come of the last step."""
        shard = self.shard
        for markers in shard.markers[self.seen_markers :]:
            self._judge(markers)
        self.seen_markers = len(shard.markers)

    def _judge(self, markers: MarkersToWrite) -> None:
        state = shard_state(self.shard, markers.transactional_id)
        assert state is not None
        key = (markers.producer_id, markers.producer_epoch, state.start_ms)
        assert self.decided.setdefault(key, markers.commit) == markers.commit
        assert markers.producer_epoch <= MAX_EPOCH

    @rule(target=producers, transactional_id=st.sampled_from(IDS))
    def init(self, transactional_id: str):  # type: ignore[no-untyped-def]
        try:
            producer = self.shard.init(transactional_id)
        except ApiError as error:
            assert error.code in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS)
            self._step()
            return multiple()
        return (transactional_id, *producer)

    @rule(target=producers, producer=producers)
    def recover(self, producer: tuple[str, int, int]):  # type: ignore[no-untyped-def]
        transactional_id, *expected = producer
        before = shard_state(self.shard, transactional_id)
        try:
            given = self.shard.init(transactional_id, expected=(expected[0], expected[1]))
        except ApiError as error:
            assert error.code in (E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED)
            self._step()
            return multiple()
        if before is not None and before.producer_id == expected[0]:
            assert expected[1] in (before.producer_epoch, before.last_producer_epoch)
        return (transactional_id, *given)

    @rule(producer=producers, partitions=st.sets(st.sampled_from([P0, P1, P2]), min_size=1), old_client=st.booleans())
    def add(self, producer: tuple[str, int, int], partitions: set[TopicPartition], old_client: bool) -> None:
        version = TV_0 if old_client else self.VERSION
        transactional_id, *who = producer
        self.shard.now_ms += 1  # so that the time of its beginning tells a transaction from the next
        before = shard_state(self.shard, transactional_id)
        found = code(
            lambda: self.shard.add(
                (who[0], who[1]), *sorted(partitions), transactional_id=transactional_id, version=version
            )
        )
        if found is E.NONE:
            assert before is not None and (before.producer_id, before.producer_epoch) == tuple(who)
            after = shard_state(self.shard, transactional_id)
            if not self.shard.held and self.shard.fails_with is None:
                assert after is not None and after.state is S.ONGOING and after.partitions >= partitions
        self._step()

    @rule(target=producers, producer=producers, commit=st.booleans(), old_client=st.booleans())
    def end(self, producer: tuple[str, int, int], commit: bool, old_client: bool):  # type: ignore[no-untyped-def]
        version = TV_0 if old_client else self.VERSION
        transactional_id, *who = producer
        before = shard_state(self.shard, transactional_id)
        try:
            given = self.shard.end((who[0], who[1]), commit, transactional_id=transactional_id, version=version)
        except ApiError:
            self._step()
            return multiple()
        assert before is not None
        if before.state is S.ONGOING and not self.shard.held and self.shard.fails_with is None:
            after = shard_state(self.shard, transactional_id)
            wanted = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
            assert after is not None and after.state in wanted
        if before.state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT) and (who[0], who[1]) != (
            before.producer_id,
            before.producer_epoch,
        ):
            assert before.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)  # a retry
        self._step()
        if given.producer_id < 0 or self.shard.held or self.shard.fails_with is not None:
            return multiple()
        return (transactional_id, *given)

    @rule(producer=consumes(producers))
    def forget(self, producer: tuple[str, int, int]) -> None:
        """A client is gone."""

    @rule(transactional_id=st.sampled_from(IDS))
    def near_the_last_epoch(self, transactional_id: str) -> None:
        """Spend most of the epochs, as a long life of the id would."""
        state = shard_state(self.shard, transactional_id)
        if state is None or state.state is not S.EMPTY or self.shard.held or self.shard.fails_with is not None:
            return
        if transactional_id in self.shard.core._pending or state.producer_epoch > MAX_EPOCH - 4:
            return
        late = state._replace(producer_epoch=MAX_EPOCH - 3, last_producer_epoch=-1)
        self.previous.pop(transactional_id, None)
        self.shard.run(CoordinatorResult(None, [transaction_record(late, self.shard.version)]))

    @rule()
    def hold(self) -> None:
        self.shard.held = True

    @rule()
    def commit(self) -> None:
        self.shard.commit()
        self._step()

    @rule(fails=st.booleans())
    def fail(self, fails: bool) -> None:
        self.shard.fails_with = E.NOT_ENOUGH_REPLICAS if fails else None

    @rule(partition=st.sampled_from([P0, P1, P2]), fails=st.booleans())
    def marker_fails(self, partition: TopicPartition, fails: bool) -> None:
        self.shard.marker_errors[partition] = E.NOT_LEADER_OR_FOLLOWER if fails else E.NONE

    @rule()
    def hold_markers(self) -> None:
        self.shard.holds_markers = True

    @rule()
    def write_markers(self) -> None:
        self.shard.write_markers()
        self._step()

    @rule(ms=st.sampled_from([1, 100, 10_000, 75_000, 600_000, 11_000_000]))
    def advance(self, ms: int) -> None:
        self.shard.advance(ms)
        self._step()

    @rule()
    def restart(self) -> None:
        self.shard.restart()
        self._step()

    @invariant()
    def core_is_what_its_log_says(self) -> None:
        loaded = self.shard.loaded()
        assert {key: self.stored(value) for key, value in self.shard.core.transactions.items()} == {
            key: self.stored(value) for key, value in loaded.transactions.items()
        }

    def stored(self, transaction: Transaction) -> Transaction:
        """The transaction as its record holds it."""
        if self.VERSION == TV_0:
            transaction = transaction._replace(previous_producer_id=-1)
        return transaction._replace(last_producer_epoch=-1)

    @invariant()
    def epochs_go_forward_and_states_follow_the_table(self) -> None:
        current = dict(self.shard.core.transactions)
        for transactional_id, now in current.items():
            assert 0 <= now.producer_epoch <= MAX_EPOCH
            if now.state not in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
                # It can still be fenced; where a producer was fenced in its last epoch, the next one gets another id.
                assert now.producer_epoch < MAX_EPOCH or now.state is S.COMPLETE_ABORT
                assert now.next_producer_id == -1
            assert (now.state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)) <= (not now.partitions)
            before = self.previous.get(transactional_id)
            if before is None:
                continue
            if before.producer_id == now.producer_id:
                assert now.producer_epoch >= before.producer_epoch
            else:
                assert now.producer_id > before.producer_id
        self.previous = current

    def teardown(self) -> None:
        """At the end no transaction hangs, whatever has happened."""
        shard = self.shard
        shard.fails_with = None
        shard.marker_errors = {}
        shard.commit()
        shard.write_markers()
        for _ in range(3):
            shard.advance(1_000_000)
        assert all(
            transaction.state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
            for transaction in shard.core.transactions.values()
        )
        self._step()


class MachineV1(Machine):
    """The cluster has finalized version 0, whose records hold less."""

    VERSION = TV_0


def shard_state(shard: Shard, transactional_id: str) -> Transaction | None:
    return shard.core.transactions.get(transactional_id)


_SETTINGS = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestVersion2 = Machine.TestCase
TestVersion2.settings = _SETTINGS
TestVersion1 = MachineV1.TestCase
TestVersion1.settings = _SETTINGS


def test_every_state_can_be_reached_and_left_as_the_table_says() -> None:
    reached = {state for state, previous in VALID_PREVIOUS_STATES.items() if previous}
    assert reached == set(S)
    with pytest.raises(KeyError):
        VALID_PREVIOUS_STATES[9]  # type: ignore[index]
