"""AllocateProducerIds: blocks of producer ids, unique in the cluster (KIP-730)."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.brokers import check_broker_epoch
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.value_types import NamedTuple
from kbroker.wire.records.metadata import ProducerIdsRecord

PRODUCER_ID_BLOCK_SIZE = 1000
_MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """The ids from ``first`` to ``first + size - 1``; only the broker that was granted them hands them out."""

    first: int
    size: int


def allocate_producer_ids(view: ControllerView, broker_id: int, broker_epoch: int) -> ControllerResult[ProducerIdBlock]:
    """The next block. No block is given twice, even if its broker never learns of it.

    ``ApiError``: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR when all ids are used up.
    """
    check_broker_epoch(view, broker_id, broker_epoch)
    first = max(view.image.next_producer_id, 0)
    if first > _MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE
    )
    return ControllerResult(ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE), [record])
