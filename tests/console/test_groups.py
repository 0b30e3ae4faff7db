"""Groups of every type, with members that ask by raw heartbeats; resets; transactions that hold up readers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from kbroker.client import Client
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs
from kbroker.client.errors import known
from kbroker.client.groups import commit_offsets
from kbroker.client.producer import Producer
from kbroker.client.topics import (
    LATEST,
    NewTopic,
    TopicDescription,
    create_topics,
    delete_records,
    describe_topics,
    list_offsets,
)
from kbroker.testing import RunningBroker, running_broker
from kbroker.types import TopicPartition
from kbroker.wire.messages import share_fetch
from kbroker.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from kbroker.wire.messages.share_groups import ShareGroupHeartbeatRequest
from kbroker.wire.record_batch import Record
from tests.cli_command import command_for
from tests.console.console_process import ConsoleProcess
from tests.patience import LONG, eventually
from tests.streams_member import StreamsMember

BEGIN = time.time_ns() // 1_000_000 - 300_000


LONG_SESSIONS = {
    f"group.{protocol}.{limit}session.timeout.ms": "3600000"
    for protocol in ("consumer", "share", "streams")
    for limit in ("max.", "")
}
"""Members beat once, and are there until the last test."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(properties={"unstable.api.versions.enable": "true", **LONG_SESSIONS}) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[Client]:
    """A topic with ten records in each partition, the first of which is five minutes old."""
    with Client(broker.bootstrap_servers) as made:
        create_topics(made, [NewTopic("work", 2, 1), NewTopic("unread", 1, 1)])
        producer = Producer(made, "work", [0, 1], on_refused=print)
        for number in range(20):
            producer.send(Record(0, BEGIN + number * 1000, None, b"job"), number, number % 2)
        producer.flush()
        yield made


def join(client: Client, group_id: str, request: Any) -> None:
    """Be a member; the answer has to be no error."""

    def check(response: Any) -> None:
        assert response.error_code == 0, response

    client.ask_coordinator(group_id, request, check)


