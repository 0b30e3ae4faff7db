"""Faults switched from the page, in nodes that ``kbroker faults --console`` has started."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.producer import Producer, RecordRefused
from kbroker.client.topics import NewTopic, create_topics
from kbroker.tools.cli import main
from kbroker.wire.record_batch import Record
from tests.console.console_process import ConsoleClient, ConsoleProcess
from tests.patience import LONG


class FaultyNode:
    """``kbroker faults --console`` as a process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "kbroker", "faults", "--port", "0", "--console", "0"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.bootstrap = self.process.stdout.readline().removeprefix("kbroker ready: ").strip()
        found = re.search(r"http://(\S+?)/", self.process.stdout.readline())
        assert found is not None, self.process.communicate(timeout=LONG)[1]
        self.page = ConsoleClient(found[1])
        self.undone: list[str] = []
        """The faults that were undone, which has to be audited."""


@pytest.fixture(scope="module")
def node() -> Iterator[FaultyNode]:
    running = FaultyNode()
    yield running
    running.process.send_signal(signal.SIGTERM)
    _, log = running.process.communicate(timeout=LONG)
    assert running.process.returncode == 0, log
    audit = [line for line in log.splitlines() if line.startswith("audit ") and '"action": "fault"' in line]
    assert all(any(f'"target": "{each}"' in line for line in audit) for each in running.undone)


def test_a_fault_is_switched_on_acts_and_is_undone(node: FaultyNode) -> None:
    page = node.page
    assert page.enter()["faults"] is True
    told = page.get("faults").json
    assert told["active"] == [] and {"word": "hold", "subject": "API"}.items() <= told["words"][1].items()
    with Client(node.bootstrap) as client:
        create_topics(client, [NewTopic("orders", 1, 1)])
        line = "error Produce code=POLICY_VIOLATION topic=orders"
        assert page.post("faults", {"line": line}).json["done"].startswith("fault 0: ")
        refused: list[RecordRefused] = []
        producer = Producer(client, "orders", [0], on_refused=refused.append)
        producer.send(Record(0, 0, None, b"x"), 0)
        producer.flush()
        assert len(refused) == 1 and "POLICY_VIOLATION" in refused[0].error
        [fault] = (told := page.get("faults").json)["active"]
        assert (fault["number"], fault["hits"]) == (0, 1)
        assert "error Produce" in told["done"][-1] and "orders-0" in told["done"][-1]
        assert page.post("faults", {"line": "undo 0"}).json["done"] == "ok"
        node.undone.append("undo 0")
        producer.send(Record(0, 0, None, b"x"), 1)
        producer.flush()
        assert len(refused) == 1 and page.get("faults").json["active"] == []


def test_lines_that_make_no_sense_are_told(node: FaultyNode) -> None:
    for line, told in (
        ("drop Fetsch", "Kafka has no API 'Fetsch'"),
        ("kill 1", "kill is for several nodes"),
        ("hold Fetch\nhold Produce", "one line is done at a time"),
        ("hold 'Fetch", "No closing quotation"),
    ):
        answer = node.page.post("faults", {"line": line})
        assert answer.status == 400 and answer.error == told


def test_other_consoles_have_none(console: ConsoleProcess) -> None:
    assert console.enter()["faults"] is False
    assert console.get("faults").status == 404
    assert console.post("faults", {"line": "hold Fetch"}).status == 404


def test_a_console_needs_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "--console", "x"]) == 2
    assert "expected a port" in capsys.readouterr().err
