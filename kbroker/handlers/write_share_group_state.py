"""WriteShareGroupState (key 85): a partition's leader has its decisions about deliveries kept (KIP-932).

Served: 0 to 1. 1: delivery_complete_count (KIP-1226).
"""

from __future__ import annotations

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_state import SharePartitionKey, SharePartitionState, StateBatch
from kbroker.errors import ApiError
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import error_fields
from kbroker.handlers.common.share_coordinator_requests import answer_each, results_of
from kbroker.handlers.registration import handler
from kbroker.wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


@handler(WriteShareGroupStateRequest)
async def handle(request: WriteShareGroupStateRequest, ctx: RequestContext) -> WriteShareGroupStateResponse:
    """Have the share coordinator keep what changed; an answer without an error says that it is committed."""
    answers = await answer_each(request, ctx, "write share group state", _write, is_write=True)
    return WriteShareGroupStateResponse(results=results_of(answers, WriteStateResult, _result))


def _write(core: ShareCoordinator, key: SharePartitionKey, part: PartitionData, now_ms: int) -> CoordinatorResult[None]:
    changed = SharePartitionState(
        part.state_epoch,
        part.leader_epoch,
        part.start_offset,
        part.delivery_complete_count,
        tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in part.state_batches
        ),
    )
    return core.write(key, changed, now_ms)


def _result(index: int, answer: ApiError | None) -> PartitionResult:
    code, message = error_fields(answer)
    return PartitionResult(partition=index, error_code=code, error_message=message)
