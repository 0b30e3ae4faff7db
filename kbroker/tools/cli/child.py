"""Processes of kbroker's own: how a command starts another module of the package."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def module_command(module: str) -> list[str]:
    """The beginning of a command line that runs a module.

    Files of the present directory, such as ``queue.py``, are none of Python's modules then, as they are none for the
    command ``kbroker`` itself; unless the package is there, as in a work tree that is not installed.
    """
    is_here = os.path.realpath(os.path.join(__file__, "../../../..")) == os.path.realpath(os.getcwd())
    return [sys.executable, *(() if is_here else ("-P",)), "-m", module]


@contextmanager
def running_kbroker(
    *words: str, stop_seconds: float, stderr: IO[bytes] | None = None, pass_fds: Collection[int] = ()
) -> Iterator[subprocess.Popen[str]]:
    """``kbroker`` with these words, in a process whose standard input and output are pipes, until the block ends.

    SIGTERM ends it; it is killed if that takes longer than ``stop_seconds``. ``pass_fds``: descriptors that it keeps.
    """
    import signal
    import subprocess

    # A session of its own, so that Ctrl-C ends this process first, which ends the others in order.
    with subprocess.Popen(
        [*module_command("kbroker"), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        pass_fds=pass_fds,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(stop_seconds)
            except subprocess.TimeoutExpired:
                process.kill()


def ended(code: int) -> str:
    """An exit code in words."""
    import signal

    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
