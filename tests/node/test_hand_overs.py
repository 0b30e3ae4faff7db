"""Replicas move between nodes of a machine, which have the files of the segments by a second name; and where that
cannot be, the records are copied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.runtime.budgets import Budgets
from kbroker.types import Uuid
from kbroker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.log.log_helpers import read_all
from tests.node.node_harness import PATIENT, Client, batch, produce_request, run
from tests.node.placement import create, move
from tests.node.quorum_harness import Quorum, three_nodes

TOPIC = "orders"
BUDGETS = PATIENT._replace(hand_over_bytes=0)
LATE, SMALL = BUDGETS._replace(hand_over_seconds=0.0), PATIENT


def file_of(cluster: Quorum, node_id: int) -> int:
    """The inode of a node's first segment."""
    return (cluster.path / f"node{node_id}" / f"{TOPIC}-0" / f"{0:020d}.log").stat().st_ino


def values(cluster: Quorum, node_id: int) -> list[bytes]:
    return [value for _, value in read_all(cluster.nodes[node_id].replica_manager.partitions[TOPIC, 0].log)]


async def put(cluster: Quorum, node_id: int, topic_id: Uuid, value: bytes) -> None:
    client = await cluster.node(node_id).connect()
    answer = await client.ask(produce_request("", batch(value), topic_id=topic_id, acks=-1, timeout_ms=30_000))
    assert answer.responses[0].partition_responses[0].error_code == 0


async def moved(cluster: Quorum, controller: Client, *replicas: int) -> None:
    """Move the partition, until it is there."""
    await move(controller, TOPIC, *replicas)

    def is_there() -> bool:
        found = cluster.newest_image().topics.partition(TOPIC, 0)
        held = [cluster.nodes[each].replica_manager.partitions.get((TOPIC, 0)) for each in replicas]
        return (
            found is not None
            and found.replicas == replicas
            and set(found.isr) == set(replicas)
            and all(each is not None and each.state.leader_epoch == found.leader_epoch for each in held)
        )

    await cluster.until(is_there)


def with_a_log(
    tmp_path: Path,
    course: Callable[[Quorum, Client, Uuid], Awaitable[None]],
    *,
    budgets: Budgets = BUDGETS,
    off: Sequence[int] = (),
) -> None:
    """Carry out a course on three nodes; node 1 has the partition, with three records. Those ``off`` know nothing."""

    async def main() -> None:
        properties = {node_id: {"log.hand.over.enable": "false"} for node_id in off}
        async with three_nodes(tmp_path, budgets=budgets, properties_of=properties) as cluster:
            controller = await cluster.node(1).connect()
            await create(controller, TOPIC, 1)
            await cluster.topics_everywhere([TOPIC])
            topic = cluster.newest_image().topics.by_name[TOPIC]
            await cluster.until(lambda: cluster.nodes[1].replica_manager.partitions[TOPIC, 0].state.is_leader)
            for value in (b"1", b"2", b"3"):
                await put(cluster, 1, topic.id, value)
            await course(cluster, controller, topic.id)

    run(main)


def test_the_only_replica_and_a_follower_are_handed_over(tmp_path: Path) -> None:
    async def course(cluster: Quorum, controller: Client, topic_id: Uuid) -> None:
        before = file_of(cluster, 1)
        await moved(cluster, controller, 2)
        assert file_of(cluster, 2) == before and values(cluster, 2) == [b"1", b"2", b"3"]
        await put(cluster, 2, topic_id, b"4")

        await moved(cluster, controller, 2, 3)
        copy = file_of(cluster, 3)
        assert copy != before, "both go on to have it, so each has a file of its own"
        await moved(cluster, controller, 2, 1)
        assert file_of(cluster, 1) == copy, "the follower gave it"
        await put(cluster, 2, topic_id, b"5")
        assert values(cluster, 2) == values(cluster, 1) == [b"1", b"2", b"3", b"4", b"5"]
        await cluster.stop(1)
        await cluster.start(1)
        assert values(cluster, 1) == values(cluster, 2)

    with_a_log(tmp_path, course)


