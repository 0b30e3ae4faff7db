"""Records decoded by a schema registry, replayed and imported by the page."""

from __future__ import annotations

import base64
import http.client
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.cli.record_format import json_formatter
from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.reader import Chunk, Reader
from kbroker.client.topics import NewTopic, create_topics, list_ranges
from kbroker.console.api import uploads as uploads_api
from kbroker.console.api.uploads import ParquetStep
from kbroker.console.call import Refused
from kbroker.console.export_files import check_format
from kbroker.console.uploads import NoUpload, Uploads
from kbroker.records_io.csv_records import CsvWriter
from kbroker.records_io.items import Item
from kbroker.records_io.parquet_records import ParquetRecords
from kbroker.testing import RunningBroker
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import TimestampType
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
    names = ("decoded", "secret-decoded", "copied", "imported", "parquet")
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


def test_protobuf_is_shown_as_json(broker: RunningBroker, decoding: ConsoleProcess, registry: Registry) -> None:
    pytest.importorskip("google.protobuf")
    from tests.schemas.protobuf_files import INT64, STRING, classes_of, encoded, file_of, message_of

    file = file_of("orders.proto", "shop", message_of("Order", {"number": INT64, "buyer": STRING}))
    schema_id = registry.add("proto", encoded(file), "PROTOBUF")
    order = classes_of(file)("shop.Order")(number=7, buyer="Ann").SerializeToString()
    head = b"\0" + schema_id.to_bytes(4, "big") + b"\0"
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic("protobuf", 1, 1)])
        producer = Producer(client, "protobuf", [0], on_refused=print)
        for value in (head + order, head + b"\xff"):
            producer.send(Record(0, 1_700_000_000_000, b"k", value), 0)
        producer.flush()
    first, second = decoding.get("records", topic="protobuf", **{"from": "earliest"}).json["rows"]
    assert (first["value"]["kind"], first["value"]["schema"]["type"]) == ("json", "PROTOBUF")
    assert json.loads(first["value"]["text"])["buyer"] == "Ann"
    assert second["value"]["kind"] == "binary" and second["value"]["error"]
    [found] = decoding.get("records", topic="protobuf", filter="$.buyer = Ann").json["rows"]
    assert found["offset"] == 0


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


def test_a_file_is_imported(decoding: ConsoleProcess) -> None:
    record = Record(0, 1_700_000_000_000, b"k", b"\0\0\0\0\1\x0e\x084111")
    rows, show = CsvWriter(), json_formatter()
    for name, data in (
        ("csv", rows.row(1, record) + rows.row(1, record._replace(value=b"two\nlines"))),
        ("jsonl", show("t", 1, record, TimestampType.CREATE_TIME)),
    ):
        asked = {"topic": "imported", "format": name, "text": data.decode(), "keep_partitions": True}
        told = decoding.post("records/import", asked).json
        assert told == {"stored": 2 if name == "csv" else 1, "not_stored": 0, "problems": []}
    found = decoding.get("records", topic="imported", **{"from": "earliest"}).json["rows"]
    assert [(row["partition"], row["timestamp"]) for row in found] == [(1, 1_700_000_000_000)] * 3
    assert [row["value"]["text"] for row in found] == [
        '{"n": 7, "card": "4111"}',
        "two\nlines",
        '{"n": 7, "card": "4111"}',
    ]
    asked = {"topic": "imported", "format": "csv", "text": "value,partition\na,9\n"}
    assert decoding.post("records/import", asked).json["stored"] == 1
    asked["keep_partitions"] = "yes"
    assert decoding.post("records/import", asked).json["problems"] == ["line 2: topic imported has no partition 9"]


