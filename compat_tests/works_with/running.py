"""A process of a recipe, and what it has printed so far."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.patience import SHORT

_POLL = threading.Event()


class RunningError(Exception):
    """A process ended, or did not get where it should in time; with what it said."""


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = SHORT) -> None:
    """Return once `is_so`. `RunningError` if it is not in time."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise RunningError(f"{what}: not within {seconds:.0f} s")
        _POLL.wait(0.1)


class Running:
    """A process whose output goes to a file; a context manager that kills it at the end.

    ``environment`` is added to the test's own. ``directory`` is where it runs and where its output is kept.
    """

    def __init__(
        self, command: Sequence[str | Path], directory: Path, name: str, environment: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._output = directory / f"{name}.log"
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """The text that it has printed, in all runs of this name in this directory."""
        return self._output.read_text("utf-8", "replace")

    def await_output(self, text: str, seconds: float = SHORT) -> None:
        """Return once it has printed a text. `RunningError` if it ends before, or takes longer."""
        self.until(lambda: text in self.output, f"to print {text!r}", seconds)

    def until(self, is_so: Callable[[], bool], what: str, seconds: float = SHORT) -> None:
        """Return once `is_so`. `RunningError` with what it has printed, if it ends before or takes longer."""
        end = time.monotonic() + seconds
        while not is_so():
            code = self.process.poll()
            if (code is not None and not is_so()) or time.monotonic() > end:
                state = "runs" if code is None else f"ended with exit code {code}"
                raise RunningError(f"{self.name} was {what} within {seconds:.0f} s; it {state}:\n{self.output[-4000:]}")
            _POLL.wait(0.1)

    def wait(self, seconds: float = SHORT) -> None:
        """Return once it has ended well. `RunningError` if it fails or takes longer."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise RunningError(f"{self.name} has not ended after {seconds:.0f} s:\n{self.output[-4000:]}") from None
        if code:
            raise RunningError(f"{self.name} ended with exit code {code}:\n{self.output[-4000:]}")

    def stop(self, seconds: float = 30) -> int:
        """End it in good order, by SIGTERM; the exit code. `RunningError` if it does not end."""
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RunningError(f"{self.name} did not end on SIGTERM:\n{self.output[-4000:]}") from None

    def kill(self) -> None:
        """End it at once (SIGKILL), wherever it is."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
