"""``server.max.startup.time.ms``: a node that does not come up in time ends, and says so in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from kbroker.errors import FatalError
from kbroker.node.parts import StartLimit
from kbroker.tools.cli.cluster_plan import free_ports
from tests.node.process_harness import ROOT
from tests.node.quorum_harness import quorum
from tests.patience import LONG


async def test_a_broker_whose_controllers_are_not_there_ends(tmp_path: Path) -> None:
    """One voter of three is up: there is never a leader, whom a node could register with."""
    with pytest.RaisesGroup(FatalError, flatten_subgroups=True, allow_unwrapped=True) as caught:
        async with quorum(tmp_path, server_max_startup_time_ms="300") as cluster:
            with trio.fail_after(LONG):
                await cluster.start(1)
    assert caught.group_contains(FatalError, match=r"not up within server.max.startup.time.ms \(300 ms\)")


async def test_what_was_started_in_time_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    done: list[str] = []

    async def work(name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        done.append(name)

    async with trio.open_nursery() as nursery:
        with StartLimit(1000).up_in_time():
            nursery.start_soon(work, "in the background", 9)
            await work("the start", 0.9)
    with pytest.raises(FatalError, match=r"\(1000 ms\)"):  # noqa: SIM117 - not the other way round
        with StartLimit(1000).up_in_time():
            await work("too long", 1.1)
    assert done == ["the start", "in the background"]


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    port, nobody = free_ports(2)
    properties = {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{nobody}",
        "log.dirs": str(tmp_path / "data"),
        "server.max.startup.time.ms": "500",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    kbroker = [sys.executable, "-m", "kbroker"]
    subprocess.run([*kbroker, "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(file)], check=True, cwd=ROOT)
    done = subprocess.run(
        [*kbroker, "start", "-c", str(file), "--log-level", "error"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "server.max.startup.time.ms" in line]
    assert lines == ["kbroker: the node is not up within server.max.startup.time.ms (500 ms)"], done.stderr
