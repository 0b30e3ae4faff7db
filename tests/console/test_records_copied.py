"""Records decoded by a schema registry, replayed and imported by the page."""

from __future__ import annotations

import base64
import http.client
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.reader import Chunk, Reader
from kbroker.client.records_io.csv_records import CsvWriter
from kbroker.client.records_io.items import Item
from kbroker.client.records_io.json_records import json_formatter
from kbroker.client.records_io.parquet_records import MAX_CHUNK, ParquetRecords
from kbroker.client.topics import NewTopic, create_topics, list_ranges
from kbroker.errors import FatalError
from kbroker.testing import RunningBroker
from kbroker.tools.console.api import uploads as uploads_api
from kbroker.tools.console.api.uploads import ParquetStep
from kbroker.tools.console.call import RequestRefused
from kbroker.tools.console.export_files import check_format
from kbroker.tools.console.uploads import Upload
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record
from tests.console.console_process import Answer, ConsoleClient, ConsoleProcess, console_process
from tests.patience import eventually
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
        create_topics(client, [NewTopic("protobuf", 1, 1, {"retention.ms": "-1"})])
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
        decoding.post("copies/replay", {"topic": "secret-decoded", "to": "copied", "from": "earliest"}),
    ):
        assert b"4111" not in answer.body and b"34313131" not in answer.body and b"34 31 31 31" not in answer.body
    assert answer.status == 403


def copied(console: ConsoleClient, copy: str) -> Any:
    """A copy as the console tells it once it does not run any more."""
    found: list[Any] = []

    def is_settled() -> bool:
        found[:] = [row for row in console.get("copies").json["rows"] if row["id"] == copy]
        return bool(found[0]["state"] != "running")

    eventually(is_settled, "the copy ends, or waits")
    return found[0]


def replayed(console: ConsoleClient, asked: dict[str, object]) -> Any:
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
    asked: dict[str, object] = {
        "topic": "decoded",
        "to": "copied",
        "from": "latest",
        "filter": "$.n = 7",
        "keep_partitions": True,
    }
    page = ConsoleClient(decoding.host)
    told = replayed(page, asked)
    assert (told["looked_at"], told["stored"], told["not_stored"], told["state"]) == (2, 1, 0, "done")
    [row] = decoding.get("records", topic="copied").json["rows"]
    assert (row["partition"], row["value"]["schema"]["id"]) == (1, "1")
    # What cannot be begun is refused, and no copy.
    assert page.post("copies/replay", {**asked, "to": "nowhere"}).status == 404
    assert page.post("copies/import", {"topic": "nowhere"}).status == 404
    assert [row["to"] for row in page.get("copies").json["rows"]] == ["copied"]
    outcomes = [
        (line["target"], line["outcome"].split(":")[0]) for line in decoding.audit() if line["action"] == "replay"
    ]
    assert [outcome for target, outcome in outcomes if target == "copied"][:2] == ["begun", "done"]
    assert ("nowhere", "failed") in outcomes


