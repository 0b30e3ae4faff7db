"""Requests of clients that a broker forwards to the active controller: answered in each version, blocking nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import CloseConnection
from kbroker.handlers.common.forwarding import (
    PATIENCE,
    NotForwarded,
    by_controller,
    error_codes,
    says_only_not_controller,
)
from kbroker.handlers.common.internal_topics import ensure_internal_topic
from kbroker.handlers.registration import BOTH, registrations
from kbroker.handlers.services.requester import principal_bytes
from kbroker.node.controller.broker_sessions import REFUSALS
from kbroker.node.controller.controller_channel import MAX_FORWARDED, MAX_WAITING, ControllerChannels, Purpose
from kbroker.raft_metadata.raft.messages import Node
from kbroker.raft_metadata.raft.voters import VoterEndpoint
from kbroker.runtime.env import RealEnv
from kbroker.security.principal import ANONYMOUS
from kbroker.types import METADATA_TOPIC, ZERO_UUID
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from kbroker.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)
from kbroker.wire.messages.envelope import EnvelopeRequest
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kbroker.wire.registry import API_KEYS
from tests.node.node_harness import PATIENT, Client, configuration, run
from tests.node.quorum_harness import LISTENER, Quorum, quorum

DESCRIBE_QUORUM = 55
DESCRIPTION = DescribeQuorumRequest(
    topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
)
ROLES = {1: "controller", 2: "broker", 3: "broker"}


async def in_envelope(client: Client, request: Any, version: int) -> Any:
    """The response to a request inside an Envelope, as Apache Kafka's brokers forward."""
    inside = Conversation("c")
    framed = b"".join(inside.send(request, version))
    answer = await client.ask(
        EnvelopeRequest(
            request_data=framed[4:], request_principal=principal_bytes(ANONYMOUS), client_host_address=b"\x7f\0\0\1"
        ),
        0,
    )
    assert answer.error_code == ErrorCode.NONE
    return inside.receive(memoryview(answer.response_data))


def test_describe_quorum_in_each_version_by_each_way(tmp_path: Path) -> None:
    """Field by field what Apache Kafka 4.3 answers: earlier versions have no directory ids and no nodes."""

    async def main() -> None:
        async with quorum(tmp_path, dynamic=True, initial=1, roles_of=ROLES) as cluster:
            await cluster.start(1, 2, 3)
            active = await cluster.controller_client(1)
            for version in (0, 1, 2):
                by_broker = await (await cluster.node(2).connect()).ask(DESCRIPTION, version)
                direct = await active.ask(DESCRIPTION, version)
                for answer in (direct, by_broker, await in_envelope(active, DESCRIPTION, version)):
                    partition = answer.topics[0].partitions[0]
                    assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
                    assert partition.leader_epoch > 0 and partition.high_watermark > 0
                    assert [voter.replica_id for voter in partition.current_voters] == [1]
                    assert sorted(observer.replica_id for observer in partition.observers) == [2, 3]
                    replicas = [*partition.current_voters, *partition.observers]
                    assert all(replica.log_end_offset > 0 for replica in replicas)
                    assert all((replica.replica_directory_id != ZERO_UUID) == (version >= 2) for replica in replicas)
                    assert all((replica.last_fetch_timestamp > 0) == (version >= 1) for replica in replicas)
                    assert all((replica.last_caught_up_timestamp > 0) == (version >= 1) for replica in replicas)
                    listeners = [(node.node_id, [each.name for each in node.listeners]) for node in answer.nodes]
                    assert listeners == ([(1, [LISTENER])] if version >= 2 else [])

    run(main)


def test_another_controller_says_who_leads_as_kafkas_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as cluster:
            await cluster.start(1, 2, 3)
            leader = await cluster.await_leader()
            client = await cluster.controller_client(leader % 3 + 1)
            for version in (0, 1, 2):
                answer = await client.ask(DESCRIPTION, version)
                partition = answer.topics[0].partitions[0]
                assert (answer.error_code, partition.error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (0, 0, 0)
                assert partition.error_message.startswith("For requests intended only" if version == 2 else "")

    run(main)


class Metadata:
    """Stands for the driver of a node that is no controller."""

    is_leader = False


def quorum_answer(code: ErrorCode) -> DescribeQuorumResponse:
    partition = ResponsePartitionData(error_code=code)
    return DescribeQuorumResponse(topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])])


