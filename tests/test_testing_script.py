"""Faults as lines of text, and the command that reads them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.topics import describe_topics
from kbroker.errors import ApiError, ErrorCode
from kbroker.testing import RunningBroker
from kbroker.testing.script import WORDS, FaultScript, summary
from kbroker.wire.messages.groups import ListGroupsRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.cli_command import kbroker
from tests.patience import LONG

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(broker: RunningBroker) -> Iterator[FaultScript]:
    with broker.faults:
        yield FaultScript(broker)


def groups_error(address: str, **options: Any) -> int:
    with Client(address, **options) as client:
        return int(client.ask_any(ListGroupsRequest()).error_code)


def create(address: str, name: str) -> None:
    with Client(address) as client:
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)])
        assert client.ask_any(request).topics[0].error_code == 0


def test_faults_of_requests(broker: RunningBroker, script: FaultScript) -> None:
    said = script.run("error ListGroups code=GROUP_AUTHORIZATION_FAILED nth=2 client_id=^mine$ probability=1 seed=3")
    number = script.faults.active[0].number
    assert said == f"fault {number}: error ListGroups GROUP_AUTHORIZATION_FAILED"
    answers = [groups_error(broker.bootstrap_servers, client_id="mine") for _ in range(3)]
    assert answers == [0, ErrorCode.GROUP_AUTHORIZATION_FAILED, 0]
    assert script.run("list") == f"{said}, 1 times"
    assert script.run("delay ListGroups seconds=0 followers=false").endswith("delay ListGroups 0 s")
    script.run(f"undo {number}")
    assert len(script.faults.active) == 1
    script.run("clear")
    assert script.run("list") == "" and script.run("") == script.run("# nothing") == ""


def test_records_and_topics(broker: RunningBroker, script: FaultScript) -> None:
    create(broker.bootstrap_servers, "scripted")
    script.run("offset-gap scripted partition=1 size=4")
    script.run("expire scripted")
    assert [str(done).split(": ", 1)[1] for done in script.faults.record[-2:]] == [
        "offset gap (scripted-1) size=4",
        "expire (scripted-0, scripted-1)",
    ]
    script.run("recreate-topic scripted partitions=3")
    with Client(broker.bootstrap_servers) as client:
        assert len(describe_topics(client, ["scripted"])["scripted"].partitions) == 3  # type: ignore[union-attr]
    script.run("delete-topic scripted")
    with pytest.raises(ApiError, match="there is no topic scripted"):
        script.run("expire scripted")


def test_what_all_nodes_do_together(broker: RunningBroker, script: FaultScript) -> None:
    create(broker.bootstrap_servers, "together")
    script.run("offset-gap together size=3")
    assert script.run("empty-topic together") == "{0: 3, 1: 3}"
    assert script.run("move-leader together partition=1 to=1") == "led by 1"
    assert script.run("stop-clock") == script.run("advance 0.5") == script.run("start-clock") == ""
    script.run("hold Fetch")
    assert script.run("reset topics=false") == "0 topics and 0 groups deleted"
    assert script.faults.active == []
    with pytest.raises(RuntimeError, match="one node, and no cluster"):
        script.run("add-node")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("explode Fetch", "there is no 'explode'; there are delay, hold,"),
        ("drop", "drop what\\? The API is missing"),
        ("drop Fetsch", "Kafka has no API 'Fetsch'"),
        ("drop Fetch when=during", "before"),
        ("drop Fetch tropic=a", "drop has no 'tropic=a'; it has when=, topic="),
        ("drop Fetch nth=two", "nth is to be a number"),
        ("drop Fetch followers=perhaps", "followers is to be true or false"),
        ("drop Fetch node=1", "node= is for several nodes"),
        ("error Fetch", "error needs code="),
        ("error Fetch code=NO_SUCH", "Kafka has no error 'NO_SUCH'"),
        ("list all", "list has no 'all'; it has nothing"),
        ("undo 99999", "there is no fault 99999"),
        ("undo it", "'it' is not a number"),
        ("kill 1", "kill is for several nodes"),
        ("drop Fetch client_id=(", "client_id is no regular expression"),
        ("drop Fetch partition=-1", "partition is to be from 0"),
        ("drop 'Fetch", "No closing quotation"),
    ],
)
def test_lines_that_are_wrong(script: FaultScript, line: str, message: str) -> None:
    with pytest.raises((ValueError, LookupError), match=message):
        script.run(line)
    assert script.faults.active == []


def test_every_word_is_a_method_or_the_scripts_own() -> None:
    from kbroker.testing import ClusterNode
    from kbroker.testing.faults import Faults
    from kbroker.testing.verbs import Verbs

    for name, word in WORDS.items():
        if word.subject in ("API", "TOPIC"):
            assert callable(getattr(Faults, name.replace("-", "_"), None) or getattr(Verbs, name.replace("-", "_")))
        elif word.subject == "NODE":
            assert callable(getattr(ClusterNode, name))
        assert f"  {name}" in summary()


# --- kbroker faults


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker", "faults", "--port", "0", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command() -> None:
    with command("error ListGroups code=GROUP_AUTHORIZATION_FAILED times=1", "# no more") as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "fault 0: error ListGroups GROUP_AUTHORIZATION_FAILED\n"
        assert process.stdout.readline() == "ok\n"
        address = process.stdout.readline().removeprefix("kbroker ready: ").strip()
        assert groups_error(address) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert process.stdout.readline().startswith("0: error ListGroups v")
        process.stdin.write("expire nowhere\nhold Fetch\nclear\n")
        process.stdin.close()  # it serves on
        said = [process.stdout.readline().strip() for _ in range(3)]
        assert said == ["error: there is no topic nowhere", "fault 1: hold Fetch", "ok"]
        assert groups_error(address) == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="only Linux has it")
def test_who_does_not_read_what_is_done_holds_up_no_request() -> None:
    with command("delay ListGroups seconds=0") as process:
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        assert process.stdout.readline().startswith("fault 0: delay ListGroups")
        with Client(process.stdout.readline().removeprefix("kbroker ready: ").strip(), timeout=LONG) as client:
            for _ in range(300):
                client.ask_any(ListGroupsRequest())
        assert [process.stdout.readline().partition(":")[0] for _ in range(300)] == [str(n) for n in range(300)]


def test_a_wrong_line_ends_the_command_before_it_serves() -> None:
    told = kbroker("faults", "--port", "0", "drop Fetsch")
    assert told.returncode == 2 and told.stdout == ""
    assert told.stderr == "kbroker faults: drop Fetsch: Kafka has no API 'Fetsch' (see kbroker faults --help)\n"
