"""Watching begins and ends while clients over TLS pipeline requests, and while three nodes replicate a flood."""

from __future__ import annotations

import ssl
from collections import Counter, deque
from pathlib import Path
from typing import Any

import trio

from kbroker.node.explorer.budget import Budget
from kbroker.node.explorer.tap import Tap
from kbroker.node.explorer.watcher import Watcher
from kbroker.observe.explorer.exchange import Exchange
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.produce import ProduceRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import Client, Node, batch, produce_request, run, running_node
from tests.node.quorum_harness import Quorum, three_nodes
from tests.node.tls_harness import AUTHORITY, properties
from tests.patience import SHORT

EXPLORER = {"kbroker_explorer_listener": "http://127.0.0.1:0"}
TOGETHER = 8
"""Requests that a client sends at once."""
PRODUCE = ProduceRequest.api_key
ENOUGH = 1e6
"""Seconds of a processor."""


class Gathered:
    """A stream that holds what is to be sent until it is to be sent together."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._held = bytearray()
        self.receive_some = stream.receive_some

    async def send_all(self, data: bytes) -> None:
        """Hold the bytes."""
        self._held += data

    async def release(self) -> None:
        """Send all that is held, at once."""
        held, self._held = self._held, bytearray()
        await self._stream.send_all(held)


class Pipelining:
    """A client that sends requests together, and expects their answers in that order, each once."""

    def __init__(self, stream: Any) -> None:
        self._stream = Gathered(stream)
        self._client = Client(self._stream)  # type: ignore[arg-type]
        self._expected: deque[int] = deque()
        self.asked = 0
        self.offsets: list[int] = []
        """Those of the records that were acknowledged, in the order of the answers."""

    async def ask(self, *requests: Any) -> None:
        """Send these and take their answers."""
        versions = {0: 9, 2: 6, 3: 12, 12: 4, 19: 7}
        for request in requests:
            self._expected.append(await self._client.send(request, versions[request.api_key]))
        self.asked += len(requests)
        await self._stream.release()
        for request in requests:
            number, answer = await self._client.receive()
            assert number == self._expected.popleft()
            if request.api_key == PRODUCE:
                partition = answer.responses[0].partition_responses[0]
                assert partition.error_code == 0
                self.offsets.append(partition.base_offset)


def produces() -> list[ProduceRequest]:
    """Requests with a record in each."""
    return [produce_request("t", batch(b"x"), timeout_ms=20_000) for _ in range(TOGETHER)]


def of_all_kinds() -> list[Any]:
    """Requests that are answered at once, by shortcuts, by waiting for the disk, and by handlers that may wait."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=1000)
    listed = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    heartbeat = HeartbeatRequest(group_id="g", member_id="m")
    return [*produces()[:3], heartbeat, listed, MetadataRequest(topics=[]), produces()[0], heartbeat]


class Watch:
    """Somebody who watches one node, and all that they are told."""

    def __init__(self, node: Any) -> None:
        self.tap: Tap = node.services.tap
        self._watcher: Watcher | None = None
        self.shown: list[Exchange] = []
        self.counts: Counter[int] = Counter()

    def begin(self) -> None:
        """Watch, controllers included. There is processor time for all that comes, however slow the machine is."""
        self._watcher = Watcher(controllers=True)
        self.tap.add(self._watcher)
        self.afford(ENOUGH)

    def afford(self, seconds: float) -> None:
        """Let the node have so much processor time to be watched."""
        self.tap.budget = Budget(seconds, 0.0)

    def look(self) -> None:
        """Take what is shown, and what is told as not shown."""
        if self._watcher is not None:
            self.shown += [item for item in self._watcher.take(10**6) if isinstance(item, Exchange)]
            for skipped in self.tap.take_skipped(self._watcher):
                self.counts.update(skipped.counts)

    def end(self) -> None:
        """Watch no more."""
        self.look()
        if self._watcher is not None:
            self.tap.remove(self._watcher)
        self._watcher = None

    def make_scarce(self, turn: int) -> None:
        """Have the processor time run out now and then."""
        self.afford(ENOUGH if turn % 3 else 0.0)

    def told(self, api_key: int) -> int:
        """The number of requests of an API that were shown, or counted as not shown."""
        return sum(each.api_key == api_key for each in self.shown) + self.counts[api_key]

    def check(self) -> None:
        """Each Produce that is shown has its own answer, and is shown once."""
        produced = [each for each in self.shown if each.api_key == PRODUCE]
        keys = [(each.connection, each.request.pieces[0][1][4:8]) for each in produced]
        assert len(keys) == len(set(keys))
        for each, (_, number) in zip(produced, keys, strict=True):
            assert each.response is not None and each.response.pieces[0][1][:4] == number


