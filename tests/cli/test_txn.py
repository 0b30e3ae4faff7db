"""``kbroker txn`` on transactions that are committed, open, and hanging."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.transactions import abort_hanging, abort_transaction, describe_transaction
from kbroker.testing import RunningBroker, RunningCluster, running_broker, running_cluster
from kbroker.types import TopicPartition
from kbroker.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tests.cli_command import Run, command_for
from tests.hanging_transactions import write_unknown
from tests.patience import LONG, SHORT, eventually

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that takes what its transaction coordinator has not heard of, so that it hangs."""
    with running_broker({"transaction.partition.verification.enable": "false", "log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def transactions(broker):  # type: ignore[no-untyped-def]
    """``done`` has committed; ``open`` has written a record to t-0 and one to t-1, and not ended its transaction."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap_servers)
        from kbroker.tools.cli import main

        assert main(["topic", "create", "t", "--partitions", "2"]) == 0
    done = _begun(broker, "done", "t")
    done.commit_transaction(LONG)
    _await_ended(broker.bootstrap_servers, "done")
    return done, _begun(broker, "open", "t")  # for as long as the tests take


def _begun(broker: RunningBroker | RunningCluster, name: str, topic: str) -> Any:
    """A producer that has written ``a`` and ``b`` in a transaction, each to a partition of its own."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(LONG)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.produce(topic, b"b", partition=1)
    assert producer.flush(LONG) == 0
    return producer


def _await_ended(bootstrap: str, transactional_id: str) -> None:
    """A commit is answered before its markers are in each partition."""
    with Client(bootstrap, timeout=SHORT) as client:
        eventually(lambda: describe_transaction(client, transactional_id).state == "CompleteCommit")


def test_ids_are_listed_with_their_state(kb) -> None:  # type: ignore[no-untyped-def]
    listed = kb("txn", "list", "--json").json
    told = [(each["transactional_id"], each["state"]) for each in listed]
    assert [each for each in told if each[0] in ("done", "open")] == [("done", "CompleteCommit"), ("open", "Ongoing")]
    assert [row[0] for row in kb("txn", "list", "--state", "Ongoing").rows] == ["transactional", "open"]
    assert kb("txn", "list", "--longer-than", "1h", "--state", "Ongoing", "--json").json == []
    assert "invalid choice" in kb("txn", "list", "--state", "Nowhere", code=2).err


def test_an_id_is_described(kb) -> None:  # type: ignore[no-untyped-def]
    found = kb("txn", "describe", "open", "--json").json
    assert (found["state"], found["timeout_ms"], found["producer_epoch"]) == ("Ongoing", 600_000, 0)
    assert found["partitions"] == [["t", 0], ["t", 1]] and found["start_timestamp"] > 0
    text = kb("txn", "describe", "open").out
    assert "t-0, t-1" in text and "open for" in text
    assert "open for" not in kb("txn", "describe", "done").out
    assert "nobody has used" in kb("txn", "describe", "unknown", code=1).err


def test_the_producers_of_a_partition_show_where_their_transactions_begin(kb) -> None:  # type: ignore[no-untyped-def]
    found = kb("txn", "producers", "t", "0", "--json").json
    assert [each["transaction_start_offset"] for each in found] == [None, 2]
    assert len(kb("txn", "producers", "t", "0").rows) == 3
    assert "no such topic" in kb("txn", "producers", "nowhere", "0", code=1).err


def test_a_transaction_is_aborted_in_one_partition_and_then_by_its_id(kb, broker) -> None:  # type: ignore[no-untyped-def]
    kb("topic", "create", "u", "--partitions", "2")
    producer = _begun(broker, "aborted", "u")
    producer.commit_transaction(LONG)
    _await_ended(broker.bootstrap_servers, "aborted")
    producer.begin_transaction()
    for partition, value in enumerate((b"c", b"d")):
        producer.produce("u", value, partition=partition)
    assert producer.flush(LONG) == 0
    assert "give a transactional id, or" in kb("txn", "abort", "--yes", code=2).err
    assert "go together" in kb("txn", "abort", "--topic", "u", "--yes", code=2).err
    where = ("--topic", "u", "--partition", "0", "--start-offset")
    assert "no open transaction begins at offset 0" in kb("txn", "abort", *where, "0", "--yes", code=1).err
    assert "Give --yes" in kb("txn", "abort", *where, "2", code=1).err
    kb("txn", "abort", *where, "2", "--yes")
    found = kb("txn", "producers", "u", "0", "--json").json
    assert [each["transaction_start_offset"] for each in found] == [None]
    assert kb("txn", "describe", "aborted", "--json").json["state"] == "Ongoing"  # the coordinator was not asked
    kb("txn", "abort", "aborted", "--yes")
    after = kb("txn", "describe", "aborted", "--json").json
    assert (after["state"], after["timeout_ms"], after["partitions"]) == ("Empty", 600_000, [])
    producers = kb("txn", "producers", "u", "1", "--json").json
    assert [each["transaction_start_offset"] for each in producers] == [None]
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(LONG)
    assert kb("consume", "u", "--value-only").out.split() == ["a", "b"]


HOUR_MS = 3_600_000


def test_a_transaction_that_no_coordinator_knows_is_found(kb: Run, broker: RunningBroker) -> None:
    kb("topic", "create", "v", "--partitions", "2")
    now = time.time_ns() // 1_000_000
    with Client(broker.bootstrap_servers) as client:
        producer = write_unknown(client, TopicPartition("v", 1), now - HOUR_MS)
    [found] = kb("txn", "find-hanging", "--json").json
    assert found.pop("duration_ms") >= HOUR_MS
    assert found == {
        "topic": "v",
        "partition": 1,
        "producer_id": producer,
        "producer_epoch": 0,
        "coordinator_epoch": None,
        "transaction_start_offset": 0,
        "last_timestamp": now - HOUR_MS,
    }
    assert [row[:3] for row in kb("txn", "find-hanging", "--topic", "v").rows[1:]] == [["v", "1", str(producer)]]
    for few in (
        ("--topic", "v", "--partition", "1"),
        ("--broker-id", "1"),
        ("--topic", "v", "--broker-id", "1", "--max-transaction-timeout", "50m"),
    ):
        assert len(kb("txn", "find-hanging", *few, "--json").json) == 1, few
    for none in (
        ("--topic", "v", "--partition", "0"),
        ("--topic", "t"),
        ("--broker-id", "7"),
        ("--max-transaction-timeout", "2h"),
    ):
        assert kb("txn", "find-hanging", *none, "--json").json == [], none
    kb("txn", "abort", "--topic", "v", "--partition", "1", "--start-offset", "0", "--yes")
    assert kb("txn", "find-hanging", "--json").json == []


def test_what_a_coordinator_will_end_does_not_hang(kb: Run) -> None:
    """``open`` is open in both partitions of t, and older than nothing at all."""
    assert kb("txn", "find-hanging", "--topic", "t", "--max-transaction-timeout", "0ms", "--json").json == []


def test_a_partition_that_its_transaction_does_not_have_hangs(kb: Run, broker: RunningBroker) -> None:
    """The coordinator knows the producer, whose transaction has the other partition alone."""
    kb("topic", "create", "w", "--partitions", "2")
    written = TopicPartition("w", 1)
    with Client(broker.bootstrap_servers) as client:
        producer = write_unknown(client, written, time.time_ns() // 1_000_000 - HOUR_MS)
        announced = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="lost",
            v3_and_below_producer_id=producer,
            v3_and_below_producer_epoch=describe_transaction(client, "lost").producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="w", partitions=[0])],
        )
        client.ask_coordinator("lost", announced, lambda _: None, highest=3, key_type=1)
        assert describe_transaction(client, "lost").partitions == (TopicPartition("w", 0),)
        [found] = kb("txn", "find-hanging", "--topic", "w", "--json").json
        assert (found["partition"], found["producer_id"]) == (1, producer)
        abort_hanging(client, written, 0)
        abort_transaction(client, "lost")


