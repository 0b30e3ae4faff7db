"""One record sent again, downloaded, skipped; a topic emptied and made anew; configs with units."""

from __future__ import annotations

import time

import pytest

from kbroker.client import Client
from kbroker.client.groups import commit_offsets, committed_offsets
from kbroker.client.producer import Producer
from kbroker.client.reader import Chunk, Reader
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import RunningBroker
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record
from tests.console.console_process import ConsoleProcess
from tests.patience import eventually

NOW = time.time_ns() // 1_000_000
HEADERS = (("twice", b"1"), ("twice", b"\xff"), ("null", None))


def fill(broker: RunningBroker, topic: str, *records: Record, configs: dict[str, str] | None = None) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic(topic, 2, 1, configs)])
        producer = Producer(client, topic, client.partitions_of(topic), on_refused=print)
        for record in records:
            producer.send(record, 0, 0)
        producer.flush()


def record_at(broker: RunningBroker, topic: str, partition: int, offset: int) -> Record:
    with Client(broker.bootstrap_servers) as client:
        reader = Reader(client, topic, {partition: offset}, ends={partition: offset + 1})
        found: list[Record] = []
        while not found:
            found = [record for each in reader.poll(1.0) if isinstance(each, Chunk) for record in each.records]
        return found[0]


def test_what_is_not_changed_of_a_record_is_sent_again_byte_by_byte(
    broker: RunningBroker, console: ConsoleProcess
) -> None:
    fill(broker, "again", Record(0, NOW, b"\x00\xff", b'{"cut', HEADERS))
    document = {"topic": "again", "partition": "1", "of_partition": 0, "of_offset": 0}
    sent = console.post("records/produce", {**document, "value": '{"whole": 1}', "kept": "key,headers"})
    assert sent.status == 200 and sent.json["partition"] == 1
    found = record_at(broker, "again", 1, 0)
    assert (found.key, found.value, found.headers) == (b"\x00\xff", b'{"whole": 1}', HEADERS)
    assert console.audit()[-1]["details"]["again"] == {"partition": 0, "offset": 0, "kept": "headers,key"}
    missing = console.post("records/produce", {**document, "of_offset": 7, "value": "", "kept": "key"})
    assert missing.status == 404 and "outside of the log" in missing.error


def test_masked_records_are_not_sent_again(broker: RunningBroker, console: ConsoleProcess) -> None:
    fill(broker, "secret-again", Record(0, NOW, None, b'{"card": 4111}'))
    kept = {"topic": "secret-again", "kept": "value", "of_partition": 0, "of_offset": 0}
    assert console.post("records/produce", kept).status == 403
    answer = console.get("record/value", topic="secret-again", partition=0, offset=0)
    assert b"4111" not in answer.body and "•••".encode() in answer.body


def test_the_value_of_a_record_is_a_file(broker: RunningBroker, console: ConsoleProcess) -> None:
    fill(broker, "files", Record(0, NOW, None, bytes(range(256))))
    answer = console.get("record/value", topic="files", partition=0, offset=0)
    assert answer.body == bytes(range(256))
    assert answer.headers["Content-Disposition"] == 'attachment; filename="files-0-0"'
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert console.get("record/value", topic="files", partition=0, offset=9).status == 404


def test_a_group_skips_a_record_of_one_partition(broker: RunningBroker, console: ConsoleProcess) -> None:
    fill(broker, "skipped", *(Record(0, NOW, None, b"%d" % each) for each in range(5)))
    both = {TopicPartition("skipped", number): 0 for number in (0, 1)}
    with Client(broker.bootstrap_servers) as client:
        assert not commit_offsets(client, "skippers", both)
    told = console.get("topic/groups", name="skipped", partition=0).json["rows"]
    assert [(each["group"], each["offset"]) for each in told] == [("skippers", 0)]
    asked = {"group": "skippers", "topic": "skipped", "partitions": "0", "to": "offset", "offset": 3}
    rows = console.get("group/reset", **asked).json["rows"]
    assert [(row["partition"], row["new"], row["change"]) for row in rows] == [(0, 3, 3)]
    assert console.post("group/reset", asked).json["done"] == "1 offset of group skippers is reset"
    with Client(broker.bootstrap_servers) as client:
        found = committed_offsets(client, "skippers")
    assert [found[each].offset for each in both] == [3, 0]
    assert console.audit()[-1]["details"]["partitions"] == [0]
    for wrong, status, text in (
        ({"partitions": "7"}, 404, "no partition 7"),
        ({"topic": ""}, 400, "choose a topic"),
        ({"partitions": "x"}, 400, "no partitions such as"),
    ):
        answer = console.get("group/reset", **{**asked, **wrong})
        assert answer.status == status and text in answer.error


