"""A share group whose partitions, and whose states, are led by nodes of both kinds; each takes over from the other."""

from __future__ import annotations

from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.conftest import Cluster
from compat_tests.mixed_cluster.nodes import bootstrap
from compat_tests.mixed_cluster.share_group import configure, member, work
from compat_tests.mixed_cluster.test_mixed_cluster import new_topic
from tests.patience import eventually

COUNT = 10
COPY = {"errors_deadletterqueue_copy_record_enable": "true"}


def test_each_kind_goes_on_with_the_states_that_the_other_has_kept(cluster: Cluster) -> None:
    topic = new_topic(cluster, cluster.voter)
    group, dlq = f"share-{topic}", f"dlq.{topic}"
    view.create(cluster.voter, dlq, [[1, 2], [2, 1]], errors_deadletterqueue_group_enable="true")
    view.await_in_sync(cluster.nodes, dlq)
    configure(cluster.bootstrap, group, errors_deadletterqueue_topic_name=dlq, **COPY)
    written: set[bytes] = set()

    def write(label: str) -> None:
        batch = {index: [f"{label}-{index}-{number}".encode() for number in range(COUNT)] for index in (0, 1)}
        view.produce(cluster.bootstrap, topic, batch)
        written.update(value for values in batch.values() for value in values)

    write("both")
    consumer = member(cluster.bootstrap, group, topic)
    seen = set(work(consumer, 2 * COUNT, lambda value: value.endswith(b"-3")).values())
    assert seen == written
    consumer.close()
    letters = {index: [f"both-{index}-3".encode()] for index in (0, 1)}
    assert view.read(cluster.bootstrap, dlq, {0: 1, 1: 1}) == letters, "each leader writes its own"

    leaves, stays = cluster.follower, cluster.voter
    leaves.stop()
    eventually(
        lambda: all(each.leader == stays.node_id for each in view.partitions(stays, topic).values()),
        "one node to lead all",
    )
    write("alone")
    consumer = member(bootstrap(stays), group, topic)
    assert not set(work(consumer, 2 * COUNT).values()) & seen, "what is done with comes again"
    consumer.close()
    leaves.start()
    cluster.await_whole()
    view.await_in_sync(cluster.nodes, topic)
