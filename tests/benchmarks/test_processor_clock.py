"""The processor time of a server's processes: one clock from begin to end, and always of the same processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("confluent_kafka", reason="the `bench` extra is not installed")
pytest.importorskip("psutil", reason="the `bench` extra is not installed")

import psutil

from benchmarks.clients import LoadError
from benchmarks.explorer_workloads import judge
from benchmarks.servers import Clock, Kbroker, ServerError


class ThisProcess(Kbroker):
    """A server whose processes are that of the test and one that it has started."""

    worker: int | None = None

    def _processes(self) -> list[psutil.Process]:
        return [psutil.Process(pid) for pid in (os.getpid(), self.worker) if pid is not None]


def work() -> None:
    """Take 50 ms of a processor."""
    until = os.times().user + os.times().system + 0.05
    while os.times().user + os.times().system < until:
        pass


def no_clock(processes: object) -> float:
    raise OSError


@pytest.mark.parametrize("clock", [None, no_clock])
def test_processor_time_is_measured_from_the_call_on(clock: Clock | None) -> None:
    used = ThisProcess().processor_clock(clock)
    work()
    once = used()
    assert once >= 0.02
    work()
    assert used() > once


def test_processes_that_began_or_ended_meanwhile_refuse_the_measurement() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    server = ThisProcess()
    used = server.processor_clock()
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        server.worker = child.pid
        with pytest.raises(ServerError, match="began or ended"):
            used()
        used = server.processor_clock()
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
        server.worker = None
    with pytest.raises(ServerError, match="began or ended"):
        used()


def test_a_watched_slice_without_a_working_watcher_is_refused() -> None:
    judge(30_000, 500, 20_000, off=0.5)
    for shown, skipped in ((0, 0), (0, 30_000), (500, 14_000), (30_000, 0), (500, 45_000)):
        with pytest.raises(LoadError, match="were shown"):
            judge(30_000, shown, skipped, off=0.5)
