"""A table follows a topic of three nodes that are killed, one and then all, and start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbroker.testing.cluster import running_cluster
from kbroker.tools.cli import main
from tests.patience import LONG, eventually

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
deltalake: Any = pytest.importorskip("deltalake")


def test_nodes_that_go_and_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kbroker.client.topics import NewTopic, create_topics

    path, told = tmp_path / "orders", tmp_path / "told"

    def numbers() -> list[int]:
        if not deltalake.DeltaTable.is_deltatable(str(path)):
            return []
        values = deltalake.DeltaTable(str(path)).to_pyarrow_table()["value"].to_pylist()
        return sorted(int(value) for value in values)

    with running_cluster(3) as cluster, told.open("w") as errors:
        with cluster.client() as client:
            create_topics(client, [NewTopic("orders", 3)])
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        sent = 0

        def send() -> None:
            nonlocal sent
            for _ in range(30):
                sent += 1
                producer.produce("orders", str(sent), partition=sent % 3)
            assert producer.flush(LONG) == 0

        send()
        words = [sys.executable, "-m", "kbroker", "table", "follow", "orders", "--to", f"delta:{path}"]
        words += ["-b", cluster.bootstrap_servers, "--every", "100ms", "--timeout", "5"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        follower = subprocess.Popen(words, stderr=errors, env=environment)
        try:
            eventually(lambda: len(numbers()) == sent)
            lost = cluster.leader_of("orders", 0)
            lost.kill()
            send()
            eventually(lambda: len(numbers()) == sent, "another node leads")
            words = ["table", "describe", f"delta:{path}", "--json", "-b", cluster.bootstrap_servers]
            assert main(words) == 0
            state = json.loads(capsys.readouterr().out)
            assert (state["rows"], state["lag"], state["runs"]) == (sent, 0, True)
            lost.start()
            for node in cluster.nodes:
                node.kill()
            eventually(lambda: "trying again" in told.read_text())
            for node in cluster.nodes:
                node.start(wait=False)
            for node in cluster.nodes:
                node.await_ready()
            send()
            eventually(lambda: len(numbers()) == sent, "the cluster is there again")
        finally:
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(2 * LONG) == 0, told.read_text()
    assert numbers() == list(range(1, sent + 1))
