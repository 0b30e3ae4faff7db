"""Records decoded by a schema registry, replayed and imported by the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.cli.record_format import json_formatter
from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.reader import Chunk, Reader
from kbroker.client.topics import NewTopic, create_topics, list_ranges
from kbroker.records_io.csv_records import CsvWriter
from kbroker.testing import RunningBroker
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record
from tests.console.console_process import ConsoleClient, ConsoleProcess, console_process, eventually
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
        decoding.post("copies/replay", {"topic": "secret-decoded", "to": "copied", "from": "earliest"}),
    ):
        assert b"4111" not in answer.body and b"34313131" not in answer.body and b"34 31 31 31" not in answer.body
    assert answer.status == 403


def copied(console: ConsoleProcess, copy: str) -> Any:
    """A copy as the console tells it once it does not run any more."""
    found: list[Any] = []

    def is_settled() -> bool:
        found[:] = [row for row in console.get("copies").json["rows"] if row["id"] == copy]
        return found[0]["state"] != "running"

    eventually(is_settled, "the copy ends, or waits")
    return found[0]


def replayed(console: ConsoleProcess, asked: dict[str, object]) -> Any:
    return copied(console, console.post("copies/replay", asked).json["id"])


def imported(console: ConsoleProcess, asked: dict[str, object], *pieces: str) -> Any:
    copy = console.post("copies/import", asked).json
    assert (copy["state"], copy["pieces"]) == ("waits", 0)
    for number, text in enumerate(pieces):
        told = console.post("copies/piece", {"id": copy["id"], "number": number, "text": text}).json
        if told["state"] != "waits":
            return told
    return console.post("copies/piece", {"id": copy["id"], "number": len(pieces), "last": True}).json


def test_a_replay(decoding: ConsoleProcess) -> None:
    asked = {"topic": "decoded", "to": "copied", "from": "latest", "filter": "$.n = 7", "keep_partitions": True}
    told = replayed(decoding, asked)
    assert (told["looked_at"], told["stored"], told["not_stored"], told["state"]) == (2, 1, 0, "done")
    [row] = decoding.get("records", topic="copied").json["rows"]
    assert (row["partition"], row["value"]["schema"]["id"]) == (1, "1")
    # What cannot be begun is refused, and no copy.
    assert decoding.post("copies/replay", {**asked, "to": "nowhere"}).status == 404
    assert decoding.post("copies/import", {"topic": "nowhere"}).status == 404
    assert [row["to"] for row in decoding.get("copies").json["rows"]] == ["copied"]
    outcomes = [(line["target"], line["outcome"].split(":")[0]) for line in decoding.audit()]
    assert outcomes[:2] == [("copied", "begun"), ("copied", "done")] and ("nowhere", "failed") in outcomes


def test_a_file_is_imported(decoding: ConsoleProcess) -> None:
    record = Record(0, 1_700_000_000_000, b"k", b"\0\0\0\0\1\x0e\x084111")
    rows, show = CsvWriter(), json_formatter()
    for name, data in (
        ("csv", rows.row(1, record) + rows.row(1, record._replace(value=b"two\nlines"))),
        ("jsonl", show("t", 1, record, TimestampType.CREATE_TIME)),
    ):
        told = imported(decoding, {"topic": "imported", "format": name, "keep_partitions": True}, data.decode())
        assert (told["stored"], told["not_stored"], told["state"]) == (2 if name == "csv" else 1, 0, "done")
    found = decoding.get("records", topic="imported", **{"from": "earliest"}).json["rows"]
    assert [(row["partition"], row["timestamp"]) for row in found] == [(1, 1_700_000_000_000)] * 3
    assert [row["value"]["text"] for row in found] == [
        '{"n": 7, "card": "4111"}',
        "two\nlines",
        '{"n": 7, "card": "4111"}',
    ]
    asked: dict[str, object] = {"topic": "imported", "format": "csv"}
    assert imported(decoding, asked, "value,partition\na,9\n")["stored"] == 1
    told = imported(decoding, {**asked, "keep_partitions": True}, "value,partition\na,9\n")
    assert told["problems"] == ["line 2: topic imported has no partition 9"]


def test_pieces_come_once_and_in_order(decoding: ConsoleProcess) -> None:
    """A page whose answer was lost sends its piece again; one that was loaded again asks how many are there."""
    copy = decoding.post("copies/import", {"topic": "imported", "name": "a.jsonl", "size": 5}).json
    piece = {"id": copy["id"], "text": '{"value": "a"}\n'}
    assert decoding.post("copies/piece", {**piece, "number": 1}).status == 409
    for _ in range(2):
        told = decoding.post("copies/piece", {**piece, "number": 0}).json
        assert (told["pieces"], told["stored"], told["state"]) == (1, 1, "waits")
    [row] = [each for each in decoding.get("copies").json["rows"] if each["id"] == copy["id"]]
    assert (row["pieces"], row["source"], row["size"], row["format"]) == (1, "a.jsonl", 5, "jsonl")
    other = ConsoleClient(decoding.host)
    assert other.get("copies").json["rows"] == [], "they are the session's"
    assert other.post("copies/cancel", {"id": copy["id"]}).status == 404
    assert decoding.post("copies/forget", {"id": copy["id"]}).status == 409
    assert decoding.post("copies/cancel", {"id": copy["id"]}).json["state"] == "cancelled"
    assert decoding.post("copies/piece", {**piece, "number": 1}).json["stored"] == 1
    assert decoding.post("copies/forget", {"id": copy["id"]}).json == {}
    assert copy["id"] not in [each["id"] for each in decoding.get("copies").json["rows"]]


def test_copies_that_fail_in_the_middle_go_on(broker: RunningBroker) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic(name, 2, 1) for name in ("whole", "whole-again")])
    rows = "".join(f'{{"key": "k{number % 9}", "value": "{number}"}}\n' for number in range(300))
    expected = sorted(str(number) for number in range(300))
    with console_process("-b", broker.bootstrap_servers, "--writes", "--timeout", "1") as page:

        def values(topic: str) -> list[str]:
            with Client(broker.bootstrap_servers) as client:
                return sorted((record.value or b"").decode() for record in records(client, topic))

        copy = page.post("copies/import", {"topic": "whole"}).json["id"]
        piece: dict[str, object] = {"id": copy, "number": 0, "text": rows + "{\n", "shift": 1000}
        # One partition takes nothing; of the other nobody hears that it has taken something.
        with broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic="whole", partition=0):
            told = page.post("copies/piece", piece).json
        assert told["state"] == "failed" and "NOT_ENOUGH_REPLICAS" in told["error"] and 0 < told["stored"] < 300
        assert told["problems"][0].startswith("line 1301: not JSON") and told["pieces"] == 0
        assert page.post("copies/go-on", {"id": copy}).json["state"] == "waits"
        told = page.post("copies/piece", piece).json
        assert (told["stored"], told["not_stored"], told["error"]) == (300, 1, "")
        assert page.post("copies/piece", {"id": copy, "number": 1, "last": True}).json["state"] == "done"
        assert values("whole") == expected

        with broker.faults.drop("Produce", when="after", topic="whole-again"):
            told = replayed(page, {"topic": "whole", "to": "whole-again", "from": "earliest"})
        assert told["error"] and (told["stored"], told["state"]) == (0, "failed")
        page.post("copies/go-on", {"id": told["id"]})
        told = copied(page, told["id"])
        assert (told["stored"], told["state"]) == (300, "done")
        assert values("whole-again") == expected

        def outcomes() -> list[str]:
            return [line["outcome"].split(":")[0] for line in page.audit() if line["action"] == "replay"]

        assert outcomes() == ["begun", "failed", "done"]


def records(client: Client, topic: str) -> Iterator[Record]:
    """All records of a topic."""
    names = [TopicPartition(topic, partition) for partition in client.partitions_of(topic)]
    ranges = {name.partition: found for name, found in list_ranges(client, names).items() if isinstance(found, tuple)}
    starts = {partition: start for partition, (start, _) in ranges.items()}
    reader = Reader(client, topic, starts, ends={partition: end for partition, (_, end) in ranges.items()})
    while not reader.finished:
        for chunk in reader.poll(5):
            assert isinstance(chunk, Chunk)
            yield from chunk.records
