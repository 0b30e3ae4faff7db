"""The commands that have a control, and their options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli_command import kbroker
from tests.control_client import ENVIRONMENT, QUICK, Control, command, write_secure_node
from tests.patience import LONG

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = pytest.mark.slow


def test_kbroker_start(tmp_path: Path) -> None:
    (tmp_path / "faults").write_text("# begins with these\nerror Produce code=POLICY_VIOLATION topic=orders times=1\n")
    (tmp_path / "token").write_text("s3cret\n")
    words = ["start", "--port", "0", "--control", "0.0.0.0:0", "--control-token-file", "token", "--faults", "faults"]
    with command(*words, cwd=tmp_path) as (process, at):
        control = Control(at["control"].replace("0.0.0.0", "127.0.0.1"), "s3cret")
        status = control.do("GET", "/")
        assert status["bootstrap_servers"] == at["ready"] and len(status["faults"]) == 1
        producer = confluent_kafka.Producer({"bootstrap.servers": at["ready"], **QUICK})
        told: list[Any] = []
        for value in "ab":
            producer.produce("orders", value, on_delivery=lambda error, _: told.append(error and error.name()))
            producer.flush(LONG)
        assert told == ["POLICY_VIOLATION", None]
        control.do("POST", "/clock/advance", seconds=8 * 86_400)
        control.do("POST", "/topics/orders/apply-retention")
        control.do("POST", "/clock/stop")
        assert control.do("POST", "/wait/end", topic="orders", offset=1)["offset"] == 1
        assert process.poll() is None


def test_kbroker_start_behind_a_secure_listener(tmp_path: Path) -> None:
    write_secure_node(tmp_path)
    words = ["start", "-c", "node.properties", "--control", "0"]
    refused = kbroker(*words, cwd=tmp_path)
    assert refused.returncode == 2 and "--control-config FILE" in refused.stderr
    with command(*words, "--control-config", "admin.properties", cwd=tmp_path) as (_, at):
        assert Control(at["control"]).do("POST", "/wait/group", group="g", state="Dead")["state"] == ""


@pytest.mark.parametrize("secure", [False, pytest.param(True, marks=pytest.mark.everything)], ids=["plain", "secure"])
def test_kbroker_up(tmp_path: Path, secure: bool) -> None:
    words = ["up", "-n", "3", "--port", "0", "--control", "0", *(["--secure"] if secure else [])]
    with command(*words, cwd=tmp_path) as (process, at):
        control = Control(at["control"])
        assert control.do("GET", "/")["bootstrap_servers"] == at["ready"]
        control.do("POST", "/nodes/2/kill")
        assert control.do("POST", "/nodes/2/start")["state"] == "running"
        control.do("POST", "/groups/move-coordinator", group="g", to=2)
        assert control.do("POST", "/nodes")["node"] == 4
        assert control.do("POST", "/reset")["kept"] == []
        assert process.poll() is None


@pytest.mark.parametrize("words", [["start"], ["up", "-n", "1"]], ids=lambda words: words[0])
def test_faults_from_a_file_alone(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "faults").write_text("error Produce code=POLICY_VIOLATION topic=orders times=1\n")
    with command(*words, "--port", "0", "--faults", "faults", cwd=tmp_path) as (_, at):
        assert "control" not in at
        producer = confluent_kafka.Producer({"bootstrap.servers": at["ready"], **QUICK})
        told: list[Any] = []
        for value in "ab":
            producer.produce("orders", value, on_delivery=lambda error, _: told.append(error and error.name()))
            producer.flush(LONG)
        assert told == ["POLICY_VIOLATION", None]


def test_kbroker_faults_has_it_too(tmp_path: Path) -> None:
    with command("faults", "--port", "0", "--control", "0", "hold ListGroups", cwd=tmp_path) as (_, at):
        assert len(Control(at["control"]).do("GET", "/faults")["faults"]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["start", "--control", "0.0.0.0:0"], "beyond the loopback interface it needs --control-token-file"),
        (["start", "--control", "here:"], r"expected \[HOST:\]PORT"),
        (["start", "--control", "0", "--control-token-file", "nowhere"], "cannot read nowhere"),
        (["start", "--control-token-file", "nowhere"], "--control-token-file goes with --control"),
        (["start", "--port", "0", "--faults", "wrong"], "--faults, line 2: explode Fetch: there is no 'explode'"),
        (["start", "--port", "0", "--faults", "records"], "--faults, line 1: expire orders: expire is no fault of"),
        (["up", "--control", "0", "--restart"], "--restart does not go with --control"),
    ],
)
def test_options_that_are_wrong(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "wrong").write_text("hold Fetch\nexplode Fetch\n")
    (tmp_path / "records").write_text("expire orders\n")
    ended = kbroker(*words, cwd=tmp_path)
    assert ended.returncode in (1, 2) and re.search(message, ended.stderr), ended.stderr


@pytest.mark.parametrize("more", [[], ["--control", "0"]], ids=["plain", "control"])
def test_a_cluster_ends_with_the_program_that_holds_its_input(tmp_path: Path, more: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker", "up", "-n", "1", "--port", "0", "--until-eof", *more],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        assert any(line.startswith("kbroker ready: ") for line in process.stdout)
        process.stdin.close()
        assert process.wait(2 * LONG) == 0
