"""A server that answers as S3 does: moto, in an environment of its own, because it brings thirty packages."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.apache_kafka import cache_dir, locked
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG, eventually

WANTED = ["moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5"]
BUCKET = "lake"


def moto_python() -> Path:
    """The Python of that environment, made on first use; without a package index, the test is skipped."""
    home = cache_dir() / "moto"
    made = home / "wanted.txt"
    with locked("moto"):
        if not made.exists() or made.read_text() != "\n".join(WANTED):
            pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--no-compile", *WANTED]
            try:
                subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
                subprocess.run(pip, check=True, timeout=LONG)
            except (subprocess.SubprocessError, OSError) as error:
                pytest.skip(f"moto cannot be installed: {error}")
            made.write_text("\n".join(WANTED))
    return home / "bin" / "python"


@contextmanager
def running_moto(log: Path) -> Iterator[str]:
    """The address ``HOST:PORT`` of a server with an empty bucket."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(moto_python()), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def has_bucket() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://{address}/{BUCKET}", method="PUT"))
        except OSError:
            return False
        return True

    try:
        eventually(has_bucket, "moto's server")
        yield address
    finally:
        server.kill()
        server.wait()
