"""The console's answers by raw requests: what is asked, what is changed, what is refused, what is audited."""

from __future__ import annotations

import csv
import http.client
import io
import json
import time
from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import RunningBroker
from kbroker.tools.console.state import TAILS
from kbroker.wire.record_batch import Record
from tests.console.console_process import ConsoleProcess, console_process
from tests.patience import LONG, eventually


@pytest.fixture(scope="module", autouse=True)
def topics(broker: RunningBroker) -> Iterator[None]:
    """A topic to look at, one whose records have secrets, and one to which others come."""
    now = time.time_ns() // 1_000_000
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic("orders", 2, 1), NewTopic("secret-cards", 1, 1), NewTopic("live", 2, 1)])
        for name in ("orders", "secret-cards"):
            producer = Producer(client, name, client.partitions_of(name), on_refused=print)
            for number in range(10):
                value = json.dumps({"n": number, "card": "no-4111"}).encode()
                producer.send(Record(0, now + number, b"k%d" % number, value, (("h", b"no-4111"),)), number)
            producer.send(Record(0, now + 10, b"\xff", None), 10)
            producer.flush()
    yield


def test_the_session_tells_what_the_console_does(console: ConsoleProcess) -> None:
    told = console.enter()
    assert (told["user"], told["sign_in"], told["writes"]) == (None, False, True)
    assert len(told["csrf"]) > 30


def test_the_overview(console: ConsoleProcess) -> None:
    # A broker that is slow to answer is in trouble for a while.
    eventually(lambda: console.get("overview", fresh=1).json["troubles"] == [], "all is well")
    told = console.get("overview").json
    assert told["partitions"] in (5, 55)  # with those of the committed offsets, once anybody has asked for a group
    assert [broker["leads"] for broker in told["brokers"]] == [told["partitions"]]
    assert [(node["role"], node["behind"]) for node in told["quorum"]] == [("leader", 0)]
    assert told["metadata_version"].startswith("4.")


def test_a_page_of_topics(console: ConsoleProcess) -> None:
    told = console.get("topics", filter="ord", counts=1, limit=1).json
    assert told["total"] == 1 and told["all"] in (3, 4)
    assert [(row["name"], row["partitions"], row["records"]) for row in told["rows"]] == [("orders", 2, 11)]
    assert console.get("topics", offset=5).json["rows"] == []


def test_records_and_how_to_go_on(console: ConsoleProcess) -> None:
    told = console.get("records", topic="orders", **{"from": "earliest", "limit": 4}).json
    seen = [(row["partition"], row["offset"]) for row in told["rows"]]
    while not told["finished"]:
        told = console.get("records", topic="orders", goon=told["goon"], **{"from": "earliest", "limit": 4}).json
        seen += [(row["partition"], row["offset"]) for row in told["rows"]]
    assert len(seen) == len(set(seen)) == 11


def test_a_range_of_time_ends_before_until(console: ConsoleProcess) -> None:
    asked = {"topic": "orders", "from": "earliest", "limit": 100}
    times = sorted(row["timestamp"] for row in console.get("records", **asked).json["rows"])
    for begin in ({"from": "earliest"}, {"from": "latest"}, {"from": "latest", "since": f"@{times[2] / 1000:.3f}"}):
        told = console.get("records", **{**asked, **begin, "until": f"@{times[6] / 1000:.3f}"}).json
        expected = times[2:6] if "since" in begin else times[:6]
        assert sorted(row["timestamp"] for row in told["rows"]) == expected and told["finished"]
    until = f"@{times[6] / 1000:.3f}"
    told = console.get("records", **asked, latest_per_key=1, until=until).json
    assert [row["timestamp"] for row in told["rows"]] == times[:6][::-1]
    lines = console.get("records/export", topic="orders", format="json", until=until).body.splitlines()
    assert len(lines) == 6
    assert (
        console.get("records", **{**asked, "from": "earliest", "since": until}, until=f"@{times[2] / 1000:.3f}").json[
            "rows"
        ]
        == []
    )
    assert console.get("records", **asked, until="yesterdayish").status == 400


