"""Kafka's own tools and the command, asked the same on the same broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.clients import skip_without
from compat_tests.java_tools.driver import ToolDriver
from tests.cli_command import Run

GROUPS = "kafka-consumer-groups"
CONSUMER_GROUP_HEARTBEAT = 68


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Iterator[ToolDriver]:
    skip_without("java")
    driver = ToolDriver(bootstrap)
    yield driver
    driver.close()


@pytest.fixture
def timed(kb: Run, tmp_path: Path) -> str:
    """A topic with 20 records in partition 0, one a second, and 5 in partition 1; the first two are deleted."""
    kb("topic", "create", "tools-timed", "-p", "2", "-c", "retention.ms=-1", "--if-not-exists")  # the records are old
    if kb("topic", "offsets", "tools-timed", "--json").json[0]["end_offset"]:
        return "tools-timed"
    for partition, count in ((0, 20), (1, 5)):
        path = tmp_path / f"{partition}.jsonl"
        path.write_text("".join(f'{{"at": {1_700_000_000_000 + 1000 * n}}}\n' for n in range(count)))
        kb("produce", "tools-timed", str(path), "--timestamp-column", "at", "-p", str(partition))
    kb("topic", "truncate", "tools-timed:0", "--before-offset", "2", "-y")
    return "tools-timed"


def table(text: str, *columns: str) -> list[list[str]]:
    """Some columns of the table that a tool of Kafka's prints."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heads = [index for index, words in enumerate(lines) if columns[0] in words]
    assert heads, text
    head = lines[heads[0]]
    return [[words[head.index(column)] for column in columns] for words in lines[heads[0] + 1 :]]


@pytest.mark.feature("kbroker's command", "commands", "resets as kafka-consumer-groups")
@pytest.mark.parametrize(
    "way",
    [
        "--to-earliest",
        "--to-latest",
        "--to-current",
        "--to-offset 0",
        "--to-offset 9",
        "--to-offset 999",
        "--shift-by 3",
        "--shift-by -3",
        "--shift-by 100",
        "--shift-by -100",
        "--to-datetime 2023-11-14T22:13:27.000",
        "--to-datetime 2023-11-14T22:13:27.500",
        "--to-datetime 2023-11-14T23:13:27.500+01:00",
        "--to-datetime 2033-11-14T22:13:27.500",
        "--to-datetime 1999-11-14T22:13:27.500",
        "--by-duration P1D",
        "--by-duration P10000D",
        "--by-duration PT1H2M3S",
    ],
)
def test_resets(kb: Run, tools: ToolDriver, bootstrap: str, timed: str, way: str) -> None:
    kb("group", "reset", "tools-g", "--topic", f"{timed}:0", "--to-offset", "10", "--execute")
    kb("group", "reset", "tools-g", "--topic", f"{timed}:1", "--to-offset", "2", "--execute")
    theirs = tools.run(
        GROUPS, "--bootstrap-server", bootstrap, "--group", "tools-g", "--topic", timed, "--reset-offsets",
        *way.split(), "--dry-run",
    )  # fmt: skip
    assert theirs.exit == 0, theirs
    ours = kb("group", "reset", "tools-g", "--topic", timed, *way.split(), "--dry-run", "--json").json
    found = [[str(entry["partition"]), str(entry["new_offset"])] for entry in ours["partitions"]]
    assert found == sorted(table(theirs.out, "PARTITION", "NEW-OFFSET"))


@pytest.mark.feature("kbroker's command", "commands", "offset files of kafka-consumer-groups")
def test_offset_files(kb: Run, tools: ToolDriver, bootstrap: str, timed: str, tmp_path: Path) -> None:
    kb("group", "reset", "tools-f", "--topic", timed, "--to-offset", "3", "--execute")
    exported = tools.run(
        GROUPS, "--bootstrap-server", bootstrap, "--group", "tools-f", "--topic", timed, "--reset-offsets",
        "--to-current", "--dry-run", "--export",
    )  # fmt: skip
    assert sorted(exported.out.split()) == [f"{timed},0,3", f"{timed},1,3"], exported
    path = tmp_path / "theirs.csv"
    path.write_text(exported.out)
    kb("group", "reset", "tools-f", "--topic", timed, "--to-latest", "--execute")
    found = kb("group", "reset", "tools-f", "--from-file", str(path), "--execute", "--json").json
    assert found["executed"] and [entry["change"] for entry in found["partitions"]] == [-17, -2]
    [described] = kb("group", "describe", "tools-f", "--json").json
    assert [entry["current_offset"] for entry in described["partitions"]] == [3, 3]
    mine = tmp_path / "ours.csv"
    kb("group", "reset", "tools-f", "--topic", timed, "--to-offset", "4", "--export", str(mine), "--dry-run")
    theirs = tools.run(
        GROUPS, "--bootstrap-server", bootstrap, "--group", "tools-f", "--reset-offsets", "--from-file", str(mine),
        "--dry-run",
    )  # fmt: skip
    assert sorted(table(theirs.out, "PARTITION", "NEW-OFFSET")) == [["0", "4"], ["1", "4"]]


