"""A Kafka Streams application that counts words: a Java process that is asked by lines (StreamsApp.java)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from compat_tests.apache_kafka import TOOL_JVM_OPTIONS, cache_dir, locked, resolve_jars
from tests.patience import LONG

_SOURCE = Path(__file__).with_name("StreamsApp.java")
STREAMS_VERSION = "4.4.0"
"""The release of Kafka Streams: the first that sends descriptions of topologies (KIP-1331)."""


def streams_jars() -> Path:
    """The directory of Kafka Streams' jars; resolves them the first time (half a minute)."""
    home = cache_dir() / f"kafka-streams-{STREAMS_VERSION}"
    with locked(home.name):
        if not home.is_dir():
            resolve_jars([("org.apache.kafka", "kafka-streams", STREAMS_VERSION)], home)
    return home


class AppError(Exception):
    """The application ended, or did not get where it should; with what it said."""


class StreamsApp:
    """A process of an application, whose id is its group. ``settings`` are Kafka Streams' own, as ``name=value``."""

    def __init__(self, bootstrap: str, application: str, directory: Path, name: str, *settings: str) -> None:
        classes = directory.parent / "classes"
        if not classes.is_dir():
            subprocess.run(
                ["javac", "-nowarn", "-d", str(classes), "-cp", f"{streams_jars()}/*", str(_SOURCE)], check=True
            )
        self._errors = (directory.parent / f"{name}.log").open("w+")
        self.process = subprocess.Popen(
            [
                *("java", *TOOL_JVM_OPTIONS, "-cp", f"{classes}:{streams_jars()}/*", "StreamsApp"),
                *(f"bootstrap.servers={bootstrap}", f"application.id={application}", f"client.id={name}"),
                *(f"state.dir={directory / name}", *settings),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, command: str) -> str:
        """The answer to a command of StreamsApp.java. `AppError` if the application has ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except OSError as error:
            raise AppError(f"the application has ended: {self._said()}") from error
        if not answer or answer.startswith("error "):
            raise AppError(f"{answer or 'no answer'}: {self._said()}")
        return answer

    def await_answer(self, command: str, is_wanted: Callable[[str], bool], seconds: float = LONG) -> str:
        """Ask until the answer is as it should be. `AppError` if it is not in time."""
        end = time.monotonic() + seconds
        while not is_wanted(answer := self.ask(command)):
            if time.monotonic() > end:
                raise AppError(f"{command}: {answer}: {self._said()}")
            time.sleep(0.1)
        return answer

    def close(self) -> None:
        """End in good order."""
        if self.process.poll() is None:
            self.ask("close")
            self.process.wait(LONG)
        self._end()

    def kill(self) -> None:
        """End at once, wherever it is."""
        self.process.kill()
        self.process.wait()
        self._end()

    def _end(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None and not stream.closed:
                stream.close()

    def _said(self) -> str:
        self._errors.flush()
        self._errors.seek(0)
        return self._errors.read()[-2000:]