async def flood(clients: list[Pipelining], make: Any, times: int) -> None:
    """Have all clients ask at the same time, again and again."""

    async def ask(client: Pipelining) -> None:
        for _ in range(times):
            await client.ask(*make())

    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(ask, client)


async def now_and_then(watches: list[Watch]) -> None:
    """Watch for some turns of the event loop, and not for one, for ever."""
    while True:
        for watch in watches:
            watch.begin()
        for _ in range(4):
            await trio.sleep(0)
            for watch in watches:
                watch.look()
        for watch in watches:
            watch.end()
        await trio.sleep(0)


async def all_the_time(watches: list[Watch]) -> None:
    """Watch on, and have each node show all, then nothing, again and again."""
    turn = 0
    while True:
        turn += 1
        for watch in watches:
            watch.make_scarce(turn)
            watch.look()
        await trio.sleep(0)


async def crowded(clients: list[Pipelining], watches: list[Watch], make: Any, times: int) -> None:
    """A flood while watching begins and ends, one that is watched all the time, and one that nobody watches."""
    async with trio.open_nursery() as others:
        others.start_soon(now_and_then, watches)
        await flood(clients, make, times)
        others.cancel_scope.cancel()
    for watch in watches:
        watch.end()
        watch.check()
        assert not watch.counts, "all was shown as long as it was watched"
        watch.shown.clear()
        watch.begin()
    asked = sum(client.asked for client in clients)
    await flood(clients, make, 1)  # all are shown
    for watch in watches:
        watch.afford(0.0)
    await flood(clients, make, 1)  # none are
    async with trio.open_nursery() as others:
        others.start_soon(all_the_time, watches)
        await flood(clients, make, times)
        others.cancel_scope.cancel()
    asked = sum(client.asked for client in clients) - asked
    produced = asked // TOGETHER * sum(request.api_key == PRODUCE for request in make())
    with trio.fail_after(SHORT):  # a client may have its answer before those who watch
        while sum(watch.told(PRODUCE) for watch in watches) < produced:
            for watch in watches:
                watch.look()
            await trio.sleep(0.01)
    assert sum(watch.told(PRODUCE) for watch in watches) == produced
    assert any(watch.counts[PRODUCE] for watch in watches), "some were not shown"
    for watch in watches:
        watch.end()
        watch.check()
    shown = [len(watch.shown) for watch in watches]
    await flood(clients, make, 1)
    assert [len(watch.shown) for watch in watches] == shown and any(shown)
    for watch in watches:
        assert not watch.tap.pending and not watch.tap.pending_bytes
    offsets = [offset for client in clients for offset in client.offsets]
    assert sorted(offsets) == list(range(len(offsets))), "no record is lost, and none is there twice"
    assert all(client.offsets == sorted(client.offsets) for client in clients)


def test_over_tls_requests_that_come_together_are_answered_and_shown_once(tmp_path: Path) -> None:
    listeners = {"listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}

    async def connect(node: Node) -> Pipelining:
        context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
        plain = await trio.open_tcp_stream(*node.broker.ports["SSL"])
        stream: Any = trio.SSLStream(plain, context, server_hostname="localhost")
        await stream.do_handshake()
        return Pipelining(stream)

    async def main() -> None:
        async with running_node(tmp_path, **{**properties(), **listeners, **EXPLORER}) as node:
            clients = [await connect(node) for _ in range(4)]
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            await clients[0].ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000))
            await node.broker.metadata.wait_for_image(lambda image: "t" in image.topics.by_name)
            await crowded(clients, [Watch(node.broker)], of_all_kinds, 6)

    run(main)


def test_on_three_nodes_a_flood_that_is_replicated_is_answered_and_shown_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path, **EXPLORER, offsets_topic_replication_factor="1") as cluster:
            leader = await leader_of_new_topic(cluster)
            clients = [Pipelining((await cluster.node(leader).connect()).stream) for _ in range(4)]
            watches = [Watch(node) for node in cluster.nodes.values()]
            await crowded(clients, watches, produces, 6)
            seen = [each for watch in watches for each in watch.tap.connections()]
            assert any(each.is_controller for each in seen), "controllers' connections are among them"
            assert any((each.client_id or b"").startswith(b"broker-") for each in seen), "and those of followers"

    run(main)


async def leader_of_new_topic(cluster: Quorum) -> int:
    """Create a topic with one partition on all nodes; the id of the node that leads it."""
    client = await cluster.controller_client(await cluster.await_leader())
    wish = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    answer = await client.ask(CreateTopicsRequest(topics=[wish], timeout_ms=20_000), 7)
    assert answer.topics[0].error_code == 0, answer
    await cluster.topics_everywhere(["t"])
    return int(cluster.newest_image().topics.by_name["t"].partitions[0].leader)
