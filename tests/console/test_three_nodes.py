"""A cluster of three beside which a console watches one node die, and moves partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from kbroker.client.groups import commit_offsets
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing.cluster import RunningCluster, running_cluster
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record
from tests.console.console_process import ConsoleProcess, console_process
from tests.every_node import await_leader, await_topics
from tests.patience import LONG, eventually

NOW = time.time_ns() // 1_000_000
"""Retention removes what is older than a week, soon after a node's start."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3) as running:
        yield running


@pytest.fixture(scope="module")
def console(cluster: RunningCluster) -> Iterator[ConsoleProcess]:
    with console_process("-b", cluster.bootstrap_servers, "--writes") as running:
        yield running


def test_partitions_are_moved_as_the_preview_says(cluster: RunningCluster, console: ConsoleProcess) -> None:
    brokers = sorted(node.id for node in cluster.nodes)
    audited = len(console.audit())
    with cluster.client() as client:
        create_topics(client, [NewTopic("moved", assignment=[[brokers[0]], [brokers[0]]])])
        await_topics(cluster, "moved")
        producer = Producer(client, "moved", [0, 1], on_refused=print)
        for number in range(100):
            producer.send(Record(0, NOW, None, b"x" * 1000), 0, number % 2)
        producer.flush()
    asked = {"name": "moved", "brokers": f"{brokers[1]},{brokers[2]}", "replicas": 2}
    plan = console.get("topic/move", **asked).json
    assert (len(plan["rows"]), plan["unchanged"]) == (2, 0) and plan["bytes"] > 200_000
    assert sorted(row["after"][0] for row in plan["rows"]) == brokers[1:]
    before = {row["partition"]: ",".join(map(str, row["before"])) for row in plan["rows"]}
    after = {row["partition"]: ",".join(map(str, row["after"])) for row in plan["rows"]}
    assert console.post("topic/move", {"name": "moved", "before": before, "after": after}).status == 200

    def has_moved() -> bool:
        partitions = console.get("topic", name="moved").json["partitions"]
        return all(
            sorted(each["replicas"]) == sorted(each["isr"]) == brokers[1:] and each["moving"] is None
            for each in partitions
        )

    eventually(has_moved, "the partitions have moved")

    def ends() -> list[int | None]:
        return [each["end"] for each in console.get("topic", name="moved").json["partitions"]]

    eventually(lambda: ends() == [50, 50], "the new leaders, who may hear of it last, have all")
    # The plan was for other replicas than there are now.
    stale = console.post("topic/move", {"name": "moved", "before": before, "after": after})
    assert stale.status == 409 and "new preview" in stale.error
    assert console.post("topic/move/cancel", {"name": "moved"}).json["done"].startswith("0 moves")
    assert (
        console.get("topic/move", **{**asked, "replicas": 3}).error
        == "3 replicas need as many brokers, and 2 are chosen"
    )
    assert console.get("topic/move", **{**asked, "brokers": "99"}).error == "there is no broker 99"
    assert console.get("topic/move", **asked, partitions="7").error == "topic moved has no partition 7"
    assert [line["action"] for line in console.audit()[audited:]] == [
        "move-partitions",
        "move-partitions",
        "cancel-moves",
    ]


def test_a_preview_is_of_where_the_replicas_will_be(cluster: RunningCluster, console: ConsoleProcess) -> None:
    """While a partition moves, the metadata have its old replicas and its new ones."""
    first, second, third = sorted(node.id for node in cluster.nodes)
    with cluster.client() as client:
        create_topics(client, [NewTopic("slow", assignment=[[first, second]])])
        await_topics(cluster, "slow")
    with cluster.faults.hold("Fetch", topic="slow", followers=True):
        move = {"name": "slow", "before": {"0": f"{first},{second}"}, "after": {"0": f"{second},{third}"}}
        assert console.post("topic/move", move).status == 200

        def moving() -> bool:
            return sorted(console.get("topic", name="slow").json["partitions"][0]["replicas"]) == [first, second, third]

        eventually(moving, "the move is under way")
        plan = console.get("topic/move", name="slow", brokers=f"{second},{third}", replicas=2).json
        assert (plan["rows"], plan["unchanged"]) == ([], 1)
        back = console.get("topic/move", name="slow", brokers=f"{first},{second}", replicas=2).json
        [row] = back["rows"]
        assert sorted(row["before"]) == [second, third] and (row["new"], row["bytes"]) == ([], 0)
        # What a plan was made for is where the replicas will be, too.
        stale = console.post("topic/move", {**move, "after": {"0": f"{first},{third}"}})
        assert stale.status == 409 and "look at a new preview" in stale.error
        assert console.post("topic/move/cancel", {"name": "slow"}).status == 200


