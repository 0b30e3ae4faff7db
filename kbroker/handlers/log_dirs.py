"""Log directories: described, and replicas assigned to them or moved between them.

DescribeLogDirs (key 35): what lies in which log directory, and how large it is.
Served: 1 to 5. 2: flexible; 3: top-level error_code; 4: total_bytes and usable_bytes (KIP-827); 5: is_cordoned
(KIP-1066). Tagged fields of kbroker's own ask how far the directories are scrubbed, or have the node begin, and what is
missing from logs that are damaged.

AlterReplicaLogDirs (key 34): moves replicas to other log directories of the same broker (KIP-113).
Served: 1 to 2. 2: flexible. The answer comes when the moves have begun; DescribeLogDirs tells how far they are.

AssignReplicasToDirs (key 73): a broker reports the log directories of its replicas (KIP-858).
Served: 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_on_cluster
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare, portions
from kbroker.handlers.registration import LargeAnswers, handler
from kbroker.raft_metadata.controller.directories import ReplicaDirectory, assign_replicas
from kbroker.raft_metadata.metadata_version import CORDONED_DIRECTORIES
from kbroker.security.authorizer.types import AclOperation
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    DirectoryData,
    MissingOffsets,
    PartitionData,
    PartitionLoad,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
    Scrub,
    TopicData,
)

if TYPE_CHECKING:
    from kbroker.handlers.services.partitions import Partition, Scrubber


BEGIN_SCRUB = 2
"""The value of ``wants_scrub`` that has the node begin."""


def _asks_for_all(request: DescribeLogDirsRequest, version: int) -> bool:
    return request.topics is None


def _lists_of(response: DescribeLogDirsResponse) -> Iterator[list[Any]]:
    for directory in response.results:
        for topic in directory.topics:
            yield topic.partitions
        yield directory.topics


def _scrub(scrubber: Scrubber, path: str) -> Scrub | None:
    progress = scrubber.progress.get(path)
    if progress is None:
        return None
    return Scrub(
        began_ms=progress.began_ms,
        ended_ms=progress.ended_ms,
        done_bytes=progress.done,
        total_bytes=progress.total,
        found=progress.found,
        bytes_per_second=scrubber.bytes_per_second,
    )


def _load(partition: Partition | None) -> list[PartitionLoad]:
    if partition is None:
        return []
    return [PartitionLoad(bytes_in=partition.bytes_in, bytes_out=partition.bytes_out, requests=partition.requests)]


@handler(DescribeLogDirsRequest, large_answers=LargeAnswers(_lists_of, _asks_for_all))
async def handle_describe_log_dirs(request: DescribeLogDirsRequest, ctx: RequestContext) -> DescribeLogDirsResponse:
    """``ReplicaManager.describeLogDirs``. A null list of topics asks for all."""
    if not may_on_cluster(ctx, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services = ctx.services
    wanted: dict[TopicPartition, None] | None = None
    if request.topics is not None:
        wanted = dict.fromkeys(
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        )
    knows_cordoned = services.metadata.image.features.metadata_version >= CORDONED_DIRECTORIES
    scrubber = services.scrubber() if request.wants_scrub else None
    if scrubber is not None and request.wants_scrub == BEGIN_SCRUB:
        scrubber.begin()
    results = []
    share = FairShare(ctx)
    partitions = services.replica_manager.partitions
    for directory in services.replica_manager.log_dirs.describe(wanted):
        if directory.offline:
            results.append(
                DescribeLogDirsResult(log_dir=directory.path, error_code=ErrorCode.KAFKA_STORAGE_ERROR, topics=[])
            )
            continue
        by_topic: dict[str, DescribeLogDirsTopic] = {}
        for portion in portions(ctx, directory.logs):
            await share.next(len(portion))
            for log in portion:
                topic, index = log.topic_partition
                if (entry := by_topic.get(topic)) is None:
                    entry = by_topic[topic] = DescribeLogDirsTopic(name=topic, partitions=[])
                entry.partitions.append(
                    DescribeLogDirsPartition(
                        partition_index=index,
                        partition_size=log.size,
                        offset_lag=log.offset_lag,
                        is_future_key=log.is_future,
                        damage=[
                            MissingOffsets(
                                start_offset=each.start_offset, end_offset=each.end_offset, reason=each.reason
                            )
                            for each in (log.damage if request.wants_damage else ())
                        ],
                        load=_load(partitions.get(log.topic_partition)) if request.wants_load else [],
                    )
                )
        results.append(
            DescribeLogDirsResult(
                log_dir=directory.path,
                topics=list(by_topic.values()),
                total_bytes=directory.total_bytes,
                usable_bytes=directory.usable_bytes,
                is_cordoned=directory.cordoned and knows_cordoned,
                scrub=None if scrubber is None else _scrub(scrubber, directory.path),
            )
        )
    return DescribeLogDirsResponse(results=results)


_LONGEST = 255 - len(".-future") - 32
"""Of topic and partition together: the log on its way gets a random id and a suffix, in a file name (KAFKA-4893)."""


@handler(AlterReplicaLogDirsRequest)
async def handle_alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, ctx: RequestContext
) -> AlterReplicaLogDirsResponse:
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


@handler(AssignReplicasToDirsRequest)
async def handle_assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, ctx: RequestContext
) -> AssignReplicasToDirsResponse:
    """Write the directories down; replicas in a failed directory lose leadership."""
    refused: AssignReplicasToDirsResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    wanted = [
        _replica(directory, topic, partition)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    try:
        errors = await ctx.services.metadata.submit(
            lambda view: assign_replicas(view, request.broker_id, request.broker_epoch, wanted)
        )
    except ApiError as error:
        return AssignReplicasToDirsResponse(error_code=error.code)
    return AssignReplicasToDirsResponse(
        directories=[
            ResponseDirectoryData(
                id=directory.id,
                topics=[
                    ResponseTopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            ResponsePartitionData(
                                partition_index=partition.partition_index,
                                error_code=errors[_replica(directory, topic, partition)],
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )


def _replica(directory: DirectoryData, topic: TopicData, partition: PartitionData) -> ReplicaDirectory:
    return ReplicaDirectory(Uuid(topic.topic_id), partition.partition_index, Uuid(directory.id), partition.is_damaged)
