"""ApiVersions on both listeners: what ``tests/facts`` says of Apache Kafka 4.4.0 is what it answers, and what kbroker
answers but for the differences that ``tests/node/test_api_versions.py`` lists."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from compat_tests.apache_kafka import SERVER_VERSION, ApacheKafkaError, tool
from compat_tests.api_versions import VERSIONS, told_by, unfolded
from compat_tests.brokers import ApacheBroker, Broker, KbrokerBroker
from tests.node.test_api_versions import FACTS, expected

Node = ApacheBroker | KbrokerBroker


@pytest.fixture(scope="module")
def node(broker: Broker) -> Iterator[Node]:
    """A node whose features nobody has changed."""
    if not isinstance(broker, ApacheBroker | KbrokerBroker):
        pytest.skip("for one node whose controller is known")
    made: Node = type(broker)()
    yield made
    made.stop()


def wanted(node: Node, listener: str, version: int) -> dict[str, dict[str, str]]:
    """The answer of a listener as it is to be."""
    return unfolded(FACTS[listener], version) if isinstance(node, ApacheBroker) else expected(listener, version)


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "ApiVersions of both listeners")
@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_answers(node: Node, listener: str) -> None:
    answers = told_by(node.bootstrap if listener == "broker" else node.controllers)
    for version in VERSIONS:
        assert answers[str(version)] == wanted(node, listener, version), version


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "kafka-cluster api-versions (KIP-1220)")
@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_the_tool_shows_them(node: Node, listener: str) -> None:
    at = [f"--bootstrap-{'server' if listener == 'broker' else 'controller'}"]
    at += [node.bootstrap if listener == "broker" else node.controllers]
    try:
        shown = tool("kafka-cluster", "api-versions", *at, check=True, version=SERVER_VERSION).stdout
    except ApacheKafkaError as error:
        pytest.skip(str(error))
    found = {
        f"{key} {name}": f"{low}-{high or low}"
        for name, key, low, high in re.findall(r"^\t(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+\]", shown, re.M)
    }
    assert found == wanted(node, listener, 5)["apis"], shown
