"""``--json``: which commands have it, and the shape of what it prints where no other test looks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker.tools.cli import COMMANDS, main
from kbroker.tools.cli.output import print_json
from kbroker.tools.cli.parser import all_parsers
from tests.cli_command import Run

WITHOUT = {
    "start": "it runs until it is told to stop",
    "up": "it runs until it is told to stop",
    "faults": "it runs until it is told to stop",
    "container": "it runs until it is told to stop",
    "console": "it runs until it is told to stop",
    "certs": "it prints lines of a properties file",
    "completion": "it prints a script",
    "table pause": "it changes a table and says so; table describe has it",
    "table resume": "it changes a table and says so; table describe has it",
    "table drop": "it removes a table and says so",
    "profile set": "it changes a file and says so; profile show has it",
    "profile use": "it changes a file and says so; profile show has it",
    "profile delete": "it changes a file and says so; profile list has it",
}
"""Commands without ``--json``, and why; docs/commands.md says the same."""


def test_every_command_that_prints_data_has_it() -> None:
    without = {name for name, parser in all_parsers(COMMANDS) if "--json" not in parser._option_string_actions}
    assert without == set(WITHOUT)


def test_changes_are_told_in_json(kb: Run) -> None:
    assert kb("quota", "set", "--user", "ann", "--producer-byte-rate", "100", "--json").json == {
        "entity": {"user": "ann"},
        "quotas": {"producer_byte_rate": 100},
    }
    assert kb("quota", "delete", "--user", "ann", "--json").json == {
        "entity": {"user": "ann"},
        "quotas": {"producer_byte_rate": None},
    }


def test_users_are_told_in_json(kb: Run, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    added = kb("user", "add", "ann", *both, "--password-file", str(password), "--json").json
    assert added == {"user": "ann", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    left = kb("user", "delete", "ann", "--mechanism", "SCRAM-SHA-256", "--yes", "--json").json
    assert left == {"user": "ann", "mechanisms": ["SCRAM-SHA-512"]}


def test_a_transaction_that_is_not_there_is_an_error_and_no_json(kb: Run) -> None:
    refused = kb("txn", "abort", "nobody", "--yes", "--json", code=1)
    assert refused.out == "" and "TRANSACTIONAL_ID_NOT_FOUND" in refused.err


def test_directories_are_told_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"process.roles=broker,controller\nnode.id=3\nlog.dirs={tmp_path / 'data'}\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=3@127.0.0.1:9093\n"
    )
    assert main(["random-uuid", "--json"]) == 0
    cluster = json.loads(capsys.readouterr().out)["id"]
    assert main(["format", "-c", str(properties), "-t", cluster, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"formatted": [str(tmp_path / "data")]}
    assert main(["info", "-c", str(properties), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == [] and found["directories"] == [str(tmp_path / "data")]
    [formatted] = found["formatted"]
    assert (formatted["cluster_id"], formatted["node_id"]) == (cluster, 3)


def test_a_frame_is_told_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    frame = "0012 0004 00000001 0002 6b62 00 026b 0231 00".replace(" ", "")
    assert main(["decode", frame, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["size"] == len(frame) // 2 and found["problem"] is None
    assert any("client_id" in field["text"] and "'kb'" in field["text"] for field in found["fields"])
    assert main(["decode", frame[:-4], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problem"]


def test_json_cannot_command_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x9b31m\x7f\x1b ü \u3042"
    print_json({text: text})
    told = capsys.readouterr().out
    assert told.replace("\n", "").isprintable() and json.loads(told) == {text: text}
