"""Properties of brokers in a cluster: each is asked for its own, whoever is the active controller."""

from __future__ import annotations

from pathlib import Path

from kbroker.errors import ErrorCode
from kbroker.handlers.services.requester import principal_bytes
from kbroker.security.principal import ANONYMOUS
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kbroker.wire.messages.configs import IncrementalAlterableConfig as Change
from kbroker.wire.messages.configs import IncrementalAlterConfigsResource as ChangedResource
from kbroker.wire.messages.envelope import EnvelopeRequest
from tests.node.node_harness import Client
from tests.node.quorum_harness import quorum, three_nodes

RATE = "leader.replication.throttled.rate"
_BROKER = 4
_BROKER_LOGGER = 8


async def change(client: Client, *brokers: str, value: str = "1000") -> list[tuple[int, str | None]]:
    """Set a property of some brokers in one request; the answers."""
    resources = [
        ChangedResource(
            resource_type=_BROKER, resource_name=broker, configs=[Change(name=RATE, config_operation=0, value=value)]
        )
        for broker in brokers
    ]
    response = await client.ask(IncrementalAlterConfigsRequest(resources=resources))
    assert [answer.resource_name for answer in response.responses] == list(brokers)
    return [(answer.error_code, answer.error_message) for answer in response.responses]


async def replace(client: Client, broker: str, value: str) -> int:
    """Replace all properties of a broker by one."""
    resource = AlterConfigsResource(
        resource_type=_BROKER, resource_name=broker, configs=[AlterableConfig(name=RATE, value=value)]
    )
    response = await client.ask(AlterConfigsRequest(resources=[resource]))
    return int(response.responses[0].error_code)