def test_where_hanging_transactions_cannot_be_looked_for(kb: Run) -> None:
    assert "--partition goes with --topic" in kb("txn", "find-hanging", "--partition", "1", code=2).err
    assert "no such topic" in kb("txn", "find-hanging", "--topic", "nowhere", code=1).err
    assert "partition t-7" in kb("txn", "find-hanging", "--topic", "t", "--partition", "7", code=1).err
    assert "a duration like" in kb("txn", "find-hanging", "--max-transaction-timeout", "15", code=2).err


@pytest.mark.slow
def test_ids_without_a_coordinator_are_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only replicas of some partitions of __transaction_state go with their broker."""
    properties = {"transaction.state.log.replication.factor": "1", "transaction.state.log.num.partitions": "3"}
    with running_cluster(3, properties) as cluster:
        kb = command_for(cluster.bootstrap_servers, monkeypatch, capsys)
        kb("topic", "create", "t", "--partitions", "2")
        producers = [_begun(cluster, f"id-{number}", "t") for number in range(6)]
        before = kb("txn", "list", "--json").json
        assert len(before) == 6
        controller = cluster.controller.id
        dead = next(each["coordinator"] for each in before if each["coordinator"] != controller)
        cluster.node(dead).kill()
        bootstrap = ",".join(node.bootstrap_servers for node in cluster.nodes if node.id != dead)
        after = kb("txn", "list", "-b", bootstrap, "--json", "--timeout", "120", code=1)
        assert after.json == [each for each in before if each["coordinator"] != dead]
        assert f"kbroker: broker {dead} is not there: " in after.err
        assert "__transaction_state have no leader" in after.err
        hanging = kb("txn", "find-hanging", "-b", bootstrap, "--max-transaction-timeout", "0ms", code=1)
        assert "not all coordinators can be asked" in hanging.err
        del producers
