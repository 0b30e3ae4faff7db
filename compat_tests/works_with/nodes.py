"""A node of the cluster that is lost for a while, as the tests of programs do it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compat_tests.brokers import ApacheNodes, Broker, KbrokerNodes


@contextmanager
def without_a_node(broker: Broker, number: int) -> Iterator[None]:
    """Kill a node (SIGKILL), start it again at the end, and wait until all replicas are in sync.

    Nodes have numbers from 1 on. A broker of one node stays as it is: there would be nothing left to work with.
    """
    if not isinstance(broker, KbrokerNodes | ApacheNodes):
        yield
        return
    node = broker.nodes[number - 1]
    node.kill()
    try:
        yield
    finally:
        node.start()
        broker.await_in_sync()


def node_count(broker: Broker) -> int:
    """The number of nodes of the broker under test."""
    return broker.bootstrap.count(",") + 1
