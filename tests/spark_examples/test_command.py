"""A script's own broker lives no longer than the script."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.patience import LONG

pytest.importorskip("confluent_kafka", reason="the `spark` extra is not installed")

from spark_examples import ROOT
from spark_examples.command import kbroker_process

HOLD = """
import sys, time
from pathlib import Path
from spark_examples.command import kbroker_process
with kbroker_process(Path(sys.argv[1])) as bootstrap:
    print(bootstrap, flush=True)
    time.sleep(600)
"""


def test_the_broker_serves_within_the_block_and_is_gone_after_it(tmp_path: Path) -> None:
    with kbroker_process(tmp_path / "data") as bootstrap:
        host, _, port = bootstrap.rpartition(":")
        socket.create_connection((host, int(port)), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5)
    assert (tmp_path / "data").is_dir()


def test_a_killed_script_leaves_no_broker_behind(tmp_path: Path) -> None:
    script = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert script.stdout is not None
        assert script.stdout.readline().strip()
        [broker] = psutil.Process(script.pid).children()
        script.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs([broker], timeout=LONG)
        assert alive == []
    finally:
        script.kill()
        script.wait()
        if script.stdout is not None:
            script.stdout.close()
    with kbroker_process(tmp_path / "data"):  # the directory is free again
        pass


SCRIPTS = sorted(
    path.stem for path in (ROOT / "spark_examples").glob("*.py") if "\ndef main(" in path.read_text("utf-8")
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_tells_how_a_script_is_called_and_what_each_option_is(script: str) -> None:
    command = [sys.executable, "-m", f"spark_examples.{script}", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=2 * LONG).stdout
    assert text.startswith(f"usage: python -m spark_examples.{script} ")
    options = " ".join(text.partition("\noptions:\n")[2].split())
    for name in set(re.findall(r"--[a-z-]+", text.partition("\n\n")[0])):
        assert re.search(rf"{name}( [A-Z_]+| \{{\S+\}})? (?!-)", options), f"{name} is not explained"
