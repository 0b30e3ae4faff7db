"""Configs that belong to one node or to all of them, on three nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs, describe_configs
from kbroker.errors import ErrorCode
from kbroker.testing import RunningCluster, running_cluster
from kbroker.wire.messages import incremental_alter_configs as inc
from tests.every_node import await_nodes
from tests.patience import LONG

pytestmark = pytest.mark.slow

LOGGER = "kbroker.node"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3) as running:
        yield running


def level(cluster: RunningCluster, node_id: int) -> str | None:
    with cluster.client() as client:
        [entry] = describe_configs(client, ResourceType.BROKER_LOGGER, str(node_id), keys=[LOGGER])
        return entry.value


def test_a_level_is_one_nodes_own_and_ends_with_it(cluster: RunningCluster) -> None:
    with cluster.client() as client:
        alter_configs(client, ResourceType.BROKER_LOGGER, "2", [ConfigChange(LOGGER, Operation.SET, "ERROR")])
    assert [level(cluster, node_id) for node_id in (1, 2, 3)] == ["INFO", "ERROR", "INFO"]
    assert f"log level of {LOGGER} set to ERROR" in cluster.node(2).log
    cluster.node(2).kill()
    cluster.node(2).start()
    await_nodes(cluster, [1, 2, 3])
    assert level(cluster, 2) == "INFO"


def test_another_node_does_not_answer_for_it(cluster: RunningCluster) -> None:
    change = inc.AlterableConfig(name=LOGGER, config_operation=0, value="ERROR")
    resource = inc.AlterConfigsResource(resource_type=8, resource_name="3", configs=[change])
    with cluster.client() as client:
        client.refresh(())
        answer = client.ask_node(1, inc.IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "Unexpected node id. Expected 1, but received 3"
    assert level(cluster, 3) == "INFO"


def test_a_subscription_to_clients_metrics_is_every_nodes(cluster: RunningCluster) -> None:
    for node in cluster.nodes:
        with Client(node.bootstrap_servers) as client:
            name = f"by-{node.id}"
            alter_configs(
                client, ResourceType.CLIENT_METRICS, name, [ConfigChange("interval.ms", Operation.SET, "1000")]
            )
    for node in cluster.nodes:
        with Client(node.bootstrap_servers) as client:
            for other in cluster.nodes:
                assert _until(client, f"by-{other.id}") == "1000"


def _until(client: Client, name: str) -> str | None:
    deadline = time.monotonic() + LONG
    while True:
        [entry] = describe_configs(client, ResourceType.CLIENT_METRICS, name, keys=["interval.ms"])
        if entry.value == "1000" or time.monotonic() > deadline:
            return entry.value
        time.sleep(0.05)
