"""Several registries on one topic: never one id for two schemas, whoever is faster, dies, or deletes records."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.errors import ClientError
from kbroker.client.producer import Producer
from kbroker.client.reader import Chunk, Reader
from kbroker.errors import ErrorCode
from kbroker.log.checkpoint_files import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS
from kbroker.registry.registry import Registry
from kbroker.registry.store import TOPIC, Store
from kbroker.testing import RunningCluster, running_broker
from kbroker.wire.record_batch import Record
from tests.patience import LONG
from tests.registry.registry_client import record, schema_body

for package in ("fastavro", "h11"):
    pytest.importorskip(package, reason=f"{package} is not installed")


def registry_of(bootstrap: str) -> Registry:
    return Registry(Store(Client(bootstrap, timeout=LONG)))


def register(registry: Registry, name: str) -> int:
    told = registry.register(f"subject-{name}", schema_body(record(name, a="int")), normalize=False)
    return int(told["id"])


def register_at_once(registries: Sequence[Registry], each: int) -> dict[str, int]:
    """Each registry gets schemas of its own, and one that all of them get; name -> id."""
    found: dict[str, int] = {}
    shared: list[int] = []
    errors: list[BaseException] = []
    together = threading.Barrier(len(registries))

    def run(index: int, registry: Registry) -> None:
        try:
            together.wait(LONG)
            shared.append(register(registry, "shared"))
            for number in range(each):
                found[f"of{index}x{number}"] = register(registry, f"of{index}x{number}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(registries)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not errors and len(shared) == len(registries) and len(set(shared)) == 1
    return found | {"shared": shared[0]}


def seen_by(registry: Registry) -> dict[str, Any]:
    """Each subject's versions, with ids and texts."""
    told = registry.all_versions(prefix="", deleted=True, latest_only=False)
    return {f"{each['subject']} {each['version']}": (each["id"], each["schema"]) for each in told}


def test_two_registries_register_at_once() -> None:
    with running_broker() as broker:
        registries = [registry_of(broker.bootstrap_servers) for _ in range(3)]
        found = register_at_once(registries, 8)
        assert sorted(found.values()) == list(range(1, 26)), "each schema an id of its own, and no id left out"
        told = [seen_by(each) for each in (*registries, registry_of(broker.bootstrap_servers))]
        assert all(each == told[0] for each in told)


def test_an_answer_that_is_lost_is_no_second_record() -> None:
    with running_broker() as broker:
        registry = registry_of(broker.bootstrap_servers)
        first = register(registry, "first")
        dropped = broker.faults.drop("Produce", topic=TOPIC, times=1, when="after")
        second = register(registry, "second")
        assert (dropped.hits, second) == (1, first + 1)
        with broker.client() as client:
            store = Store(client.another())
            assert store.look(lambda state: sorted(state.by_id)) == [first, second]
        assert broker.wait_for_end(TOPIC, 2).offset == 2


def test_the_topic_is_emptied_or_made_anew() -> None:
    with running_broker() as broker:
        one, two = (registry_of(broker.bootstrap_servers) for _ in range(2))
        assert [register(one, "a"), register(two, "b"), register(one, "c")] == [1, 2, 3]
        broker.faults.delete_records(TOPIC)
        assert two.subjects() == []
        assert register(two, "d") == 1 and register(one, "e") == 2
        broker.faults.delete_topic(TOPIC)
        assert one.subjects() == [] and register(one, "f") == 1
        assert register(two, "g") == 2 and registry_of(broker.bootstrap_servers).subjects() == [
            "subject-f",
            "subject-g",
        ]


def test_after_compaction() -> None:
    with running_broker() as broker:
        one, two = (registry_of(broker.bootstrap_servers) for _ in range(2))
        for level in ("FULL", "NONE", "FORWARD"):
            one.set_config("x", {"compatibility": level})
            two.set_config(None, {"compatibility": level})
        register(one, "a")
        two.delete_config("x")
        broker.faults.compact(TOPIC)
        late = registry_of(broker.bootstrap_servers)
        assert late.config(None) == {"compatibilityLevel": "FORWARD"} and late.subjects() == ["subject-a"]
        assert [register(late, "b"), register(one, "c"), register(two, "d")] == [2, 3, 4]


