"""``kbroker top`` as a process, in a terminal and out of one, against a broker with records, a group, a transaction."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker.client import Client
from kbroker.client.groups import commit_offsets
from kbroker.client.topics import LATEST, ListedOffset, NewTopic, create_topics, list_offsets
from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.cli import main
from kbroker.tools.top import command
from kbroker.types import TopicPartition
from kbroker.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, InitProducerIdRequest
from tests.node.metrics_pages import LISTENER, port_of
from tests.patience import LONG, SHORT

ROOT = Path(__file__).parents[2]
ROWS, COLUMNS = 40, 130


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Topics ``orders`` and ``clicks``, 10 records in orders-0 of which group ``billing`` has had 4."""
    few = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with running_broker({**LISTENER, **few}) as running:
        with Client(running.bootstrap_servers, timeout=SHORT) as client:
            create_topics(client, [NewTopic("orders", 2, 1), NewTopic("clicks", 1, 1)])
            produce(running, 10, tmp_path_factory.mktemp("records"))
            client.partitions_of("orders")
            commit_offsets(client, "billing", {TopicPartition("orders", 0): 4})
            begin_transaction(client, "payments-1", "clicks")
        yield running


def environment(broker: RunningBroker, **others: str) -> Mapping[str, str]:
    given = {"KBROKER_BOOTSTRAP": broker.bootstrap_servers, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    return {**os.environ, **given, **others}


def produce(broker: RunningBroker, count: int, directory: Path) -> None:
    lines = directory / "lines"
    lines.write_bytes(b"".join(b"%d\n" % number for number in range(count)))
    words = ["produce", "orders", str(lines), "-p", "0", "-q", "--batch-bytes", "1"]
    assert main([*words, "-b", broker.bootstrap_servers]) == 0


def begin_transaction(client: Client, name: str, topic: str) -> None:
    """A transaction with a partition that it has told the coordinator of."""

    def check(response: object) -> None:
        assert not getattr(response, "error_code", 0)

    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=900_000)
    told = client.ask_coordinator(name, request, check, key_type=1)
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=told.producer_id,
        v3_and_below_producer_epoch=told.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    client.ask_coordinator(name, adding, check, highest=3, key_type=1)


# --- Once -----------------------------------------------------------------------------------------------------------


def test_once(broker: RunningBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "sleep", lambda seconds: None)
    page = f"127.0.0.1:{port_of(broker)}"
    words = ["top", "-b", broker.bootstrap_servers, "--interval", "1", "--timeout", str(LONG)]
    assert main([*words, "--metrics", page, "--json", "--once"]) == 0
    done = capsys.readouterr()
    assert done.err == ""
    found = json.loads(done.out)
    assert {topic["name"] for topic in found["topics"]} >= {"orders", "clicks", "__consumer_offsets"}
    [orders] = [topic for topic in found["topics"] if topic["name"] == "orders"]
    assert orders["records_in_per_second"] == 0 and orders["bytes_in_per_second"] == 0
    [billing] = [group for group in found["groups"] if group["group"] == "billing"]
    with Client(broker.bootstrap_servers, timeout=SHORT) as client:
        [end] = list_offsets(client, {TopicPartition("orders", 0): LATEST}).values()
    assert isinstance(end, ListedOffset)
    lag = end.offset - 4
    assert billing["lag"] == lag and 0 < billing["lag_seconds"] < 600 and billing["lag_seconds_exact"]
    [transaction] = found["transactions"]
    assert transaction["transactional_id"] == "payments-1" and transaction["partitions"] == [["clicks", 0]]
    assert {request["api"] for request in found["requests"]} >= {"Produce", "ListOffsets"}
    assert found["nodes"][0]["bytes_out_per_second"] is not None
    assert found["offline"] == found["under_replicated"] == 0 and found["problems"] == []
    # Without a page of metrics, and as text: the next record's batch tells how long the group is behind.
    assert main(words) == 0
    done = capsys.readouterr()
    assert re.search(rf"^billing +\S+ +Empty +1 +{lag} +\d", done.out, re.MULTILINE), done.out
    assert "\x1b" not in done.out and "no page of metrics is read" in done.out and done.err == ""


