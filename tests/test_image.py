"""The scripts of image/: they do what scripts that run in apache/kafka and confluentinc/cp-kafka want of theirs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG

ROOT = Path(__file__).parents[1]
IMAGE = ROOT / "image"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

APACHE = "/etc/kafka/docker/run KAFKA_NUM_PARTITIONS=3"
CONFLUENT = "/etc/confluent/docker/run KAFKA_NUM_PARTITIONS=3"
# The modules of Python and Go do not call run. Kafka is formatted by a line that they append to configure.
STEP_BY_STEP = """\
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t "$CLUSTER_ID" -c /etc/kafka/kafka.properties' \
    >> /etc/confluent/docker/configure
echo '' > /etc/confluent/docker/ensure
export KAFKA_NUM_PARTITIONS=3
. /etc/confluent/docker/bash-config
/etc/confluent/docker/configure
/etc/confluent/docker/launch
"""
ZOOKEEPER = """\
zookeeper-server-start zookeeper.properties &
wait
export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'
. /etc/confluent/docker/bash-config
/etc/confluent/docker/configure
/etc/confluent/docker/launch
"""


class Container:
    """A directory that is laid out as the image, in which scripts run with the paths of the image in it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        for path in sorted(IMAGE.rglob("*")):
            if path.is_file():
                target = directory / path.relative_to(IMAGE)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self.inside(path.read_text("utf-8")))
                shutil.copymode(path, target)
        commands = directory / "bin"
        commands.mkdir()
        (commands / "kbroker").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kbroker "$@"\n')
        (commands / "kbroker").chmod(0o755)
        for tool in (directory / "opt/kafka/bin").iterdir():
            (commands / tool.stem).symlink_to(tool)
        self.client, controller = free_ports(2)
        self.environment = {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{self.client},CONTROLLER://127.0.0.1:{controller}",
            "KAFKA_LOG_DIRS": str(directory / "data"),
            "CLUSTER_ID": CLUSTER_ID,
        }
        self.kraft = {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@127.0.0.1:{controller}",
        }

    def inside(self, script: str) -> str:
        """The script with the image's directories below this one."""
        return re.sub(r"(?<![\w.])/(etc|opt)/(?=kafka|confluent)", rf"{self.root}/\1/", script)

    def start(self, shell: str, script: str, **variables: str) -> subprocess.Popen[str]:
        """The script as the container's command; both its outputs in one pipe."""
        return subprocess.Popen(
            [shell, "-c", self.inside(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.root,
            env=self.environment | variables,
            start_new_session=True,
        )


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


@pytest.mark.parametrize(
    ("shell", "script"),
    [("bash", APACHE), ("bash", CONFLUENT), ("sh", STEP_BY_STEP), ("bash", STEP_BY_STEP)],
    ids=["apache", "confluent", "step-by-step-sh", "step-by-step-bash"],
)
def test_a_start_script_of_testcontainers(container: Container, shell: str, script: str) -> None:
    advertised = f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{container.client}\n"
    process = container.start(shell, advertised + script, **container.kraft)
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            if "Kafka Server started" in line:
                break
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=2 * LONG)
    text = "".join(lines)
    # What the modules wait for, in the words of their regular expressions.
    assert re.search(".*Transitioning from RECOVERY to RUNNING.*", text), text
    assert re.search(".*Kafka Server started.*", text), text
    assert f"cluster.id={CLUSTER_ID}" in (container.root / "data" / "meta.properties").read_text()
    if script is not APACHE:
        made = container.root / "etc/kafka/kafka.properties"
        assert "num.partitions=3\n" in made.read_text()
        assert made.stat().st_mode & 0o077 == 0, "others could read the passwords in it"


def test_launch_goes_by_the_file_alone(container: Container) -> None:
    (container.root / "bin/kbroker").write_text('#!/bin/sh\necho "$@"\nenv\n')
    variables = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_OPTS": "-Da -Db"}
    output, _ = container.start("bash", "exec /etc/confluent/docker/launch", **variables).communicate(timeout=2 * LONG)
    assert output.startswith("container -c ") and "KAFKA_" not in output and f"CLUSTER_ID={CLUSTER_ID}\n" in output


def test_without_kraft_a_container_says_what_is_missing(container: Container) -> None:
    process = container.start("sh", ZOOKEEPER)
    output, _ = process.communicate(timeout=2 * LONG)
    assert process.returncode != 0
    assert "kbroker has no ZooKeeper" in output and "Traceback" not in output, output
    assert "process.roles" in output.splitlines()[-1], output


def test_the_image_has_all_of_it() -> None:
    copied = re.findall(r"^COPY image/(\S+) /(\S+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    files = [path for path in IMAGE.rglob("*") if path.is_file()]
    assert files
    for path in files:
        inside = str(path.relative_to(IMAGE))
        assert any(source == target and inside.startswith(f"{source}/") for source, target in copied), inside
        first = path.read_text("utf-8").partition("\n")[0]
        assert (path.stat().st_mode & 0o111 != 0) == first.startswith("#!"), inside
    assert "!image" in (ROOT / ".dockerignore").read_text("utf-8").split()
