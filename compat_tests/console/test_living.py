"""``make console``: a cluster that lives, with Spark reading from it, as the console beside it tells."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import psutil
import pytest

from compat_tests.console.conftest import eventually

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'kbroker[spark]'")


@pytest.mark.spark
@pytest.mark.slow
def test_a_cluster_lives_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "spark_examples.living", "--console", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+/", process.stdout.readline())
            assert found is not None, process.communicate(timeout=30)[1]
            assert "Ctrl-C ends everything" in process.stdout.readline()
            assert process.stdout.readline() == "Spark reads flights and writes flight-delays\n"

            def ask(path: str) -> Any:
                with urllib.request.urlopen(f"{found[0]}api/{path}", timeout=20) as answer:
                    return json.load(answer)

            assert len(ask("overview")["brokers"]) == 3
            eventually(
                lambda: ask("topics?filter=flight-delays&counts=1")["rows"][0]["records"] > 0, "Spark writes", 60
            )
            groups = {row["group"]: row["state"] for row in ask("groups")["rows"]}
            assert groups["departures"] == groups["reports"] == "Stable"
            lag = [row["lag"] for row in ask("group?group=reports")["partitions"] if row["topic"] == "flights"]
            assert sum(lag) > 0
            assert ask("transactions")["rows"][0]["id"] == "booking"
            assert len(ask("explorer/nodes")["all"]) == 3
            others = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in log, log
    _, alive = psutil.wait_procs(others, timeout=10)
    assert alive == []