def test_the_latest_of_each_key_goes_on_in_the_same_session(console: ConsoleProcess) -> None:
    asked = {"topic": "orders", "latest_per_key": 1}
    told = console.get("records", **asked).json
    assert len(told["rows"]) >= 11 and told["finished"]
    again = console.get("records", **asked, goon="0:1,1:1", seen=told["seen"]).json
    assert (again["rows"], again["finished"]) == ([], True)
    assert console.get("records", **asked, goon="0:1,1:1", seen="never").status == 410


def test_a_tail_begins_by_telling_where_it_is(console: ConsoleProcess) -> None:
    """A page that is paused before the first record goes on from there."""
    console.enter()
    connection = http.client.HTTPConnection(console.host, timeout=LONG)
    try:
        connection.request("GET", "/api/records/tail?topic=orders", headers={"Cookie": console.cookie})
        response = connection.getresponse()
        lines = [response.readline().decode().strip() for _ in range(5)]
    finally:
        connection.close()
    ends = console.get("records", topic="orders").json["ends"]
    assert lines[2:4] == ["event: records", f"id: {ends}"]
    assert json.loads(lines[4].removeprefix("data: "))["rows"] == []


def test_masked_parts_are_in_no_answer(console: ConsoleProcess) -> None:
    answers = [
        console.get("records", topic="secret-cards"),
        console.get("record", topic="secret-cards", partition=0, offset=3),
        console.get("records/export", topic="secret-cards", format="csv"),
        console.get("records/export", topic="secret-cards", format="json"),
        console.get("records", topic="secret-cards", filter="no-4111"),
    ]
    for answer in answers:
        assert answer.status == 200
        assert b"no-4111" not in answer.body
        assert b"no-4111".hex().encode() not in answer.body
    assert answers[-1].json["rows"] == []


def test_exports(console: ConsoleProcess) -> None:
    lines = console.get("records/export", topic="orders", format="json", filter="$.n >= 5").body.splitlines()
    assert sorted(json.loads(json.loads(line)["value"])["n"] for line in lines) == [5, 6, 7, 8, 9]
    table = list(csv.DictReader(io.StringIO(console.get("records/export", topic="orders", format="csv").body.decode())))
    assert len(table) == 11
    assert {row["key"] for row in table if row["key_encoding"] == "base64"} == {"/w=="}
    assert {row["key"] for row in table} == {"/w==", *(f"k{number}" for number in range(10))}
    assert console.get("records/export", topic="none", format="csv").status == 404


@pytest.mark.parametrize(
    ("path", "params", "status", "told"),
    [
        ("topic", {}, 400, "name is missing"),
        ("topic", {"name": "none"}, 404, "there is no such topic"),
        ("topic", {"name": "a/b"}, 400, "cannot be the name of a topic"),
        ("topic", {"name": "x" * 300}, 400, "cannot be the name of a topic"),
        ("topics", {"limit": "0"}, 400, "limit has to be a whole number"),
        ("topics", {"limit": "ten"}, 400, "limit has to be a whole number"),
        ("topics", {"sort": "colour"}, 400, "sort has to be one of"),
        ("records", {"topic": "orders", "filter": "("}, 400, "filter: something is missing"),
        ("records", {"topic": "orders", "partitions": "9"}, 404, "topic orders has no partition 9"),
        ("records", {"topic": "orders", "partitions": "0-"}, 400, "are no partitions"),
        ("records", {"topic": "orders", "goon": "0:x"}, 400, "are no positions"),
        ("records", {"topic": "orders", "since": "soon"}, 400, "is not a time"),
        ("record", {"topic": "orders", "partition": 0, "offset": 10**6}, 404, "the offset is outside of the log"),
        ("records/tail", {"topic": "none"}, 404, "there is no such topic"),
        ("group", {"group": "none"}, 404, "there is no such group"),
        ("group/reset", {"group": "none", "to": "never"}, 400, "to has to be one of"),
        ("broker", {"id": "-1"}, 400, "id has to be a whole number"),
        ("acls/check", {"principal": "alice"}, 400, "a principal is of the form"),
        ("acls", {}, 409, "No Authorizer"),
    ],
)
def test_what_cannot_be_answered_is_told_in_a_line(
    console: ConsoleProcess, path: str, params: dict[str, object], status: int, told: str
) -> None:
    answer = console.get(path, **params)
    assert answer.status == status
    assert told in answer.error and "\n" not in answer.error


