"""kbroker topic, against a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.testing import RunningBroker
from kbroker.tools.cli.topic_offsets import parse_topic_partitions
from kbroker.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kbroker.wire.messages.metadata import MetadataRequest
from tests.cli_command import Run
from tests.client.fake_broker import FakeBroker


def fill(kb: Run, topic: str, count: int, tmp_path: Path, *options: str) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {number}\n" for number in range(count)))
    kb("produce", topic, str(path), *options)


def test_create_list_describe_delete(kb: Run, tmp_path: Path) -> None:
    assert kb("topic", "create", "orders", "-p", "3", "-c", "retention.ms=-1").out == (
        "topic orders created: 3 partitions, 1 replicas\n"
    )
    fill(kb, "orders", 10, tmp_path, "-p", "1")
    head, *rows = kb("topic", "list").rows
    assert head == ["topic", "partitions", "replicas", "records", "size"]
    assert ["orders", "3", "1", "10"] in [row[:4] for row in rows]
    [listed] = [entry for entry in kb("topic", "list", "--json").json if entry["name"] == "orders"]
    assert listed["messages"] == 10 and listed["partitions"] == 3 and 100 < listed["size"] < 500
    assert not listed["internal"] and listed["replication_factor"] == 1
    [described] = kb("topic", "describe", "orders", "--json").json
    assert described["configs"] == {"retention.ms": "-1"}
    assert [entry["end_offset"] for entry in described["partition_details"]] == [0, 10, 0]
    assert all(entry["leader"] == 1 and entry["isr"] == [1] for entry in described["partition_details"])
    text = kb("topic", "describe", "orders").out
    assert text.startswith(f"orders  id {described['topic_id']}\n3 partitions, 1 replicas, 10 records, ")
    assert "  retention.ms=-1\n" in text
    assert [row[:8] for row in kb("topic", "describe", "orders").rows[4:]] == [
        ["0", "1", "1", "1", "0", "0", "0", "0"],
        ["1", "1", "1", "1", "0", "10", "10", text.splitlines()[5].split()[-2]],
        ["2", "1", "1", "1", "0", "0", "0", "0"],
    ]
    assert "orders" in kb("topic", "list", "--names").out.splitlines()
    assert kb("topic", "delete", "orders", "--yes").out == "topic orders deleted\n"
    assert "orders" not in kb("topic", "list", "--names", "--json").json


def test_internal_topics_only_when_asked_for(kb: Run) -> None:
    kb("topic", "create", "shown")
    kb("group", "reset", "g", "--topic", "shown", "--to-latest", "--execute")
    assert "__consumer_offsets" not in kb("topic", "list").out
    rows = {row[0]: row for row in kb("topic", "list", "--internal").rows}
    assert rows["__consumer_offsets"][-1] == "yes" and rows["shown"][-1] == "no"


def test_creating_again(kb: Run) -> None:
    kb("topic", "create", "twice")
    assert kb("topic", "create", "twice", code=1).err == (
        "kbroker: topic twice: Topic 'twice' already exists (TOPIC_ALREADY_EXISTS)\n"
    )
    assert kb("topic", "create", "twice", "--if-not-exists").out == "topic twice exists already\n"
    found = kb("topic", "create", "twice", "thrice", "--json", code=1)
    assert [entry["name"] for entry in found.json] == ["thrice"] and found.err.count("\n") == 1


def test_a_dry_run_creates_nothing(kb: Run) -> None:
    assert kb("topic", "create", "maybe", "-p", "2", "--dry-run").out.startswith("topic maybe could be created")
    assert "maybe" not in kb("topic", "list", "--names").out
    assert "INVALID_CONFIG" in kb("topic", "create", "maybe", "-c", "retention.ms=x", "--dry-run", code=1).err


def test_assignments(kb: Run) -> None:
    kb("topic", "create", "assigned", "--assignment", "1,1")
    kb("topic", "alter", "assigned", "-p", "3", "--assignment", "1")
    [found] = kb("topic", "describe", "assigned", "--json").json
    assert [entry["replicas"] for entry in found["partition_details"]] == [[1], [1], [1]]
    assert "INVALID_REPLICA_ASSIGNMENT" in kb("topic", "create", "wrong", "--assignment", "9", code=1).err
    assert "without --partitions" in kb("topic", "create", "wrong", "--assignment", "1", "-p", "1", code=2).err


def test_alter(kb: Run) -> None:
    kb("topic", "create", "altered", "-c", "segment.ms=99999")
    out = kb("topic", "alter", "altered", "-p", "4", "-c", "retention.ms=1000", "-u", "segment.ms").out
    assert out.splitlines() == [
        "topic altered: retention.ms is 1000",
        "topic altered: segment.ms is the default",
        "topic altered: has 4 partitions",
    ]
    [found] = kb("topic", "describe", "altered", "--json").json
    assert found["partitions"] == 4 and found["configs"] == {"retention.ms": "1000"}
    kb("topic", "alter", "altered", "-p", "9", "-c", "retention.ms=5", "--dry-run")
    assert kb("topic", "describe", "altered", "--json").json == [found]
    assert "INVALID_PARTITIONS" in kb("topic", "alter", "altered", "-p", "2", "-c", "retention.ms=5", code=1).err
    assert kb("topic", "describe", "altered", "--json").json == [found], "all of it is refused, or nothing"
    assert "nothing to change" in kb("topic", "alter", "altered", code=2).err


def test_what_does_not_exist(kb: Run) -> None:
    for words in (["describe"], ["offsets"], ["alter", "-p", "2"], ["truncate", "--all", "-y"], ["delete", "-y"]):
        found = kb("topic", words[0], "nowhere", *words[1:], code=1)
        assert found.err == "kbroker: topic nowhere: there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)\n"
        assert found.out in ("", "[]\n")
    assert kb("topic", "delete", "nowhere", "--if-exists", "-y").out == "topic nowhere does not exist\n"
    kb("topic", "create", "here")
    found = kb("topic", "describe", "here", "nowhere", "--json", code=1)
    assert [entry["name"] for entry in found.json] == ["here"] and "topic nowhere" in found.err
    assert kb("topic", "offsets", "here:7", code=1).err == "kbroker: topic here has no partition 7, only 0 to 0\n"
    assert "TOPIC:0,1,2" in kb("topic", "offsets", "here:x", code=2).err


def test_the_nearest_topic_is_named(kb: Run) -> None:
    kb("topic", "create", "shipments")
    for words in (
        ("topic", "describe", "shipment"),
        ("consume", "shipment"),
        ("topic", "alter", "shipment", "-p", "9"),
    ):
        assert kb(*words, code=1).err.endswith("(UNKNOWN_TOPIC_OR_PARTITION): did you mean shipments?\n")


def test_nothing_is_deleted_without_a_yes(kb: Run, broker: RunningBroker) -> None:
    kb("topic", "create", "kept")
    assert kb("topic", "delete", "kept", code=1).err == (
        f"kbroker: Delete topic kept with 0 records? This is the cluster at {broker.bootstrap_servers}."
        " Give --yes to do it without being asked.\n"
    )
    assert "kept" in kb("topic", "list", "--names").out


def test_offsets_and_truncate(kb: Run, tmp_path: Path) -> None:
    kb("topic", "create", "short", "-p", "2")
    lines = tmp_path / "timed.jsonl"
    lines.write_text("".join(f'{{"n": {n}, "at": {1000 * n}}}\n' for n in range(10)))
    kb("produce", "short", str(lines), "--timestamp-column", "at", "-p", "0")
    assert kb("topic", "offsets", "short").rows == [
        ["topic", "partition", "start", "end", "records"],
        ["short", "0", "0", "10", "10"],
        ["short", "1", "0", "0", "0"],
    ]
    assert kb("topic", "offsets", "short:0", "--at", "1970-01-01T00:00:03.500Z", "--json").json == [
        {"topic": "short", "partition": 0, "offset": 4, "timestamp": 4000}
    ]
    assert kb("topic", "offsets", "short", "--at", "max-timestamp").rows[1:] == [
        ["short", "0", "9", "1970-01-01T00:00:09.000Z"],
        ["short", "1", "-", "-"],
    ]
    assert kb("topic", "offsets", "short", "--at", "-1s").rows[1:] == [
        ["short", "0", "-", "-"],
        ["short", "1", "-", "-"],
    ]
    assert "--at: 'x' is not a time" in kb("topic", "offsets", "short", "--at", "x", code=2).err
    assert "Delete 4 records of 1 partitions?" in kb("topic", "truncate", "short", "--before-offset", "4", code=1).err
    assert kb("topic", "truncate", "short", "--before-offset", "4", "-y", "--json").json == [
        {"topic": "short", "partition": 0, "start_offset": 4, "deleted": 4},
        {"topic": "short", "partition": 1, "start_offset": 0, "deleted": 0},
    ]
    kb("topic", "truncate", "short", "--before", "@6", "-y")
    assert kb("topic", "offsets", "short:0").rows[1] == ["short", "0", "6", "10", "4"]
    kb("topic", "truncate", "short", "--all", "-y")
    assert kb("topic", "offsets", "short:0").rows[1] == ["short", "0", "10", "10", "0"]


def test_nobody_there(kb: Run) -> None:
    found = kb("topic", "list", "-b", "127.0.0.1:1", code=1)
    hint = "nothing listens there; kbroker start starts a node, -b names another place"
    assert (found.out, found.err) == ("", f"kbroker: cannot connect to 127.0.0.1:1: Connection refused: {hint}\n")
    assert kb("topic", "list", "-b", "nonsense:port", code=2).err == (
        "kbroker topic list: --bootstrap-server: 'nonsense:port' is not of the form host:port"
        " (see kbroker topic list --help)\n"
    )


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250])
def test_names_that_are_none(kb: Run, name: str) -> None:
    assert "INVALID_TOPIC_EXCEPTION" in kb("topic", "create", name, code=1).err


def test_partitions_without_a_leader_are_shown_at_once(kb: Run) -> None:
    def metadata(request: Any, version: int) -> Any:
        response = fake.metadata(request, version)
        for topic in response.topics:
            topic.partitions[1].leader_id, topic.partitions[1].error_code = -1, 5
        return response

    def configs(request: Any, version: int) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=[])

    with FakeBroker({DescribeConfigsRequest: configs}) as fake:
        fake.answers |= {MetadataRequest: metadata, ListOffsetsRequest: offsets}
        for key in (35, 75):  # DescribeLogDirs and DescribeTopicPartitions
            del fake.versions[key]
        found = kb("topic", "describe", "t", "-b", fake.bootstrap, code=1)
        assert found.err == "kbroker: partition t-1 has no leader\n"
        assert found.rows[-2:] == [
            ["0", "1", "1", "1", "3", "3", "0", "-"],
            ["1", "none", "1", "1", "-", "-", "-", "-"],
        ]
        assert kb("topic", "list", "-b", fake.bootstrap).rows[1] == ["t", "2", "1", "-", "-"]


def offsets(request: Any, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=entry.partition_index, offset=3)
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_topics_with_partitions() -> None:
    assert parse_topic_partitions("t") == ("t", None)
    assert parse_topic_partitions("t:2,0,2") == ("t", [0, 2])
    for text in ("", ":0", "t:", "t:a", "t:1,", "t:-1"):
        with pytest.raises(ValueError, match=f"^{text}$"):
            parse_topic_partitions(text)
