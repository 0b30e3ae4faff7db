"""InitializeShareGroupState (key 83): the group coordinator begins share partitions anew (KIP-932).

Served: 0.
"""

from __future__ import annotations

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_state import SharePartitionKey
from kbroker.errors import ApiError
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import error_fields
from kbroker.handlers.common.share_coordinator_requests import answer_each, results_of
from kbroker.handlers.registration import handler
from kbroker.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)


@handler(InitializeShareGroupStateRequest)
async def handle(request: InitializeShareGroupStateRequest, ctx: RequestContext) -> InitializeShareGroupStateResponse:
    """Have the share coordinator keep each share partition with its epoch and start offset, and nothing else."""
    answers = await answer_each(request, ctx, "initialize share group state", _initialize, allows_empty=True)
    return InitializeShareGroupStateResponse(results=results_of(answers, InitializeStateResult, _result))


def _initialize(
    core: ShareCoordinator, key: SharePartitionKey, part: PartitionData, now_ms: int
) -> CoordinatorResult[None]:
    return core.initialize(key, part.state_epoch, part.start_offset, now_ms)


def _result(index: int, answer: ApiError | None) -> PartitionResult:
    code, message = error_fields(answer)
    return PartitionResult(partition=index, error_code=code, error_message=message)
