"""Records decoded by a schema registry, replayed and imported by the page."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import RunningBroker
from kbroker.wire.record_batch import Record
from tests.console.console_process import ConsoleProcess, console_process, eventually
from tests.schemas.registry_server import Registry, running_registry

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "card", "type": "string"}]}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        running.add("r", json.dumps(SCHEMA))
        yield running


@pytest.fixture(scope="module")
def decoding(broker: RunningBroker, registry: Registry) -> Iterator[ConsoleProcess]:
    """A console with the registry; two records each of two topics, the second of an unknown schema."""
    pytest.importorskip("fastavro")
    names = ("decoded", "secret-decoded", "copied", "imported")
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic(name, 2, 1, {"retention.ms": "-1"}) for name in names])
        for name in names[:2]:
            producer = Producer(client, name, [0, 1], on_refused=print)
            for number, value in enumerate((b"\0\0\0\0\1\x0e\x084111", b"\0\0\0\0\x63\x0e\x084111")):
                producer.send(Record(0, 1_700_000_000_000, b"k", value), number, 1)
            producer.flush()
    words = ("--registry", registry.url, "--mask", "secret-*=$.card")
    with console_process("-b", broker.bootstrap_servers, "--writes", *words) as running:
        yield running


def test_records_are_shown_as_json(decoding: ConsoleProcess) -> None:
    first, second = decoding.get("records", topic="decoded", **{"from": "earliest"}).json["rows"]
    assert json.loads(first["value"]["text"]) == {"n": 7, "card": "4111"}
    assert (first["value"]["kind"], first["value"]["schema"]) == ("json", {"id": "1", "type": "AVRO"})
    assert (second["value"]["kind"], second["value"]["error"]) == ("binary", "the registry has no schema 99")
    assert second["value"]["text"].startswith("00 00 00 00 63")
    whole = decoding.get("record", topic="decoded", partition=1, offset=0).json
    assert json.loads(whole["value"]["pretty"])["n"] == 7
    assert bytes.fromhex(whole["value"]["hex"]) == b"\0\0\0\0\1\x0e\x084111"
    assert len(decoding.get("records", topic="decoded", filter="$.n = 7").json["rows"]) == 1


def test_what_is_masked_stays_so(decoding: ConsoleProcess) -> None:
    for answer in (
        decoding.get("records", topic="secret-decoded"),
        decoding.get("record", topic="secret-decoded", partition=1, offset=0),
        decoding.get("record", topic="secret-decoded", partition=1, offset=1),
        decoding.get("records/export", topic="secret-decoded", format="csv"),
        decoding.post("records/replay", {"topic": "secret-decoded", "to": "copied", "from": "earliest"}),
    ):
        assert b"4111" not in answer.body and b"34313131" not in answer.body and b"34 31 31 31" not in answer.body
    assert answer.status == 403


def test_a_replay_in_steps(decoding: ConsoleProcess) -> None:
    asked = {"topic": "decoded", "to": "copied", "from": "latest", "filter": "$.n = 7", "keep_partitions": True}
    told = decoding.post("records/replay", asked).json
    assert (told["looked_at"], told["stored"], told["not_stored"], told["finished"]) == (2, 1, 0, True)
    again = decoding.post("records/replay", {**asked, "goon": told["goon"], "ends": told["ends"]}).json
    assert (again["looked_at"], again["stored"], again["finished"]) == (0, 0, True)
    [row] = decoding.get("records", topic="copied").json["rows"]
    assert (row["partition"], row["value"]["schema"]["id"]) == (1, "1")
    assert decoding.post("records/replay", {**asked, "to": "nowhere"}).status == 404
    audited = ("replay", "nowhere")
    eventually(lambda: audited in [(line["action"], line["target"]) for line in decoding.audit()], "it is audited")


def test_what_is_exported_is_imported(decoding: ConsoleProcess, console: ConsoleProcess) -> None:
    for form, name in (("csv", "csv"), ("json", "jsonl")):
        text = console.get("records/export", topic="decoded", format=form).body.decode()
        asked = {"topic": "imported", "format": name, "text": text, "keep_partitions": True}
        told = decoding.post("records/import", asked).json
        assert told == {"stored": 2, "not_stored": 0, "problems": []}
    rows = console.get("records", topic="imported", **{"from": "earliest"}).json["rows"]
    assert [row["partition"] for row in rows] == [1] * 4
    assert len({row["value"]["text"] for row in rows}) == 2
    asked = {"topic": "imported", "format": "csv", "text": "value,partition\na,9\n"}
    assert decoding.post("records/import", asked).json["stored"] == 1
    asked["keep_partitions"] = "yes"
    assert decoding.post("records/import", asked).json["problems"] == ["line 2: topic imported has no partition 9"]


def test_a_console_without_writes_copies_nothing(broker: RunningBroker) -> None:
    with console_process("-b", broker.bootstrap_servers) as reading:
        for path in ("replay", "import"):
            asked = {"topic": "copied", "to": "copied", "text": "x", "from": "earliest"}
            assert reading.post(f"records/{path}", asked).status == 403