def test_a_move_is_seen_and_cancelled(cluster: RunningCluster, console: ConsoleProcess) -> None:
    lost = next(node for node in cluster.nodes if node is not cluster.controller)
    other = next(node for node in cluster.nodes if node is not lost)
    with cluster.client() as client:
        create_topics(client, [NewTopic("stuck", assignment=[[other.id]])])
        await_topics(cluster, "stuck")
    lost.kill()
    move = {"name": "stuck", "before": {"0": f"{other.id}"}, "after": {"0": f"{lost.id}"}}
    assert console.post("topic/move", move).status == 200

    def partition() -> Any:
        """The partition by the node that the console asks, which may hear of a change a moment later."""
        [only] = console.get("topic", name="stuck").json["partitions"]
        return only

    seen: list[Any] = []

    def is_seen() -> bool:
        seen[:] = [partition()["moving"]]
        return seen[0] is not None

    eventually(is_seen, "the move is seen")
    [moving] = seen
    assert [each["broker"] for each in moving["adding"]] == [lost.id] and moving["removing"] == [other.id]
    assert console.post("topic/move/cancel", {"name": "stuck"}).json["done"] == "1 moves of topic stuck are cancelled"
    eventually(lambda: partition()["moving"] is None, "the move is no more")
    eventually(lambda: partition()["replicas"] == [other.id], "it is where it was")
    lost.start()
    eventually(lambda: console.get("overview", fresh=1).json["troubles"] == [], "all is well again")


def test_rates_are_told(cluster: RunningCluster, console: ConsoleProcess) -> None:
    with cluster.client() as client:
        create_topics(client, [NewTopic("busy", 2, 3), NewTopic("calm", 1, 1)])
        await_topics(cluster, "busy", "calm")
        producer = Producer(client, "busy", [0, 1], on_refused=print)

        def are_told() -> bool:
            for number in range(100):
                producer.send(Record(0, NOW, None, b"x" * 100), 0, number % 2)
            producer.flush()
            rows = {row["name"]: row for row in console.get("topics", sort="bytes_rate", descending=1).json["rows"]}
            if not {"busy", "calm"} <= rows.keys():
                return False
            busy = rows["busy"]
            if not busy["bytes_rate"] or not busy["records_rate"] or rows["calm"]["bytes_rate"] != 0:
                return False
            told = console.get("overview").json
            are_known = bool(told["busiest"] and told["bytes_rate"] and told["records_rate"])
            return are_known and told["busiest"][0]["name"] == "busy" and told["bytes_rate"] > told["records_rate"]

        eventually(are_told, "what is written a second, and where most")


def test_groups_of_all_coordinators_before_markers_have_all(cluster: RunningCluster, console: ConsoleProcess) -> None:
    groups = [f"done-{number}" for number in range(6)]
    with cluster.client() as client:
        create_topics(client, [NewTopic("paid", 3, 3)])
        await_topics(cluster, "paid")
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payer"}
        payer = confluent_kafka.Producer(settings)
        payer.init_transactions(LONG)
        payer.begin_transaction()
        for number in range(3):
            payer.produce("paid", b"order", partition=number)
        payer.commit_transaction(LONG)
        for group in groups:
            commit_offsets(client, group, {TopicPartition("paid", number): 1 for number in range(3)})

    def told(group: str) -> tuple[int, int]:
        """The lag of a group, -1 where a leader was slow to tell of a partition, and the number of reasons."""
        found = console.get("group", group=group).json
        lags = [each["lag"] for each in found["partitions"]]
        return -1 if None in lags else sum(lags), len(found["reasons"])

    # A commit is answered before its markers are there, and readable.
    for group in groups:
        eventually(lambda group=group: told(group) == (3, 0), f"{group} has all")  # type: ignore[misc]
    rows: dict[str, tuple[int, int, str]] = {}

    def all_are_told() -> bool:
        """Whether no broker was passed over for being slow to answer."""
        lags = console.get("groups/lags").json
        rows.update((row["group"], (row["lag"], row["waiting"], row["kind"])) for row in lags["rows"])
        return rows.keys() >= {*groups} and lags["asked"] == lags["groups"]

    eventually(all_are_told, "the lags of all groups")
    assert {group: rows[group] for group in groups} == dict.fromkeys(groups, (3, 0, "caught-up"))