def test_records_since_a_time_are_read_newest_first_and_no_further(
    broker: RunningBroker, console: ConsoleProcess
) -> None:
    hour = 3_600_000
    fill(broker, "since", *(Record(0, NOW - (10 - each) * hour, None, b"%d" % each) for each in range(10)))
    newest = console.get("records", topic="since", since="-3h30m", **{"from": "latest"}).json
    assert [row["value"]["text"] for row in newest["rows"]] == ["9", "8", "7"] and newest["finished"]
    oldest = console.get("records", topic="since", since="-3h30m", **{"from": "earliest"}).json
    assert [row["value"]["text"] for row in oldest["rows"]] == ["7", "8", "9"]
    assert console.get("records", topic="since", since="-1m", **{"from": "latest"}).json["rows"] == []


def test_a_topic_is_emptied_and_made_anew_as_it_was(broker: RunningBroker, console: ConsoleProcess) -> None:
    fill(broker, "anew", Record(0, NOW, None, b"x"), configs={"retention.ms": "3600000"})
    before = console.get("topic", name="anew").json
    assert console.post("topic/empty", {"name": "anew", "confirm": "anew"}).status == 200

    def partitions() -> list[tuple[int, int]]:
        return [(each["start"], each["end"]) for each in console.get("topic", name="anew").json["partitions"]]

    assert partitions() == [(1, 1), (0, 0)]
    assert console.post("topic/recreate", {"name": "anew", "confirm": "anew"}).status == 200
    eventually(lambda: partitions() == [(0, 0), (0, 0)], "it is new")
    after = console.get("topic", name="anew").json
    assert after["id"] != before["id"] and after["replicas"] == before["replicas"]
    [retention] = [each for each in console.get("topic/configs", name="anew").json if each["name"] == "retention.ms"]
    assert (retention["value"], retention["source"]) == ("3600000", "DYNAMIC_TOPIC_CONFIG")
    for action in ("empty", "recreate"):
        assert console.post(f"topic/{action}", {"name": "nowhere", "confirm": "nowhere"}).status == 404


def test_configs_tell_what_they_mean_and_take_units(broker: RunningBroker, console: ConsoleProcess) -> None:
    configs = {"retention.ms": "7d", "retention.bytes": "1 GiB", "cleanup.policy": "compact"}
    assert console.post("topic/create", {"name": "units", "partitions": 1, "configs": configs}).status == 200

    def told(name: str) -> dict[str, str]:
        [entry] = [each for each in console.get("topic/configs", name="units").json if each["name"] == name]
        return entry  # type: ignore[no-any-return]

    assert told("retention.ms")["value"] == "604800000" and told("retention.bytes")["value"] == str(1 << 30)
    policy = told("cleanup.policy")
    assert policy["valid"] == "[compact, delete]" and policy["default_value"] == "delete"
    assert "drops them by time and size" in policy["documentation"]
    change = {"name": "units", "config": "retention.ms", "value": "1 h"}
    assert console.post("topic/config", change).status == 200
    assert told("retention.ms")["value"] == "3600000"


def test_a_config_of_one_broker_and_of_all_is_changed(broker: RunningBroker, console: ConsoleProcess) -> None:
    [node] = console.get("overview").json["brokers"]

    def told() -> tuple[str, str]:
        configs = console.get("broker", id=node["id"]).json["configs"]
        [entry] = [each for each in configs if each["name"] == "log.cleaner.threads"]
        return entry["value"], entry["source"]

    change = {"broker": "", "config": "log.cleaner.threads", "value": "2"}
    assert console.post("broker/config", change).json["done"] == "log.cleaner.threads of all brokers is set"
    eventually(lambda: told() == ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG"), "it holds for all")
    own = {**change, "broker": str(node["id"]), "value": "3"}
    assert console.post("broker/config", own).status == 200
    eventually(lambda: told() == ("3", "DYNAMIC_BROKER_CONFIG"), "it holds for one")
    for each in (own, change):
        assert console.post("broker/config", {**each, "operation": "delete"}).status == 200
    eventually(lambda: told()[1] not in ("DYNAMIC_DEFAULT_BROKER_CONFIG", "DYNAMIC_BROKER_CONFIG"), "as before")
    assert console.post("broker/config", {**change, "broker": "one"}).status == 400
    secret = {"broker": str(node["id"]), "config": "ssl.keystore.password", "value": "hush-hush"}
    console.post("broker/config", secret)
    assert "hush-hush" not in "".join(console.log)


@pytest.mark.parametrize("path", ["topic/empty", "topic/recreate"])
def test_a_name_that_is_not_typed_destroys_nothing(console: ConsoleProcess, path: str) -> None:
    assert console.post(path, {"name": "any", "confirm": ""}).status == 400