def test_the_id_of_a_schema_that_was_deleted_for_good_is_not_given_again() -> None:
    """Records have it still, and would be read by another schema."""
    with running_broker() as broker:
        registry = registry_of(broker.bootstrap_servers)
        assert [register(registry, "a"), register(registry, "b")] == [1, 2]
        for permanent in (False, True):
            registry.delete_subject("subject-b", permanent=permanent)
        broker.faults.compact(TOPIC)
        assert register(registry_of(broker.bootstrap_servers), "c") == 3


def test_nor_is_it_where_confluents_registry_has_been_started_meanwhile() -> None:
    """It writes a NOOP without a value then, which compaction takes for the end of the record with its key."""
    with running_broker() as broker:
        registry = registry_of(broker.bootstrap_servers)
        assert [register(registry, "a"), register(registry, "b")] == [1, 2]
        for permanent in (False, True):
            registry.delete_subject("subject-b", permanent=permanent)
        with broker.client() as client:
            producer = Producer(client, TOPIC, [0], on_refused=print)
            producer.send(Record(0, 1, b'{"keytype":"NOOP","magic":0}', None, ()), 0, 0)
            producer.flush()
        broker.faults.compact(TOPIC)
        assert register(registry_of(broker.bootstrap_servers), "c") == 3


def test_what_other_registries_have_written(caplog: pytest.LogCaptureFixture) -> None:
    """Their records stay, also those that cannot be read, and are written anew with all that was in them."""

    def encoded(document: Any) -> bytes:
        return json.dumps(document).encode()

    key = {"subject": "a", "version": 1, "magic": 1, "keytype": "SCHEMA"}
    value = {"subject": "a", "version": 1, "id": 7, "md5": "x", "schema": '"int"', "deleted": False, "ts": 3}
    records = [
        (encoded({"keytype": "NOOP", "magic": 0}), b""),
        (encoded(key), encoded(value)),
        (b"garbage", b"what is this"),
        (encoded({"keytype": "SOMETHING", "subject": "a", "magic": 0}), encoded({"new": True})),
        (encoded(key | {"version": 2}), encoded({**value, "version": 2, "id": 9, "schema": "not parsed"})),
    ]
    with running_broker() as broker:
        with broker.client() as client:
            store = Store(client.another())
            store.change(lambda state: ([state.record("CONFIG", None, {"compatibilityLevel": "NONE"})], None))
            refused: list[Any] = []
            producer = Producer(client, TOPIC, [0], on_refused=refused.append)
            for number, (name, content) in enumerate(records):
                producer.send(Record(0, 1, name, content, ()), number, 0)
            producer.flush()
            assert not refused
        registry = registry_of(broker.bootstrap_servers)
        with caplog.at_level(logging.WARNING, "kbroker.registry"):
            assert registry.versions("a") == [1, 2]
        [line] = [each.getMessage() for each in caplog.records]
        assert line == "_schemas: the record at offset 3 is set aside: its key is no JSON"
        assert registry.register("b", schema_body('"int"'), normalize=False)["id"] == 7
        guid = str(uuid.UUID(bytes=hashlib.md5(b'"int"').digest()))  # Confluent's, which headers of records have
        assert registry.schema_with_guid(guid)["schema"] == '"int"'
        assert register(registry, "new") == 10
        assert registry.delete_version("a", "1", permanent=False) == 1
        kept: list[tuple[bytes | None, bytes | None]] = []
        with broker.client() as client:
            reader = Reader(client, TOPIC, {0: 1}, ends={0: 9})
            while not reader.finished:
                for chunk in reader.poll(LONG):
                    assert isinstance(chunk, Chunk)
                    kept += [(each.key, each.value) for each in chunk.records]
        assert kept[:5] == records
        assert kept[-1] == (encoded(key), json.dumps({**value, "deleted": True}, separators=(",", ":")).encode())