def join_as_consumer(client: Client, group_id: str, topic: str = "work") -> None:
    """Be the member m-1 of a consumer group."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id="m-1", member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[]
    )
    request.subscribed_topic_names = [topic]
    join(client, group_id, request)


def test_a_consumer_group(client: Client, console: ConsoleProcess) -> None:
    join_as_consumer(client, "consumers")
    told = console.get("group", group="consumers").json
    assert (told["type"], told["state"]) == ("Consumer", "Stable")
    assert [(m["id"], m["assignment"]) for m in told["members"]] == [("m-1", ["work-0", "work-1"])]
    # Nothing is committed: the partitions are there with their member all the same.
    assert [(p["partition"], p["offset"], p["end"], p["member"]) for p in told["partitions"]] == [
        (0, None, 10, "m-1"),
        (1, None, 10, "m-1"),
    ]


def take(client: Client, member_id: str, count: int) -> None:
    """Be handed the first records of partition 0 as a member of a share group."""
    topic = describe_topics(client, ["work"])["work"]
    assert isinstance(topic, TopicDescription)
    wanted = share_fetch.FetchTopic(topic_id=topic.topic_id, partitions=[share_fetch.FetchPartition()])
    for epoch in range(100):
        request = share_fetch.ShareFetchRequest(
            group_id="sharers",
            member_id=member_id,
            share_session_epoch=epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_records=count,
            batch_size=count,
            share_acquire_mode=1,
            topics=[wanted],
        )
        [leader] = client.all_nodes()
        answer = client.ask_node(leader, request)
        assert not answer.error_code
        if any(part.acquired_records for each in answer.responses for part in each.partitions):
            return
    raise AssertionError("no record came")


def test_a_share_group(client: Client, console: ConsoleProcess) -> None:
    earliest = ConfigChange("share.auto.offset.reset", Operation.SET, "earliest")
    alter_configs(client, ResourceType.GROUP, "sharers", [earliest])
    request = ShareGroupHeartbeatRequest(group_id="sharers", member_id="s-1", member_epoch=0)
    request.subscribed_topic_names = ["nowhere", "work"]
    join(client, "sharers", request)

    def is_assigned() -> bool:
        """A member is told its partitions once their states are there, by a later heartbeat."""
        [member] = console.get("group", group="sharers").json["members"]
        again = ShareGroupHeartbeatRequest(group_id="sharers", member_id="s-1", member_epoch=member["epoch"])
        join(client, "sharers", again)
        return len(member["assignment"]) == 2

    eventually(is_assigned, "the member has partitions")
    told = console.get("group", group="sharers").json
    assert (told["type"], told["state"]) == ("Share", "Stable")
    assert told["members"][0]["assignment"] == ["work-0", "work-1"]
    assert [p["end"] for p in told["partitions"]] == [10, 10]
    [reason] = told["reasons"]
    assert reason["text"] == "nowhere: there is no such topic, and 1 member subscribes to it."
    assert told["in_flight"] == {"rows": [], "ranges": 0, "untold": []}
    take(client, "s-1", 3)
    [row] = console.get("group", group="sharers").json["in_flight"]["rows"]
    assert 0 < row.pop("lock_ms_left") <= 30_000
    where = {"topic": "work", "partition": 0, "first": 0, "last": 2, "state": "acquired", "deliveries": 1}
    assert row == {**where, "member": "s-1", "client": "kbroker", "host": "127.0.0.1"}
    to_five = {"group": "sharers", "to": "offset", "offset": "5"}
    plan = console.get("group/reset", **to_five).json
    assert [row["new"] for row in plan["rows"]] == [5, 5]
    assert plan["refusal"] == "group sharers has 1 member: stop them first"
    answer = console.post("group/reset", to_five)
    assert (answer.status, answer.error) == (409, plan["refusal"])
    join(client, "sharers", ShareGroupHeartbeatRequest(group_id="sharers", member_id="s-1", member_epoch=-1))
    assert console.get("group/reset", **to_five).json["refusal"] == ""
    assert console.post("group/reset", to_five).json["done"] == "2 offsets of group sharers are reset"
    told = console.get("group", group="sharers").json["partitions"]
    assert [(row["offset"], row["lag"]) for row in told] == [(5, 5), (5, 5)]


def test_a_streams_group(client: Client, console: ConsoleProcess) -> None:
    member = StreamsMember(client, "streamers", ["work"], ["streamers-counts-changelog"])
    member.join()
    told = console.get("group", group="streamers").json
    assert told["type"] == "Streams"
    assert told["members"][0]["id"] == "m"
    reset = {"group": "streamers", "to": "latest", "topic": "work"}
    plan = console.get("group/reset", **reset).json
    assert [(row["current"], row["new"]) for row in plan["rows"]] == [(None, 10), (None, 10)]
    assert plan["refusal"] == "group streamers has 1 member: stop them first"
    assert "internal topics keep what they have: streamers-counts-changelog" in plan["note"]
    assert console.post("group/reset", reset).status == 409
    member.leave()
    answer = console.post("group/reset", {**reset, "topic": "unread"})
    assert (answer.status, answer.error) == (409, "topic unread is not read by Streams group streamers")
    assert console.post("group/reset", reset).json["done"] == "2 offsets of group streamers are reset"
    assert [row["offset"] for row in console.get("group", group="streamers").json["partitions"]] == [10, 10]
    shift = console.get("group/reset", group="streamers", to="shift", by=-4).json["rows"]
    assert [row["new"] for row in shift] == [6, 6]


def test_all_types_are_listed(client: Client, console: ConsoleProcess) -> None:
    commit_offsets(client, "offsets-only", {TopicPartition("work", 0): 4})
    found = {row["group"]: row["type"] for row in console.get("groups").json["rows"]}
    assert found["offsets-only"] == "Classic"
    others = {"done", "not-done", "late", "with-a-member"}
    others |= {"silent", "blocked"}
    assert set(found) <= {"offsets-only", "consumers", "sharers", "streamers", "resetting", *others}
    assert console.get("groups", filter="only").json["total"] == 1


def test_lag_in_records_and_since_when_the_next_one_waits(client: Client, console: ConsoleProcess) -> None:
    commit_offsets(client, "offsets-only", {TopicPartition("work", 0): 4, TopicPartition("work", 1): 10})
    told = console.get("group", group="offsets-only").json
    behind, done = told["partitions"]
    assert (behind["lag"], done["lag"], done["waiting_since"]) == (6, 0, None)
    assert behind["waiting_since"] == BEGIN + 8000
    [row] = [row for row in console.get("topic/groups", name="work").json["rows"] if row["group"] == "offsets-only"]
    assert (row["lag"], row["partitions"]) == (6, 2)
    [reason] = told["reasons"]
    assert reason["text"] == "Nobody is in the group, and 6 records wait for it."
    assert [link["kind"] for link in reason["links"]] == ["record", "broken"]
    row = lag_of(console, "offsets-only")
    # The looks at the list and at the group are those of one course.
    assert {lag for _, lag, _ in told["course"]} <= {0, 6} and told["course"][-1][1] == 6 == row.pop("course")[-1]
    assert told["course"][-1][2] >= 290
    assert row.pop("reasons")[0]["text"] == reason["text"]
    told = {"members": 0, "lag": 6, "waiting": 6, "topics": {"work": 6}, "kind": "no-member", "since": None}
    assert row == {"group": "offsets-only", "state": "Empty", **told, "needs_attention": False}


def test_a_member_that_has_committed_nothing_is_in_the_list(client: Client, console: ConsoleProcess) -> None:
    join_as_consumer(client, "silent")
    row: Any = None

    def is_told() -> bool:
        nonlocal row
        row = lag_of(console, "silent")
        return bool(row["kind"] == "never-committed")

    eventually(is_told, "it has committed nothing for long enough")
    assert (row["members"], row["lag"], row["waiting"], row["needs_attention"]) == (1, 20, 20, True)
    assert "has committed nothing for at least" in row["reasons"][0]["text"]


def test_a_group_that_a_transaction_blocks_from_the_first_record_on_is_stuck(
    broker: RunningBroker,
    client: Client,
    console: ConsoleProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has committed nothing; since when the transaction is open its coordinator tells."""
    create_topics(client, [NewTopic("held", 1, 1)])
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "holder"}
    holder = confluent_kafka.Producer({**settings, "transaction.timeout.ms": 600_000})
    holder.init_transactions(LONG)
    holder.begin_transaction()
    holder.produce("held", b"order")
    assert holder.flush(LONG) == 0
    join_as_consumer(client, "blocked", "held")
    row: Any = None

    def is_told() -> bool:
        nonlocal row
        row = lag_of(console, "blocked")
        return bool(row["kind"] == "stuck")

    eventually(is_told, "the transaction has been open for long enough")
    assert (row["lag"], row["needs_attention"]) == (1, True)
    assert "an open transaction blocks readers of committed records at offset 0" in row["reasons"][0]["text"]
    [link] = row["reasons"][0]["links"]
    assert (link["kind"], link["transactional_id"]) == ("transaction", "holder")
    kb = command_for(broker.bootstrap_servers, monkeypatch, capsys)
    [described] = kb("group", "describe", "blocked", "--json").json
    assert described["reasons"][0]["text"] == row["reasons"][0]["text"]
    [seen] = [each for each in kb("top", "--once", "--json").json["groups"] if each["group"] == "blocked"]
    assert (seen["lag"], seen["progress"], seen["reasons"][0]["text"]) == (1, "stuck", row["reasons"][0]["text"])
    found = kb("doctor", "--json", "--look-again", "1", code=1).json["findings"]
    assert row["reasons"][0]["text"] in [each["text"] for each in found if each["check"] == "consumer-stuck"]
    holder.abort_transaction(LONG)
    eventually(lambda: lag_of(console, "blocked")["kind"] == "caught-up", "nothing is left to wait for")