def test_a_lost_node_is_told_in_words_and_its_return(cluster: RunningCluster, console: ConsoleProcess) -> None:
    with cluster.client() as client:
        create_topics(client, [NewTopic("orders", 3, 3, {"min.insync.replicas": "3"})])
        await_topics(cluster, "orders")
    cluster.await_in_sync()

    def is_well() -> bool:
        told = console.get("overview", fresh=1).json
        brokers = told["brokers"]
        return told["troubles"] == [] and all(each["replicas"] >= 3 and not each["out_of_sync"] for each in brokers)

    eventually(is_well, "all is well")
    lost = next(node for node in cluster.nodes if node is not cluster.controller)
    lost.kill()

    def is_missed() -> bool:
        keys = {trouble["key"] for trouble in console.get("overview", fresh=1).json["troubles"]}
        return {f"fenced-broker broker {lost.id}", "under-min-isr topic orders"} <= keys

    eventually(is_missed, "the lost node is missed")
    troubles = console.get("overview").json["troubles"]
    [trouble] = [each for each in troubles if each["key"] == "under-min-isr topic orders"]
    assert "all 3 partitions have fewer replicas in sync than min.insync.replicas=3" in trouble["text"]
    assert trouble["advice"] == f"Broker {lost.id}, which has a replica, is not there: start it."
    assert trouble["exact"] is True
    lost.start()
    eventually(lambda: console.get("overview", fresh=1).json["troubles"] == [], "all is well again")


def test_a_partition_without_a_leader_keeps_its_place_and_is_not_passed_over(
    cluster: RunningCluster, console: ConsoleProcess
) -> None:
    lost = next(node for node in cluster.nodes if node is not cluster.controller)
    others = [node.id for node in cluster.nodes if node is not lost]
    with cluster.client() as client:
        create_topics(client, [NewTopic("spread", assignment=[[others[0]], [others[1]], [lost.id]])])
        create_topics(client, [NewTopic("copied", assignment=[[others[0]]])])
        await_topics(cluster, "spread", "copied")
        producer = Producer(client, "spread", [0, 1, 2], on_refused=print)
        for number in range(30):
            producer.send(Record(0, NOW, b"k", b"%d" % number), 0, number % 3)
        producer.flush()
    lost.kill()

    def leader() -> Any:
        return console.get("topic", name="spread").json["partitions"][2]["leader"]

    await_leader(cluster, TopicPartition("spread", 2), -1)
    eventually(lambda: leader() is None, "the partition has no leader")
    told = "partition 2 of spread has no leader now"
    for asked in ({}, {"check": 1}, {"format": "csv", "latest_per_key": 1}):
        answer = console.get("records/export", topic="spread", **asked)
        assert (answer.status, told in answer.error) == (409, True)
    assert len(console.get("records/export", topic="spread", partitions="0,1").body.splitlines()) == 20
    answer = console.post("copies/replay", {"topic": "spread", "to": "copied", "from": "earliest"})
    assert (answer.status, told in answer.error) == (409, True)
    assert console.get("records", topic="copied").json["rows"] == []
    goon = {"goon": "0:10,1:10,2:7", "from": "earliest"}
    page = console.get("records", topic="spread", **goon).json
    assert (page["rows"], page["finished"], page["goon"]) == ([], False, "0:10,1:10,2:7")
    with (
        console.events("records/tail?topic=spread&goon=0:10,1:10,2:7") as resumed,
        console.events("records/tail?topic=spread") as fresh,
    ):
        name, first = next(fresh)
        assert (name, first["seen"]) == ("records", 0)
        assert first["notes"] == ["partition 2 has no leader: it is followed from its end once it has one"]
        notes = [note for _, event in _until(resumed, "is kept") for note in event["notes"]]
        assert notes == ["partition 2 has no leader: its place, offset 7, is kept"]
        lost.start()
        events = [event for _, event in _until(resumed, "goes on")]
        notes = [note for _, event in _until(fresh, "followed from") for note in event["notes"]]
        assert notes == ["partition 2 has a leader now: followed from offset 10 on"]
        while not any(event["rows"] for event in events):
            events.append(next(resumed)[1])
        rows = [(row["partition"], row["offset"]) for event in events for row in event["rows"]]
        assert rows == [(2, 7), (2, 8), (2, 9)]
    page = console.get("records", topic="spread", **goon).json
    assert [(row["partition"], row["offset"]) for row in page["rows"]] == rows and page["finished"]
    eventually(lambda: console.get("overview", fresh=1).json["troubles"] == [], "all is well again")


def _until(events: Iterator[tuple[str, Any]], text: str) -> Iterator[tuple[str, Any]]:
    """The events up to the one with a note that has the text; the tail goes on meanwhile, so it comes."""
    for event in events:
        yield event
        if any(text in note for note in event[1]["notes"]):
            return