def test_a_file_is_imported(decoding: ConsoleProcess) -> None:
    record = Record(0, 1_700_000_000_000, b"k", b"\0\0\0\0\1\x0e\x084111")
    rows, show = CsvWriter(), json_formatter()
    for name, data in (
        ("csv", rows.row(1, record) + rows.row(1, record._replace(value=b"two\nlines"))),
        ("jsonl", show("t", 1, record, TimestampType.CREATE_TIME)),
    ):
        told = imported(decoding, {"topic": "imported", "format": name, "keep_partitions": True}, data.decode())
        assert (told["stored"], told["not_stored"], told["state"]) == (2 if name == "csv" else 1, 0, "done")
    found = decoding.get("records", topic="imported", partitions="1", **{"from": "earliest"}).json["rows"]
    found = [row for row in found if row["timestamp"] == 1_700_000_000_000]  # others import there, too
    assert len(found) == 3
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
    with console_process("-b", broker.bootstrap_servers, "--writes", "--timeout", "5") as page:

        def stored(is_enough: Callable[[Any], bool]) -> Any:
            """Send the piece until it is: a slow machine may need longer than the console waits."""
            told: Any = {}

            def is_stored() -> bool:
                told.update(page.post("copies/piece", piece).json)
                if is_enough(told):
                    return True
                page.post("copies/go-on", {"id": copy})
                return False

            eventually(is_stored, "enough is stored")
            return told

        def values(topic: str) -> list[str]:
            with Client(broker.bootstrap_servers) as client:
                return sorted((record.value or b"").decode() for record in records(client, topic))

        copy = page.post("copies/import", {"topic": "whole"}).json["id"]
        piece: dict[str, object] = {"id": copy, "number": 0, "text": rows + "{\n", "shift": 1000}
        # One partition takes nothing; of the other nobody hears that it has taken something.
        with broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic="whole", partition=0):
            told = stored(lambda told: told["stored"] > 0)
        assert told["state"] == "failed" and "NOT_ENOUGH_REPLICAS" in told["error"] and 0 < told["stored"] < 300
        assert told["problems"][0].startswith("line 1301: not JSON") and told["pieces"] == 0
        assert page.post("copies/go-on", {"id": copy}).json["state"] == "waits"
        told = stored(lambda told: not told["error"])
        assert (told["stored"], told["not_stored"], told["error"]) == (300, 1, "")
        assert page.post("copies/piece", {"id": copy, "number": 1, "last": True}).json["state"] == "done"
        assert values("whole") == expected

        with broker.faults.drop("Produce", when="after", topic="whole-again"):
            told = replayed(page, {"topic": "whole", "to": "whole-again", "from": "earliest"})
        assert told["error"] and (told["stored"], told["state"]) == (0, "failed")
        while told["state"] == "failed":
            page.post("copies/go-on", {"id": told["id"]})
            told = copied(page, told["id"])
        assert (told["stored"], told["state"]) == (300, "done")
        assert values("whole-again") == expected

        def outcomes() -> list[str]:
            return [line["outcome"].split(":")[0] for line in page.audit() if line["action"] == "replay"]

        begun, *failed, done = outcomes()
        assert (begun, set(failed), done) == ("begun", {"failed"}, "done")


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
        # A look at retention, half a minute after the broker's start or every five, would take the old record.
        create_topics(client, [NewTopic("broken", 1, 1, {"retention.ms": "-1"})])
        producer = Producer(client, "broken", [0], on_refused=print)
        producer.send(Record(0, 1_700_000_000_000, None, b"v"), 0)
        producer.flush()
    with console_process("-b", broker.bootstrap_servers, "--timeout", "10") as page:
        assert page.get("records/export/outcome", export="x-1").json == {"outcome": None}
        with broker.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="broken"):

            def breaks_off() -> bool:
                """Whether it has begun: before that a broker that is slow is told of by the status."""
                try:
                    answer = page.get("records/export", topic="broken", export="x-1")
                except http.client.IncompleteRead:
                    return True
                assert answer.status >= 500, answer
                return False

            eventually(breaks_off, "the file breaks off")
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


def kept(data: bytes) -> Upload:
    upload = Upload()
    upload.add(0, data)
    return upload


def test_a_parquet_file_is_imported_in_steps() -> None:
    data = parquet(5, group=3)
    upload = Upload()
    for at in (0, 100, 0):
        upload.add(at, data[at : at + 100] if not at else data[at:])
    begin, values = 0, []
    while True:
        with upload.use() as file:
            step = ParquetStep(upload, file, begin, 0, seconds=0)
            assert upload.rows is None, "a step that fails leaves none"
            values += [item.record.value for item in step if isinstance(item, Item)]
            if step.is_whole:
                break
            step.keep()
        begin += 1
        assert step.done == begin
    assert values == [b"0", b"1", b"2", b"3", b"4"] and step.missing == 0
    with upload.use() as file:
        # One that goes on from a place is given all that an earlier step has read, and then goes on.
        assert [item.line for item in ParquetStep(upload, file, 1, 4, seconds=0)] == [2, 3, 4]
    upload.close()