def lag_of(console: ConsoleProcess, group: str) -> Any:
    """The line of a group in the list of all lags, where it is while no broker is slow to answer."""
    found: list[Any] = []

    def is_told() -> bool:
        lags = console.get("groups/lags").json
        found[:] = [row for row in lags["rows"] if row["group"] == group]
        return bool(found) and lags["asked"] == lags["groups"]

    eventually(is_told, f"the lag of {group}")
    return found[0]


def test_a_group_before_markers_and_aborted_records_has_all(
    broker: RunningBroker, client: Client, console: ConsoleProcess
) -> None:
    """Clients that commit the offset after the last record that they were given stay there, with lag."""
    create_topics(client, [NewTopic("paid", 1, 1)])
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payer"})
    producer.init_transactions(LONG)
    paid = TopicPartition("paid", 0)

    def transaction(end: Callable[[float], None], offset: int) -> None:
        producer.begin_transaction()
        producer.produce("paid", b"order")
        assert producer.flush(LONG) == 0
        end(180)
        eventually(
            lambda: known(list_offsets(client, {paid: LATEST}, read_committed=True))[paid].offset == offset,
            "the marker",
        )

    transaction(producer.commit_transaction, 2)
    transaction(producer.abort_transaction, 4)
    commit_offsets(client, "done", {paid: 1})
    told = console.get("group", group="done").json
    assert (told["partitions"][0]["lag"], told["reasons"]) == (3, [])
    row = lag_of(console, "done")
    assert (row["lag"], row["waiting"], row["kind"], row["reasons"]) == (3, 0, "caught-up", [])
    # One that has not read the first record has it to read; and so has one before a record that comes later.
    commit_offsets(client, "not-done", {paid: 0})
    [reason] = console.get("group", group="not-done").json["reasons"]
    assert "4 records wait" in reason["text"]
    later = Producer(client, "paid", [0], on_refused=print)
    later.send(Record(0, BEGIN, None, b"job"), 0)
    later.flush()
    [reason] = console.get("group", group="done").json["reasons"]
    assert "4 records wait" in reason["text"]
    assert lag_of(console, "done")["waiting"] == 4
    # What is gone before a marker at the end is nothing to tell of, either.
    commit_offsets(client, "done", {paid: 5})
    transaction(producer.abort_transaction, 7)
    assert delete_records(client, {paid: 6}) == {paid: 6}
    assert console.get("group", group="done").json["reasons"] == []