def test_the_live_tail_sends_what_comes(console: ConsoleProcess, broker: RunningBroker) -> None:
    console.enter()
    opened: list[http.client.HTTPResponse] = []

    def is_opened() -> bool:
        """A tail that was closed a moment ago may have its place still."""
        connection = http.client.HTTPConnection(console.host, timeout=LONG)
        connection.request("GET", "/api/records/tail?topic=live", headers={"Cookie": console.cookie})
        opened[:] = [connection.getresponse()]
        return opened[0].status != 429

    eventually(is_opened, "a place is free")
    [response] = opened
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.readline() == b"retry: 1000\n"
    produced = console.post("records/produce", {"topic": "live", "key": "live", "value": "here", "partition": 1})
    lines = iter(response.readline, b"")
    place = ""
    for line in lines:
        if line.startswith(b"id: "):
            place = line.decode().removeprefix("id: ").strip()
        if line.startswith(b"data: ") and (rows := json.loads(line[6:])["rows"]):
            break
    response.close()
    assert [(row["offset"], row["value"]["text"]) for row in rows] == [(produced.json["offset"], "here")]
    assert f"1:{produced.json['offset'] + 1}" in place


def test_live_tails_have_so_many_places_and_leave_them(console: ConsoleProcess) -> None:
    import http.client

    console.enter()
    opened: list[tuple[http.client.HTTPConnection, http.client.HTTPResponse]] = []

    def is_opened() -> bool:
        connection = http.client.HTTPConnection(console.host, timeout=LONG)
        connection.request("GET", "/api/records/tail?topic=orders", headers={"Cookie": console.cookie})
        opened.append((connection, connection.getresponse()))
        return opened[-1][1].status == 200

    def close_all() -> None:
        for connection, response in opened:
            response.close()
            connection.close()
        opened.clear()

    # Twice: what is closed leaves its place.
    for _ in range(2):
        for _ in range(TAILS):
            eventually(is_opened, "a place is free")
        refused = console.get("records/tail", topic="orders")
        assert (refused.status, refused.error) == (429, "too many live tails are open: close one")
        close_all()


def test_writes_are_done_and_audited(console: ConsoleProcess) -> None:
    made = {"name": "made", "partitions": 2, "configs": {"retention.ms": "1000"}}
    assert console.post("topic/create", made).status == 200
    assert console.post("topic/create", {"name": "made"}).status == 409
    assert console.post("topic/config", {"name": "made", "config": "retention.ms", "value": "2000"}).status == 200
    configs = {each["name"]: each for each in console.get("topic/configs", name="made").json}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("2000", "DYNAMIC_TOPIC_CONFIG")
    assert console.post("topic/config", {"name": "made", "config": "retention.ms", "operation": "delete"}).status == 200
    assert console.post("topic/partitions", {"name": "made", "total": 3}).status == 200
    assert console.post("topic/delete", {"name": "made", "confirm": "mad"}).status == 400
    assert console.post("topic/delete", {"name": "made", "confirm": "made"}).status == 200
    assert console.get("topic", name="made").status == 404
    told = [(line["action"], line["outcome"].split(":")[0]) for line in console.audit() if line["target"] == "made"]
    assert told == [
        ("create-topic", "done"),
        ("create-topic", "failed"),
        ("change-topic-config", "done"),
        ("change-topic-config", "done"),
        ("add-partitions", "done"),
        ("delete-topic", "done"),
    ]


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("topic/create", {"name": "x y"}),
        ("topic/create", {"name": 3}),
        ("topic/create", {"name": "ok", "partitions": 1.5}),
        ("topic/create", {"name": "ok", "partitions": True}),
        ("topic/create", {"name": "ok", "configs": ["a"]}),
        ("topic/create", {"name": "ok", "configs": {"a": 1}}),
        ("records/produce", {"topic": "orders", "value_base64": "?"}),
        ("topic/partitions", {"name": "orders", "total": "many"}),
        ("group/reset", {"group": "g", "to": "offset"}),
    ],
)
def test_bad_documents_change_nothing(console: ConsoleProcess, path: str, document: dict[str, object]) -> None:
    assert console.post(path, document).status == 400


def test_a_cluster_that_is_not_there_is_told() -> None:
    with console_process("-b", "127.0.0.1:1", "--timeout", "1") as console:
        answer = console.get("overview")
        assert answer.status == 502
        assert answer.error == "cannot connect to 127.0.0.1:1: Connection refused"
