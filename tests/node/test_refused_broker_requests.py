"""Another broker refuses this one's requests for transactions: clients get an error of theirs, the log one line."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.cores.transactions.transaction import TransactionMarker
from kbroker.errors import ErrorCode
from kbroker.node.coordinators.broker_requests import (
    MARKERS,
    MEMBERSHIP,
    BrokerRequests,
    MarkerQuestion,
    MembershipQuestion,
)
from kbroker.types import TopicPartition
from kbroker.wire.messages import write_txn_markers
from kbroker.wire.messages.transactions import AddPartitionsToTxnResponse

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
LOGGER = "kbroker.node.coordinators.broker_requests"


def answered(kind: Any, question: Any, response: Any, times: int) -> list[Any]:
    """The outcome of a question when the other broker answers this, each of so many times."""
    answers: list[Any] = []

    async def ask(*_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        return response

    pool: Any = SimpleNamespace(ask=ask, give_up=None)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            requests = BrokerRequests[Any](kind, lambda _: pool, nursery.start_soon)
            for _ in range(times):
                requests.ask(2, question(answers.append))
            while len(answers) < times:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(main)
    return answers


@pytest.mark.parametrize(
    ("code", "told"), [(DENIED, ErrorCode.INVALID_TXN_STATE), (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)]
)
def test_a_refusal_to_add_partitions_is_the_error_of_each(
    code: ErrorCode, told: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, LOGGER)
    producer = ProducerIdAndEpoch(7, 0)
    response = AddPartitionsToTxnResponse(error_code=code)
    answers = answered(MEMBERSHIP, lambda done: MembershipQuestion("id", producer, PARTITIONS, True, done), response, 2)
    assert answers == [dict.fromkeys(PARTITIONS, told)] * 2
    (record,) = caplog.records
    assert record.message == f"add-partitions: broker 2 refuses the requests of this broker: {code.name}"


def test_refused_markers_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, LOGGER)
    api = write_txn_markers
    denied = [api.WritableTxnMarkerPartitionResult(partition_index=index, error_code=DENIED) for index in (0, 1)]
    topics = [api.WritableTxnMarkerTopicResult(name="t", partitions=denied)]
    response = api.WriteTxnMarkersResponse(markers=[api.WritableTxnMarkerResult(producer_id=7, topics=topics)])
    marker = TransactionMarker(7, 0, True, 0, 2)
    answers = answered(MARKERS, lambda done: MarkerQuestion(marker, PARTITIONS, done), response, 3)
    assert answers == [dict.fromkeys(PARTITIONS, DENIED)] * 3
    (record,) = caplog.records
    assert "transaction-markers: broker 2 refuses" in record.message
