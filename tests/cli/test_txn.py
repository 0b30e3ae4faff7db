"""``kbroker txn`` on transactions that are committed, open, and hanging."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.transactions import describe_transaction
from kbroker.testing import RunningBroker

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module", autouse=True)
def transactions(broker):  # type: ignore[no-untyped-def]
    """``done`` has committed; ``open`` has written a record to t-0 and one to t-1, and not ended its transaction."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap_servers)
        from kbroker.cli import main

        assert main(["topic", "create", "t", "--partitions", "2"]) == 0
    done = _begun(broker, "done", "t")
    done.commit_transaction(120)
    _await_ended(broker.bootstrap_servers, "done")
    return done, _begun(broker, "open", "t")  # for as long as the tests take


def _begun(broker: RunningBroker, name: str, topic: str) -> Any:
    """A producer that has written ``a`` and ``b`` in a transaction, each to a partition of its own."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.produce(topic, b"b", partition=1)
    assert producer.flush(120) == 0
    return producer


def _await_ended(bootstrap: str, transactional_id: str) -> None:
    """A commit is answered before its markers are in each partition."""
    deadline = time.monotonic() + 180
    with Client(bootstrap, timeout=60) as client:
        while (state := describe_transaction(client, transactional_id).state) != "CompleteCommit":
            assert time.monotonic() < deadline, state
            time.sleep(0.05)


def test_ids_are_listed_with_their_state(kb) -> None:  # type: ignore[no-untyped-def]
    listed = kb("txn", "list", "--json").json
    told = [(each["transactional_id"], each["state"]) for each in listed]
    assert [each for each in told if each[0] != "aborted"] == [
        ("done", "CompleteCommit"),
        ("open", "Ongoing"),
    ]
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
    producer.commit_transaction(120)
    _await_ended(broker.bootstrap_servers, "aborted")
    producer.begin_transaction()
    for partition, value in enumerate((b"c", b"d")):
        producer.produce("u", value, partition=partition)
    assert producer.flush(120) == 0
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
        producer.commit_transaction(120)
    assert kb("consume", "u", "--value-only").out.split() == ["a", "b"]
