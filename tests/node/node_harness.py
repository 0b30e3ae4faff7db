"""A whole node inside the test's own event loop, and a client that speaks the protocol through its own codec."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from kbroker.config import BrokerConfig
from kbroker.handlers.common.context import Services
from kbroker.handlers.registration import BOTH, registrations
from kbroker.node.broker import Broker
from kbroker.node.coordinators.group_driver import GroupDriver
from kbroker.node.coordinators.transaction_driver import TransactionDriver
from kbroker.node.serving.reply_queue import ReplyQueue
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealEnv
from kbroker.security.authorizer.types import Authorizer
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.conversation import Conversation
from kbroker.wire.framing import FrameReader
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.node.patient_clock import run_patiently
from tests.patience import LONG, LONG_MS

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"

PATIENT = DEFAULTS._replace(rule_patience=60.0, provider_wait=LONG)
"""Rules in Python and token providers of a test are threads, which may get no turn for longer than a node waits."""


class Client:
    """A connection. ``ask`` sends a request and decodes its response; ``send`` and ``receive`` do a half each."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._conversation = Conversation(None)
        self._reader = FrameReader(api_keys=None)

    @property
    def raw(self) -> socket.socket:
        """The socket below Trio's: its bytes are there before the node has its next turn."""
        return cast(socket.socket, self.stream.socket._sock)  # type: ignore[attr-defined]  # private in Trio

    async def send(self, request: Any, version: int | None = None, client_id: str = "test") -> int:
        """Send without waiting; the correlation id."""
        data = self._encoded(request, version, client_id)
        await self.stream.send_all(data)
        return int.from_bytes(data[8:12], "big")

    def send_now(self, request: Any, version: int | None = None, client_id: str = "test") -> None:
        """Send without a turn for the node's tasks. The system may pass it on a little later: see ``arrived``."""
        self.raw.sendall(self._encoded(request, version, client_id))

    def _encoded(self, request: Any, version: int | None, client_id: str) -> bytes:
        """A frame."""
        talk = self._conversation
        if version is None:
            key = type(request).api_key
            served = registrations(BOTH)
            version = (served if key in served else registrations(BOTH, unstable=True))[key].versions.highest
        talk.client_id = client_id
        is_answered = getattr(request, "acks", -1) != 0
        return b"".join(talk.send(request, version, expect_response=is_answered))

    async def send_together(self, requests: Iterable[Any], version: int) -> None:
        """Send several requests at once, so that the node has them all before it answers the first."""
        await self.stream.send_all(
            b"".join(part for request in requests for part in self._conversation.send(request, version))
        )

    async def receive(self) -> tuple[int, Any]:
        """The next response: correlation id and message. ``EOFError`` when the broker has closed."""
        frame = await self.frame()
        return int.from_bytes(frame[:4], "big"), self._conversation.receive(frame)

    async def frame(self) -> bytes:
        """The next response's bytes."""
        while (frame := self._reader.next_frame()) is None:
            data = await self.stream.receive_some(1 << 16)
            if not data:
                raise EOFError
            self._reader.receive(data)
        return bytes(frame)

    async def ask(self, request: Any, version: int | None = None, client_id: str = "test") -> Any:
        """Send and receive."""
        await self.send(request, version, client_id)
        return (await self.receive())[1]

    async def closed(self) -> bool:
        """Wait for the broker to close; false if it answers something instead."""
        try:
            return not await self.stream.receive_some(1)
        except trio.BrokenResourceError:
            return True


def judge_by(services: Services, authorizer: Authorizer | None) -> None:
    """Have a running node ask another authorizer from now on: one that no property can give it."""
    object.__setattr__(services, "authorizer", authorizer)


