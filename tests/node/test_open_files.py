"""A node at its limit of open files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from kbroker.config import BrokerConfig
from kbroker.node.listeners import possible_connections
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.handlers.metadata_plane import properties
from tests.node.node_harness import Client, batch, produce_request, run
from tests.node.process_harness import CommandNode


@pytest.mark.parametrize("files", [256, pytest.param(512, marks=pytest.mark.everything)])
def test_clients_that_only_stay_take_no_disk_offline(tmp_path: Path, files: int) -> None:
    """A log that cannot be opened counts as a disk that fails, so connections leave files to the logs."""
    node = CommandNode(tmp_path, {"log.dirs": str(tmp_path / "data")}, files=files)
    node.start()

    async def main() -> None:
        client = Client(await trio.open_tcp_stream("127.0.0.1", node.port))
        ports = (node.port, int(re.findall(r"CONTROLLER://127\.0\.0\.1:(\d+)", node.log)[-1]))
        idle = [await trio.open_tcp_stream("127.0.0.1", port) for port in ports for _ in range(files)]
        topic = CreatableTopic(name="t", num_partitions=files, replication_factor=1)
        assert (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=100_000))).topics[0].error_code == 0
        for index in range(files):
            answer = await client.ask(produce_request("t", batch(b"v"), partition=index), 12)
            assert answer.responses[0].partition_responses[0].error_code == 0
        asked = [ListOffsetsPartition(partition_index=index, timestamp=1000) for index in range(files)]
        answer = await client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)]), 7)
        assert {found.error_code for found in answer.topics[0].partitions} == {0}
        assert {found.offset for found in answer.topics[0].partitions} == {0}
        for stream in idle:
            await stream.aclose()

    try:
        run(main)
        assert node.lives
        assert "is offline" not in node.log
    finally:
        node.stop(kill=True)


@pytest.mark.parametrize(("possible", "of_controllers"), [(448, 112), (64, 32)])
def test_a_quarter_of_the_connections_may_be_controllers(tmp_path: Path, possible: int, of_controllers: int) -> None:
    """Each other node has a few of them; 448 are possible with the usual 1,024 files."""
    config = BrokerConfig.from_properties(properties(tmp_path))
    assert possible_connections(config, True, possible) == of_controllers
    assert possible_connections(config, False, possible) == possible - of_controllers
