"""A server that answers as S3 does, with signatures and conditional puts, over a directory: versitygw."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.apache_kafka import cache_dir, locked
from compat_tests.works_with.running import Running
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG

VERSION = "v1.8.0"
BUCKET = "lake"


def versitygw() -> Path:
    """The program, built by Go on first use."""
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    home = cache_dir() / f"versitygw-{VERSION}"
    with locked("versitygw"):
        if not (home / "versitygw").exists():
            package = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
            subprocess.run(["go", "install", package], env=os.environ | {"GOBIN": str(home)}, check=True)
    return home / "versitygw"


@contextmanager
def running_versitygw(folder: Path, key: str, secret: str) -> Iterator[str]:
    """The address ``HOST:PORT`` of a server with an empty bucket."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    (folder / "objects" / BUCKET).mkdir(parents=True)
    root = {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}
    words: list[str | Path] = [
        versitygw(),
        "--port",
        address,
        "posix",
        "--sidecar",
        folder / "attributes",
        folder / "objects",
    ]
    (folder / "attributes").mkdir()

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"http://{address}/{BUCKET}")
        except urllib.error.HTTPError as error:
            return error.code == 403
        except OSError:
            return False
        return True

    with Running(words, folder, "versitygw", root) as server:
        server.until(answers, "to answer", LONG)
        yield address