async def test_every_broker_takes_its_own_properties_and_no_others(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as cluster:
        controller = await cluster.await_leader()

        async def all_know(broker: str, rate: str) -> None:
            def known() -> bool:
                name = int(broker) if broker else None
                rates = {node.metadata.image.configs.for_broker(name).get(RATE) for node in cluster.nodes.values()}
                return rates == {rate}

            await cluster.until(known)

        for node_id in cluster.nodes:
            client = await cluster.node(node_id).connect()
            other = str(node_id % 3 + 1)
            value = str(1000 + node_id)
            mine, not_mine, bad = await change(client, str(node_id), other, "here", value=value)
            assert mine == (0, None)
            assert not_mine == (
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {node_id}, but received {other}",
            )
            assert bad == (ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: here")
            await all_know(str(node_id), value)
            assert await change(client, "", value=value) == [(0, None)]
            await all_know("", value)
            assert await change(client, str(node_id), value="-1") == [
                (ErrorCode.INVALID_REQUEST, f"Invalid value -1 for configuration {RATE}: Value must be at least 0")
            ]
            assert await replace(client, str(node_id), "77") == 0
            assert await replace(client, other, "77") == ErrorCode.INVALID_REQUEST
            await all_know(str(node_id), "77")
        client = await cluster.controller_client(controller)
        assert await change(client, "1", "2", "3") == [(0, None)] * 3, "the controller knows no bounds"
        for broker in ("1", "2", "3"):
            await all_know(broker, "1000")
        throttles = [node.replica_manager.throttles.leader.bound for node in cluster.nodes.values()]
        assert throttles == [1000] * 3


async def test_what_a_broker_of_apache_kafka_passes_on_is_taken(tmp_path: Path) -> None:
    """In an envelope (KIP-590), after checks of its own: properties of that broker, for the controller to change."""
    async with three_nodes(tmp_path) as cluster:
        controller = await cluster.await_leader()
        other = str(controller % 3 + 1)
        resource = ChangedResource(
            resource_type=_BROKER, resource_name=other, configs=[Change(name=RATE, config_operation=0, value="4711")]
        )
        inner = IncrementalAlterConfigsRequest(resources=[resource])
        inside = Conversation("a client")
        envelope = EnvelopeRequest(
            request_data=b"".join(inside.send(inner, 1))[4:],
            request_principal=principal_bytes(ANONYMOUS),
            client_host_address=bytes(4),
        )
        client = await cluster.controller_client(controller)
        answer = await client.ask(envelope)
        assert answer.error_code == ErrorCode.NONE
        response = inside.receive(answer.response_data)
        assert (response.responses[0].error_code, response.responses[0].resource_name) == (0, other)
        await cluster.until(lambda: cluster.nodes[int(other)].replica_manager.throttles.leader.bound == 4711)


async def test_every_controller_tells_its_own_properties_on_its_own_listener(tmp_path: Path) -> None:
    """``kafka-configs --bootstrap-controller``: a node that is a controller only has no other listener."""
    async with quorum(tmp_path, 4, initial=3, roles="controller", roles_of={4: "broker"}) as cluster:
        await cluster.start(1, 2, 3, 4)
        await cluster.controllers_registered(1, 2, 3)
        controller = await cluster.await_leader()

        async def told(node_id: int, name: str) -> tuple[int, dict[str, str | None]]:
            client = await cluster.controller_client(node_id)
            resource = DescribeConfigsResource(
                resource_type=_BROKER, resource_name=name, configuration_keys=["node.id", "process.roles", RATE]
            )
            answer = (await client.ask(DescribeConfigsRequest(resources=[resource]), 4)).results[0]
            return answer.error_code, {config.name: config.value for config in answer.configs}

        for node_id in (1, 2, 3):
            code, values = await told(node_id, str(node_id))
            assert (code, values["node.id"], values["process.roles"]) == (0, str(node_id), "controller")
            assert (await told(node_id, str(node_id % 3 + 1)))[0] == ErrorCode.INVALID_REQUEST
            assert await change(await cluster.controller_client(controller), str(node_id)) == [(0, None)]
            await cluster.until(
                lambda node_id=node_id: (  # type: ignore[misc]
                    RATE in cluster.nodes[node_id].metadata.image.configs.for_broker(node_id)
                )
            )
            assert (await told(node_id, str(node_id)))[1][RATE] == "1000"
            assert await told(node_id, "") == (0, {})
        # One that is not active says so, and the client finds the one that is.
        passive = controller % 3 + 1
        refused = await change(await cluster.controller_client(passive), "4")
        assert [code for code, _ in refused] == [ErrorCode.NOT_CONTROLLER]
        assert await change(await cluster.controller_client(controller), "4", "3", value="7") == [(0, None)] * 2
        unknown = await change(await cluster.controller_client(controller), "9")
        assert unknown == [(ErrorCode.BROKER_ID_NOT_REGISTERED, "No node with id 9 found.")]


async def test_every_controller_has_its_own_loggers(tmp_path: Path) -> None:
    """On its own listener, whichever of them is active: levels are not in the metadata."""
    async with quorum(tmp_path, 2, roles="controller") as cluster:
        await cluster.start(1, 2)
        await cluster.await_leader()
        name = "kbroker.node.serving.listener"
        for node_id, other in ((1, 2), (2, 1)):
            client = await cluster.controller_client(node_id)

            async def alter(name: str, operation: int, value: str | None, node_id: int, client: Client) -> int:
                resource = ChangedResource(
                    resource_type=_BROKER_LOGGER,
                    resource_name=str(node_id),
                    configs=[Change(name=name, config_operation=operation, value=value)],
                )
                answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
                return int(answer.responses[0].error_code)

            async def level(node_id: int, client: Client) -> tuple[int, str | None]:
                resource = DescribeConfigsResource(
                    resource_type=_BROKER_LOGGER, resource_name=str(node_id), configuration_keys=[name]
                )
                answer = (await client.ask(DescribeConfigsRequest(resources=[resource]), 4)).results[0]
                return answer.error_code, next((config.value for config in answer.configs), None)

            assert await alter(name, 0, "DEBUG", node_id, client) == 0
            assert await level(node_id, client) == (0, "DEBUG")
            assert await alter(name, 1, None, node_id, client) == 0
            assert (await level(node_id, client))[1] != "DEBUG"
            assert await alter(name, 0, "LOUD", node_id, client) == ErrorCode.INVALID_CONFIG
            assert await alter(name, 0, "DEBUG", other, client) == ErrorCode.INVALID_REQUEST
            assert (await level(other, client))[0] == ErrorCode.INVALID_REQUEST
