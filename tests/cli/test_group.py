"""kbroker group, against a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.group_offsets import GroupOffsets
from kbroker.client.streams_groups import STREAMS, StreamsTopics, is_own_topic
from kbroker.testing import RunningBroker
from kbroker.tools.cli.group_reset import topic_notes
from tests.cli_command import Run
from tests.patience import LONG
from tests.streams_member import StreamsMember


@pytest.fixture(autouse=True)
def orders(kb: Run, tmp_path: Path) -> None:
    """A topic ``orders`` with 10 records in partition 0, timestamps 0 to 9 s, and 5 in partition 1."""
    if "orders" in kb("topic", "list", "--names", "--json").json:
        return
    # Records of 1970 would go with the first look at retention.
    kb("topic", "create", "orders", "-p", "2", "-c", "retention.ms=-1")
    for partition, count in ((0, 10), (1, 5)):
        path = tmp_path / f"{partition}.jsonl"
        path.write_text("".join(json.dumps({"at": 1000 * number}) + "\n" for number in range(count)))
        kb("produce", "orders", str(path), "--timestamp-column", "at", "-p", str(partition))


@contextmanager
def member(broker: RunningBroker, group: str, **options: Any) -> Iterator[Any]:
    """Somebody in the group who has all partitions of ``orders`` and has read from the start."""
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        client_id="reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=240_000,  # it stays, however slow the machine is
        request_timeout_ms=310_000,
        **options,
    )
    try:
        # A poll that gives up as the group is joined loses the assignment for good (kafka-python 3.0): let it wait.
        while not consumer.assignment():
            consumer.poll(timeout_ms=180_000, max_records=1)
        yield consumer
    finally:
        consumer.close(autocommit=False)


def rows(found: Any) -> list[tuple[int, int | None, int]]:
    return [(entry["partition"], entry["current_offset"], entry["new_offset"]) for entry in found["partitions"]]


def test_reset_with_a_preview(kb: Run) -> None:
    found = kb("group", "reset", "g1", "--topic", "orders", "--to-earliest")
    assert found.rows == [
        ["topic", "partition", "current", "new", "change"],
        ["orders", "0", "-", "0", "-"],
        ["orders", "1", "-", "0", "-"],
    ]
    assert found.err == "kbroker: nothing changed; give --execute to do it\n"
    assert "g1" not in kb("group", "list", "--names").out
    found = kb("group", "reset", "g1", "--topic", "orders", "--to-offset", "4", "--execute")
    assert found.out.endswith("2 offsets of group g1 are reset\n")
    assert kb("group", "reset", "g1", "--all-topics", "--shift-by", "2", "--dry-run").rows[1:] == [
        ["orders", "0", "4", "6", "+2"],
        ["orders", "1", "4", "5", "+1", "6", "is", "beyond", "the", "end"],
    ]
    assert kb("group", "describe", "g1").rows == [
        ["g1", "classic", "group,", "Empty,", "0", "members,", "coordinator", "1"],
        ["topic", "partition", "current", "end", "lag", "member", "host"],
        ["orders", "0", "4", "10", "6", "-", "-"],
        ["orders", "1", "4", "5", "1", "-", "-"],
        ["total", "7"],
    ]
    [described] = kb("group", "describe", "g1", "--json").json
    assert described["lag"] == 7 and described["state"] == "Empty" and described["type"] == "Classic"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], [(0, 3, 0), (1, 3, 0)]),
        (["--to-latest"], [(0, 3, 10), (1, 3, 5)]),
        (["--to-current"], [(0, 3, 3), (1, 3, 3)]),
        (["--to-offset", "100"], [(0, 3, 10), (1, 3, 5)]),
        (["--shift-by", "-2"], [(0, 3, 1), (1, 3, 1)]),
        (["--to-datetime", "1970-01-01T00:00:04.500"], [(0, 3, 5), (1, 3, 5)]),
        (["--to-datetime", "1970-01-01T02:00:04.000+02:00"], [(0, 3, 4), (1, 3, 4)]),
        (["--by-duration", "PT1H"], [(0, 3, 10), (1, 3, 5)]),
        (["--by-duration", "100000d"], [(0, 3, 0), (1, 3, 0)]),
    ],
)
def test_every_way_to_reset(kb: Run, options: list[str], expected: list[tuple[int, int | None, int]]) -> None:
    kb("group", "reset", "ways", "--topic", "orders", "--to-offset", "3", "--execute")
    found = kb("group", "reset", "ways", "--topic", "orders", *options, "--execute", "--json").json
    assert found["group"] == "ways" and found["executed"] and rows(found) == expected
    [described] = kb("group", "describe", "ways", "--json").json
    assert [entry["current_offset"] for entry in described["partitions"]] == [new for _, _, new in expected]


def test_export_and_from_file(kb: Run, tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    kb("group", "reset", "file", "--topic", "orders:1", "--to-offset", "2", "--export", str(path), "--dry-run")
    assert path.read_text() == "orders,1,2\n"
    path.write_text("other,orders,0,9\nfile,orders,0,7\nfile,orders,1,99\n")
    found = kb("group", "reset", "file", "--from-file", str(path), "--yes", "--json").json
    assert rows(found) == [(0, None, 7), (1, None, 5)]
    assert [entry["note"] for entry in found["partitions"]] == [None, "99 is beyond the end"]
    path.write_text("orders,0\n")
    assert f"{path}: line 1 is not of the form" in kb("group", "reset", "file", "--from-file", str(path), code=1).err
    assert "cannot read" in kb("group", "reset", "file", "--from-file", "/no/such/file", code=1).err
    path.write_text("nowhere,0,5\n")
    assert "topic nowhere" in kb("group", "reset", "file", "--from-file", str(path), code=1).err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--to-earliest", "--all-topics"], "has no offsets: name topics with --topic"),
        (["--to-earliest", "--topic", "nowhere"], "topic nowhere: there is no such topic"),
        (["--to-earliest", "--topic", "orders:9"], "topic orders has no partition 9"),
        (["--shift-by", "1", "--topic", "orders"], "has committed no offset for it"),
    ],
)
def test_resets_that_cannot_be(kb: Run, options: list[str], problem: str) -> None:
    found = kb("group", "reset", "never", *options, code=1)
    assert problem in found.err and found.out == "" and found.err.count("\n") == 1


def test_a_group_with_members(kb: Run, broker: RunningBroker) -> None:
    with member(broker, "live", group_instance_id="one"):
        [described] = kb("group", "describe", "live", "--json").json
        assert described["state"] == "Stable" and described["members"] == 1 and described["assignor"]
        assert [entry["client_id"] for entry in described["partitions"]] == ["reader", "reader"]
        assert [entry["lag"] for entry in described["partitions"]] == [None, None]
        assert ["live", "Classic", "consumer", "Stable"] in kb("group", "list").rows
        assert kb("group", "list", "--state", "Stable", "--type", "classic", "--names").out == "live\n"
        found = kb("group", "members", "live", "--json").json
        [one] = found["members"]
        assert one["instance_id"] == "one" and one["assignment"] == {"orders": [0, 1]} and one["topics"] == ["orders"]
        text = kb("group", "members", "live").out
        assert "orders(0-1)" in text and "reader" in text and "instance" in text
        refused = kb("group", "reset", "live", "--topic", "orders", "--to-earliest", "--execute", code=1)
        assert refused.err == "kbroker: group live has 1 member: stop them first\n"
        assert refused.rows[1] == ["orders", "0", "-", "0", "-"]
        kb("group", "reset", "live", "--topic", "orders", "--to-earliest", "--dry-run")
        assert "NON_EMPTY_GROUP" in kb("group", "delete", "live", "-y", code=1).err
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in kb("group", "delete", "live", "--topic", "orders", "-y", code=1).err


def test_delete(kb: Run) -> None:
    kb("group", "reset", "gone", "--topic", "orders", "--to-earliest", "--execute")
    assert "Delete group gone and its offsets?" in kb("group", "delete", "gone", code=1).err
    assert kb("group", "delete", "gone", "--topic", "orders:1", "-y").out == "group gone: 1 offsets deleted\n"
    kb("group", "reset", "partly", "--topic", "orders:0", "--to-earliest", "--execute")
    assert kb("group", "delete", "partly", "--topic", "orders", "-y", "--json").json == [
        {"group": "partly", "deleted_offsets": 1}
    ]
    [described] = kb("group", "describe", "gone", "--json").json
    assert [entry["partition"] for entry in described["partitions"]] == [0]
    found = kb("group", "delete", "gone", "missing", "-y", "--json", code=1)
    assert found.json == [{"group": "gone", "deleted": True}]
    assert found.err == "kbroker: group missing: there is no such group (GROUP_ID_NOT_FOUND)\n"
    assert "GROUP_ID_NOT_FOUND" in kb("group", "describe", "gone", code=1).err
    assert "GROUP_ID_NOT_FOUND" in kb("group", "members", "gone", code=1).err


def test_a_topic_that_is_gone_has_no_lag(kb: Run) -> None:
    kb("topic", "create", "passing")
    kb("group", "reset", "left", "--topic", "passing", "--topic", "orders", "--to-earliest", "--execute")
    kb("topic", "delete", "passing", "-y")
    [described] = kb("group", "describe", "left", "--json").json
    lags = {entry["topic"]: entry["lag"] for entry in described["partitions"]}
    assert lags["orders"] == 5 and lags.get("passing") is None


def test_a_group_is_told_why_it_gets_nothing(kb: Run, broker: RunningBroker, tmp_path: Path) -> None:
    """Its records are gone; its member subscribes to a topic that somebody has deleted."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    for topic in ("kept", "passing"):
        kb("topic", "create", topic)
    path = tmp_path / "records.jsonl"
    path.write_text("{}\n" * 10)
    kb("produce", "kept", str(path))
    kb("group", "reset", "hungry", "--topic", "kept", "--to-offset", "2", "--execute")
    assert kb("group", "describe", "hungry", "--json").json[0]["reasons"] == []
    kb("topic", "truncate", "kept", "--all", "-y")
    emptied = "kept-0: nothing is left to read, all that the group's lag of 8 counts is gone"
    text = kb("group", "describe", "hungry").out
    assert emptied in text and "The group continues with the next record" in text
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "hungry", "group.protocol": "consumer"}
    )
    consumer.subscribe(["kept", "passing"])
    deadline = time.monotonic() + LONG
    try:
        while len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline, "it has both topics"
            consumer.poll(0.2)
        kb("topic", "delete", "passing", "-y")
        no_topic = "passing: there is no such topic, and 1 member subscribes to it."
        described: dict[str, Any] = {"reasons": []}
        texts: list[str] = []
        deadline = time.monotonic() + LONG
        # Others come and go until the group has heard of it.
        while len(texts) != 2 or texts[0] != no_topic or not texts[1].startswith(emptied):
            assert time.monotonic() < deadline, described["reasons"]
            consumer.poll(0.2)
            [described] = kb("group", "describe", "hungry", "--json").json
            texts = [reason["text"] for reason in described["reasons"]]
    finally:
        consumer.close()
    assert [reason["severity"] for reason in described["reasons"]] == ["error", "warning"]
    assert described["lag"] == 8


