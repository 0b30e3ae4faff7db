"""A leader's requests to change the ISR, and its reaction to the controller's answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kbroker.cores.replication.partition_state import PartitionState
from kbroker.cores.replication.purgatory import Purgatory
from kbroker.errors import ErrorCode
from kbroker.node.replicas.alter_partition_manager import AlterPartitionManager
from kbroker.node.replicas.isr import IsrMembership
from kbroker.node.replicas.metadata_follower import MetadataFollower
from kbroker.node.replicas.partition_events import CheckpointRequests, Progress
from kbroker.node.replicas.partition_table import PartitionTable
from kbroker.runtime.budgets import DEFAULTS
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

TOPIC_ID = Uuid(bytes(range(16)))
KEY = TopicPartition("t", 0)
EPOCHS = {1: 11, 2: 12, 3: 13}


class Leader:
    """Node 1 with one partition, which it leads."""

    def __init__(self, isr: frozenset[int]) -> None:
        self.state = PartitionState(1)
        self.state.become_leader(
            leader_epoch=4, partition_epoch=7, replicas=(1, 2, 3), isr=isr, log_end_offset=10, now_ms=0
        )
        self.partition: Any = SimpleNamespace(
            state=self.state,
            topic_partition=KEY,
            topic_id=TOPIC_ID,
            offline=False,
            has_log=True,
            log=SimpleNamespace(log_end_offset=10, first_unstable_offset=None),
            is_damaged=False,
        )
        self.failed_dirs: set[int] = set()
        """Brokers whose log dir with this partition has failed."""
        self.image = SimpleNamespace(
            brokers={
                id: SimpleNamespace(
                    epoch=epoch, active=True, has_online_dir=lambda directory: directory not in self.failed_dirs
                )
                for id, epoch in EPOCHS.items()
            },
            topics=SimpleNamespace(partition=lambda *key: SimpleNamespace(directory=lambda broker_id: broker_id)),
        )

    def start(self, controller: Controller) -> AlterPartitionManager:
        """Put the parts together; they ask ``controller``."""
        env: Any = SimpleNamespace(now=trio.current_time, budgets=DEFAULTS)
        table = PartitionTable(1)
        image: Any = self.image
        table.image, table.partitions[KEY] = image, self.partition
        self.isr = IsrMembership(env=env, max_lag_ms=30_000, image=lambda: image)
        self.progress = Progress(
            env=env, purgatory=Purgatory(), isr=self.isr, checkpoints=CheckpointRequests(), image=lambda: image
        )
        others: Any = dict.fromkeys(
            ("log_manager", "checkpoints", "log_dirs", "throttles", "topic_log_config", "start_soon")
        )
        self.metadata = MetadataFollower(env=env, table=table, progress=self.progress, **others)
        self.alter_partition = AlterPartitionManager(
            table=table, progress=self.progress, isr=self.isr, broker_epoch=lambda: EPOCHS[1], ask_controller=controller
        )
        return self.alter_partition

    def brokers_changed(self) -> None:
        """As when the metadata tell of brokers."""
        self.metadata._brokers_changed()

    def fetched(self, replica: int, offset: int, now_ms: int = 0, broker_epoch: int | None = None) -> None:
        self.state.update_follower(
            replica,
            fetch_offset=offset,
            log_start_offset=0,
            leader_log_end_offset=10,
            now_ms=now_ms,
            broker_epoch=EPOCHS[replica] if broker_epoch is None else broker_epoch,
        )


class Controller:
    """Answers as it is told to; None is no answer."""

    def __init__(self, *answers: Callable[[AlterPartitionRequest], AlterPartitionResponse | None]) -> None:
        self.answers = list(answers)
        self.asked: list[AlterPartitionRequest] = []

    async def __call__(self, request: AlterPartitionRequest) -> AlterPartitionResponse | None:
        self.asked.append(request)
        await trio.lowlevel.checkpoint()
        return self.answers.pop(0)(request)


def commit(request: AlterPartitionRequest) -> AlterPartitionResponse:
    wanted = request.topics[0].partitions[0]
    return answer(
        isr=[member.broker_id for member in wanted.new_isr_with_epochs], partition_epoch=wanted.partition_epoch + 1
    )


def answer(**fields: Any) -> AlterPartitionResponse:
    partition = ResponsePartitionData(**{"partition_index": 0, "leader_id": 1, "leader_epoch": 4, **fields})
    return AlterPartitionResponse(topics=[ResponseTopicData(topic_id=TOPIC_ID, partitions=[partition])])


def refuse(code: ErrorCode) -> Callable[[AlterPartitionRequest], AlterPartitionResponse]:
    return lambda request: answer(error_code=code)


@asynccontextmanager
async def led(leader: Leader, controller: Controller) -> AsyncIterator[IsrMembership]:
    alter_partition = leader.start(controller)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alter_partition.run)
        yield leader.isr
        nursery.cancel_scope.cancel()


async def settle() -> None:
    await trio.sleep(1)


async def test_a_follower_that_caught_up_is_proposed_with_the_epochs_of_all_members(autojump_clock: MockClock) -> None:
    leader = Leader(frozenset({1, 2}))
    controller = Controller(commit)

    async with led(leader, controller) as isr:
        leader.fetched(2, 10)
        leader.fetched(3, 10)
        isr.follower_fetched(leader.partition, 3)
        assert leader.state.maximal_isr == {1, 2, 3} and leader.state.isr == {1, 2}
        await settle()
        assert leader.state.isr == leader.state.maximal_isr == {1, 2, 3}
        assert leader.state.partition_epoch == 8
    (request,) = controller.asked
    assert (request.broker_id, request.broker_epoch) == (1, 11)
    wanted = request.topics[0].partitions[0]
    assert (wanted.leader_epoch, wanted.partition_epoch, wanted.leader_recovery_state) == (4, 7, 0)
    assert [(member.broker_id, member.broker_epoch) for member in wanted.new_isr_with_epochs] == list(EPOCHS.items())


@pytest.mark.parametrize("reason", ["fenced", "of an earlier life", "unknown", "too far behind", "its log dir failed"])
async def test_who_may_not_join_is_not_proposed(autojump_clock: MockClock, reason: str) -> None:
    leader = Leader(frozenset({1}))
    leader.state.high_watermark = 10
    leader.image.brokers[3].active = reason != "fenced"
    if reason == "its log dir failed":
        leader.failed_dirs.add(3)
    if reason == "unknown":
        del leader.image.brokers[3]

    async with led(leader, Controller()) as isr:
        leader.fetched(
            3, 9 if reason == "too far behind" else 10, broker_epoch=5 if reason == "of an earlier life" else None
        )
        isr.follower_fetched(leader.partition, 3)
        await settle()
        assert leader.state.maximal_isr == {1}


async def test_the_high_watermark_waits_for_one_that_is_about_to_join_unless_it_is_fenced(
    autojump_clock: MockClock,
) -> None:
    leader = Leader(frozenset({1}))

    async with led(leader, Controller()) as isr:
        leader.state.high_watermark = 9
        leader.fetched(3, 8)  # with all that there was at its last fetch, or nearly
        isr.follower_fetched(leader.partition, 3)
        assert not leader.state.maybe_advance_high_watermark(10)
        leader.image.brokers[3].active = False
        leader.brokers_changed()
        assert leader.state.high_watermark == 10


async def test_laggards_are_proposed_to_leave_and_count_until_they_have(autojump_clock: MockClock) -> None:
    leader = Leader(frozenset({1, 2, 3}))

    async with led(leader, Controller(commit)):
        leader.fetched(2, 10)
        await trio.sleep(20)
        leader.fetched(3, 4)
        await trio.sleep(26)  # 30 s are over at a check
        assert leader.state.isr == {1, 2}
        assert leader.state.high_watermark == 10


async def test_no_answer_and_passing_errors_are_asked_again(autojump_clock: MockClock) -> None:
    leader = Leader(frozenset({1, 2}))
    controller = Controller(
        lambda request: None,
        lambda request: AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
        refuse(ErrorCode.UNKNOWN_SERVER_ERROR),
        commit,
    )

    async with led(leader, controller) as isr:
        leader.fetched(3, 10)
        isr.follower_fetched(leader.partition, 3)
        await settle()
        assert leader.state.isr == {1, 2, 3}
    assert len(controller.asked) == 4


async def test_a_refusal_takes_the_proposal_back(autojump_clock: MockClock) -> None:
    leader = Leader(frozenset({1, 2}))

    async with led(leader, Controller(refuse(ErrorCode.INELIGIBLE_REPLICA))) as isr:
        leader.fetched(3, 10)
        isr.follower_fetched(leader.partition, 3)
        await settle()
        assert leader.state.maximal_isr == leader.state.isr == {1, 2}


@pytest.mark.parametrize("code", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
async def test_what_may_have_been_committed_counts_until_the_metadata_tell(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    """KIP-497: the request may have been sent twice, and the first one may have been lost on its way back."""
    leader = Leader(frozenset({1, 2}))

    controller = Controller(refuse(code))
    async with led(leader, controller) as isr:
        leader.fetched(3, 10)
        isr.follower_fetched(leader.partition, 3)
        await settle()
        state = leader.state
        assert state.maximal_isr == {1, 2, 3} and state.isr == {1, 2}
        state.become_leader(
            leader_epoch=4, partition_epoch=8, replicas=(1, 2, 3), isr=(1, 2, 3), log_end_offset=10, now_ms=0
        )
        assert state.isr == state.maximal_isr == {1, 2, 3}
    assert len(controller.asked) == 1


async def test_who_completes_a_reassignment_counts_until_the_metadata_tell_of_the_new_leader_epoch(
    autojump_clock: MockClock,
) -> None:
    leader = Leader(frozenset({1, 2}))

    # 2 was to be replaced by 3, and is no replica any more. For that the same leader begins a new epoch.
    controller = Controller(lambda request: answer(leader_epoch=5, isr=[1, 3], partition_epoch=8))
    leader.state.high_watermark = 10
    async with led(leader, controller) as isr:
        leader.fetched(2, 10)
        leader.fetched(3, 10)
        isr.follower_fetched(leader.partition, 3)
        leader.partition.log.log_end_offset = 12
        leader.fetched(2, 12)
        await settle()
        # 3 is a member by now, and may lead next: what it lacks is not committed, though 1 and 2 have it.
        state = leader.state
        assert state.maximal_isr == {1, 2, 3}
        assert not state.maybe_advance_high_watermark(12) and state.high_watermark == 10
        state.become_leader(leader_epoch=5, partition_epoch=8, replicas=(1, 3), isr=(1, 3), log_end_offset=12, now_ms=0)
        assert state.isr == state.maximal_isr == {1, 3}
    assert len(controller.asked) == 1


async def test_metadata_older_than_an_answer_change_nothing(autojump_clock: MockClock) -> None:
    leader = Leader(frozenset({1, 2}))

    async with led(leader, Controller(commit)) as isr:
        leader.fetched(3, 10)
        isr.follower_fetched(leader.partition, 3)
        await settle()
        leader.state.become_leader(
            leader_epoch=4, partition_epoch=7, replicas=(1, 2, 3), isr=(1, 2), log_end_offset=10, now_ms=0
        )
        assert leader.state.isr == {1, 2, 3}


async def test_an_answer_counts_for_the_partition_epoch_that_was_asked_about(autojump_clock: MockClock) -> None:
    leader = Leader(frozenset({1, 2}))

    def overtaken(request: AlterPartitionRequest) -> AlterPartitionResponse:
        # The metadata are faster: another member has gone, and the same follower is proposed again.
        leader.state.become_leader(
            leader_epoch=4, partition_epoch=8, replicas=(1, 2, 3), isr=frozenset({1, 2}), log_end_offset=10, now_ms=0
        )
        proposed.append(leader.state.proposed_isr)
        leader.isr.follower_fetched(leader.partition, 3)
        return answer(error_code=ErrorCode.INVALID_UPDATE_VERSION)

    proposed: list[Any] = []
    controller = Controller(overtaken, commit)

    async with led(leader, controller) as isr:
        leader.fetched(2, 10)
        leader.fetched(3, 10)
        isr.follower_fetched(leader.partition, 3)
        await settle()
        assert proposed == [None]
        assert leader.state.isr == {1, 2, 3} and leader.state.partition_epoch == 9
    assert [request.topics[0].partitions[0].partition_epoch for request in controller.asked] == [7, 8]


@pytest.mark.parametrize("when", ["looked for laggards", "brokers changed", "answered"])
async def test_a_log_dir_that_fails_as_the_high_watermark_moves_fails_nothing_else(
    autojump_clock: MockClock, when: str
) -> None:
    """A coordinator goes on with a step once that has happened, and writes: its disk may be full."""

    leader = Leader(frozenset({1, 2}))

    def advance_and_fail(partition: Any, log: Any) -> None:
        leader.state.maybe_advance_high_watermark(log.log_end_offset)
        partition.offline = True
        del partition.log  # as the property refuses to give it

    async with led(leader, Controller(commit)) as isr:
        leader.fetched(2, 10)
        leader.fetched(3, 9)
        leader.state.high_watermark = 10
        leader.progress.advance_high_watermark = advance_and_fail  # type: ignore[method-assign]
        if when == "looked for laggards":
            await leader.alter_partition.shrink()
        elif when == "brokers changed":
            leader.brokers_changed()
        else:
            leader.fetched(3, 10)
            isr.follower_fetched(leader.partition, 3)
            await settle()
            assert leader.state.isr == {1, 2, 3}
        assert leader.partition.offline


async def test_thousands_of_proposals_go_in_several_requests_and_who_is_asked_for_again_comes_last(
    autojump_clock: MockClock,
) -> None:
    """A controller decides on one request in one step. A node that comes back is to join the ISR of all that it has."""
    leader, table, count = Leader(frozenset({1, 2})), PartitionTable(1), 300
    fails, asked = {0, 1}, []

    async def controller(request: AlterPartitionRequest) -> AlterPartitionResponse:
        answers = []
        for wanted in request.topics[0].partitions:
            error = int(ErrorCode.UNKNOWN_SERVER_ERROR) if wanted.partition_index in fails else 0
            isr = [member.broker_id for member in wanted.new_isr_with_epochs]
            epoch = wanted.partition_epoch + 1
            answers.append(
                ResponsePartitionData(
                    partition_index=wanted.partition_index, error_code=error, leader_id=1, leader_epoch=4, isr=isr,
                    partition_epoch=epoch,
                )
            )  # fmt: skip
        asked.append([answer.partition_index for answer in answers])
        if len(asked) > 3:
            fails.clear()
        return AlterPartitionResponse(topics=[ResponseTopicData(topic_id=TOPIC_ID, partitions=answers)])

    leader.start(Controller())
    alter_partition = AlterPartitionManager(
        table=table, progress=leader.progress, isr=leader.isr, broker_epoch=lambda: 11, ask_controller=controller
    )
    states = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alter_partition.run)
        for index in range(count):
            key, state = TopicPartition("t", index), PartitionState(1)
            state.become_leader(
                leader_epoch=4, partition_epoch=7, replicas=(1, 2, 3), isr=(1, 2), log_end_offset=10, now_ms=0
            )
            for replica in (2, 3):
                state.update_follower(
                    replica, fetch_offset=10, log_start_offset=0, leader_log_end_offset=10, now_ms=0,
                    broker_epoch=EPOCHS[replica],
                )  # fmt: skip
            parts = {**vars(leader.partition), "state": state, "topic_partition": key}
            partition: Any = SimpleNamespace(**parts)
            table.partitions[key] = partition
            states.append(state)
            leader.isr.follower_fetched(partition, 3)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert all(state.isr == {1, 2, 3} for state in states)
    assert len(asked) >= 4 and max(map(len, asked)) < count / 2 and not {0, 1} & {*asked[1]}
    assert {*range(count)} == {index for each in asked[:3] for index in each}