@pytest.mark.parametrize(
    ("words", "problem", "code"),
    [
        (["--once", "-b", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1", 1),
        (["--metrics", "nothing"], "is not an address such as", 2),
        (["--interval", "0"], "is not a number of seconds from 1", 2),
    ],
)
def test_mistakes_are_one_line(words: list[str], problem: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        ended = main(["top", *words])
    except SystemExit as error:
        ended = int(error.code or 0)
    captured = capsys.readouterr()
    assert ended == code and captured.err.count("\n") == 1 and problem in captured.err


# --- In a terminal --------------------------------------------------------------------------------------------------


class Screen:
    """The terminal on the other end: it obeys the few sequences that ``top`` writes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.lines: dict[int, str] = {}
        self.raw = ""
        self._done = 0

    @property
    def text(self) -> str:
        return "\n".join(self.lines.get(row, "") for row in range(1, ROWS + 60))

    def read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # the process has ended
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def show_next(self) -> bool:
        """Draw the next whole screen of those that were read; false if there is none."""
        end = self.raw.find("\x1b[?2026l", self._done)
        if end < 0:
            return False
        row = 0
        for place, content in re.findall(r"\x1b\[(?:(\d+);1H(.*?)\x1b\[K|J)", self.raw[self._done : end]):
            if place:
                row = int(place)
                self.lines[row] = re.sub(r"\x1b\[[\d;]*m", "", content)
            else:  # all that is below
                self.lines = {each: line for each, line in self.lines.items() if each <= row}
        self._done = end + 1
        return True

    def await_(self, seen: Callable[[str], object]) -> str:
        """The first screen that fulfils a condition, however many others have come after it."""
        deadline = time.monotonic() + LONG
        while not seen(self.text):
            if not self.show_next():
                assert time.monotonic() < deadline, self.text
                self.read(0.5)
        return self.text

    def press(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def terminal(broker: RunningBroker, *words: str, **others: str) -> Iterator[tuple[Screen, int, list[object]]]:
    """``kbroker top`` in a terminal of its own: the screen, the process, and the terminal's settings before."""
    ours, theirs = pty.openpty()
    screen = Screen(ours)
    screen.resize(ROWS, COLUMNS)
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker", "top", "--interval", "1", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(broker, **others),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        yield screen, process.pid, before
        deadline = time.monotonic() + LONG
        while process.poll() is None:
            assert time.monotonic() < deadline, screen.text
            screen.read(0.05)
        while screen.read(0):
            pass
        assert termios.tcgetattr(theirs) == before
        assert re.fullmatch(r"(kbroker: .*)?\s*(\^[C\\])?", screen.raw.rsplit("\x1b[?1049l", 1)[1]), screen.raw[-200:]
        assert "Traceback" not in screen.raw
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_a_session(broker: RunningBroker, tmp_path: Path) -> None:
    page = f"http://127.0.0.1:{port_of(broker)}/metrics"
    with terminal(broker, "--metrics", page) as (screen, _, _):
        screen.await_(lambda text: "nodes 1 of 1 up" in text and "billing" in text and "payments-1" in text)
        assert "\x1b[32m" in screen.raw  # what is well is green
        screen.press("3")
        screen.await_(lambda text: re.search(r"^orders +2 +1 ", text, re.MULTILINE) and "clicks" in text)
        screen.press("/ord\r")
        text = screen.await_(lambda text: "filter: ord" in text and "clicks" not in text)
        assert "orders" in text
        produce(broker, 3, tmp_path)
        screen.await_(lambda text: re.search(r"^orders +2 +1 +[\d.]*[1-9]", text, re.MULTILINE))
        screen.press("\x1b4")  # Esc ends the filter
        screen.await_(lambda text: re.search(r"^billing +\w* +Empty +1 +9 ", text, re.MULTILINE))
        screen.press(" ?")
        screen.await_(lambda text: "sort by the next" in text and "paused" in text)
        screen.resize(12, 44)
        screen.await_(lambda text: "kbroker top" in text and max(map(len, screen.lines.values())) <= 44)
        assert max(screen.lines) <= 12
        screen.press("\t")
        screen.await_(lambda text: "every partition has" in text)
        screen.press("q")


@pytest.mark.parametrize("ending", ["Ctrl-C", "Ctrl-\\", "SIGTERM"])
def test_the_terminal_comes_back_however_it_ends(broker: RunningBroker, ending: str) -> None:
    with terminal(broker, NO_COLOR="1") as (screen, process, _):
        screen.await_(lambda text: "nodes 1 of 1 up" in text)
        assert not re.search(r"\x1b\[3\dm", screen.raw)
        if ending == "Ctrl-C":
            screen.press("\x03")
        elif ending == "Ctrl-\\":
            screen.press("\x1c")
        else:
            screen.press("\x1a")  # Ctrl-Z, and fg
            screen.await_(lambda text: screen.raw.endswith("\x1b[?1049l"))
            os.waitid(os.P_PID, process, os.WSTOPPED)
            while screen.show_next():
                pass
            screen.lines.clear()
            os.kill(process, signal.SIGCONT)
            screen.await_(lambda text: "nodes 1 of 1 up" in text)
            os.kill(process, signal.SIGTERM)


def test_a_cluster_that_is_not_there(broker: RunningBroker) -> None:
    with terminal(broker, "-b", "127.0.0.1:1") as (screen, _, _):
        screen.await_(lambda text: "cannot connect to 127.0.0.1:1" in text)
        screen.press("q")
