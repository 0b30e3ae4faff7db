"""kbroker produce and consume, against a broker: files, pipes, terminals, signals."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client import Client
from kbroker.client.pending_batches import partition_for_key
from kbroker.testing import RunningBroker, running_broker
from kbroker.types import TopicPartition
from tests.cli_command import Run, command_for
from tests.hanging_transactions import write_unknown
from tests.patience import LONG

ROOT = str(Path(__file__).parents[2])


def environment(broker: RunningBroker) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": ROOT, "KBROKER_BOOTSTRAP": broker.bootstrap_servers, "TERM": "xterm"}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "kbroker", *words]


def started(broker: RunningBroker, *words: str, **options: object) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    streams.setdefault("env", environment(broker))
    return subprocess.Popen(command(*words), **streams)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def topic(kb: Run, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of three partitions, of this test only."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60]
    kb("topic", "create", name, "-p", "3")
    yield name
    kb("topic", "delete", name, "-y")


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


# --- produce --------------------------------------------------------------------------------------------------------


def test_lines_from_a_file(kb: Run, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "lines", "".join(f"k{number % 5}\tvalue {number}\n" for number in range(100)))
    found = kb("produce", topic, path, "--key-separator", "\\t", "-H", "source=test", "-H", "empty=")
    assert re.fullmatch(rf"100 records to {topic} in \d+\.\d\d s \([\d,]+/s, .*/s\)\n", found.out) and found.err == ""
    records = kb("consume", topic, "--json").json_lines
    assert len(records) == 100
    for record in records:
        assert record["headers"] == [["source", "test"], ["empty", ""]] and record["timestamp_type"] == "CreateTime"
        assert record["partition"] == partition_for_key(record["key"].encode(), 3)
    for key in ("k0", "k1", "k2", "k3", "k4"):
        assert [entry["value"] for entry in records if entry["key"] == key] == [
            f"value {number}" for number in range(100) if f"k{number % 5}" == key
        ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_codecs_and_acks(kb: Run, topic: str, tmp_path: Path, codec: str, acks: str) -> None:
    path = write(tmp_path / "lines", "same again\n" * 500)
    found = kb("produce", topic, path, "-z", codec, "--acks", acks, "-p", "1", "--json").json
    assert (found["stored"], found["not_stored"], found["unknown"], found["bytes"]) == (500, 0, 0, 5000)
    [partition] = found["partitions"]
    assert partition["stored"] == 500 and partition["partition"] == 1
    assert partition["last_offset"] == (None if acks == "0" else 499)
    kb("topic", "offsets", topic)  # with acks=0 the next connection may be served before the last batch is read
    while len(lines := kb("consume", topic, "--value-only").out.splitlines()) < 500:
        assert acks == "0"
    assert lines == ["same again"] * 500


def test_csv_by_its_name(kb: Run, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "cities.csv", "city,celsius,at\nOslo,-4,2026-01-31T12:00:00Z\nRome,11,@1700000000\n")
    kb("produce", topic, path, "--key-column", "city", "--timestamp-column", "at", "--typed")
    records = {entry["key"]: entry for entry in kb("consume", topic, "--json-values").json_lines}
    assert records["Oslo"]["value"] == {"city": "Oslo", "celsius": -4, "at": "2026-01-31T12:00:00Z"}
    assert records["Oslo"]["timestamp"] == 1769860800000 and records["Rome"]["timestamp"] == 1700000000000


def test_what_consume_wrote_is_read_by_produce(kb: Run, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "lines", b"a:1\nb:\xff\xfe\nc:NULL\n:\n")
    kb("produce", topic, path, "--key-separator", ":", "--null-value", "NULL", "-H", "h=x")
    first = kb("consume", topic, "--json").out
    kb("topic", "truncate", topic, "--all", "-y")
    copy = write(tmp_path / "copy", first)
    kb("produce", topic, copy, "-i", "records", "--keep-partitions")
    second = kb("consume", topic, "--json").json_lines

    def contents(records: list[dict[str, object]]) -> list[str]:
        return sorted(json.dumps({**entry, "offset": 0}) for entry in records)

    assert contents(second) == contents([json.loads(line) for line in first.splitlines()])


def test_what_is_not_stored_is_told_with_its_line(kb: Run, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"id": 1}\nnot json\n{"name": 2}\n{"id": 3}\n')
    found = kb("produce", topic, path, "--key-column", "id", code=1)
    assert found.out.startswith("2 records to ")
    assert found.err.splitlines() == [
        "kbroker: line 2: not JSON: Expecting value at column 1",
        "kbroker: line 3: no field id",
        "kbroker: 2 records not stored",
    ]
    kb("topic", "alter", topic, "-c", "max.message.bytes=200")
    path = write(tmp_path / "long", "ok\n" + "x" * 1000 + "\n" + "fine\n" * 20)
    found = kb("produce", topic, path, "--json", code=1)
    assert found.json["stored"] == 21 and found.json["not_stored"] == 1
    [problem] = found.json["problems"]
    assert problem["line"] == 2 and "MESSAGE_TOO_LARGE" in problem["problem"]


def test_of_many_problems_the_first_are_told(kb: Run, topic: str, tmp_path: Path) -> None:
    found = kb("produce", topic, write(tmp_path / "x.json", "{\n" * 1234), "-q", code=1)
    assert found.out == "" and len(found.err.splitlines()) == 12
    assert found.err.splitlines()[-2:] == ["kbroker: ... and 1,224 more", "kbroker: 1,234 records not stored"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [(["t", "/no/such/file"], "cannot read /no/such/file: No such file or directory"), (["t", "/"], "cannot read /: ")],
)
def test_files_that_cannot_be_read(kb: Run, words: list[str], problem: str) -> None:
    found = kb("produce", *words, code=1)
    assert problem in found.err and found.err.count("\n") == 1 and found.out == ""


def test_a_partition_that_is_not_there(kb: Run, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x", "x\n")
    assert f"topic {topic} has no partition 3, only 0 to 2" in kb("produce", topic, path, "-p", "3", code=1).err
    path = write(tmp_path / "y", '{"partition": 3}\n{"partition": 2}\n')
    found = kb("produce", topic, path, "-i", "records", "--keep-partitions", code=1)
    assert found.err.startswith(f"kbroker: line 1: topic {topic} has no partition 3\n")


def test_a_topic_that_the_broker_makes(kb: Run, tmp_path: Path) -> None:
    kb("produce", "made-for-me", write(tmp_path / "x", "x\n"))
    assert kb("consume", "made-for-me", "--value-only").out == "x\n"


def test_somebody_who_types_sees_each_line_stored(kb: Run, broker: RunningBroker, topic: str) -> None:
    process = started(broker, "produce", topic, "--linger", "1")
    assert process.stdin is not None
    for line in (b"first\n", b"second\n"):
        process.stdin.write(line)
        process.stdin.flush()
        while line.decode() not in kb("consume", topic, "--value-only").out:
            assert process.poll() is None
    out, err = process.communicate(timeout=LONG)
    assert out.startswith(b"2 records to ") and err == b"" and process.returncode == 0


def test_interrupted_while_waiting_for_input(kb: Run, broker: RunningBroker, topic: str) -> None:
    process = started(broker, "produce", topic, "--linger", "1")
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(b"kept\n")
    process.stdin.flush()
    while "kept" not in kb("consume", topic, "--value-only").out:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG) == 130
    assert process.stdout.read().startswith(b"1 record to ") and process.stderr.read() == b""
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def read_terminal(descriptor: int) -> str:
    """All that is shown until the other end is closed."""
    shown = b""
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:
            return shown.decode()
        if not data:
            return shown.decode()
        shown += data


def test_a_progress_bar_for_who_can_see_it(kb: Run, broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "lines", "a line of some length\n" * 20_000)
    ours, theirs = pty.openpty()
    process = started(broker, "produce", topic, path, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    shown = read_terminal(ours)
    os.close(ours)
    assert process.wait(LONG) == 0 and process.stdout is not None
    assert "records" in shown and "\x1b[" in shown
    assert process.stdout.read().startswith(b"20,000 records to ")
    process.stdout.close()


# --- consume --------------------------------------------------------------------------------------------------------


@pytest.fixture
def ten(kb: Run, topic: str, tmp_path: Path) -> str:
    """The topic with ten records in partition 0, at the seconds 0 to 9."""
    path = write(tmp_path / "x.jsonl", "".join(f'{{"n": {n}, "at": {1000 * n}}}\n' for n in range(10)))
    kb("produce", topic, path, "--timestamp-column", "at", "--key-column", "n", "-p", "0")
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], range(10)),
        (["--from", "earliest"], range(10)),
        (["--from", "latest"], range(0)),
        (["--from", "7"], range(7, 10)),
        (["--from", "-3"], range(7, 10)),
        (["--from", "-300"], range(10)),
        (["--from", "1970-01-01T00:00:04.001Z"], range(5, 10)),
        (["--from", "@4"], range(4, 10)),
        (["--from", "-1h"], range(0)),
        (["--until", "4"], range(4)),
        (["--until", "@4.5"], range(5)),
        (["--from", "2", "--until", "-3"], range(2, 7)),
        (["--until", "99"], range(10)),
        (["-n", "3"], range(3)),
        (["-n", "0"], range(0)),
        (["-p", "0", "--from", "9"], range(9, 10)),
        (["-p", "1"], range(0)),
    ],
)
def test_where_to_begin_and_end(kb: Run, ten: str, options: list[str], expected: range) -> None:
    found = kb("consume", ten, "--format", "{offset}\\n", *options, "-q")
    assert [int(line) for line in found.out.splitlines()] == list(expected) and found.err == ""


def test_an_offset_that_is_not_there_is_told(kb: Run, ten: str) -> None:
    assert kb("consume", ten, "--from", "99", "-p", "0").err == (
        "kbroker: partition 0 has no offset 99, only 0 to 10\n"
    )


def test_forms(kb: Run, ten: str) -> None:
    assert kb("consume", ten, "-n", "1").out == '1970-01-01T00:00:00.000Z 0:0 0 {"n": 0, "at": 0}\n'
    assert kb("consume", ten, "-n", "1", "--hex").out.startswith("1970-01-01T00:00:00.000Z 0:0 0x30 0x7b226e")
    assert kb("consume", ten, "-n", "1", "--format", "{key}/{value_size};").out == "0/17;"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nowhere"], "topic nowhere: there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)"),
        (["made", "-p", "1"], "topic made has no partition 1, only 0 to 0"),
    ],
)
def test_what_cannot_be_read(kb: Run, words: list[str], problem: str) -> None:
    kb("topic", "create", "made", "--if-not-exists")
    found = kb("consume", *words, code=1)
    assert problem in found.err and found.err.count("\n") == 1 and found.out == ""


def test_until_a_time_behind_an_open_transaction(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = {"log.retention.ms": "-1", "transaction.partition.verification.enable": "false"}
    with running_broker(settings) as running, Client(running.bootstrap_servers) as client:
        kb = command_for(running.bootstrap_servers, monkeypatch, capsys)
        kb("topic", "create", "t")
        options = ("--timestamp-column", "at")
        kb("produce", "t", write(tmp_path / "before.json", '{"at": 1000}\n'), *options)
        write_unknown(client, TopicPartition("t", 0), 5000)
        kb("produce", "t", write(tmp_path / "behind.json", '{"at": 9000}\n'), *options)
        assert kb("consume", "t", "--until", "@6", "--value-only").out == '{"at": 1000}\n'


def test_follow(kb: Run, broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    kb("produce", topic, write(tmp_path / "old", "old\n"))
    process = started(broker, "consume", topic, "--follow", "--from", "-1", "--value-only")
    assert process.stdout is not None and process.stderr is not None and process.stdin is not None
    assert process.stdout.readline() == b"old\n"
    for number in range(3):
        kb("produce", topic, write(tmp_path / "new", f"new {number}\n"), "-p", str(number))
        assert process.stdout.readline() == b"new %d\n" % number
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG) == 130
    assert process.stderr.read() == b"" and process.stdout.read() == b""
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_follow_a_number_of_records(kb: Run, broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    kb("produce", topic, write(tmp_path / "x", "1\n2\n3\n"), "-p", "0")
    assert kb("consume", topic, "-f", "--from", "earliest", "-n", "2", "--value-only").out == "1\n2\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_slow_reader_gets_everything(
    kb: Run, broker: RunningBroker, topic: str, tmp_path: Path, unbuffered: str
) -> None:
    kb("produce", topic, write(tmp_path / "x", "some line\n" * 20_000))
    for words, size in ((["consume", topic, "--value-only"], 200_000), (["topic", "list", "--json"], 0)):
        process = started(broker, *words, env=environment(broker) | {"PYTHONUNBUFFERED": unbuffered})
        out, err = process.communicate(timeout=LONG)
        assert (process.returncode, err) == (0, b"") and len(out) == (size or len(out))


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_of_the_pipe_that_goes_away(
    kb: Run, broker: RunningBroker, topic: str, tmp_path: Path, unbuffered: str
) -> None:
    kb("produce", topic, write(tmp_path / "x", "some line\n" * 100_000))
    process = started(broker, "consume", topic, env=environment(broker) | {"PYTHONUNBUFFERED": unbuffered})
    assert process.stdout is not None and process.stderr is not None and process.stdin is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(LONG) in (141, -signal.SIGPIPE)
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_told(kb: Run, broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    kb("produce", topic, write(tmp_path / "x", "some line\n" * 10_000))
    for words in (["consume", topic], ["topic", "list"], ["topic", "list", "--json"]):
        with open("/dev/full", "wb") as full:
            process = started(broker, *words, stdout=full)
            _, err = process.communicate(timeout=LONG)
        assert (process.returncode, err) == (1, b"kbroker: cannot write: No space left on device\n"), words


def test_a_pipe_that_nobody_reads(kb: Run, broker: RunningBroker, topic: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = started(broker, "topic", "describe", topic, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=LONG)
    assert (process.returncode, err) == (141, b"")


# --- Terminals ------------------------------------------------------------------------------------------------------


def in_a_terminal(broker: RunningBroker, *words: str, typed: bytes = b"") -> tuple[int, str]:
    """The command with all of its streams on a terminal; what it shows."""
    ours, theirs = pty.openpty()
    process = started(broker, *words, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 1)[0]:
            try:
                data = os.read(ours, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
            if typed and shown.rstrip().endswith(b"[y/N]"):
                os.write(ours, typed)
                typed = b""
    os.close(ours)
    return process.wait(LONG), shown.decode()


def test_a_person_is_asked(kb: Run, broker: RunningBroker) -> None:
    kb("topic", "create", "doomed")
    code, shown = in_a_terminal(broker, "topic", "delete", "doomed", typed=b"n\n")
    assert (
        code == 1
        and f"Delete topic doomed with 0 records? This is the cluster at {broker.bootstrap_servers}. [y/N]" in shown
        and "nothing deleted" in shown
    )
    assert "doomed" in kb("topic", "list", "--names").out
    code, shown = in_a_terminal(broker, "topic", "delete", "doomed", typed=b"y\n")
    assert code == 0 and "topic doomed deleted" in shown
    assert "doomed" not in kb("topic", "list", "--names").out


def test_a_reset_is_shown_and_asked_for(kb: Run, broker: RunningBroker, ten: str) -> None:
    code, shown = in_a_terminal(broker, "group", "reset", "asked", "--topic", f"{ten}:0", "--to-latest", typed=b"y\n")
    assert (
        code == 0 and "Reset 1 offsets of group asked? [y/N]" in shown and "1 offsets of group asked are reset" in shown
    )
    assert kb("group", "describe", "asked", "--json").json[0]["lag"] == 0


def test_tables_of_a_terminal(broker: RunningBroker, kb: Run) -> None:
    code, shown = in_a_terminal(broker, "cluster", "describe")
    assert code == 0 and "\x1b[" in shown
    assert "\x1b" not in kb("cluster", "describe").out
