"""DeleteRecords (key 21): move a partition's log start offset forward.

Served: 0 to 2. 2: flexible.
"""

from __future__ import annotations

import logging

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import Versions, handler
from kbroker.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

logger = logging.getLogger(__name__)

VERSIONS = Versions(0, 2)
HIGH_WATERMARK = -1
"""As an offset: everything that is committed."""


@handler(DeleteRecordsRequest, versions=VERSIONS)
async def handle(request: DeleteRecordsRequest, ctx: RequestContext) -> DeleteRecordsResponse:
    """``Partition.deleteRecordsOnLeader`` for each partition."""
    manager = ctx.services.replica_manager
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            try:
                answer.low_watermark = manager.delete_records(topic.name, wanted.partition_index, wanted.offset)
            except ApiError as error:
                answer.error_code = error.code
            except Exception:
                logger.exception("DeleteRecords of %s-%d failed", topic.name, wanted.partition_index)
                answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            answers.append(answer)
        if answers:  # as in Kafka, whose answers are by partition
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    return DeleteRecordsResponse(topics=topics)
