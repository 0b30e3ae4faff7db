"""Quotas in a cluster: a broker counts for itself, the controller for changes of topics; a restart keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.wire.messages.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import batch, produce_request
from tests.node.quorum_harness import Quorum, three_nodes
from tests.node.test_client_quotas import alteration


def created(name: str, partitions: int, brokers: list[int]) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=len(brokers))], timeout_ms=5000
    )


async def set_everywhere(cluster: Quorum, node_id: int, entity: dict[str, str | None], **quotas: float) -> None:
    client = await cluster.node(node_id).connect()
    answer = await client.ask(AlterClientQuotasRequest(entries=[alteration(entity, **quotas)]))
    assert [each.error_code for each in answer.entries] == [0], answer
    key = tuple(sorted((kind.replace("_", "-"), name) for kind, name in entity.items()))
    await cluster.until(
        lambda: all(node.metadata.image.principals.client_quotas.get(key) == quotas for node in cluster.nodes.values())
    )
    await client.stream.aclose()


async def test_whichever_broker_is_asked_the_controller_counts_changes_of_topics(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        others = [node_id for node_id in cluster.nodes if node_id != leader]
        await set_everywhere(cluster, others[0], {"client_id": "busy"}, controller_mutation_rate=0.01)
        # Nothing is saved up with so little but the last change, which may be as large as it likes.
        errors: list[tuple[int, bool]] = []
        for number, node_id in enumerate([others[0], others[1], leader]):
            client = await cluster.node(node_id).connect()
            request = created(f"t{number}", 2, [1, 2, 3])
            answer: Any = await client.ask(request, 7, client_id="busy")
            errors.append((answer.topics[0].error_code, answer.throttle_time_ms > 100_000))
            # Others are not concerned.
            free = await client_of(cluster, node_id, created(f"free{number}", 2, [1, 2, 3]))
            assert (free.topics[0].error_code, free.throttle_time_ms) == (0, 0)
        exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert errors == [(0, False), (exceeded, True), (exceeded, True)]


async def client_of(cluster: Quorum, node_id: int, request: Any) -> Any:
    client = await cluster.node(node_id).connect()
    answer = await client.ask(request, client_id="free")
    await client.stream.aclose()
    return answer


async def test_each_broker_counts_bytes_for_itself_and_quotas_outlive_a_restart(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as cluster:
        admin = await cluster.node(1).connect()
        made = await admin.ask(created("t", 3, [1]))
        assert made.topics[0].error_code == 0, made
        await cluster.topics_everywhere(["t"])
        await set_everywhere(cluster, 2, {"user": "ANONYMOUS", "client_id": None}, producer_byte_rate=1000)
        told = await admin.ask(MetadataRequest(topics=None))
        (topic,) = (each for each in told.topics if each.name == "t")
        leaders = {partition.leader_id: partition.partition_index for partition in topic.partitions}
        throttled: dict[int, int] = {}
        for node_id, index in leaders.items():
            client = await cluster.node(node_id).connect()
            small = produce_request("t", batch(b"x"), partition=index, acks=1)
            assert (await client.ask(small, 9)).throttle_time_ms == 0
            large = produce_request("t", batch(bytes(20_000)), partition=index, acks=1)
            throttled[node_id] = (await client.ask(large, 9)).throttle_time_ms
        assert all(10_000 <= each < 11_000 for each in throttled.values()), throttled
        last = max(cluster.nodes)
        await cluster.stop(last)
        await cluster.start(last)
        client = await cluster.node(last).connect()
        answer = await client.ask(DescribeClientQuotasRequest(components=[]), client_id="other")
        assert [each.values[0].value for each in answer.entries] == [1000]
        assert cluster.node(last).broker.services.quotas.clients is not None