def test_a_controller_that_does_not_lead_yet_is_asked_again() -> None:
    """It says so of the partition, and NONE of the whole."""
    answers = [quorum_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), None, quorum_answer(ErrorCode.NONE)]

    async def forward() -> DescribeQuorumResponse | None:
        return answers.pop(0)

    async def serve_here() -> DescribeQuorumResponse:
        raise AssertionError("this node is no controller")

    async def main() -> None:
        answer = await by_controller(Metadata(), forward, serve_here, error_codes)  # type: ignore[arg-type]
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE and not answers

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("is_reached", [False, True])
def test_no_client_of_a_broker_is_told_of_a_partition_that_it_does_not_lead(is_reached: bool) -> None:
    async def not_leader() -> DescribeQuorumResponse:
        return quorum_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def nobody() -> None:
        return None

    async def main() -> None:
        started = trio.current_time()
        with pytest.raises(NotForwarded) as refused:
            forward: Callable[[], Any] = not_leader if is_reached else nobody
            await by_controller(Metadata(), forward, not_leader, error_codes)  # type: ignore[arg-type]
        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert PATIENCE <= trio.current_time() - started < PATIENCE + 1

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_topic_that_is_made_already_is_not_asked_for_again() -> None:
    """NONE of a part is not NONE of the whole."""
    made, refused = ErrorCode.NONE, ErrorCode.NOT_CONTROLLER
    response = CreateTopicsResponse()
    for codes, expected in (((made, refused), False), ((refused, refused), True), ((made,), False), ((), False)):
        response.topics = [CreatableTopicResult(name="t", error_code=code) for code in codes]
        assert says_only_not_controller(error_codes(response)) is expected


@pytest.mark.parametrize(
    "error", [ApiError(ErrorCode.NOT_CONTROLLER, "nobody"), NotForwarded("too many")], ids=lambda error: error.code.name
)
def test_who_looks_for_a_coordinator_is_told_nothing_of_controllers(tmp_path: Path, error: ApiError) -> None:
    """Stock clients ask again for COORDINATOR_NOT_AVAILABLE, and give up for the others."""

    async def create_topics(topics: Any) -> Any:
        raise error

    image = SimpleNamespace(topics=SimpleNamespace(by_name={}), brokers={}, controllers={})
    metadata = SimpleNamespace(is_alone=False, image=image, create_topics=create_topics)
    services = SimpleNamespace(metadata=metadata, config=configuration(tmp_path))

    async def test() -> None:
        with pytest.raises(ApiError) as refused:
            await ensure_internal_topic(services, "__consumer_offsets")  # type: ignore[arg-type]
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


@pytest.fixture
def mistakes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Has an API's handler return something, or raise it."""

    def make(api: str, outcome: Any) -> None:
        entry = next(entry for entry in registrations(BOTH).values() if API_KEYS[entry.api_key].name == api)

        async def handle(request: Any, ctx: Any) -> Any:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        entry.load()
        monkeypatch.setattr(entry, "handle", handle)

    return make


async def expect_only_an_error(cluster: Quorum, ask: Callable[[], Any], code: ErrorCode) -> None:
    for _ in range(3):
        response = await ask()
        assert response.topics[0].error_code == code and response.topics[0].name == "t"


def test_an_answer_that_cannot_be_encoded_is_an_error_for_its_request_alone(
    tmp_path: Path, mistakes: Callable[[str, Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    """On the controller, by way of a broker, and in an Envelope: each on a connection that lives on."""
    bad = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=1 << 40)])

    async def main() -> None:
        async with quorum(tmp_path, initial=1, roles_of=ROLES) as cluster:
            await cluster.start(1, 2, 3)
            mistakes("CreateTopics", bad)
            request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
            active, broker = await cluster.controller_client(1), await cluster.node(2).connect()
            heartbeats = cluster.nodes[2].metadata.client.channels._pools[Purpose.STANDING]
            await cluster.until(lambda: any(heartbeats._idle.values()))  # not while one is on its way
            ((kept,),) = heartbeats._idle.values()
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            await expect_only_an_error(cluster, lambda: active.ask(request, 5), code)
            await expect_only_an_error(cluster, lambda: broker.ask(request, 5), code)
            await expect_only_an_error(cluster, lambda: in_envelope(active, request, 5), code)
            assert (await broker.ask(DescribeClusterRequest())).error_code == 0
            assert kept.is_open

    with caplog.at_level(logging.ERROR):
        run(main)
    assert sum("cannot be encoded" in record.getMessage() for record in caplog.records) == 9


