"""The stock clients that make the load, each a process of its own that ends by itself."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compat_tests.apache_kafka import SERVER_JVM_OPTIONS, java_command, kafka_home, tool_class

HERE = Path(__file__).resolve().parent
SECONDS_LIMIT = 180
JVM_OPTIONS = ("-Xmx512M", *SERVER_JVM_OPTIONS)
"""The JVM options that Kafka's own scripts give to the perf tools."""


class LoadError(Exception):
    """A client failed; the message is what it said."""


def bundled_librdkafka() -> Path | None:
    """The librdkafka inside the installed confluent-kafka package; None where it links to the system's."""
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    for folder in (package.parent / "confluent_kafka.libs", package / ".dylibs"):
        for library in sorted(folder.glob("librdkafka*")):
            return library
    return None


class Load:
    """load.c compiled for this machine, or load_python.py where there is no compiler."""

    def __init__(self, scratch: Path, *, compiled: bool = True) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        self.command = [sys.executable, str(HERE / "load_python.py")]
        self.is_compiled = bool(compiled and compiler)
        if compiled and compiler:
            program = scratch / "load"
            libraries = [] if sys.platform == "darwin" else ["-ldl"]
            _run([compiler, "-O2", "-o", str(program), str(HERE / "load.c"), *libraries])
            self.command = [str(program)]
        self._environment = dict(os.environ, LOAD_SECONDS=str(SECONDS_LIMIT - 10))
        library = bundled_librdkafka()
        if library is not None:
            self._environment["LIBRDKAFKA"] = str(library)

    @staticmethod
    def version() -> str:
        """The client library, as a reader of the figures must know it."""
        import confluent_kafka

        return f"librdkafka {confluent_kafka.libversion()[0]}"

    def run(self, mode: str, *arguments: object) -> dict[str, Any]:
        """Run the load and return the figures that it printed. Raises LoadError."""
        output = _run([*self.command, mode, *map(str, arguments)], environment=self._environment)
        return dict(json.loads(output.splitlines()[-1]))

    @contextlib.contextmanager
    def running(self, mode: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """Run the load, whose process is given, until the block ends. Raises LoadError if it has ended before."""
        command = [*self.command, mode, *map(str, arguments)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self._environment
        ) as load:
            try:
                yield load
                has_ended = load.poll() is not None
            finally:
                load.terminate()
                said = load.communicate()[1].strip()[-1000:]
        if has_ended:
            raise LoadError(f"{Path(command[0]).name} ended too early: {said or f'exit code {load.returncode}'}")


def java_produce(bootstrap: str, topic: str, records: int, size: int, acks: str) -> dict[str, float]:
    """kafka-producer-perf-test: records/s as it sums them up, JVM start excluded. Raises LoadError."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]
    arguments += ["--record-size", str(size), "--throughput", "-1", "--command-property", f"acks={acks}"]
    if acks != "all":
        arguments.append("enable.idempotence=false")
    output = _run(java_command(tool_class("kafka-producer-perf-test"), *arguments, jvm_options=JVM_OPTIONS))
    last = re.findall(r"(\d+) records sent, ([\d.]+) records/sec.* ([\d.]+) ms 99th", output)
    if not last or int(last[-1][0]) != records:
        raise LoadError(f"kafka-producer-perf-test said:\n{output[-1000:]}")
    return {"records": records, "seconds": records / float(last[-1][1]), "p99_ms": float(last[-1][2])}


class JavaPrograms:
    """The programs of this directory, each compiled once a run against Kafka's own jars."""

    def __init__(self, scratch: Path) -> None:
        self._classes = scratch / "classes"

    def consume(self, bootstrap: str, topic: str, partitions: int, records: int) -> dict[str, float]:
        """ConsumeAll.java. Raises LoadError, also where there is no `javac`."""
        return self._run("ConsumeAll", bootstrap, topic, partitions, records)

    def commit(self, bootstrap: str, topic: str, partitions: int, warm_up: int, count: int) -> list[float]:
        """CommitMany.java: the seconds of each transaction. Raises LoadError as `consume`."""
        return list(self._run("CommitMany", bootstrap, topic, partitions, warm_up, count)["seconds"])

    def share_consume(self, bootstrap: str, topic: str, group: str, members: int, records: int) -> dict[str, float]:
        """ShareConsume.java. Raises LoadError as `consume`."""
        return self._run("ShareConsume", bootstrap, topic, group, members, records)

    def share_latency(self, bootstrap: str, topic: str, group: str, warm_up: int, count: int) -> dict[str, float]:
        """ShareLatency.java. Raises LoadError as `consume`."""
        return self._run("ShareLatency", bootstrap, topic, group, warm_up, count)

    def _run(self, program: str, *arguments: object) -> dict[str, Any]:
        if not (self._classes / f"{program}.class").exists():
            javac = shutil.which("javac")
            if javac is None:
                raise LoadError("javac is not installed: the Java clients cannot be compiled")
            libraries = f"{kafka_home()}/libs/*"
            _run([javac, "-cp", libraries, "-d", str(self._classes), str(HERE / f"{program}.java")])
        options: dict[str, Any] = {"jvm_options": JVM_OPTIONS, "class_path": (self._classes,)}
        output = _run(java_command(program, *map(str, arguments), **options))
        return dict(json.loads(output.splitlines()[-1]))


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_LIMIT, env=environment)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{Path(command[0]).name} did not end within {SECONDS_LIMIT} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-1000:]
        raise LoadError(f"{Path(command[0]).name} failed: {said or f'exit code {done.returncode}'}")
    return done.stdout
