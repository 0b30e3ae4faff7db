"""Archives of Apache Kafka's classes (class data sharing): JVMs, which tests start by the hundred, start faster.

    python -m compat_tests.class_archive     make those of both releases, unless they are there

A node and some tools are run once, so that Java says which classes they load; archives of these are made for the JDK
that is on the PATH, beside each release's jars. Without them everything works as well, and takes more processor time.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compat_tests.apache_kafka import (
    KAFKA_VERSION,
    SERVER_VERSION,
    TOOL_JVM_OPTIONS,
    ApacheKafka,
    ApacheKafkaError,
    class_archive,
    kafka_home,
    locked,
    tool,
)
from tests.patience import LONG, SHORT


class Classes:
    """The lists of classes that the JVMs of one release load, each in a file."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self._directory = directory / version
        self._directory.mkdir()
        self._numbers = itertools.count()

    def options(self) -> tuple[str, ...]:
        """JVM options that have the next list written."""
        return (*TOOL_JVM_OPTIONS, f"-XX:DumpLoadedClassList={self._directory / str(next(self._numbers))}")

    def loaded_by_tools(self, node: ApacheKafka) -> None:
        """Have the tools that load most of what others do ask a node."""

        def ask(name: str, *arguments: str, text: str = "") -> None:
            place = ("--bootstrap-server", node.bootstrap)
            with contextlib.suppress(subprocess.TimeoutExpired):  # the classes that count are loaded long before
                options = self.options()
                tool(name, *place, *arguments, stdin=text, version=self.version, jvm_options=options, timeout=SHORT)

        topic = f"of-{self.version}"
        ask("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
        ask("kafka-console-producer", "--topic", topic, text="value\n")
        reading = ("--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
        ask("kafka-console-consumer", *reading, "--group", topic)

    def archive(self) -> Path:
        """Make the release's archive of all of them."""
        lists = sorted(self._directory.iterdir())
        loaded = dict.fromkeys(line for path in lists for line in path.read_text().splitlines())
        path = self._directory / "all"
        path.write_text("\n".join(loaded) + "\n")
        archive = class_archive(self.version)
        _dump(self.version, path, archive)
        return archive


def make() -> list[Path]:
    """The archives of both releases, made unless they are there. ApacheKafkaError where they cannot be."""
    archives = [class_archive(KAFKA_VERSION), class_archive(SERVER_VERSION)]
    with locked("class-archives"), tempfile.TemporaryDirectory(prefix="class-archives-") as scratch:
        if not all(path.exists() for path in archives):
            tools, server = Classes(KAFKA_VERSION, Path(scratch)), Classes(SERVER_VERSION, Path(scratch))
            with ThreadPoolExecutor() as pool:
                with ApacheKafka(Path(scratch, "node"), heap=(), jvm_options=server.options()) as node:
                    list(pool.map(lambda classes: classes.loaded_by_tools(node), (tools, server)))
                list(pool.map(Classes.archive, (tools, server)))
    return archives


def _dump(version: str, classes: Path, archive: Path) -> None:
    java = shutil.which("java")
    assert java is not None
    partial = archive.with_suffix(".partial")
    command = [
        *(java, "-Xshare:dump", "-Xlog:disable", f"-XX:SharedClassListFile={classes}"),
        *(f"-XX:SharedArchiveFile={partial}", "-cp", f"{kafka_home(version)}/libs/*"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    if done.returncode or not partial.exists():
        raise ApacheKafkaError(f"no archive of classes: {(done.stdout + done.stderr)[-2000:]}")
    partial.rename(archive)


if __name__ == "__main__":
    try:
        print(*make(), sep="\n")
    except (ApacheKafkaError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"error: {error}")