def test_references_of_others_that_lead_in_a_circle_stop_nobody() -> None:
    with running_broker() as broker:
        with broker.client() as client:
            producer = Producer(client, TOPIC, [0], on_refused=print)
            Store(client.another()).change(lambda state: ([state.record("MODE", None, {"mode": "READWRITE"})], None))
            for number, (subject, other) in enumerate([("a", "b"), ("b", "a")], 1):
                place = {"subject": subject, "version": 1}
                reference = {"name": other, "subject": other, "version": 1}
                value = {**place, "id": number, "schema": json.dumps(record(subject)), "references": [reference]}
                key = {"keytype": "SCHEMA", **place, "magic": 1}
                producer.send(Record(0, 1, json.dumps(key).encode(), json.dumps(value).encode()), number, 0)
            producer.flush()
        registry = registry_of(broker.bootstrap_servers)
        assert register(registry, "new") == 3 and registry.schema(1)["schema"] == json.dumps(record("a"))


def test_a_broker_that_does_not_know_the_topic_is_not_believed() -> None:
    """It may have just started; who reads records would be told that their schema is none."""
    with running_broker() as broker:
        registry = registry_of(broker.bootstrap_servers)
        known = register(registry, "a")
        fault = broker.faults.error("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=TOPIC, times=1)
        assert registry.schema(known) and fault.hits == 1


def test_a_record_that_contradicts_the_others_is_not_said_to_be_there() -> None:
    with running_broker() as broker, broker.client() as client:
        register(registry_of(broker.bootstrap_servers), "a")
        value = {"subject": "b", "version": 1, "id": 1, "schema": '"int"', "deleted": False}
        with pytest.raises(ClientError, match="contradicts"):
            Store(client.another()).change(lambda state: ([state.record("SCHEMA", "b", value, 1)], None))


def test_the_log_has_lost_its_end_and_has_other_records_there_now(tmp_path: Path) -> None:
    """By a power cut, say: what was read of it is no more, and an id may be that of another schema."""
    log = tmp_path / f"{TOPIC}-0" / "00000000000000000000.log"
    with running_broker(data_dir=tmp_path) as broker:
        port, registry = broker.port, registry_of(broker.bootstrap_servers)
        register(registry, "a")
        end = log.stat().st_size
        register(registry, "b")
    os.truncate(log, end)
    for each in (CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS):
        (tmp_path / each).unlink()
    with running_broker(data_dir=tmp_path, port=port) as broker:
        assert register(registry_of(broker.bootstrap_servers), "c") == 2
        assert registry.subjects() == ["subject-a", "subject-c"]
        assert register(registry, "d") == 3


def test_a_topic_that_was_not_seen_is_read_before_anything_is_written() -> None:
    """A broker that has just started may not know of the topic: what is there must not be numbered again."""
    with running_broker() as broker:
        register(registry_of(broker.bootstrap_servers), "old")
        late = registry_of(broker.bootstrap_servers)
        broker.advance(2 * 86_400)  # a broker forgets the number of a producer that has written nothing for a day
        for api, times in (("Metadata", 2), ("DescribeTopicPartitions", 1)):
            broker.faults.error(api, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=TOPIC, times=times)
        assert register(late, "new") == 2
        assert sorted(seen_by(registry_of(broker.bootstrap_servers))) == ["subject-new 1", "subject-old 1"]


@pytest.mark.slow
def test_three_nodes_and_the_leader_is_killed(kafka_cluster: RunningCluster) -> None:
    registries = [registry_of(node.bootstrap_servers) for node in kafka_cluster.nodes]
    before = register_at_once(registries, 3)
    assert sorted(before.values()) == list(range(1, 11))
    assert len(kafka_cluster.isr_of(TOPIC)) == 3
    leader = kafka_cluster.leader_of(TOPIC)
    leader.kill()
    left = [each for each, node in zip(registries, kafka_cluster.nodes, strict=True) if node is not leader]
    for number, registry in enumerate((*left, *left), 11):
        assert register(registry, f"late{number}") == number
    told = [seen_by(each) for each in left]
    leader.start()
    kafka_cluster.await_in_sync()
    told.append(seen_by(registry_of(leader.bootstrap_servers)))
    assert all(each == told[0] for each in told) and len(told[0]) == 14
