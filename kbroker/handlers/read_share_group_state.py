"""ReadShareGroupState (key 84): a new leader of a partition takes over the state of its share partitions (KIP-932).

Served: 0.
"""

from __future__ import annotations

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_state import SharePartitionKey, SharePartitionState
from kbroker.errors import ApiError
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import error_fields
from kbroker.handlers.common.share_coordinator_requests import answer_each, results_of
from kbroker.handlers.registration import handler
from kbroker.wire.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


@handler(ReadShareGroupStateRequest)
async def handle(request: ReadShareGroupStateRequest, ctx: RequestContext) -> ReadShareGroupStateResponse:
    """Read each share partition's state; from then on writes of earlier leaders are refused."""
    answers = await answer_each(request, ctx, "read share group state", _read)
    return ReadShareGroupStateResponse(results=results_of(answers, ReadStateResult, _result))


def _read(
    core: ShareCoordinator, key: SharePartitionKey, part: PartitionData, now_ms: int
) -> CoordinatorResult[SharePartitionState]:
    return core.read(key, part.leader_epoch, now_ms)


def _result(index: int, answer: SharePartitionState | ApiError) -> PartitionResult:
    if isinstance(answer, ApiError):
        code, message = error_fields(answer)
        return PartitionResult(partition=index, error_code=code, error_message=message)
    return PartitionResult(
        partition=index,
        state_epoch=answer.state_epoch,
        start_offset=answer.start_offset,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in answer.batches
        ],
    )
