"""A Produce request that is refused as a whole, while earlier ones of the connection are not done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.handlers import produce
from kbroker.handlers.common.context import CloseConnection
from kbroker.node.replicas.produce_writer import write_produce
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.record_batch import Record, build_batch


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("waiting", [False, True])
def test_a_transaction_without_its_id_is_refused_with_all_else_after_the_earlier_requests(
    acks: int, waiting: bool
) -> None:
    queued: list[Any] = []

    def add(connection: Any, work: Any, *_: Any, **__: Any) -> bool:
        queued.append(work)
        return True

    connection = SimpleNamespace(peer="127.0.0.1:1", refused_batches=None)
    queue = SimpleNamespace(waiting={connection.peer} if waiting else set(), add=add, slice_seconds=1.0)
    transactions = SimpleNamespace(settings=SimpleNamespace(add_partitions_retry_backoff_max_ms=100))
    services = SimpleNamespace(
        authorizer=None,
        config=SimpleNamespace(request_timeout_ms=100),
        env=SimpleNamespace(now=lambda: 0.0, wall_clock_ms=lambda: 0),
        produce_queue=queue,
        produce_writer=lambda: write_produce,
        replica_manager=SimpleNamespace(partitions={}, find=lambda *key: None),
        transactions=transactions,
    )
    ctx: Any = SimpleNamespace(
        connection=connection, services=services, round=None, header=SimpleNamespace(api_version=12, client_id="")
    )
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[
                PartitionProduceData(
                    index=0,
                    records=memoryview(
                        build_batch([Record(0, 1, None, b"v", ())], producer_id=7, is_transactional=transactional)
                    ),
                )
            ],
        )
        for name, transactional in (("plain", False), ("transactional", True))
    ]
    request = ProduceRequest(transactional_id=None, acks=acks, topic_data=topics)

    def answered() -> Any:
        answer: Any = produce.handle(request, ctx)
        if not waiting:
            return answer
        with pytest.raises(StopIteration):
            queued[0].send(None)
        return answer.value

    if acks:
        errors = [topic.partition_responses[0].error_code for topic in answered().responses]
        assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    else:
        with pytest.raises(CloseConnection, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            answered()
    assert len(queued) == waiting
