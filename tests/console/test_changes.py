"""Every change that the page can ask for: none without ``--writes``, and each with a line in the audit log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.groups import commit_offsets
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.console.routes import API
from kbroker.types import TopicPartition
from tests.console.console_process import ConsoleProcess, console_process
from tests.patience import LONG, eventually

TOPIC = "changed"
TRANSACTION = "mover"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""A broker that keeps rules; the console may do everything."""

DOCUMENTS: dict[str, tuple[str, dict[str, object]]] = {
    "topic/create": ("create-topic", {"name": "made", "partitions": 1}),
    "topic/config": ("change-topic-config", {"name": TOPIC, "config": "retention.ms", "value": "86400000"}),
    "broker/config": ("change-broker-config", {"broker": "1", "config": "log.cleaner.threads", "value": "2"}),
    "topic/partitions": ("add-partitions", {"name": TOPIC, "total": 3}),
    "topic/move": ("move-partitions", {"name": TOPIC, "before": {"0": "1"}, "after": {"0": "1"}}),
    "topic/move/cancel": ("cancel-moves", {"name": TOPIC}),
    "records/produce": ("produce", {"topic": TOPIC, "partition": 1, "value": "x"}),
    "topic/abort-hanging": ("abort-hanging", {"topic": TOPIC, "partition": 0, "start": 0}),
    "transaction/abort": ("abort-transaction", {"id": TRANSACTION, "confirm": TRANSACTION}),
    "group/reset": ("reset-offsets", {"group": "g", "topic": TOPIC, "to": "earliest"}),
    "group/delete": ("delete-group", {"group": "g", "confirm": "g"}),
    "copies/replay": ("replay", {"topic": TOPIC, "to": "made", "from": "earliest"}),
    "copies/import": ("import", {"topic": "made"}),
    "acls/create": ("create-rule", {"principal": "User:ann", "name": TOPIC}),
    "acls/delete": ("delete-rule", {"principal": "User:ann", "name": TOPIC}),
    "user/set": ("set-password", {"user": "ann", "password": "ann-secret"}),
    "user/delete": ("delete-credential", {"user": "ann", "confirm": "ann"}),
    "quota/set": ("set-quota", {"entity": {"user": "ann"}, "values": {"producer_byte_rate": "1048576"}}),
    "topic/empty": ("empty-topic", {"name": TOPIC, "confirm": TOPIC}),
    "topic/recreate": ("recreate-topic", {"name": TOPIC, "confirm": TOPIC}),
    "topic/delete": ("delete-topic", {"name": TOPIC, "confirm": TOPIC}),
}
"""The action of each path in the audit log, and a document; they are carried out in this order."""

ELSEWHERE = {
    "sign-in",  # tests/console/test_sign_in.py
    "sign-out",
    "faults",  # tests/console/test_faults.py
    "schema/check",  # tests/console/test_schemas.py
    "schema/register",
    "schema/delete",
    "subject/compatibility",
    "table/pause",  # tests/console/test_tables.py
    "records/upload",  # a piece of a file that is not stored yet: what is stored of it is in copies/import
    "copies/piece",  # these four need a copy, which nobody can begin without --writes
    "copies/go-on",
    "copies/cancel",
    "copies/forget",
}