def test_a_node_that_knows_nothing_of_it_copies_and_is_copied_from(tmp_path: Path) -> None:
    async def course(cluster: Quorum, controller: Client, topic_id: Uuid) -> None:
        before = file_of(cluster, 1)
        await moved(cluster, controller, 3)
        copy = file_of(cluster, 3)
        assert copy != before and values(cluster, 3) == [b"1", b"2", b"3"]
        await moved(cluster, controller, 2)
        assert file_of(cluster, 2) not in (before, copy) and values(cluster, 2) == [b"1", b"2", b"3"]

    with_a_log(tmp_path, course, off=[3])


@pytest.mark.parametrize("budgets", [LATE, SMALL])
def test_a_log_that_is_small_or_does_not_come_in_time_is_copied(tmp_path: Path, budgets: Budgets) -> None:
    async def course(cluster: Quorum, controller: Client, topic_id: Uuid) -> None:
        before = file_of(cluster, 1)
        await moved(cluster, controller, 2)
        assert file_of(cluster, 2) != before and values(cluster, 2) == [b"1", b"2", b"3"]

    with_a_log(tmp_path, course, budgets=budgets)


def test_of_two_new_replicas_on_a_machine_one_copies(tmp_path: Path) -> None:
    async def course(cluster: Quorum, controller: Client, topic_id: Uuid) -> None:
        before = file_of(cluster, 1)
        await moved(cluster, controller, 2, 3)
        assert [file_of(cluster, each) == before for each in (2, 3)].count(True) == 1
        assert values(cluster, 2) == values(cluster, 3) == [b"1", b"2", b"3"]

    with_a_log(tmp_path, course)


@pytest.mark.parametrize(
    ("directory", "code"),
    [
        ("{path}/node2", ErrorCode.INVALID_REQUEST),
        ("{path}/node2/other-1.0123456789abcdef0123456789abcdef-delete", ErrorCode.INVALID_REQUEST),
        ("orders-" + "1" * 5000 + ".0123456789abcdef0123456789abcdef-delete", ErrorCode.INVALID_REQUEST),
        ("{path}/node2/orders-0.0123456789abcdef0123456789abcdef-delete", ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_nobody_may_ask_for(tmp_path: Path, directory: str, code: ErrorCode) -> None:
    """No reassignment is under way, or the directory is not one that a new replica makes."""

    async def course(cluster: Quorum, controller: Client, topic_id: Uuid) -> None:
        found = await ask(controller, directory.format(path=tmp_path))
        assert (found.error_code, found.handed_over) == (code, None)

    with_a_log(tmp_path, course)


async def ask(controller: Client, directory: str) -> EpochEndOffset:
    """Ask as the new replica does."""
    wanted = OffsetForLeaderPartition(partition=0, hand_over_to=directory)
    topics = [OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])]
    answer = await controller.ask(OffsetForLeaderEpochRequest(replica_id=2, topics=topics), 4)
    found: EpochEndOffset
    [found] = answer.topics[0].partitions
    return found


def test_nothing_is_handed_over_through_a_link_that_somebody_else_made(tmp_path: Path) -> None:
    """An asker may have CLUSTER_ACTION; where files go is not for the asker to say."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    link = tmp_path / "orders-0.0123456789abcdef0123456789abcdef-delete"
    link.symlink_to(elsewhere)

    async def course(cluster: Quorum, controller: Client, topic_id: Uuid) -> None:
        await cluster.stop(2)
        await move(controller, TOPIC, 2)
        found = await ask(controller, str(link))
        while found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            found = await ask(controller, str(link))
        assert (found.error_code, found.handed_over) == (ErrorCode.LOG_DIR_NOT_FOUND, None)
        assert not list(elsewhere.iterdir())

    with_a_log(tmp_path, course)
