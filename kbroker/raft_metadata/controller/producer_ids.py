"""Blocks of producer ids: each broker takes ids from a block of its own, so they are unique in the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.wire.records.metadata import ProducerIdsRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller

PRODUCER_ID_BLOCK_SIZE = 1000
_MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """Ids ``first`` to ``first + size - 1``, which one broker alone may hand out."""

    first: int
    size: int


class ProducerIdControl:
    """Allocates blocks."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def allocate(self, broker_id: int, broker_epoch: int) -> ControllerResult[ProducerIdBlock]:
        """The next block. ``ApiError``: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR when the
        ids are used up. A block is never given twice, even if its broker never learns of it."""
        self._controller.brokers.check_epoch(broker_id, broker_epoch)
        first = max(self._controller.image.next_producer_id, 0)
        if first > _MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
            )
        record = ProducerIdsRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE
        )
        return ControllerResult(ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE), [record])
