"""A partition's log as the console tells it: batches by the wire, and files where the node's directory is here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import RunningBroker, running_broker
from kbroker.wire.record_batch import Record
from tests.console.console_process import ConsoleProcess, console_process
from tests.patience import LONG


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node") / "data"


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[RunningBroker]:
    """A broker whose files are in ``data``, with a topic of several segments and a topic of secrets."""
    with running_broker(data_dir=data) as running:
        with Client(running.bootstrap_servers) as client:
            small = {"segment.bytes": "1048576", "index.interval.bytes": "4096"}
            create_topics(client, [NewTopic("orders", 1, 1, small), NewTopic("secret-cards", 1, 1)])
            for name, size in (("orders", 200_000), ("secret-cards", 10)):
                for number in range(8):
                    producer = Producer(client, name, [0], on_refused=print)
                    producer.send(Record(0, time.time_ns() // 1_000_000, b"k%d" % number, b"no-4111" * (size // 7)), 0)
                    producer.flush()
        # The last transaction stays open for as long as the tests of this file take.
        named = {"transactional.id": "mover", "transaction.timeout.ms": 600_000, "compression.type": "gzip"}
        transactional = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap_servers, **named})
        transactional.init_transactions(LONG)
        for end in (transactional.commit_transaction, transactional.abort_transaction):
            transactional.begin_transaction()
            transactional.produce("orders", b"<b>tea</b>" * 20, b"tea")
            transactional.flush(LONG)  # an abort throws away what is not sent yet
            end(180)
        transactional.begin_transaction()
        transactional.produce("orders", b"open")
        transactional.flush(LONG)
        yield running


@pytest.fixture(scope="module")
def console(broker: RunningBroker, data: Path) -> Iterator[ConsoleProcess]:
    words = ("-b", broker.bootstrap_servers, "--mask", "secret-*=$.card")
    with console_process(*words, "--data", str(data)) as running:
        yield running


def test_batches_as_the_wire_has_them(console: ConsoleProcess) -> None:
    told = console.get("log", topic="orders", partition=0, **{"from": 0, "limit": 3}).json
    assert (told["start"], told["end"], told["stable"], told["next"]) == (0, 13, 12, 3)
    rows = list(told["batches"])
    while told["next"] is not None:
        told = console.get("log", topic="orders", partition=0, **{"from": told["next"], "limit": 3}).json
        rows += told["batches"]
    assert [row["base"] for row in rows] == list(range(13))
    assert all(row["sound"] and len(row["crc"]) == 8 for row in rows)
    assert [row["marker"] for row in rows[8:]] == [None, "COMMIT", None, "ABORT", None]
    assert [row["compression"] for row in rows[7:10]] == ["none", "gzip", "none"]
    assert [row["transactional"] for row in rows[7:]] == [False, *[True] * 5]
    # Without an offset it begins near the end; beyond the end there is nothing.
    assert console.get("log", topic="orders", partition=0).json["batches"][-1]["base"] == 12
    assert console.get("log", topic="orders", partition=0, **{"from": 99}).json["batches"] == []


def test_the_bytes_of_a_batch_have_names(console: ConsoleProcess) -> None:
    fields = console.get("log/batch", topic="orders", partition=0, offset=8).json["fields"]
    values = {each["name"]: each["value"] for each in fields}
    assert values["base offset"] == "8" and values["key"] == "tea" and values["value"].startswith("<b>tea</b>")
    assert any(each["note"] == "compressed with gzip" for each in fields)
    marker = console.get("log/batch", topic="orders", partition=0, offset=9).json["fields"]
    assert any(each["note"] == "a marker: COMMIT" for each in marker)
    assert console.get("log/batch", topic="orders", partition=0, offset=99).status == 404


def test_producers_and_who_holds_readers_up(console: ConsoleProcess) -> None:
    rows = console.get("log/producers", topic="orders", partition=0).json["rows"]
    assert len(rows) == 9 and [row["start"] for row in rows if row["start"] is not None] == [12]


def test_files_of_a_node_on_this_machine(console: ConsoleProcess, data: Path) -> None:
    told = console.get("log/files", topic="orders", partition=0).json
    [directory] = told["directories"]
    assert directory["directory"] == str(data / "orders-0")
    bases = [segment["base"] for segment in directory["segments"]]
    assert len(bases) > 1 and bases == sorted(bases, reverse=True) and bases[-1] == 0
    first = directory["segments"][-1]
    kinds = {file["kind"]: file for file in first["files"]}
    assert kinds["index"]["entries"] > 0

    def entries(name: str) -> list[dict[str, object]]:
        where = {"topic": "orders", "partition": 0, "directory": directory["directory"], "file": name}
        found: list[dict[str, object]] = console.get("log/file", **where).json["entries"]
        return found

    batches = entries(kinds["log"]["name"])
    assert [each["base_offset"] for each in batches] == list(range(bases[-2]))
    positions = {each["base_offset"]: each["position"] for each in batches}
    index = entries(kinds["index"]["name"])
    assert index and all(positions[each["offset"]] == each["position"] for each in index)


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("", "00000000000000000000.log"),
        ("orders-0", "../meta.properties"),
        ("orders-0", "partition.metadata"),
        ("../..", "00000000000000000000.log"),
    ],
)
def test_no_other_file_is_told(console: ConsoleProcess, data: Path, directory: str, name: str) -> None:
    where = {"topic": "orders", "partition": 0, "directory": str(data / directory), "file": name}
    assert console.get("log/file", **where).status == 404
    assert console.get("log/files", topic="../data", partition=0).status == 400


def test_masked_records_stay_hidden(console: ConsoleProcess, data: Path) -> None:
    where = {"topic": "secret-cards", "partition": 0}
    told = console.get("log", **where)
    assert told.json["masked"] and [row["crc"] for row in told.json["batches"]] == [None] * 8
    batch = console.get("log/batch", offset=3, **where)
    assert [each["name"] for each in batch.json["fields"]][-1] == "records" and b"crc" not in batch.body.lower()
    file = {"directory": str(data / "secret-cards-0"), "file": "00000000000000000000.log"}
    entries = console.get("log/file", **where, **file)
    for answer in (told, batch, entries):
        assert answer.status == 200
        assert b"no-4111" not in answer.body and b"no-4111".hex().encode() not in answer.body
    assert all("crc" not in each for each in entries.json["entries"])


def test_what_is_not_there_is_told(console: ConsoleProcess) -> None:
    assert console.get("log", topic="orders", partition=7).status == 404
    assert console.get("log", topic="nowhere", partition=0).status == 404
    assert console.get("log/producers", topic="orders", partition=7).status == 404