def test_steps_go_on_with_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group is not read again from its beginning by each step."""
    opened: list[int] = []

    class Counted(ParquetRecords):
        def __init__(self, file: IO[bytes], clock: Callable[[], int], begin: int, *, max_chunk: int) -> None:
            opened.append(begin)
            super().__init__(file, clock, begin, max_chunk=max_chunk)

    monkeypatch.setattr(uploads_api, "ParquetRecords", Counted)
    upload = kept(parquet(4))
    for begin in range(4):
        with upload.use() as file:
            step = ParquetStep(upload, file, begin, 0, seconds=0)
            assert [item.line for item in step] == [begin + 1]
            step.keep()
    assert opened == [0]
    upload.close()


def test_a_file_that_promises_more_rows_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    upload = kept(parquet(3))
    with upload.use() as file:
        step = ParquetStep(upload, file, 0, 0)
        monkeypatch.setattr(step._records, "count", 5)
        assert [item.line for item in step] == [1, 2, 3]
        assert (step.is_whole, step.missing) == (True, 2)
    upload.close()


def test_few_rows_of_a_file_that_inflates_are_in_memory_at_once() -> None:
    arrow = pytest.importorskip("pyarrow")
    value = b"x" * (1 << 20)
    sink = io.BytesIO()
    arrow.parquet.write_table(arrow.table({"value": arrow.array([value] * 300)}), sink, compression="zstd")
    assert len(sink.getvalue()) < 1000
    before = arrow.total_allocated_bytes()
    records = iter(ParquetRecords(sink, lambda: 0, max_chunk=MAX_CHUNK))
    first = next(records)
    assert isinstance(first, Item) and first.record.value == value
    assert arrow.total_allocated_bytes() - before < 160 << 20
    with pytest.raises(FatalError, match="a column of more than 1 MiB"):
        ParquetRecords(sink, lambda: 0, max_chunk=1 << 20)


def test_a_parquet_file_is_imported(decoding: ConsoleProcess) -> None:
    page = ConsoleClient(decoding.host)

    def sent(copy: str, at: int, piece: bytes) -> Answer:
        return page.post("records/upload", {"id": copy, "at": at, "data": base64.b64encode(piece).decode()})

    def begun() -> str:
        return str(page.post("copies/import", {"topic": "parquet", "format": "parquet"}).json["id"])

    data = parquet(300)
    half = len(data) // 2
    copy = begun()
    assert page.post("copies/piece", {"id": copy, "number": 0}).status == 410, "the file is sent first"
    assert sent(copy, 7, data).status == 410
    assert sent("none", 0, data).status == 404, "a file is that of an import"
    for at, piece in ((0, data[:half]), (half, data[half:])):
        assert sent(copy, at, piece).json["kept"] == at + len(piece)
    told = {"state": "waits", "pieces": 0}
    while told["state"] == "waits":
        told = page.post("copies/piece", {"id": copy, "number": told["pieces"]}).json
    assert (told["stored"], told["not_stored"], told["state"], told["kept"]) == (300, 0, "done", 0)
    rows = page.get("records", topic="parquet", limit=500).json["rows"]
    assert sorted(int(row["value"]["text"]) for row in rows) == list(range(300))
    assert sent(copy, 0, data).status == 409

    # Whoever tries again and again takes no place from others.
    for _ in range(6):
        copy = begun()
        assert sent(copy, 0, b"no table").status == 200
        told = page.post("copies/piece", {"id": copy, "number": 0}).json
        assert told["state"] == "failed" and "as Parquet" in told["error"] and "\n" not in told["error"]
        assert page.post("copies/go-on", {"id": copy}).json["kept"] == 8, "it goes on with the same file"
        assert page.post("copies/cancel", {"id": copy}).json["kept"] == 0


def test_what_parquet_needs_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RequestRefused, match=r"^Parquet needs the package pyarrow: pip install 'kbroker\[arrow\]'$"):
        check_format("parquet")
    check_format("csv")


def test_the_audit_has_no_filters(decoding: ConsoleProcess) -> None:
    asked: dict[str, object] = {"topic": "decoded", "to": "copied", "from": "latest", "filter": "$.card = very-secret"}
    assert replayed(decoding, asked)["stored"] == 0
    assert not any("very-secret" in line for line in decoding.log)
    assert any(line["details"].get("filtered") for line in decoding.audit() if line["action"] == "replay")


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
