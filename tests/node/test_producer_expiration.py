"""A log forgets producers that have written nothing for long, by the time that is set now."""

from __future__ import annotations

import time
from pathlib import Path

import trio

from kbroker.log.log_config import LogConfig
from kbroker.types import TopicPartition
from kbroker.wire.messages import configs as incremental
from tests.node.node_harness import batch, produce_request, running_node


async def test_producers_are_forgotten_after_the_time_that_is_set_now(tmp_path: Path) -> None:
    """``producer.id.expiration.ms`` changes at run time (KIP-226), for logs that are there and for later ones."""
    async with running_node(tmp_path, producer_id_expiration_check_interval_ms="20") as node:
        await node.create_topic("t")
        client = await node.connect()
        records = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0, timestamp=int(time.time() * 1000))
        answer = await client.ask(produce_request("t", records), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        log = node.broker.log_manager.get_log(TopicPartition("t", 0))
        assert log is not None and log.producers.producer_id_expiration_ms == 86_400_000
        change = incremental.IncrementalAlterableConfig(name="producer.id.expiration.ms", config_operation=0, value="1")
        resource = incremental.IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        done = await client.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource]))
        assert done.responses[0].error_code == 0, done
        while 5 in log.producers.active_producers:
            await trio.sleep(0.02)
        later = node.broker.log_manager.create_log(TopicPartition("later", 0), None, LogConfig())
        assert later.producers.producer_id_expiration_ms == 1
