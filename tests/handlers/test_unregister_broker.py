"""UnregisterBroker on a running node."""

from __future__ import annotations

from pathlib import Path

from kbroker.errors import ErrorCode
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from kbroker.wire.messages.nodes import UnregisterBrokerRequest
from tests.node.node_harness import batch, produce_request, running_node


async def test_unknown_brokers_are_refused_and_the_node_itself_comes_back_with_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create_topic("t")
        client = await node.connect()
        for broker in (7, -1):
            answer = await client.ask(UnregisterBrokerRequest(broker_id=broker), 0)
            assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
            assert answer.error_message == f"Broker ID {broker} is not currently registered"
        answer = await client.ask(UnregisterBrokerRequest(broker_id=1), 0)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert (await client.ask(DescribeClusterRequest(), 2)).brokers == []
    async with running_node(tmp_path) as node:
        client = await node.connect()
        assert [broker.broker_id for broker in (await client.ask(DescribeClusterRequest(), 2)).brokers] == [1]
        answer = await client.ask(produce_request("t", batch(b"a")), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
