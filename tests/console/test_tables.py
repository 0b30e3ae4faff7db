"""The page Tables: absent without a file; with one its tables, which are paused with --writes alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from kbroker.testing import RunningBroker
from kbroker.tools.cli import main
from tests.console.console_process import ConsoleProcess, console_process

TABLES = """
[[table]]
topic = "orders"
to = "delta:{path}/orders"
value = "json"

[[table]]
topic = "late"
to = "delta:{path}/late"
"""


@pytest.fixture(scope="module")
def file(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of two tables, one of which nobody has followed yet."""
    path = tmp_path_factory.mktemp("tables")
    (path / "tables.toml").write_text(TABLES.format(path=path))
    (path / "orders.jsonl").write_text('{"id": 1}\n{"id": "x"}\n{"id": 2}\n')
    at = ["-b", broker.bootstrap_servers]
    assert main(["topic", "create", "orders", "-p", "1", *at]) == 0
    assert main(["produce", "orders", str(path / "orders.jsonl"), *at]) == 0
    words = ["table", "follow", "orders", "--to", f"delta:{path}/orders", "--value", "json", "--once"]
    assert main([*words, *at]) == 0
    return path / "tables.toml"


@pytest.fixture(scope="module")
def tables(broker: RunningBroker, file: Path) -> Iterator[ConsoleProcess]:
    words = ("-b", broker.bootstrap_servers, "--writes", "--tables", str(file), "--mask", "late=value")
    with console_process(*words) as running:
        yield running


def test_it_is_absent_without_a_file(console: ConsoleProcess) -> None:
    assert console.enter()["tables"] is False
    assert console.get("tables").status == 404


def test_it_tells_of_each_table(tables: ConsoleProcess, file: Path) -> None:
    assert tables.enter()["tables"] is True
    to = f"delta:{file.parent}/orders"
    orders, late = tables.get("tables").json["rows"]
    assert (orders["topic"], orders["to"], orders["rows"], orders["lag"]) == ("orders", to, 2, 0)
    assert (orders["runs"], orders["paused"], orders["dead_letters"]) == (False, False, 1)
    assert "there is no such topic" in late["problem"]
    told = tables.get("table", to=to).json
    assert [each["name"] for each in told["columns"]][-1] == "id" and told["commits"][0]["rows"] == 2
    [dead] = told["last_dead_letters"]
    assert (dead["_offset"], dead["reason"]) == (1, "id: string where the table has long")
    assert tables.get("table", to="delta:other").error == "no table of the file is delta:other"


def test_it_is_paused_and_resumed(tables: ConsoleProcess, file: Path, broker: RunningBroker) -> None:
    to = f"delta:{file.parent}/orders"
    assert tables.post("table/pause", {"to": to, "paused": True}).json["done"] == f"{to} is paused"
    assert tables.get("table", to=to).json["paused"] is True
    assert tables.post("table/pause", {"to": to, "paused": False}).status == 200
    assert [each["action"] for each in tables.audit()][-2:] == ["pause-table", "resume-table"]
    with console_process("-b", broker.bootstrap_servers, "--tables", str(file)) as watching:
        assert watching.post("table/pause", {"to": to, "paused": True}).status == 403
        assert watching.get("table", to=to).json["paused"] is False
