"""Archives of Apache Kafka's classes (class data sharing): JVMs, which tests start by the hundred, start faster.

    python -m compat_tests.class_archive     make those of both releases, unless they are there

A node and some tools are run once, so that Java says which classes they load; an archive of these is made for the JDK
that is on the PATH, beside the release's jars. Without one everything works as well, and takes more processor time.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
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

_SECONDS = 300


def make(version: str) -> Path:
    """The release's archive, made unless it is there. ApacheKafkaError where it cannot be."""
    archive = class_archive(version)
    with locked(f"{archive.stem}-{version}"), tempfile.TemporaryDirectory(prefix="class-archive-") as scratch:
        if not archive.exists():
            lists = Path(scratch, "lists")
            lists.mkdir()
            numbers = itertools.count()
            _run_once(version, lambda: (*TOOL_JVM_OPTIONS, f"-XX:DumpLoadedClassList={lists / str(next(numbers))}"))
            classes = Path(scratch, "classes")
            loaded = dict.fromkeys(line for path in sorted(lists.iterdir()) for line in path.read_text().splitlines())
            classes.write_text("\n".join(loaded) + "\n")
            _dump(version, classes, archive)
    return archive


def _run_once(version: str, options: Callable[[], Sequence[str]]) -> None:
    """Have a node format, serve and stop, and tools ask it; each JVM has `options` of its own."""
    with tempfile.TemporaryDirectory(prefix="class-archive-") as scratch:
        node = ApacheKafka(Path(scratch, "node"), heap=(), version=version, jvm_options=options())
        with node:

            def ask(name: str, *arguments: str, text: str = "") -> None:
                place = ("--bootstrap-server", node.bootstrap)
                with contextlib.suppress(subprocess.TimeoutExpired):  # the classes that count are loaded long before
                    tool(name, *place, *arguments, stdin=text, version=version, jvm_options=options(), timeout=60)

            properties = str(Path(scratch, "node", "server.properties"))
            tool("kafka-storage", "info", "-c", properties, version=version, jvm_options=options())
            ask("kafka-topics", "--create", "--topic", "a", "--partitions", "1")
            ask("kafka-console-producer", "--topic", "a", text="value\n")
            some = ("--topic", "a", "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
            ask("kafka-console-consumer", *some, "--group", "g")
            ask("kafka-console-consumer", *some, "--group", "h", "--command-property", "group.protocol=consumer")
            ask("kafka-consumer-groups", "--describe", "--all-groups")
            ask("kafka-configs", "--describe", "--entity-type", "topics")


def _dump(version: str, classes: Path, archive: Path) -> None:
    java = shutil.which("java")
    assert java is not None
    partial = archive.with_suffix(".partial")
    command = [
        *(java, "-Xshare:dump", "-Xlog:disable", f"-XX:SharedClassListFile={classes}"),
        *(f"-XX:SharedArchiveFile={partial}", "-cp", f"{kafka_home(version)}/libs/*"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode or not partial.exists():
        raise ApacheKafkaError(f"no archive of classes: {(done.stdout + done.stderr)[-2000:]}")
    partial.rename(archive)


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:  # each is one process after another
        for path in pool.map(make, (KAFKA_VERSION, SERVER_VERSION)):
            print(path)
