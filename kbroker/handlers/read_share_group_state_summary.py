"""ReadShareGroupStateSummary (key 87): start offsets and epochs of share partitions, for a description (KIP-932).

Served: 0 to 1. 1: delivery_complete_count (KIP-1226).
"""

from __future__ import annotations

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_state import SharePartitionKey, StateSummary
from kbroker.errors import ApiError
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import error_fields
from kbroker.handlers.common.share_coordinator_requests import answer_each, results_of
from kbroker.handlers.registration import handler
from kbroker.wire.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)


@handler(ReadShareGroupStateSummaryRequest)
async def handle(request: ReadShareGroupStateSummaryRequest, ctx: RequestContext) -> ReadShareGroupStateSummaryResponse:
    """Read each share partition's state without its batches; the leader epoch of the request is not looked at."""
    answers = await answer_each(request, ctx, "read share group state summary", _read_summary)
    return ReadShareGroupStateSummaryResponse(results=results_of(answers, ReadStateSummaryResult, _result))


def _read_summary(
    core: ShareCoordinator, key: SharePartitionKey, part: PartitionData, now_ms: int
) -> CoordinatorResult[StateSummary]:
    return CoordinatorResult(core.read_summary(key))


def _result(index: int, answer: StateSummary | ApiError) -> PartitionResult:
    if isinstance(answer, ApiError):
        code, message = error_fields(answer)
        return PartitionResult(partition=index, error_code=code, error_message=message)
    return PartitionResult(
        partition=index,
        state_epoch=answer.state_epoch,
        leader_epoch=answer.leader_epoch,
        start_offset=answer.start_offset,
        delivery_complete_count=answer.delivery_complete_count,
    )
