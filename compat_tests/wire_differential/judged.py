"""A broker of the kind under test and an Apache Kafka, both fresh, for a comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.brokers import ApacheBroker, Broker, ExternalBroker, KbrokerBroker
from compat_tests.clients import skip_without


@contextlib.contextmanager
def beside_apache_kafka(broker: Broker) -> Iterator[tuple[str, str]]:
    """The addresses of both. The first is one of its own, unless somebody else runs the broker under test."""
    skip_without("java")
    with contextlib.ExitStack() as stack:
        if isinstance(broker, ApacheBroker | KbrokerBroker):
            broker = type(broker)()
            stack.callback(broker.stop)
        elif not isinstance(broker, ExternalBroker):
            pytest.skip("for one node that is started anew")
        judge = ApacheBroker()
        stack.callback(judge.stop)
        yield broker.bootstrap, judge.bootstrap
