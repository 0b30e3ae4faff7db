"""ApiVersions on both listeners: what ``tests/facts`` says of Apache Kafka 4.4.0 is what it answers, and what kbroker
answers but for the differences that ``tests/node/test_api_versions.py`` lists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compat_tests.api_versions import VERSIONS, told_by
from compat_tests.brokers import ApacheBroker, Broker, KbrokerBroker

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests" / "node"))

from tests.node.test_api_versions import FACTS, expected


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "ApiVersions of both listeners")
def test_answers(broker: Broker) -> None:
    if not isinstance(broker, ApacheBroker | KbrokerBroker):
        pytest.skip("for one node whose controller is known")
    judge = isinstance(broker, ApacheBroker)
    node = type(broker)()  # nobody has changed its features
    try:
        for listener, address in (("broker", node.bootstrap), ("controller", node.controllers)):
            answers = told_by(address)
            for version in VERSIONS:
                wanted = FACTS[listener][str(version)] if judge else expected(listener, version)
                assert answers[str(version)] == wanted, (listener, version)
    finally:
        node.stop()
