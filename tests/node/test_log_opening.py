"""A node that was killed verifies its logs at the next start; its page tells meanwhile how much is left (KIP-831)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.log.checkpoint_files import CLEAN_SHUTDOWN, RECOVERY_POINTS, read_offsets, write_offsets
from kbroker.log.disk import OsDisk, OsFile
from kbroker.runtime.env import RealEnv
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.wire.batch_header import LEADER_EPOCH_AT
from tests.node.metrics_pages import Values, ask, found, scrape, value
from tests.node.node_harness import Node, batch, fetch_request, produce_request, run, running_node, values
from tests.patience import LONG, until

SEGMENTS = 4
"""Of each partition: a batch fills more than half of the smallest segment."""
TEXT = b"x" * 600_000
LOGS, LEFT = "kafka_log_logmanager_remaininglogstorecover", "kafka_log_logmanager_remainingsegmentstorecover"


class Gate(OsDisk):
    """A disk on which reading a file of some name, in any directory, waits until it is let go."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open = threading.Event()
        self.reached = threading.Event()
        self.opened: list[str] = []
        """The names of the files, in their order."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self.opened.append(Path(path).name)
        if path.endswith(self._name):
            self.reached.set()
            assert self._open.wait(2 * LONG)
        return super().open(path, create=create)

    def let_go(self) -> None:
        self._open.set()


def gated(name: str) -> tuple[RealEnv, Gate]:
    env, gate = RealEnv(seed=1), Gate(name)
    env.disk = gate
    return env, gate


async def write(node: Node, topic: str, partition: int) -> None:
    client = await node.connect()
    for number in range(SEGMENTS):
        records = batch(b"%d" % number, TEXT)
        response = await client.ask(produce_request(topic, records, partition=partition, timeout_ms=30_000), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
    await client.stream.aclose()


async def read(node: Node, topic: str, partition: int) -> list[bytes]:
    client = await node.connect()
    offset, found = 0, []
    while offset < 2 * SEGMENTS:
        response = await client.ask(fetch_request(topic, [(partition, offset)]), 12)
        records = values(response.responses[0].partitions[0].records)
        assert records
        found += [text for _, text in records]
        offset = records[-1][0] + 1
    await client.stream.aclose()
    return found[::2]


def crash(*directories: Path) -> None:
    """Leave the directories as a kill does before anything was noted as flushed but that the logs are there."""
    for directory in directories:
        (directory / CLEAN_SHUTDOWN).unlink()
        noted = read_offsets(OsDisk(), str(directory / RECOVERY_POINTS))
        write_offsets(OsDisk(), str(directory / RECOVERY_POINTS), dict.fromkeys(noted or (), 0))


async def in_thread(asked: Callable[..., Any], *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(asked, *arguments)


async def left(port: int, expected: dict[str, int]) -> Values:
    """The page, once so many segments of each directory are left to verify."""
    while True:
        page: Values = await in_thread(scrape, port)
        if {dict(labels)["dir"]: count for labels, count in found(page, LEFT).items()} == expected:
            return page
        await trio.sleep(0.02)


def test_the_page_tells_how_much_is_left_in_each_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    directories = [tmp_path / "data", tmp_path / "more"]
    dirs = [str(directory) for directory in directories]
    [port] = free_ports(1)
    properties = {"log_dirs": ",".join(dirs), "prometheus_metrics_reporter_listener": f"http://127.0.0.1:{port}"}

    async def prepare() -> None:
        async with running_node(tmp_path, **properties) as node:
            await node.create_topic("t", 2, segment_bytes=str(1 << 20))
            for partition in range(2):
                await write(node, "t", partition)
            page = await in_thread(scrape, port)
            assert not found(page, LOGS) and not found(page, LEFT)

    async def recover() -> None:
        env, gate = gated(f"{2 * (SEGMENTS - 2):020d}.log")
        async with trio.open_nursery() as nursery:

            async def serve(task_status: trio.TaskStatus[None]) -> None:
                async with running_node(tmp_path, env, **properties) as node:
                    for partition in range(2):
                        assert await read(node, "t", partition) == [b"%d" % number for number in range(SEGMENTS)]
                    page = await in_thread(scrape, port)
                    assert not found(page, LOGS) and value(page, "kafka_server_kafkaserver_brokerstate") == 3
                    assert await in_thread(ask, port, "/ready") == (200, "ready\n")
                    assert await in_thread(ask, port, "/health") == (200, "ok\n")

            nursery.start_soon(serve, trio.TASK_STATUS_IGNORED)
            while await in_thread(answers, port) is None:
                await trio.sleep(0.02)
            page = await left(port, dict.fromkeys(dirs, 2))
            assert {dict(labels)["dir"]: count for labels, count in found(page, LOGS).items()} == dict.fromkeys(dirs, 1)
            assert value(page, "kafka_server_kafkaserver_brokerstate") == 2
            told = "opening logs: 2 of 2 are left; 4 segments that were not flushed are left to verify in those at work"
            assert await in_thread(ask, port, "/ready") == (503, f"{told}\n")
            assert await in_thread(ask, port, "/health") == (200, f"ok: {told}\n")
            await until(lambda: told in caplog.messages)
            gate.let_go()

    run(prepare)
    assert sorted(len(list(directory.glob("t-*/*.log"))) for directory in directories) == [SEGMENTS, SEGMENTS]
    crash(*directories)
    run(recover)


def answers(port: int) -> tuple[int, str] | None:
    try:
        return ask(port, "/health")
    except ConnectionRefusedError:
        return None


def test_a_stop_is_heard_while_logs_are_opened_and_the_next_start_begins_anew(tmp_path: Path) -> None:
    async def prepare() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", segment_bytes=str(1 << 20))
            await write(node, "t", 0)

    async def stop() -> None:
        env, gate = gated(f"{2:020d}.log")
        served = False

        async def serve() -> None:
            nonlocal served
            async with running_node(tmp_path, env):
                served = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await until(gate.reached.is_set)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()  # all have heard of it
            gate.let_go()
        assert not served and f"{3:020d}.log" not in gate.opened
        assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()

    async def start_again() -> None:
        async with running_node(tmp_path) as node:
            assert await read(node, "t", 0) == [b"%d" % number for number in range(SEGMENTS)]

    run(prepare)
    crash(tmp_path / "data")
    run(stop)
    run(start_again)


async def test_a_leader_epoch_that_no_partition_can_have_is_put_right_before_it_is_led(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Or the next start would take the last batch for damage, as batches of an earlier epoch follow it."""
    for number in range(3):
        async with running_node(tmp_path) as node:
            client = await node.connect()
            if not number:
                await node.create_topic("t")
            if number < 2:
                await until(lambda node=node: node.broker.replica_manager.partitions[("t", 0)].state.is_leader)  # type: ignore[misc]
                answer = await client.ask(produce_request("t", batch(b"%d" % number)), 9)
                assert not answer.responses[0].partition_responses[0].error_code
            else:
                fetched = await client.ask(fetch_request("t"), 12)
                read = values(fetched.responses[0].partitions[0].records)
                assert read == [(0, b"0"), (1, b"1")]
        data = tmp_path / "data"
        for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS, "t-0/leader-epoch-checkpoint"):
            (data / name).unlink()
        if not number:
            path = data / "t-0" / "00000000000000000000.log"
            content = bytearray(path.read_bytes())
            content[LEADER_EPOCH_AT + 1] ^= 4
            path.write_bytes(content)
    assert "which is still to come" in caplog.text and "is damaged" not in caplog.text