def test_copies_that_fail_in_the_middle_go_on(broker: RunningBroker) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic(name, 2, 1) for name in ("whole", "whole-again")])
    rows = "".join(f'{{"key": "k{number % 9}", "value": "{number}"}}\n' for number in range(300))
    expected = sorted(str(number) for number in range(300))
    with console_process("-b", broker.bootstrap_servers, "--writes", "--timeout", "1") as page:

        def values(topic: str) -> list[str]:
            with Client(broker.bootstrap_servers) as client:
                return sorted((record.value or b"").decode() for record in records(client, topic))

        asked: dict[str, object] = {"topic": "whole", "format": "jsonl", "text": rows + "{\n", "shift": 1000}
        # One partition takes nothing; of the other nobody hears that it has taken something.
        with broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic="whole", partition=0):
            told = page.post("records/import", asked).json
        assert "NOT_ENOUGH_REPLICAS" in told["error"] and 0 < told["stored"] < 300
        assert told["problems"][0].startswith("line 1301: not JSON")
        again = page.post("records/import", {**asked, "place": told["place"]}).json
        assert (again["stored"] + told["stored"], again["not_stored"], again.get("error")) == (300, 0, None)
        assert values("whole") == expected

        asked = {"topic": "whole", "to": "whole-again", "from": "earliest"}
        with broker.faults.drop("Produce", when="after", topic="whole-again"):
            told = page.post("records/replay", asked).json
        assert told["error"] and (told["stored"], told["finished"]) == (0, False)
        asked |= {"goon": told["goon"], "ends": told["ends"]}
        assert page.post("records/replay", {**asked, "to": "whole", "place": told["place"]}).status == 400
        assert page.post("records/replay", {**asked, "place": "{}"}).status == 400
        place = json.loads(told["place"])
        target, _ = place["topic_id"].split("/")
        of_another = json.dumps({**place, "topic_id": f"{target}/{target}"})
        refused = page.post("records/replay", {**asked, "place": of_another})
        assert refused.status == 409 and "topic whole was made anew" in refused.body.decode()
        again = page.post("records/replay", {**asked, "place": told["place"]}).json
        assert (again["stored"], again["finished"]) == (300, True)
        assert values("whole-again") == expected

        def outcomes() -> list[str]:
            return [line["outcome"].split(":")[0] for line in page.audit() if line["action"] == "replay"]

        eventually(lambda: outcomes() == ["failed", "failed", "done"], "all steps are audited")


def test_exports_of_all_and_of_the_latest_of_each_key(decoding: ConsoleProcess, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for kind, own in (("csv", "csv"), ("json", "jsonl"), ("parquet", "parquet")):
        assert decoding.get("records/export", topic="decoded", format=kind, check=1).json == {"format": kind}
        answer = decoding.get("records/export", topic="decoded", format=kind)
        assert answer.headers["Content-Disposition"] == f'attachment; filename="decoded.{own}"'
        file = tmp_path / f"decoded.{own}"
        file.write_bytes(answer.body)
    found = [item for item in ParquetRecords(file, lambda: 0) if isinstance(item, Item)]
    assert [(item.partition, item.record.key, item.record.timestamp) for item in found] == [
        (1, b"k", 1_700_000_000_000)
    ] * 2
    assert json.loads(found[0].record.value or b"") == {"n": 7, "card": "4111"}
    answer = decoding.get("records/export", topic="decoded", format="json", latest_per_key=1)
    [line] = answer.body.splitlines()
    assert json.loads(line)["offset"] == 1
    assert decoding.get("records/export", topic="nowhere", format="csv", check=1).status == 404


def test_an_export_that_breaks_off_says_why(broker: RunningBroker) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic("broken", 1, 1)])
        producer = Producer(client, "broken", [0], on_refused=print)
        producer.send(Record(0, 1_700_000_000_000, None, b"v"), 0)
        producer.flush()
    with console_process("-b", broker.bootstrap_servers, "--timeout", "1") as page:
        assert page.get("records/export/outcome", export="x-1").json == {"outcome": None}
        with broker.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="broken"):
            with pytest.raises(http.client.IncompleteRead):
                page.get("records/export", topic="broken", export="x-1")
            outcome = page.get("records/export/outcome", export="x-1").json["outcome"]
        assert "NOT_LEADER_OR_FOLLOWER" in outcome
        assert len(page.get("records/export", topic="broken", export="x-2").body.splitlines()) == 1
        eventually(lambda: page.get("records/export/outcome", export="x-2").json["outcome"] == "done", "it is told")
        answer = page.post("records/upload", {"data": ""})
        assert (answer.status, "read-only" in answer.error) == (403, True)
        assert [line["outcome"] for line in page.audit()] == ["refused: read-only"]


