"""kbroker export, import and replay, the latest of each key and --filter, against a broker."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.client.reader import Reader
from kbroker.testing import RunningBroker
from kbroker.testing.cluster import running_cluster
from kbroker.tools.cli.partial_file import partial_file
from tests.cli_command import Run
from tests.every_node import await_topics
from tests.patience import LONG

ROOT = str(Path(__file__).parents[2])

RECORDS: list[dict[str, object]] = [
    {"key": "a", "value": '{"n": 1}', "headers": [["h", "x"], ["h", None]], "timestamp": 1_700_000_000_000},
    {"key": "b", "value": '{"n": 2}', "headers": [], "timestamp": 1_700_000_001_000},
    {"key": None, "value": "=SUM(A1)", "headers": [], "timestamp": 1_700_000_002_000},
    {"key_base64": "/w==", "value_base64": "AP8=", "headers": [], "timestamp": 1_700_000_003_000},
    {"key": "a", "value": None, "headers": [["b", {"value_base64": "/w=="}]], "timestamp": 1_700_000_004_000},
    {"key": "", "value": 'line\nwith "all", of it\r', "headers": [], "timestamp": 1_700_000_005_000},
]
PARTITIONS = [0, 2, 1, 2, 0, 1]


@pytest.fixture
def make(kb: Run, tmp_path: Path) -> Callable[[str], str]:
    """Makes a topic of three partitions with `RECORDS`."""

    def made(name: str) -> str:
        kb("topic", "create", name, "-p", "3", "-c", "retention.ms=-1")
        path = tmp_path / f"{name}.given"
        rows = [{**record, "partition": p} for record, p in zip(RECORDS, PARTITIONS, strict=True)]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        kb("produce", name, str(path), "-i", "records", "--keep-partitions", "-q")
        return name

    return made


@pytest.fixture
def empty(kb: Run, request: pytest.FixtureRequest) -> Iterator[str]:
    """Another topic of three partitions."""
    name = "empty-" + re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60]
    kb("topic", "create", name, "-p", "3", "-c", "retention.ms=-1")
    yield name


def all_of(kb: Run, topic: str) -> list[dict[str, object]]:
    """Everything of a topic but its name, by partition and offset."""
    found = [{**record, "topic": ""} for record in kb("consume", topic, "--json").json_lines]
    return sorted(found, key=lambda record: (record["partition"], record["offset"]))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_an_export_is_imported_as_it_was(
    kb: Run, make: Callable[[str], str], empty: str, tmp_path: Path, suffix: str
) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    topic = make(f"there-and-back-{suffix}")
    path = tmp_path / f"records.{suffix}"
    found = kb("export", topic, str(path))
    assert re.fullmatch(rf"6 records of {topic} to {re.escape(str(path))} in .* s\n", found.out) and found.err == ""
    assert [each.name for each in tmp_path.glob("records.*")] == [path.name]
    found = kb("import", empty, str(path))
    assert found.out.startswith(f"6 records to {empty} in ") and found.err == ""
    assert all_of(kb, empty) == all_of(kb, topic) and len(all_of(kb, topic)) == 6
    # Once more, where the keys say.
    kb("import", empty, str(path), "--by-key", "-q")
    assert len(all_of(kb, empty)) == 12


def test_an_export_of_a_part(kb: Run, make: Callable[[str], str], tmp_path: Path) -> None:
    topic, path = make("parts"), tmp_path / "part.csv"
    told = kb("export", topic, str(path), "--filter", "$.n >= 1", "--json").json
    assert (told["looked_at"], told["written"]) == (6, 2)
    with path.open(newline="") as file:
        assert sorted(row["value"] for row in csv.DictReader(file)) == ['{"n": 1}', '{"n": 2}']
    assert "give --force" in kb("export", topic, str(path), code=1).err
    kb("export", topic, str(path), "--force", "-p", "1", "--from", "@1700000003", "--until", "@1700000006")
    with path.open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["key"], row["offset"], row["value"]) == ("", "1", 'line\nwith "all", of it\r')
    printed = kb("export", topic, "-", "--format", "jsonl")
    assert len(printed.json_lines) == 6 and printed.err == ""


def test_exports_that_cannot_be(kb: Run, make: Callable[[str], str], tmp_path: Path) -> None:
    topic = make("impossible")
    assert "give --format csv|jsonl|parquet" in kb("export", topic, "x.bin", code=2).err
    assert "Parquet needs a file" in kb("export", topic, "-", "--format", "parquet", code=2).err
    assert "cannot write" in kb("export", topic, str(tmp_path / "no" / "x.csv"), code=1).err
    assert "nothing before it" in kb("export", topic, str(tmp_path / "x.csv"), "--filter", "=", code=2).err
    assert "nowhere" in kb("export", "nowhere", str(tmp_path / "x.csv"), "--timeout", "3", code=1).err
    assert not list(tmp_path.glob("x.csv*"))
    (tmp_path / "others").write_text("theirs")
    (tmp_path / "y.csv.partial").symlink_to(tmp_path / "others")
    kb("export", topic, str(tmp_path / "y.csv"))
    assert (tmp_path / "others").read_text() == "theirs" and not (tmp_path / "y.csv").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        words = ["export", topic, str(tmp_path / name), "--format", "csv", "--force"]
        assert "is no regular file: - writes to standard output" in kb(*words, code=1).err


def test_two_exports_to_one_file(kb: Run, make: Callable[[str], str], tmp_path: Path) -> None:
    topic, path = make("twice"), tmp_path / "x.csv"
    with partial_file(path) as (partial, file):
        file.write(b"of the first")
        found = kb("export", topic, str(path), "--force", code=1)
        told = f"another export to {path} is under way: wait for its end, or name another file"
        assert (found.out, found.err) == ("", f"kbroker: {told}\n")
        file.flush()
        assert partial.read_bytes() == b"of the first" and not path.exists()
    kb("export", topic, str(path))  # what the first left over is replaced
    assert path.read_bytes().startswith(b"partition,offset,") and not partial.exists()
    with partial_file(path) as (partial, file):
        assert "give --force" in kb("export", topic, str(path), code=1).err


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_export_that_is_given_up(
    kb: Run, make: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    topic, path = make(f"given-up-{kind}"), tmp_path / f"x.{kind}"
    monkeypatch.setattr(Reader, "poll", _fail)
    assert "no space" in kb("export", topic, str(path), code=1).err
    assert not list(tmp_path.glob("x.*")), "nothing is left where nothing was written"


def _fail(*_: object) -> None:
    raise OSError(28, "no space")


def test_an_import_tells_what_it_does_not_store(kb: Run, empty: str, tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text("partition,value,value_encoding\n0,a,\n7,b,\n0,c,base64\n1,d,text\n")
    found = kb("import", empty, str(path), code=1)
    assert found.out.startswith("2 records to ")
    assert found.err.splitlines() == [
        f"kbroker: line 3: topic {empty} has no partition 7",
        "kbroker: line 4: value is not base64",
        "kbroker: 2 records not stored",
    ]
    assert [record["value"] for record in all_of(kb, empty)] == ["a", "d"]
    (tmp_path / "no.csv").write_text("city\nOslo\n")
    assert "kbroker produce --input csv" in kb("import", empty, str(tmp_path / "no.csv"), code=1).err
    assert "cannot read" in kb("import", empty, str(tmp_path / "missing.jsonl"), code=1).err
    (tmp_path / "evil.csv").write_text("a\x1b[2J\nOslo\n")
    assert "a column a\\x1b[2J: " in kb("import", empty, str(tmp_path / "evil.csv"), code=1).err


def test_a_replay_keeps_records_as_they_are(kb: Run, make: Callable[[str], str], empty: str) -> None:
    topic = make("again")
    found = kb("replay", topic, empty, "--keep-partitions")
    assert found.out.startswith(f"6 of 6 records to {empty} in ") and found.err == ""
    assert all_of(kb, empty) == all_of(kb, topic)
    told = kb("replay", topic, empty, "--filter", "key = a", "--until", "@1700000004", "--json").json
    assert (told["looked_at"], told["stored"], told["not_stored"]) == (4, 1, 0)
    found = kb("replay", topic, topic, "-p", "2", "--rate", "1000000")
    assert found.out.startswith(f"2 of 2 records to {topic} in ")
    assert len(all_of(kb, topic)) == 8


def test_a_replay_of_more_than_a_batch(kb: Run, tmp_path: Path) -> None:
    """The reader's answers are not taken for the producer's, on whatever connections they come."""
    for name in ("many", "many-again"):
        kb("topic", "create", name, "-p", "2")
    lines = tmp_path / "lines"
    lines.write_text("".join(f"k{number % 9}\t{number} {'x' * 1000}\n" for number in range(1500)))
    kb("produce", "many", str(lines), "--key-separator", "\\t", "-q")
    found = kb("replay", "many", "many-again", "--batch-bytes", "50000")
    assert found.out.startswith("1,500 of 1,500 records to many-again")
    shown = [sorted(kb("consume", name, "--value-only", "-q").rows) for name in ("many", "many-again")]
    assert shown[0] == shown[1] and len(shown[0]) == 1500


def test_a_replay_that_cannot_be(kb: Run, make: Callable[[str], str], broker: RunningBroker) -> None:
    topic = make("large")
    kb("topic", "create", "small", "-p", "1", "-c", "max.message.bytes=80")
    assert "has no partition 1, which large has" in kb("replay", topic, "small", "--keep-partitions", code=1).err
    found = kb("replay", topic, "small", "--json", code=1)
    assert found.json["not_stored"] > 0
    assert {"partition", "offset", "problem"} == found.json["problems"][0].keys()
    assert re.match(r"kbroker: partition \d offset \d: ", found.err)
    assert "not a number of records a second" in kb("replay", topic, "small", "--rate", "0", code=2).err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_replay_is_interrupted_at_a_pause(
    kb: Run, make: Callable[[str], str], broker: RunningBroker, tmp_path: Path, number: signal.Signals
) -> None:
    topic = make(f"slow-{number.name}")
    target = f"target-{number.name}"
    kb("topic", "create", target, "-p", "1")
    command = [sys.executable, "-m", "kbroker", "replay", topic, target, "--rate", "0.01"]
    environment = os.environ | {"PYTHONPATH": ROOT, "KBROKER_BOOTSTRAP": broker.bootstrap_servers}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    # The first record is stored before the pause.
    kb("consume", target, "--from", "earliest", "-f", "-n", "1")
    process.send_signal(number)
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == 130 and out.startswith(b"1 of ") and b"Traceback" not in err
    kb("replay", topic, target, "--resume", str(tmp_path / f"kbroker-replay-{target}.place"), "-q")
    assert len(all_of(kb, target)) == len(RECORDS), "the others, and no record twice"


def test_the_latest_of_each_key(kb: Run, make: Callable[[str], str]) -> None:
    topic = make("latest")
    found = kb("consume", topic, "--latest-per-key", "--json")
    assert [(row["partition"], row["offset"], row.get("key")) for row in found.json_lines] == [
        (0, 1, "a"),
        (1, 1, ""),
        (2, 0, "b"),
        (2, 1, None),
    ]
    assert found.err == "kbroker: 1 records without a key are left out\n"
    assert len(kb("consume", topic, "--latest-per-key", "--filter", "value is null", "-q").rows) == 1
    assert len(kb("consume", topic, "--latest-per-key", "-n", "2", "-q").rows) >= 2
    assert "exclude each other" in kb("consume", topic, "--latest-per-key", "-f", code=2).err


def test_consume_to_a_time_and_what_fits(kb: Run, make: Callable[[str], str]) -> None:
    topic = make("bounded")
    found = kb("consume", topic, "--from", "@1700000001", "--to", "@1700000004", "--json")
    assert sorted(row["timestamp"] for row in found.json_lines) == [1_700_000_001_000 + 1000 * n for n in range(3)]
    assert len(kb("consume", topic, "--filter", "$.n = 2 or header.h = x").rows) == 2
    assert len(kb("consume", topic, "--filter", "key = a", "-n", "1").rows) == 1
    assert "--filter: " in kb("consume", topic, "--filter", "key =", code=2).err


def test_three_nodes(kb: Run, tmp_path: Path) -> None:
    with running_cluster(3) as cluster:
        there = ("-b", cluster.bootstrap_servers)
        for name in ("one", "two", "three"):
            kb("topic", "create", name, "-p", "6", "-r", "3", *there)
        await_topics(cluster, "one", "two", "three")
        lines = tmp_path / "lines"
        lines.write_text("".join(f"k{number % 50}\tvalue {number}\n" for number in range(2000)))
        kb("produce", "one", str(lines), "--key-separator", "\\t", "-q", *there)
        path = tmp_path / "one.csv"
        kb("export", "one", str(path), *there)
        kb("import", "two", str(path), "-q", *there)
        kb("replay", "one", "three", "--filter", "key != k7", "-q", *there)
        assert len(kb("consume", "one", "--latest-per-key", "-q", *there).rows) == 50
        shown = {}
        for name in ("one", "two", "three"):
            rows = kb("consume", name, "--json", *there).json_lines
            shown[name] = sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in rows)
        assert shown["two"] == shown["one"] and len(shown["one"]) == 2000
        assert sorted(row[2:] for row in shown["three"]) == sorted(row[2:] for row in shown["one"] if row[2] != "k7")
