"""AlterReplicaLogDirs (key 34): moves replicas to other log directories of the same broker (KIP-113).

Served: 1 to 2. 2: flexible. The answer comes when the moves have begun; DescribeLogDirs tells how far they are.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_on_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

_LONGEST = 255 - len(".-future") - 32
"""Of topic and partition together: the log on its way gets a random id and a suffix, in a file name (KAFKA-4893)."""


@handler(AlterReplicaLogDirsRequest)
async def handle(request: AlterReplicaLogDirsRequest, ctx: RequestContext) -> AlterReplicaLogDirsResponse:
    """``ReplicaManager.alterReplicaLogDirs``, for each partition by itself."""
    manager = ctx.services.replica_manager
    wanted: dict[tuple[str, int], str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted[topic.name, index] = directory.path
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    share = FairShare(ctx)
    allowed = may_on_cluster(ctx, AclOperation.ALTER)
    for (name, index), path in wanted.items():
        await share.next()
        code = ErrorCode.NONE
        try:
            if not allowed:
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            if len(f"{name}-{index}") > _LONGEST:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
            manager.log_mover.alter(name, index, path)
        except ApiError as error:
            code = error.code
        results.setdefault(name, []).append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=parts) for name, parts in results.items()]
    )
