"""A change of the rules holds for the next request of a fetch session, and for one that waits for records."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kbroker.cores.replication.fetch_session import TRACKED_PARTITIONS
from kbroker.errors import ErrorCode
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import Uuid
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.handlers.principals import ButOneTopic, connect_as, under
from tests.node.node_harness import Client, Node, batch, judge_by, produce_request, values
from tests.patience import SHORT

READ = (AclOperation.READ, ResourceType.TOPIC)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Session:
    """A fetch session that names its partitions once. Its offsets stay at 0."""

    def __init__(self, client: Client, topic_id: Uuid, partitions: int, **more: Any) -> None:
        self.client = client
        self._topic_id = Uuid(topic_id)
        self._partitions = partitions
        self._more = more
        self._id = self._epoch = 0

    async def fetch(self, *, max_wait_ms: int = 0) -> dict[int, tuple[int, int]]:
        """Of each partition in the answer: the error code, and the number of records."""
        partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(self._partitions)]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[] if self._epoch else [FetchTopic(topic_id=self._topic_id, partitions=partitions)],
            **self._more,
        )
        answer = await self.client.ask(request)
        assert answer.error_code == 0
        self._id = answer.session_id
        self._epoch = self._epoch + 1 if self._id else 0
        return {
            data.partition_index: (data.error_code, len(values(data.records or b"")))
            for topic in answer.responses
            for data in topic.partitions
        }


@pytest.mark.parametrize("partitions", [1, TRACKED_PARTITIONS])
async def test_a_session_is_asked_for_its_permission_at_each_request(node: Node, partitions: int) -> None:
    topic_id = await node.create_topic("t", partitions)
    admin = await node.connect()
    await admin.ask(produce_request("t", batch(b"value"), topic_id=topic_id))
    authorizer = under(node)
    session = Session(await connect_as(node, "bob"), topic_id, partitions)
    first = await session.fetch()
    assert first == {0: (0, 1), **dict.fromkeys(range(1, partitions), (0, 0))}
    assert await session.fetch() == {0: (0, 1)}
    for _ in range(2):
        authorizer.deny("bob", READ)
        for _ in range(3):  # each time anew, as Apache Kafka does
            assert await session.fetch() == dict.fromkeys(range(partitions), (DENIED, 0))
        authorizer.deny("bob")
        assert await session.fetch() == first
        assert await session.fetch() == {0: (0, 1)}


@pytest.mark.parametrize("partitions", [1, TRACKED_PARTITIONS])
async def test_a_session_of_someone_else_gives_nothing_away(node: Node, partitions: int) -> None:
    """A client that guesses its id reads what it may read itself."""
    topic_id = await node.create_topic("t", partitions)
    authorizer = under(node)
    authorizer.deny("mallory", READ)
    session = Session(await connect_as(node, "bob"), topic_id, partitions)
    await session.fetch()
    session.client = await connect_as(node, "mallory")
    assert await session.fetch() == dict.fromkeys(range(partitions), (DENIED, 0))


async def test_a_waiting_fetch_is_answered_at_once_if_all_of_it_is_denied(node: Node) -> None:
    topic_id = await node.create_topic("t", 2)
    under(node).deny("bob", READ)
    session = Session(await connect_as(node, "bob"), topic_id, 2)
    with trio.fail_after(SHORT):
        assert await session.fetch(max_wait_ms=3_600_000) == {0: (DENIED, 0), 1: (DENIED, 0)}


@pytest.mark.parametrize("partitions", [1, TRACKED_PARTITIONS])
async def test_a_waiting_fetch_brings_nothing_that_was_denied_meanwhile(node: Node, partitions: int) -> None:
    topic_id = await node.create_topic("t", partitions)
    authorizer = under(node)
    session, writer = Session(await connect_as(node, "bob"), topic_id, partitions), await node.connect()
    await session.fetch()
    purgatory = node.broker.services.replica_manager.purgatory
    answer: dict[int, tuple[int, int]] = {}

    async def wait() -> None:
        answer.update(await session.fetch(max_wait_ms=3_600_000))

    with trio.fail_after(SHORT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            while purgatory.fetch_watch_count < partitions:
                await trio.lowlevel.checkpoint()
            authorizer.deny("bob", READ)
            await writer.ask(produce_request("t", batch(b"value"), topic_id=topic_id))
    assert answer == dict.fromkeys(range(partitions), (DENIED, 0))
    authorizer.deny("bob")
    assert (await session.fetch())[0] == (0, 1)


async def test_a_waiting_fetch_is_not_ended_by_what_it_may_not_read(node: Node) -> None:
    ids = {name: await node.create_topic(name) for name in ("t", "secret")}
    judge_by(node.broker.services, ButOneTopic())
    reader, writer = await connect_as(node, "bob"), await node.connect()
    asked = [
        FetchTopic(topic_id=Uuid(topic_id), partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        for topic_id in ids.values()
    ]
    await reader.send(FetchRequest(max_wait_ms=3_600_000, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=asked))
    purgatory = node.broker.services.replica_manager.purgatory
    while not purgatory.fetch_watch_count:
        await trio.lowlevel.checkpoint()
    assert purgatory.fetch_watch_count == 1
    for name in ("secret", "secret", "t"):
        await writer.ask(produce_request(name, batch(b"value"), topic_id=ids[name]))
    with trio.fail_after(SHORT):
        answer = (await reader.receive())[1]
    found = {
        bytes(topic.topic_id): (data.error_code, len(values(data.records or b"")))
        for topic in answer.responses
        for data in topic.partitions
    }
    assert found == {ids["t"]: (0, 1), ids["secret"]: (DENIED, 0)}


async def test_a_follower_that_may_not_act_for_the_cluster_makes_no_progress(node: Node) -> None:
    """Its offsets are not believed, and it is not told what there is."""
    topic_id = await node.create_topic("t")
    authorizer = under(node)
    action = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    authorizer.deny("bob", action)
    follower = {"replica_state": ReplicaState(replica_id=2, replica_epoch=-1)}
    session = Session(await connect_as(node, "bob"), topic_id, 1, **follower)
    assert await session.fetch() == {0: (DENIED, 0)}
    unknown = Session(session.client, Uuid(b"x" * 16), 1, **follower)
    assert await unknown.fetch() == {0: (DENIED, 0)}
    authorizer.deny("bob", READ)  # which followers do not need
    assert (await session.fetch())[0][0] not in (DENIED, 0)
    assert (await Session(session.client, Uuid(b"x" * 16), 1).fetch())[0][0] == ErrorCode.UNKNOWN_TOPIC_ID


async def test_who_may_not_act_as_a_follower_takes_nothing_from_the_true_one(node: Node) -> None:
    """A follower that opens a session ends its earlier ones: nobody else does."""
    topic_id = await node.create_topic("t")
    authorizer = under(node)
    authorizer.deny("mallory", (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER))
    follower = {"replica_state": ReplicaState(replica_id=2, replica_epoch=-1)}
    real, forged = [Session(await connect_as(node, user), topic_id, 1, **follower) for user in ("broker", "mallory")]
    await real.fetch()
    assert await forged.fetch() == {0: (DENIED, 0)}
    assert len(node.broker.services.fetch_sessions) == 1
    await real.fetch()