@pytest.fixture
def filled() -> Iterator[RunningBroker]:
    """A broker with a topic, offsets of a group, and a transaction that is open."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with running_broker(AUTHORIZED) as broker:
        with Client(broker.bootstrap_servers) as client:
            create_topics(client, [NewTopic(TOPIC, 2, 1)])
        options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": TRANSACTION}
        options["transaction.timeout.ms"] = "600000"  # it stays open for as long as the test takes
        producer = confluent_kafka.Producer(options)
        producer.init_transactions(LONG)
        producer.begin_transaction()
        producer.produce(TOPIC, b"open", partition=0)
        assert producer.flush(LONG) == 0
        with Client(broker.bootstrap_servers) as client:
            assert not commit_offsets(client, "g", {TopicPartition(TOPIC, 0): 1})
        yield broker
        del producer


def outcomes(console: ConsoleProcess, begin: int = 0) -> list[tuple[str, str, str]]:
    return [(each["action"], each["target"], each["outcome"].split(":")[0]) for each in console.audit()[begin:]]


def test_every_change_is_known_here() -> None:
    posts = {path.removeprefix("/api/") for method, path, _ in API if method == "POST"}
    assert posts == DOCUMENTS.keys() | ELSEWHERE


def test_nothing_is_changed_without_writes_and_each_attempt_is_audited(filled: RunningBroker) -> None:
    with console_process("-b", filled.bootstrap_servers) as console:
        assert console.enter()["writes"] is False
        asked = {path: document for path, (_, document) in DOCUMENTS.items()} | {"records/upload": {"topic": TOPIC}}
        for path, document in asked.items():
            answer = console.post(path, document)
            assert (answer.status, "read-only" in answer.error) == (403, True), path
        actions = [action for action, _ in DOCUMENTS.values()] + ["upload"]
        assert [(action, outcome) for action, _, outcome in outcomes(console)] == [
            (action, "refused") for action in actions
        ]
        for path in ("copies/piece", "copies/go-on", "copies/cancel", "copies/forget", "faults"):
            assert console.post(path, {"id": "x", "line": "hold Fetch"}).status == 404, path
        told = console.get("topic", name=TOPIC).json
        assert len(told["partitions"]) == 2 and console.get("topic", name="made").status == 404
        assert [row["state"] for row in console.get("transactions").json["rows"]] == ["Ongoing"]
        assert console.get("group", group="g").json["partitions"][0]["offset"] == 1


def test_each_change_is_carried_out_and_audited(filled: RunningBroker) -> None:
    with console_process("-b", filled.bootstrap_servers, "--writes") as console:
        for path, (_, document) in DOCUMENTS.items():
            if "confirm" in document:
                assert console.post(path, {**document, "confirm": "other"}).status == 400, path
        assert console.audit() == []
        for path, (action, document) in DOCUMENTS.items():
            before = len(console.audit())
            answer = console.post(path, document)
            assert answer.status == 200, (path, answer.body)
            target = next(iter(document.values())) if not path.startswith("copies/") else "made"
            target = {"topic/abort-hanging": f"{TOPIC}-0", "quota/set": "user ann"}.get(path, str(target))
            expected = "begun" if path.startswith("copies/") else "done"
            assert outcomes(console, before)[0] == (action, target, expected), path
            if path == "copies/replay":
                eventually(lambda: outcomes(console)[-1] == ("replay", "made", "done"), "the copy is done")
            if path == "copies/import":
                copy = answer.json["id"]
                assert console.post("copies/cancel", {"id": copy}).json["state"] == "cancelled"
                assert console.post("copies/forget", {"id": copy}).json == {}
                assert outcomes(console)[-1] == ("import", "made", "cancelled")
        # What cannot be done is audited as well.
        assert console.post("group/delete", {"group": "nobody", "confirm": "nobody"}).status == 404
        assert outcomes(console)[-1] == ("delete-group", "nobody", "failed")
        assert console.get("records", topic="made").json["rows"] != []
        assert console.get("topic", name=TOPIC).status == 404
        assert [row["state"] for row in console.get("transactions").json["rows"]] != ["Ongoing"]


@pytest.mark.parametrize(
    "config", ["ssl.keystore.password", "listener.name.plaintext.ssl.keystore.password", "my.token"]
)
def test_no_secret_is_in_the_audit_log(filled: RunningBroker, config: str) -> None:
    with console_process("-b", filled.bootstrap_servers, "--writes") as console:
        console.post("broker/config", {"broker": "1", "config": config, "value": "hunter2"})
        [line] = console.audit()
        assert line["action"] == "change-broker-config" and config in str(line) and "hunter2" not in str(line)
