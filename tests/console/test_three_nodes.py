"""A cluster of three beside which a console watches one node die."""

from __future__ import annotations

from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing.cluster import running_cluster
from tests.console.console_process import console_process, eventually


def test_a_lost_node_is_told_in_words_and_its_return() -> None:
    with running_cluster(3) as cluster, console_process("-b", cluster.bootstrap_servers) as console:
        with cluster.client() as client:
            create_topics(client, [NewTopic("orders", 3, 3, {"min.insync.replicas": "3"})])
        cluster.await_in_sync()
        told = console.get("overview", fresh=1).json
        assert told["troubles"] == []
        assert [broker["replicas"] for broker in told["brokers"]] == [3, 3, 3]
        lost = next(node for node in cluster.nodes if node is not cluster.controller)
        lost.kill()

        def is_missed() -> bool:
            keys = {trouble["key"] for trouble in console.get("overview", fresh=1).json["troubles"]}
            return {f"fenced-{lost.id}", "min-isr-orders"} <= keys

        eventually(is_missed, "the lost node is missed", 40)
        [trouble] = [each for each in console.get("overview").json["troubles"] if each["key"] == "min-isr-orders"]
        assert "all 3 partitions have fewer replicas in sync than min.insync.replicas=3" in trouble["text"]
        assert trouble["advice"] == f"Broker {lost.id}, which has a replica, is not there: start it."
        assert trouble["exact"] is True
        lost.start()
        eventually(lambda: console.get("overview", fresh=1).json["troubles"] == [], "all is well again", 40)