def test_a_share_group(kb: Run, broker: RunningBroker) -> None:
    """Its members, and what is left in each partition; its offsets are set when nobody is in it."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    # As long as a broker allows: what is handed out again is counted again.
    long = "share.record.lock.duration.ms=60000"
    kb("config", "set", "group", "workers", "share.auto.offset.reset=earliest", long)
    worker = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "workers", "client.id": "worker"}
    )
    worker.subscribe(["orders"])
    described: dict[str, Any] = {"lag": None, "partitions": []}
    taken, held, text = 0, [], ""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        taken += len(worker.poll(0.2))
        if taken == 15:
            if not text:  # what came last is the worker's until it asks for more
                [found] = kb("group", "describe", "workers", "--in-flight", "--json").json
                held = [each for row in found["partitions"] for each in row["in_flight"]]
                text = kb("group", "describe", "workers", "--in-flight").out
            worker.commit_sync()
            [described] = kb("group", "describe", "workers", "--json").json
            if described["lag"] == 0:
                break
    assert (described["type"], described["state"], described["members"]) == ("Share", "Stable", 1)
    assert [(each["partition"], each["lag"]) for each in described["partitions"]] == [(0, 0), (1, 0)]
    assert [each["client_id"] for row in described["partitions"] for each in row["members"]] == ["worker", "worker"]
    shown = kb("group", "describe", "workers")
    assert shown.rows[0][:3] == ["workers", "share", "group,"]
    assert shown.rows[1] == ["topic", "partition", "start", "lag", "members"] and shown.rows[2][:2] == ["orders", "0"]
    assert held and {(each["state"], each["client_id"], each["delivery_count"]) for each in held} == {
        ("acquired", "worker", 1)
    }
    assert all(0 < each["lock_ms_left"] <= 60_000 and each["host"] for each in held)
    assert "lock ends in" in text and f"worker ({held[0]['member_id']})" in text and "acquired" in text
    assert "in flight" not in shown.out
    nothing = kb("group", "describe", "workers", "--in-flight")
    assert nothing.out.splitlines()[-1] == "nothing is in flight"
    kb("group", "reset", "readers", "--topic", "orders", "--to-earliest", "--execute")
    no_queue = kb("group", "describe", "readers", "--in-flight", code=1)
    assert no_queue.err == "kbroker: readers is no share group: nothing of it is in flight\n"
    assert "worker (" in shown.out and "orders(0-1)" in kb("group", "members", "workers").out
    reset = ("group", "reset", "workers", "--topic", "orders", "--to-earliest")
    refused = kb(*reset, "--execute", code=1)
    assert refused.err == "kbroker: group workers has 1 member: stop them first\n"
    before = [(each["partition"], each["start_offset"]) for each in described["partitions"]]
    assert rows(kb(*reset, "--dry-run", "--json").json) == [(number, start, 0) for number, start in before]
    worker.close()
    assert kb(*reset, "--execute").out.endswith("2 offsets of group workers are reset\n")
    [described] = kb("group", "describe", "workers", "--json").json
    assert [each["start_offset"] for each in described["partitions"]] == [0, 0]
    assert kb("group", "reset", "workers", "--all-topics", "--to-offset", "2", "--execute", "--json").json["executed"]
    [described] = kb("group", "describe", "workers", "--json").json
    assert [each["start_offset"] for each in described["partitions"]] == [2, 2]


def test_a_streams_group(kb: Run, broker: RunningBroker) -> None:
    """Its input topics are reset; of its internal topics, those named after it are deleted where that is asked for."""
    names = ("adder-sums-changelog", "others-changelog")
    for name in names:
        kb("topic", "create", name, "-p", "2")
    reset = ("group", "reset", "adder", "--topic", "orders", "--to-latest", "--delete-internal-topics")

    def left() -> set[str]:
        return set(kb("topic", "list", "--names", "--json").json).intersection(names)

    with Client(broker.bootstrap_servers) as client:
        thread = StreamsMember(client, "adder", ["orders"], names)
        thread.join()
        refused = kb(*reset, "--execute", code=1)
        assert refused.err.endswith("kbroker: group adder has 1 member: stop them first\n")
        thread.leave()
    kept = kb(*reset[:-1], "--dry-run")
    assert kept.err == (
        "kbroker: internal topics keep what they have: adder-sums-changelog, others-changelog. To begin without the"
        " state that is in them, delete them, and the local state of the application"
        " (--delete-internal-topics deletes adder-sums-changelog)\n"
    )
    shown = kb(*reset, "--dry-run")
    assert shown.rows[1:] == [["orders", "0", "-", "10", "-"], ["orders", "1", "-", "5", "-"]]
    assert shown.err == (
        "kbroker: internal topics go as well: adder-sums-changelog. Delete the local state of the application, too\n"
        "kbroker: not named after the group, and therefore kept: others-changelog\n"
    )
    assert left() == set(names)
    assert kb(*reset, "--execute").out.endswith(
        "2 offsets of group adder are reset\ninternal topics deleted: adder-sums-changelog\n"
    )
    assert left() == {"others-changelog"}
    done = kb(*reset, "--execute", "--json").json  # once more: it is gone already
    assert done["executed"] and done["deleted_topics"] == [] and len(done["internal_topics"]) == 2
    wrong = kb("group", "reset", "g1", *reset[3:], "--execute", code=1)
    assert wrong.err == "kbroker: group g1 is no Streams group: it has no internal topics\n"


@pytest.mark.parametrize(
    ("topic", "is_own"),
    [
        ("app-sums-changelog", True),
        ("app-KSTREAM-AGGREGATE-0000000003-repartition", True),
        ("app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000005-topic", True),
        ("app-join-subscription-response-topic", True),
        ("app-results", False),
        ("apple-sums-changelog", False),
        ("other-app-sums-changelog", False),
    ],
)
def test_topics_named_after_a_group(topic: str, is_own: bool) -> None:
    """(``StreamsGroupCommand.isInferredInternalTopic``)"""
    assert is_own_topic("app", topic) is is_own


@pytest.mark.parametrize(
    ("internal", "kept", "deleted"),
    [
        ((), "", "the group has no internal topics"),
        (("g-a-changelog",), "does the first)", "internal topics go as well: g-a-changelog. "),
        (
            ("h-a-changelog",),
            "state of the application",
            "not named after the group, and therefore kept: h-a-changelog",
        ),
    ],
)
def test_notes_promise_only_what_a_reset_does(internal: tuple[str, ...], kept: str, deleted: str) -> None:
    group = GroupOffsets("g", STREAMS, 0, {}, StreamsTopics(frozenset({"orders"}), internal))
    notes = topic_notes(group, delete=False)
    assert notes[0].endswith(kept) if kept else not notes
    [note] = topic_notes(group, delete=True)
    assert note.startswith(deleted)
    [note] = topic_notes(GroupOffsets("g", STREAMS, 0, {}, StreamsTopics(frozenset(), ())), delete=True)
    assert note == "the group has told no topology: its internal topics are not known"
