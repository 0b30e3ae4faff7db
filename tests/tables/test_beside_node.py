"""``kbroker start --tables``: followers beside a node, which may be killed, and end with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

pytest.importorskip("deltalake")

from kbroker.errors import FatalError
from kbroker.tools.cli import main
from kbroker.tools.cli.core_supervisor import TRIES, TRIES_SECONDS, Deaths
from kbroker.tools.cli.tables_beside import run_followers
from tests.patience import LONG, eventually

TABLES = """
quota = "50MiB"

[[table]]
topic = "orders"
to = "delta:orders"
value = "json"
every = "1s"
"""


@contextmanager
def node(directory: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kbroker", "start", "--port", "0", "--data-dir", "data", *words]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(LONG)


def rows(path: Path) -> int:
    deltalake: Any = pytest.importorskip("deltalake")
    is_there = deltalake.DeltaTable.is_deltatable(str(path))
    return int(deltalake.DeltaTable(str(path)).count()) if is_there else 0


def test_followers_that_are_killed_and_a_node_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tables.toml").write_text(TABLES)
    (tmp_path / "orders.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(20)))
    log = tmp_path / "log"
    with node(tmp_path, "--tables", "tables.toml", "--metrics", "0", "--until-eof") as process:
        assert process.stdout is not None and process.stdin is not None
        bootstrap = process.stdout.readline().removeprefix("kbroker ready: ").strip()
        assert process.stdout.readline() == "kbroker tables: 1 of tables.toml\n"
        at = ["-b", bootstrap]
        [follower] = psutil.Process(process.pid).children()
        assert follower.nice() > psutil.Process(process.pid).nice()
        assert main(["topic", "create", "orders", "-p", "1", *at]) == 0
        assert main(["produce", "orders", str(tmp_path / "orders.jsonl"), *at]) == 0
        eventually(lambda: rows(tmp_path / "orders") == 20)
        found = re.search(r"metrics are on (\S+)", log.read_text())
        assert found is not None

        def followed() -> bool:
            with urllib.request.urlopen(found[1]) as page:
                text = page.read().decode()
            return 'kbroker_table_rows_total{topic="orders",table="delta:orders"} 20' in text.replace(".0\n", "\n")

        eventually(followed)
        follower.send_signal(signal.SIGKILL)
        eventually(lambda: len(psutil.Process(process.pid).children()) == 1 and not follower.is_running())
        assert "the followers of tables died: SIGKILL; they are started again in 0 s" in log.read_text()
        assert main(["produce", "orders", str(tmp_path / "orders.jsonl"), *at]) == 0
        eventually(lambda: rows(tmp_path / "orders") == 40)
        [follower] = psutil.Process(process.pid).children()
        process.stdin.close()
        assert process.wait(LONG) == 0
        eventually(lambda: not follower.is_running())


def test_a_file_that_is_wrong_keeps_the_node_from_starting(tmp_path: Path) -> None:
    (tmp_path / "tables.toml").write_text(TABLES.replace("topic", "tropic"))
    with node(tmp_path, "--tables", "tables.toml") as process:
        assert process.wait(LONG) == 1
    said = (tmp_path / "log").read_text()
    assert "tables.toml: table 1: topic is missing" in said and "no table is followed (exit code 1)" in said


LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b"'
SASL = [
    *("-o", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "-o", "inter.broker.listener.name=SASL_PLAINTEXT"),
    *("-o", "listener.security.protocol.map=CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"),
    *("-o", "sasl.enabled.mechanisms=PLAIN", "-o", "sasl.mechanism.inter.broker.protocol=PLAIN"),
    *("-o", f'listener.name.sasl_plaintext.plain.sasl.jaas.config={LOGIN} user_a="b";'),
]
CLIENT = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={LOGIN};\n"


def test_they_log_in_where_the_node_asks_who_comes(tmp_path: Path) -> None:
    (tmp_path / "tables.toml").write_text(TABLES)
    with node(tmp_path, "--tables", "tables.toml", *SASL) as process:
        assert process.wait(LONG) == 2
    assert "give client properties, command-config = FILE in tables.toml" in (tmp_path / "log").read_text()
    (tmp_path / "tables.toml").write_text(f'command-config = "client.properties"\n{TABLES}')
    (tmp_path / "client.properties").write_text(CLIENT)
    (tmp_path / "orders.jsonl").write_text('{"id": 1}\n')
    with node(tmp_path, "--tables", "tables.toml", *SASL) as process:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().removeprefix("kbroker ready: ").strip()
        at = ["-b", bootstrap, "--command-config", str(tmp_path / "client.properties")]
        assert main(["topic", "create", "orders", "-p", "1", *at]) == 0
        assert main(["produce", "orders", str(tmp_path / "orders.jsonl"), *at]) == 0
        eventually(lambda: rows(tmp_path / "orders") == 1)


def test_they_are_given_up_if_they_die_too_often(caplog: pytest.LogCaptureFixture) -> None:
    dies = [sys.executable, "-S", "-c", "print('kbroker tables: 1'); raise SystemExit(3)"]
    told: list[str] = []
    trio.run(run_followers, dies, {}, told.append, Deaths(0.0))
    assert told == ["kbroker tables: 1"]
    assert caplog.messages[-1] == f"the followers of tables died {TRIES} times within a minute and are GIVEN UP"
    assert len(caplog.messages) == TRIES
    with pytest.raises(FatalError, match="no table is followed"):
        trio.run(run_followers, [sys.executable, "-S", "-c", "raise SystemExit(3)"], {}, told.append)


def test_pauses_double_and_old_deaths_are_forgotten() -> None:
    deaths = Deaths(1.0)
    assert [deaths.seconds_to_wait(0.0) for _ in range(TRIES)] == [0.0, 1.0, 2.0, 4.0, None]
    assert deaths.seconds_to_wait(TRIES_SECONDS + 1) == 0.0
