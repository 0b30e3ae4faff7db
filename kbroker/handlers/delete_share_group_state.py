"""DeleteShareGroupState (key 86): the group coordinator has share partitions forgotten (KIP-932).

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
from kbroker.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)


@handler(DeleteShareGroupStateRequest)
async def handle(request: DeleteShareGroupStateRequest, ctx: RequestContext) -> DeleteShareGroupStateResponse:
    """Have the share coordinator forget share partitions; one that it does not know is no error."""
    answers = await answer_each(request, ctx, "delete share group state", _delete)
    return DeleteShareGroupStateResponse(results=results_of(answers, DeleteStateResult, _result))


def _delete(
    core: ShareCoordinator, key: SharePartitionKey, part: PartitionData, now_ms: int
) -> CoordinatorResult[None]:
    return core.delete(key)


def _result(index: int, answer: ApiError | None) -> PartitionResult:
    code, message = error_fields(answer)
    return PartitionResult(partition=index, error_code=code, error_message=message)
