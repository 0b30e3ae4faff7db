"""A broker of the kind under test and an Apache Kafka, both fresh, for a comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.brokers import ApacheBroker, Broker, ExternalBroker, KbrokerBroker
from compat_tests.clients import skip_without

UNHURRIED = ("log.retention.ms=-1", "log.cleaner.backoff.ms=86400000", "broker.session.timeout.ms=300000")
"""Properties that keep time out of the answers. The records are of the past, so retention would take them away half a
minute after a start, from each of the two at a moment of its own; compaction likewise. And a node that gets no
processor for a while is not to be fenced."""


@contextlib.contextmanager
def beside_apache_kafka(broker: Broker, *options: str) -> Iterator[tuple[str, str]]:
    """The addresses of both, which have the same properties, `options` (``name=value``) among them.

    The first is one of its own, unless somebody else runs the broker under test.
    """
    skip_without("java")
    with contextlib.ExitStack() as stack:
        if isinstance(broker, ApacheBroker | KbrokerBroker):
            broker = type(broker)(*UNHURRIED, *options)
            stack.callback(broker.stop)
        elif not isinstance(broker, ExternalBroker):
            pytest.skip("for one node that is started anew")
        judge = ApacheBroker(*UNHURRIED, *options)
        stack.callback(judge.stop)
        yield broker.bootstrap, judge.bootstrap