@pytest.mark.feature("kbroker's command", "commands", "lag and members as kafka-consumer-groups")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_lag(kb: Run, tools: ToolDriver, bootstrap: str, timed: str, protocol: str) -> None:
    if protocol == "consumer" and CONSUMER_GROUP_HEARTBEAT not in served_apis(bootstrap):
        pytest.skip("the broker does not serve KIP-848 groups")
    group = f"tools-{protocol}"
    configs = {"group.protocol": protocol, "client.id": "judge", "group.instance.id": "static"}
    tools.join(group, configs, [timed], commit=3)
    try:
        theirs = tools.run(GROUPS, "--bootstrap-server", bootstrap, "--group", group, "--describe")
        [ours] = kb("group", "describe", group, "--json").json
        assert (ours["type"].lower(), ours["state"], ours["members"]) == (protocol, "Stable", 1)
        found = [
            [entry["topic"], str(entry["partition"]), str(entry["current_offset"]), str(entry["end_offset"]),
             str(entry["lag"]), entry["member_id"], entry["host"], entry["client_id"]]
            for entry in ours["partitions"]
        ]  # fmt: skip
        columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
        assert found == sorted(table(theirs.out, *columns))
        state = tools.run(GROUPS, "--bootstrap-server", bootstrap, "--group", group, "--describe", "--state")
        [[assignor, name, members]] = table(state.out, "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
        assert (ours["assignor"], ours["state"], str(ours["members"])) == (assignor, name, members)
        [one] = kb("group", "members", group, "--json").json["members"]
        assert one["instance_id"] == "static" and one["assignment"] == {timed: [0, 1]} and one["topics"] == [timed]
        assert (one["epoch"] is not None) == (protocol == "consumer")
        assert f"{timed}(0-1)" in kb("group", "members", group).out
        refused = kb("group", "reset", group, "--topic", timed, "--to-earliest", "--execute", code=1)
        assert refused.err == f"kbroker: group {group} has 1 member: stop them first\n"
        assert "NON_EMPTY_GROUP" in kb("group", "delete", group, "-y", code=1).err
        assert f"{group} " in kb("group", "list", "--state", "Stable", "--type", protocol).out
    finally:
        tools.leave()


@pytest.mark.feature("kbroker's command", "commands", "partitions of keys as kafka-console-producer")
def test_partitions_of_keys(kb: Run, tools: ToolDriver, bootstrap: str, tmp_path: Path) -> None:
    lines = "".join(f"key-{number}:{number}\n" for number in range(200)) + "ключ:x\n:empty\n"
    for topic in ("tools-keys-ours", "tools-keys-theirs"):
        kb("topic", "create", topic, "-p", "7")
    (tmp_path / "lines").write_text(lines)
    kb("produce", "tools-keys-ours", str(tmp_path / "lines"), "--key-separator", ":")
    sent = tools.run(
        "kafka-console-producer", "--bootstrap-server", bootstrap, "--topic", "tools-keys-theirs", "--reader-property",
        "parse.key=true", "--reader-property", "key.separator=:", stdin=lines,
    )  # fmt: skip
    assert sent.exit == 0, sent
    ours, theirs = (
        sorted(kb("consume", topic, "--format", "{partition} {key} {value}\\n").out.splitlines())
        for topic in ("tools-keys-ours", "tools-keys-theirs")
    )
    assert ours == theirs


@pytest.mark.feature("kbroker's command", "commands", "records as kafka-console-consumer")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records(kb: Run, tools: ToolDriver, bootstrap: str, tmp_path: Path, codec: str) -> None:
    topic = f"tools-records-{codec}"
    kb("topic", "create", topic)
    (tmp_path / "lines").write_text("".join(f"k{number}:value {number} {'x' * number}\n" for number in range(300)))
    kb("produce", topic, str(tmp_path / "lines"), "--key-separator", ":", "-z", codec, "-H", "h=v")
    properties = ["print.key=true", "print.headers=true", "print.offset=true", "print.partition=true",
                  "print.timestamp=true", "key.separator=|"]  # fmt: skip
    read = tools.run(
        "kafka-console-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning",
        "--max-messages", "300", "--timeout-ms", "120000",
        *(word for name in properties for word in ("--formatter-property", name)),
    )  # fmt: skip
    template = "CreateTime:{timestamp_ms}|Partition:{partition}|Offset:{offset}|h:{headers}|{key}|{value}\\n"
    ours = kb("consume", topic, "--format", template).out.replace("|h:h=v|", "|h:v|")
    assert ours.splitlines() == [line for line in read.out.splitlines() if line.startswith("CreateTime")]


@pytest.mark.feature("kbroker's command", "commands", "offsets as kafka-get-offsets")
@pytest.mark.parametrize("at", ["earliest", "latest", "max-timestamp", "1700000007500", "2700000007500"])
def test_offsets(kb: Run, tools: ToolDriver, bootstrap: str, timed: str, at: str) -> None:
    theirs = tools.run("kafka-get-offsets", "--bootstrap-server", bootstrap, "--topic", timed, "--time", at)
    expected = {
        int(p): int(o) if o else None for p, o in re.findall(rf"^{timed}:(\d+):(\d*)$", theirs.out, re.MULTILINE)
    }
    if at in ("earliest", "latest"):
        name = "start_offset" if at == "earliest" else "end_offset"
        found = {row["partition"]: row[name] for row in kb("topic", "offsets", timed, "--json").json}
    else:
        moment = at if at == "max-timestamp" else f"@{int(at) / 1000:.3f}"
        rows = kb("topic", "offsets", timed, "--at", moment, "--json").json
        found = {row["partition"]: row["offset"] for row in rows}
    assert {number: offset for number, offset in found.items() if offset is not None} == {
        number: offset for number, offset in expected.items() if offset is not None
    }
