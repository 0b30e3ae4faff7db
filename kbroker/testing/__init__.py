"""A real broker inside a test: one call, a free port, a temporary directory, gone when the block ends.

::

    from kbroker.testing import running_broker

    def test_my_producer():
        with running_broker() as broker:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            ...

``running_cluster(3)`` runs several nodes as processes that may be killed: ``cluster.py``, ``cluster_node.py``. Their
faults are ``cluster.faults`` and ``node.faults``: ``cluster_faults.py`` here, ``node.py`` there, ``link.py`` between.

The broker is the one that ``kbroker start`` runs, on a thread of its own, over real sockets and files. With pytest,
the fixtures ``kafka_broker`` and ``kafka_topic`` come with the installed package.

What seldom happens, and always when nobody looks, can be made to happen (``broker.faults``): requests that are slow,
refused or cut off, records that expire, topics that are made anew. docs/testing.md has an example of each.

Waits, moves and a reset are methods of both (``verbs.py``). ``control`` serves all of it over HTTP, to any language.

Simulated clusters are in `kbroker.sim`. Begin with `broker`, then `cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.testing.broker import RunningBroker, running_broker

if TYPE_CHECKING:
    from kbroker.testing.cluster import ClusterNode, RunningCluster, running_cluster

__all__ = ["ClusterNode", "RunningBroker", "RunningCluster", "running_broker", "running_cluster"]


def __getattr__(name: str) -> Any:
    """Clusters come when they are asked for: a test with one broker does not wait for what they need."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kbroker.testing import cluster

    return getattr(cluster, name)