def parquet(rows: int, *, group: int = 1 << 20) -> bytes:
    """A file with values "0", "1", ... in row groups of so many."""
    arrow = pytest.importorskip("pyarrow")
    parquet_module = pytest.importorskip("pyarrow.parquet")
    sink = io.BytesIO()
    values = arrow.array([b"%d" % number for number in range(rows)], arrow.binary())
    parquet_module.write_table(arrow.table({"value": values}), sink, row_group_size=group)
    return sink.getvalue()


@pytest.mark.parametrize("begin", [0, 3, 10, 25, 30])
def test_rows_of_parquet_are_passed_over(begin: int, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    file.write_bytes(parquet(30, group=10))
    found = [item for item in ParquetRecords(file, lambda: 0, begin) if isinstance(item, Item)]
    assert [(item.line, item.record.value) for item in found] == [
        (number + 1, b"%d" % number) for number in range(begin, 30)
    ]


def test_a_parquet_file_is_imported_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads_api, "STEP_SECONDS", 0)
    uploads = Uploads()
    word = uploads.begin("me")
    data = parquet(5, group=2)
    for at in (0, 100, 0):
        uploads.add("me", word, at, data[at : at + 100] if not at else data[at:])
    with pytest.raises(NoUpload):
        uploads.find("you", word)
    begin, values = 0, []
    while True:
        step = ParquetStep(uploads.find("me", word), begin, 0)
        values += [item.record.value for item in step if isinstance(item, Item)]
        told = step.told()
        assert told["rows"] == 5 and told["next"] == begin + 1
        begin += 1
        if told["finished"]:
            break
    assert values == [b"0", b"1", b"2", b"3", b"4"]
    # One that goes on from a place is given all that an earlier step has read, and then goes on.
    assert [item.line for item in ParquetStep(uploads.find("me", word), 1, 4)] == [2, 3, 4]
    uploads.end("me", word)


def test_a_parquet_file_is_imported(decoding: ConsoleProcess) -> None:
    with_data = parquet(300)
    half = len(with_data) // 2
    word = ""
    for at, piece in ((0, with_data[:half]), (half, with_data[half:])):
        sent = {"upload": word, "at": at, "data": base64.b64encode(piece).decode()}
        told = decoding.post("records/upload", sent).json
        word = told["upload"]
        assert told["size"] == at + len(piece)
    asked = {"topic": "parquet", "format": "parquet", "upload": word, "begin": 0}
    told = decoding.post("records/import", asked).json
    assert told == {"stored": 300, "not_stored": 0, "problems": [], "next": 300, "rows": 300, "finished": True}
    rows = decoding.get("records", topic="parquet", limit=500).json["rows"]
    assert sorted(int(row["value"]["text"]) for row in rows) == list(range(300))
    assert decoding.post("records/import", asked).status == 410
    word = decoding.post("records/upload", {"data": base64.b64encode(b"no table").decode()}).json["upload"]
    answer = decoding.post("records/import", {**asked, "upload": word})
    assert answer.status == 400 and "as Parquet" in answer.error and "\n" not in answer.error


def test_what_parquet_needs_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Refused, match=r"^Parquet needs the package pyarrow: pip install 'kbroker\[arrow\]'$"):
        check_format("parquet")
    check_format("csv")


def test_the_audit_has_no_filters(decoding: ConsoleProcess) -> None:
    asked = {"topic": "decoded", "to": "copied", "from": "latest", "filter": "$.card = very-secret"}
    assert decoding.post("records/replay", asked).json["stored"] == 0
    assert not any("very-secret" in line for line in decoding.log)
    [*_, line] = [line for line in decoding.audit() if line["action"] == "replay"]
    assert line["details"]["filtered"] is True


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