def test_a_handler_that_fails_is_an_error_where_its_api_says_errors(
    tmp_path: Path, mistakes: Callable[[str, Any], None]
) -> None:
    async def main() -> None:
        async with quorum(tmp_path, initial=1, roles_of=ROLES) as cluster:
            await cluster.start(1, 2, 3)
            mistakes("CreateTopics", LookupError("a mistake"))
            request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
            active, broker = await cluster.controller_client(1), await cluster.node(2).connect()
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            await expect_only_an_error(cluster, lambda: active.ask(request, 5), code)
            await expect_only_an_error(cluster, lambda: broker.ask(request, 5), code)
            await expect_only_an_error(cluster, lambda: in_envelope(active, request, 5), code)

    run(main)


def test_a_broker_is_missed_at_once_whatever_its_clients_ask(
    tmp_path: Path, mistakes: Callable[[str, Any], None]
) -> None:
    """Even if the controller closes the connection of each request of theirs: its session would take a minute."""
    # A connection that is lost while the broker lives is to be over and done with when the broker dies.
    budgets = PATIENT._replace(probes=REFUSALS)

    async def main() -> None:
        options = {"broker_session_timeout_ms": "60000", "broker_heartbeat_interval_ms": "30000"}
        async with quorum(tmp_path, initial=1, roles_of=ROLES, properties=options, budgets=budgets) as cluster:
            await cluster.start(1, 2, 3)
            mistakes("DescribeQuorum", CloseConnection("a mistake"))
            closed = 0
            handle = registrations(BOTH)[DESCRIBE_QUORUM].handle

            async def counted(request: Any, ctx: Any) -> Any:
                nonlocal closed
                closed += 1
                return await handle(request, ctx)

            registrations(BOTH)[DESCRIBE_QUORUM].handle = counted
            clients = [await cluster.node(3).connect() for _ in range(2 * MAX_FORWARDED)]
            for client in clients:
                await client.send(DESCRIPTION, 1)
            await cluster.until(lambda: closed > 3 * MAX_FORWARDED)
            await cluster.kill(3)
            await cluster.until(lambda: cluster.nodes[1].metadata.image.brokers[3].fenced, within=5)

    run(main)


def test_only_so_many_requests_of_clients_are_under_way() -> None:
    """The others wait; this node's own never do."""

    async def test() -> None:
        network = RealEnv(seed=1).network
        silent = await network.bind("127.0.0.1", 0)
        silent.listen()
        accepted: list[Any] = []

        async def accept() -> None:
            while True:
                accepted.append(await silent.accept())

        leader = Node(1, VoterEndpoint(*silent.address[:2]))
        channels = ControllerChannels(network, 2, lambda: leader, 60.0)
        refused: list[ErrorCode] = []

        async def forward() -> None:
            try:
                await channels.forward(DescribeClusterRequest(), 0)
            except NotForwarded as error:
                refused.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            for _ in range(MAX_FORWARDED + MAX_WAITING + 2):
                nursery.start_soon(forward)
            while len(accepted) < MAX_FORWARDED or len(refused) < 2:
                await trio.sleep(0.001)
            assert len(accepted) == MAX_FORWARDED and refused == [ErrorCode.REQUEST_TIMED_OUT] * 2
            for purpose in (Purpose.STANDING, Purpose.OWN):
                before = len(accepted)
                nursery.start_soon(channels.ask, DescribeClusterRequest(), purpose)
                while len(accepted) == before:
                    await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        for stream in accepted:
            stream.close()
        silent.close()

    run(test)


def test_a_request_whose_turn_does_not_come_in_time_is_refused() -> None:
    async def test() -> None:
        network = RealEnv(seed=1).network
        silent = await network.bind("127.0.0.1", 0)
        silent.listen()
        leader = Node(1, VoterEndpoint(*silent.address[:2]))
        channels = ControllerChannels(network, 2, lambda: leader, 0.05)
        outcomes: list[Any] = []

        async def forward() -> None:
            try:
                outcomes.append(await channels.forward(DescribeClusterRequest(), 0))
            except NotForwarded as error:
                outcomes.append(error.code)

        async with trio.open_nursery() as nursery:
            for _ in range(2 * MAX_FORWARDED):
                nursery.start_soon(forward)
        assert outcomes.count(None) >= MAX_FORWARDED
        assert set(outcomes) <= {None, ErrorCode.REQUEST_TIMED_OUT}
        silent.close()

    run(test)
