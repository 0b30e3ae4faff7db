"""An engine of containers for Testcontainers: docker's, or podman with a socket of its own that speaks docker's API."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import LONG, SHORT

ROOT = Path(__file__).resolve().parents[2]

IMAGE = "localhost/kbroker-test:8.4.0"
"""The image under test, by a name that no registry is asked for and a tag that all modules take."""


@dataclass(frozen=True, slots=True)
class Engine:
    """podman or docker, and where Testcontainers finds it."""

    program: str
    environment: dict[str, str]

    def run(self, *words: str, timeout: float = 2 * LONG) -> str:
        """A command of the engine, and what it printed. Fails with what it said."""
        done = self.attempt(*words, timeout=timeout)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.strip()

    def attempt(self, *words: str, timeout: float = 2 * LONG) -> subprocess.CompletedProcess[str]:
        """A command of the engine that may fail."""
        return subprocess.run([self.program, *words], cwd=ROOT, capture_output=True, text=True, timeout=timeout)

    def remove_left(self) -> None:
        """Remove the containers of the image that a test has left: there is no reaper."""
        left = self.run("ps", "-aq", "--filter", f"ancestor={IMAGE}").split()
        if left:
            self.run("rm", "-f", *left)


@contextmanager
def running_engine() -> Iterator[Engine]:
    """The engine of this machine. Skips where there is none."""
    # The reaper is an image of its own, which would be fetched.
    environment = os.environ | {"TESTCONTAINERS_RYUK_DISABLED": "true", "KBROKER_IMAGE": IMAGE}
    if shutil.which("podman"):
        with _podman_socket() as socket:
            # The ports are published on this machine, which may look like a container itself to the modules.
            here = {"TESTCONTAINERS_HOST_OVERRIDE": "localhost", "TESTCONTAINERS_CONNECTION_MODE": "docker_host"}
            yield Engine("podman", environment | here | {"DOCKER_HOST": f"unix://{socket}"})
    elif shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True).returncode == 0:
        yield Engine("docker", environment)
    else:
        pytest.skip("there is neither podman nor docker")


@contextmanager
def _podman_socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:  # a socket's path is short
        socket = Path(directory) / "podman.sock"
        log = Path(directory) / "log"
        environment = os.environ | _with_equal_limits(Path(directory) / "containers.conf")
        command = ["podman", "system", "service", "--time=0", f"unix://{socket}"]
        with log.open("wb") as file:
            service = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
        try:
            deadline = time.monotonic() + LONG
            while not socket.exists():
                assert service.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield socket
        finally:
            service.terminate()
            with suppress(subprocess.TimeoutExpired):
                service.wait(SHORT)


def _with_equal_limits(made: Path, configured: Path = Path("/etc/containers/containers.conf")) -> dict[str, str]:
    """Variables that give podman its configuration with each limit's soft value raised to the hard one.

    Asked over its socket, podman 4.3 takes the two for one another, and such a container does not start.
    """
    if not configured.exists() or "CONTAINERS_CONF" in os.environ:
        return {}
    made.write_text(re.sub(r'("[a-z]+=)\d+:(\d+)"', r'\1\2:\2"', configured.read_text()))
    return {"CONTAINERS_CONF": str(made)}
