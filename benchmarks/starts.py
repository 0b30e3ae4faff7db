"""`python -m benchmarks.starts`: a node with the control is started many times in a row, and so is Apache Kafka.

    python -m benchmarks.starts --kbroker 1000 --apache 20
    python -m benchmarks.starts --kbroker 50 --apache 0         a short look

Prints how long it took until a client had its first answer (ApiVersions), the memory then, and how many starts have
failed. Each start is on an empty directory; Apache Kafka's, too, which is formatted before.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import time
from collections.abc import Callable

from benchmarks.raw import API_VERSIONS, frame
from benchmarks.servers import Apache, Kbroker, Server, ServerError, commit

LIMIT_SECONDS = 60.0
"""A start that takes longer has failed, as it would for a test that waits for a container."""


class ControlledKbroker(Kbroker):
    """kbroker as tests in other languages start it."""

    options = ("--control", "0")


def started(kind: Callable[[], Server]) -> tuple[float, float]:
    """Seconds until the first answer, and megabytes then. ServerError if there was none."""
    server = kind()
    try:
        server.start()
        server.await_port()
        while True:
            try:
                with socket.create_connection((server.host, server.port), timeout=LIMIT_SECONDS) as connection:
                    connection.sendall(frame(API_VERSIONS, 0, b""))
                    if len(connection.recv(4)) == 4:
                        return time.monotonic() - server.launched_at, server.resident_bytes() / 1e6
            except OSError:
                pass
            if not server.is_alive() or time.monotonic() > server.launched_at + LIMIT_SECONDS:
                raise ServerError(f"{server.name} does not answer:\n{server.log_tail()}")
            time.sleep(0.005)
    finally:
        server.stop()


def measure(name: str, kind: Callable[[], Server], count: int) -> None:
    """Print the distribution of so many starts, one after the other."""
    seconds, megabytes, failures = [], [], []
    with contextlib.suppress(KeyboardInterrupt):  # what there is by then is told
        for _ in range(count):
            try:
                took, size = started(kind)
            except ServerError as error:
                failures.append(str(error))
            else:
                seconds.append(took)
                megabytes.append(size)
    if seconds:
        ordered = sorted(seconds)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        print(
            f"{name:8} {len(seconds):5} starts: min {ordered[0]:.2f} s, median {statistics.median(ordered):.2f} s, "
            f"p99 {p99:.2f} s, max {ordered[-1]:.2f} s; {statistics.median(megabytes):.0f} MB; {len(failures)} failed",
            flush=True,
        )
    for text in failures[:3]:
        print(f"{name} has failed: {text}")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description=__doc__)
    parser.add_argument("--kbroker", type=int, default=1000, metavar="N")
    parser.add_argument("--apache", type=int, default=20, metavar="N")
    arguments = parser.parse_args()
    print(f"{commit()}, load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    measure("kbroker", ControlledKbroker, arguments.kbroker)
    measure("apache", Apache, arguments.apache)
    print(f"load of the machine {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
