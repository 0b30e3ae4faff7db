"""Spark in a process of its own, to be killed as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from spark_examples import ROOT


def kill_with_java(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the driver, and to Spark's JVM and its Python workers, which are below it."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert len(family) > 1, "there is no JVM"
    for member in family:
        with suppress(psutil.NoSuchProcess):  # a short-lived helper of the JVM
            member.send_signal(signal.SIGKILL)
    process.wait()
    psutil.wait_procs(family, 10)


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Python with these arguments; what is left of it is killed at the end, with the JVM below it."""
    command = [sys.executable, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_with_java(process)
        assert process.stderr is not None
        process.stderr.close()
