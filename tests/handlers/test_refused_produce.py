"""A Produce request that is refused for its transactional id, while earlier ones of the connection are not done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.handlers import produce
from kbroker.handlers.context import CloseConnection
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("waiting", [False, True])
def test_without_an_answer_it_ends_the_connection_after_the_earlier_ones(
    acks: int, waiting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[Any] = []

    def add(connection: Any, work: Any, *_: Any, **__: Any) -> bool:
        queued.append(work)
        return True

    connection = SimpleNamespace(peer="127.0.0.1:1")
    queue = SimpleNamespace(waiting={connection.peer} if waiting else set(), add=add)
    ctx: Any = SimpleNamespace(
        connection=connection, services=SimpleNamespace(authorizer=object(), produce_queue=queue), api_version=11
    )
    monkeypatch.setattr(produce, "_may_write_in_transaction", lambda *_: False)
    data = PartitionProduceData(index=0, records=memoryview(b""))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(transactional_id="id", acks=acks, topic_data=topics)
    if acks:
        answer: Any = produce.handle(request, ctx)
        error = answer.responses[0].partition_responses[0].error_code
        assert error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and not queued
    elif not waiting:
        with pytest.raises(CloseConnection, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            produce.handle(request, ctx)
    else:
        assert produce.handle(request, ctx) is None
        with pytest.raises(CloseConnection, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            queued[0].send(None)