def test_records_that_are_deleted_do_not_wait(client: Client, console: ConsoleProcess) -> None:
    create_topics(client, [NewTopic("short", 1, 1)])
    producer = Producer(client, "short", [0], on_refused=print)
    for number in range(10):
        producer.send(Record(0, BEGIN, None, b"job"), number)
    producer.flush()
    partition = TopicPartition("short", 0)
    commit_offsets(client, "late", {partition: 2})
    assert delete_records(client, {partition: 6}) == {partition: 6}
    row = lag_of(console, "late")
    assert (row["lag"], row["waiting"]) == (8, 4)
    assert delete_records(client, {partition: 10}) == {partition: 10}
    row = lag_of(console, "late")
    assert (row["lag"], row["waiting"]) == (8, 0)
    [reason] = console.get("group", group="late").json["reasons"]
    assert reason["text"].startswith("short-0: nothing is left to read") and reason["severity"] == "warning"


def test_a_reset_is_looked_at_before_it_is_done(client: Client, console: ConsoleProcess) -> None:
    partition = TopicPartition("work", 1)
    commit_offsets(client, "resetting", {partition: 7})

    def offset() -> int:
        rows = console.get("group", group="resetting").json["partitions"]
        assert [row["partition"] for row in rows if row["offset"] is None] == [0]  # it has never committed there
        return int(rows[1]["offset"])

    plan = console.get("group/reset", group="resetting", to="shift", by=-10).json["rows"]
    assert [(row["current"], row["new"], row["note"]) for row in plan] == [(7, 0, "-3 is before the start")]
    assert offset() == 7
    # Partition 1 has the odd seconds.
    at = f"@{(BEGIN + 4500) / 1000:.3f}"
    assert console.get("group/reset", group="resetting", to="time", at=at).json["rows"][0]["new"] == 2
    assert console.post("group/reset", {"group": "resetting", "to": "offset", "offset": "3"}).status == 200
    assert offset() == 3
    join_as_consumer(client, "with-a-member")
    answer = console.post("group/reset", {"group": "with-a-member", "topic": "work", "to": "earliest"})
    assert answer.status == 409, "it has a member"
    assert console.post("group/delete", {"group": "resetting", "confirm": "resetting"}).status == 200
    assert console.get("group", group="resetting").status == 404