class Node:
    """A running broker under test, and connections to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def allow(self, **budgets: float) -> None:
        """Give the node other budgets: for requests from now on, of connections from now on."""
        self.broker.env.budgets = self.broker.env.budgets._replace(**budgets)  # type: ignore[arg-type]

    @property
    def groups(self) -> GroupDriver:
        """The driver of the group coordinator, where a test looks inside."""
        assert self.broker.coordinators is not None
        return self.broker.coordinators.groups

    @property
    def transactions(self) -> TransactionDriver:
        """The driver of the transaction coordinator, where a test looks inside."""
        assert self.broker.coordinators is not None
        return self.broker.coordinators.transactions

    async def connect(self, listener: str = "PLAINTEXT") -> Client:
        """A new connection."""
        host, port = self.broker.ports[listener]
        return Client(await trio.open_tcp_stream(host, port))

    def arrived(self, clients: Sequence[Client], listener: str = "PLAINTEXT") -> None:
        """Wait until something is in the socket of each of these clients, without a turn for the node's tasks.

        A busy system may pass on what one of them has sent after its sender has gone on.
        """
        for connection in self.connections_of(clients, listener):
            poll = select.poll()
            poll.register(connection.stream.fileno(), select.POLLIN)
            assert poll.poll(LONG_MS), "it never arrives"

    def connections_of(self, clients: Sequence[Client], listener: str = "PLAINTEXT") -> list[Any]:
        """The node's ends of the connections of these clients, which it has let in."""
        ports = {client.raw.getsockname()[1] for client in clients}
        [served] = [each for each in self.broker.listeners if each.name == listener]
        found: list[Any] = [each for each in served.connections if int(each.peer.rpartition(":")[2]) in ports]
        assert len(found) == len(clients)
        return found

    async def create_topic(self, name: str, partitions: int = 1, /, **configs: str) -> Uuid:
        """Create a topic that this node then knows; its id. ``retention_ms="1"`` stands for ``retention.ms=1``."""
        client = await self.connect()
        response = await client.ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[
                            CreatableTopicConfig(name=key.replace("_", "."), value=value)
                            for key, value in configs.items()
                        ],
                    )
                ],
                timeout_ms=5000,
            )
        )
        assert response.topics[0].error_code == 0, response
        await client.stream.aclose()
        # The active controller has answered; this node may hear of the topic a moment later.
        await self.broker.metadata.wait_for_image(lambda image: name in image.topics.by_name)
        return Uuid(bytes(response.topics[0].topic_id))


class Meanwhile:
    """Requests of a client that come while a node is at something long, and how far that is when the first is answered.

    They are with the node before it goes on, and their answers are noted there: neither way may take the system so long
    that the node is through by then.
    """

    def __init__(
        self, node: Node, client: Client, progress: Callable[[], int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._node = node
        self._client = client
        self.answered_at: int | None = None
        """``progress()`` at the first answer to the client; None before."""
        [connection] = node.connections_of([client])
        add = ReplyQueue.add

        def noted(replies: ReplyQueue, parts: list[Any]) -> None:
            if replies is connection._replies and self.answered_at is None:
                self.answered_at = progress()
            add(replies, parts)

        monkeypatch.setattr(ReplyQueue, "add", noted)

    def come(self, *requests: tuple[Any, int | None]) -> None:
        """Send requests in a version each: to be called from within the node's long work."""
        for request, version in requests:
            self._client.send_now(request, version)
        self._node.arrived([self._client])


def batch(*values: bytes, timestamp: int = 1000, **options: Any) -> bytes:
    """A batch of values without keys, a millisecond apart."""
    return build_batch([Record(index, timestamp + index, None, value) for index, value in enumerate(values)], **options)


def produce_request(
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    topic_id: Uuid = ZERO_UUID,
    timeout_ms: int = 1000,
) -> ProduceRequest:
    """A request for one partition."""
    view = None if records is None else memoryview(bytearray(records))
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic, topic_id=topic_id, partition_data=[PartitionProduceData(index=partition, records=view)]
            )
        ],
    )


def fetch_request(
    topic: str,
    offsets: Sequence[tuple[int, int]] = ((0, 0),),
    *,
    topic_id: Uuid = ZERO_UUID,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partition_max_bytes: int = 1 << 20,
    **options: Any,
) -> FetchRequest:
    """A request for (partition, offset) pairs of one topic."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
                    for index, offset in offsets
                ],
            )
        ],
        **options,
    )


def values(records: Any) -> list[tuple[int, bytes]]:
    """(offset, value) of the whole batches in a fetch response."""
    found = []
    data = bytes(records)
    for position, _ in walk_headers(data):
        found += [(record.offset, bytes(record.value or b"")) for record in iter_records(data, position)]
    return found


def configuration(path: Path, **more: str) -> BrokerConfig:
    """A combined node on free ports."""
    return BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": str(path / "data"),
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


@asynccontextmanager
async def running_node(path: Path, env: RealEnv | None = None, /, **properties: str) -> AsyncIterator[Node]:
    """Format ``path`` on first use and run a node on it; leaving stops it cleanly."""
    config = configuration(path, **properties)
    env = env or RealEnv(seed=1, budgets=PATIENT)
    if not (path / "data" / "meta.properties").exists():
        format_log_dirs(
            env.disk,
            config.log_dirs,
            config.metadata_log_dir,
            node_id=1,
            cluster_id=CLUSTER_ID,
            rng=random.Random(2),
            now_ms=1_700_000_000_000,
            standalone_listeners=[("CONTROLLER", "127.0.0.1", 9093)],
        )
    async with trio.open_nursery() as nursery:
        yield Node(await nursery.start(Broker(config, env).run))
        nursery.cancel_scope.cancel()


def run(test: Callable[[], Awaitable[None]], *, patient: bool = True) -> None:
    """Run a test's coroutine with a limit that only a hang meets; by a ``patient`` clock, or by the machine's."""

    async def limited() -> None:
        with trio.fail_after(120 if patient else 600):
            await test()

    if patient:
        run_patiently(limited)
    else:
        trio.run(limited)
