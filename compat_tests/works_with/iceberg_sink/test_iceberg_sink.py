"""Iceberg's sink and `kbroker table follow` write one topic into two tables of one catalog: the rows are equal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.works_with.connect import Worker, run_script
from compat_tests.works_with.java import NEEDS_JAVA
from compat_tests.works_with.judge import create_topics, leader, write
from compat_tests.works_with.nodes import without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import wait_until
from tests.patience import LONG

pytest.importorskip("pyiceberg")
pytestmark = NEEDS_JAVA
ROOT = Path(__file__).parents[3]


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table by id, without the columns that kbroker adds; none without a table."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog = SqlCatalog("kbroker", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")
    try:
        rows = catalog.load_table(table).scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []
    told = [{name: each for name, each in row.items() if not name.startswith("_")} for row in rows]
    return sorted(told, key=lambda row: int(row["id"]))


def test_the_rows_are_equal(program: Program, broker: Broker, tmp_path: Path, seen: Callable[..., None]) -> None:
    bootstrap, folder = broker.bootstrap, tmp_path / "lake"
    folder.mkdir()
    create_topics(bootstrap, {"orders": 3, "control-iceberg": 1})
    environment = {
        "KAFKA": bootstrap,
        "FOLDER": str(folder),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    sent: list[dict[str, Any]] = []

    def send(count: int, **more: Any) -> None:
        begin = len(sent)
        values = [
            {"id": each, "customer": f"c{each % 7}", "total": each + 0.5, "address": {"city": "Oslo"}, "tags": ["a"]}
            | more
            for each in range(begin, begin + count)
        ]
        write(bootstrap, "orders", [(str(each["id"]), json.dumps(each)) for each in values])
        sent.extend(values)

    send(1000)
    with Worker(program, bootstrap, folder, "worker") as worker:
        worker.await_ready()
        run_script(program, "connector.sh", CONNECT=worker.address)
        worker.await_running("iceberg-sink")
        worker.running.until(lambda: len(rows_of(folder, "lake.sink")) == 1000, "to write rows", LONG)
        run_script(program, "follow.sh", **environment)
        worker.kill()
        send(500, paid=True)
        worker.launch()
        worker.await_ready()
        with without_a_node(broker, leader(bootstrap, "orders")):
            send(500)
            run_script(program, "follow.sh", **environment)
        wait_until(lambda: len(rows_of(folder, "lake.sink")) >= len(sent), "all rows of the sink", LONG)
    theirs, ours = rows_of(folder, "lake.sink"), rows_of(folder, "lake.kbroker")
    assert ours == [{"paid": None} | each for each in sent]
    assert theirs == ours
    seen(
        f"{len(sent):,} records with structures, lists and a field that comes later: the sink's rows and those of"
        " `kbroker table follow` are equal, though the worker and a node were killed",
        "the two tables are in one catalog, an SQLite file",
    )
