"""Nodes that are killed while a program works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compat_tests.brokers import ApacheNodes, Broker, KbrokerNodes


@contextmanager
def without_node(broker: Broker, index: int) -> Iterator[bool]:
    """Kill (SIGKILL) a node meanwhile, if there are several, and have all replicas in sync again at the end.

    The value says whether there is one to kill.
    """
    if not isinstance(broker, KbrokerNodes | ApacheNodes):
        yield False
        return
    node = broker.nodes[index]
    node.kill()
    try:
        yield True
    finally:
        node.start()
        broker.await_in_sync()
