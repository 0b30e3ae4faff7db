"""The appends of one Produce request: what it may write to, the answer for each batch, and what they wait for.

A batch is appended at once, or gathered with others of the round (`Partition.gather`). Its answer may have to wait for
the end of the round, for a flush that ``flush.messages`` asks for, or for replication (acks=all). Not an API itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.cores.replication.offset_waiter import Appended, Results
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import CloseConnection, RequestContext
from kbroker.handlers.leaders import current_leader
from kbroker.handlers.refused_batches import RefusedBatches
from kbroker.handlers.transactional_produce import Response, Unverified, Verified
from kbroker.log.validation import NotOneBatch, check_produce_version, only_batch
from kbroker.raft_metadata.topics import INTERNAL_TOPICS
from kbroker.runtime.later import Later
from kbroker.types import ZERO_UUID, TopicPartition, Uuid
from kbroker.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kbroker.handlers.authorization import May
    from kbroker.handlers.services.partitions import Partition
    from kbroker.log.partition_log import AppendInfo
    from kbroker.log.producer_entry import VerificationGuard
    from kbroker.runtime.round import Round
    from kbroker.wire.schema import Records

logger = logging.getLogger(__name__)

_ADMIN_CLIENT = "__admin_client"

_FIRST_WITH_ALL_CODECS = 7
"""From this version on, nothing of a batch depends on the version of its request."""

_WITHOUT_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of an append that are told without the log start offset (``ReplicaManager.appendToLocalLog``); all others are
told with it."""

_Unreplicated = tuple[PartitionProduceResponse, Appended]
"""The answer for a batch that is in the log of this node, and the batch, which is to be replicated first."""


class Appends:
    """One request's appends. `response` gives its answer once each batch has been appended, gathered or refused."""

    __slots__ = (
        "_ctx",
        "_failed",
        "_gathered",
        "_manager",
        "_may_write",
        "_request",
        "_unflushed",
        "_unreplicated",
        "_verified",
        "round",
    )

    def __init__(
        self,
        request: ProduceRequest,
        ctx: RequestContext,
        verified: Verified | None,
        round: Round | None,
        may_write: May | None = None,
    ) -> None:
        self.round = round
        """The crowded round that the request is served in; None if there is none, or it has ended."""
        self._gathered: list[tuple[PartitionProduceResponse, Partition, int]] | None = None
        self._request = request
        self._ctx = ctx
        self._manager = ctx.services.replica_manager
        self._verified = verified
        self._may_write = may_write
        self._failed = False
        self._unreplicated: list[_Unreplicated] = []
        self._unflushed: list[tuple[PartitionProduceResponse, Partition]] | None = None

    def partition_for(self, name: str | None, data: PartitionProduceData) -> Partition:
        """The partition to append to. ``ApiError`` in Kafka's order for all that is refused before the log is asked."""
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if self._may_write is not None and not self._may_write(name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = self._manager.partitions.get((name, data.index))
        if partition is None and not self._manager.exists(name, data.index):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        header = self._ctx.header
        if data.records is None or header.api_version < _FIRST_WITH_ALL_CODECS:
            _check_records(data.records, header.api_version)
        try:
            if self._verified is not None:
                self.guard(name, data.index)
            if self._request.acks not in (-1, 1, 0):
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
            is_internal = name in INTERNAL_TOPICS if partition is None else partition.is_internal
            if is_internal and header.client_id != _ADMIN_CLIENT:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
            return partition or self._manager.get_partition(name, data.index)
        except ApiError as error:
            raise _first_error(name, data, error) from None

    def check_turn(
        self, refused: RefusedBatches, topic: TopicProduceData, data: PartitionProduceData, partition: Partition
    ) -> None:
        """``ApiError`` OUT_OF_ORDER_SEQUENCE_NUMBER for a batch behind one that was refused and comes again."""
        has_log = partition.has_log and not partition.offline
        producers = partition.log.producers.active_producers if has_log else ()
        key = topic.name or topic.topic_id, data.index
        refused.check(key, data.records, self._ctx.services.env.now(), producers)

    def guard(self, name: str | None, index: int) -> VerificationGuard | None:
        """The guard that the coordinator has given for the partition's transaction. Raises its refusal."""
        guard = self._verified.get((name, index)) if self._verified is not None and name is not None else None
        if isinstance(guard, ApiError):
            raise guard
        return guard

    def appended(self, index: int, partition: Partition, info: AppendInfo) -> PartitionProduceResponse:
        """The answer for a batch that is in the log; ``response`` waits for its flush and its replication."""
        answer = _answer(index, info.first_offset, info.log_append_time_ms, info.log_start_offset)
        self._await(answer, partition, info.last_offset)
        return answer

    def _await(self, answer: PartitionProduceResponse, partition: Partition, last_offset: int) -> None:
        if partition.must_flush:
            if self._unflushed is None:
                self._unflushed = []
            self._unflushed.append((answer, partition))
        if self._request.acks == -1 and partition.state.high_watermark <= last_offset:
            appended = Appended(partition, partition.state.leader_epoch, last_offset + 1)
            self._unreplicated.append((answer, appended))

    def gather(
        self, index: int, partition: Partition, records: memoryview, now_ms: int, round: Round
    ) -> PartitionProduceResponse | None:
        """The answer for a batch that is written at the end of the round; None if it must be appended now."""
        try:
            placed = partition.gather(records, self._request.acks, now_ms, round)
        except ApiError:
            return None  # appending it meets the same error, and answers in full
        if placed is None:
            return None
        first_offset, last_offset, log_append_time_ms, log_start_offset = placed
        answer = _answer(index, first_offset, log_append_time_ms, log_start_offset)
        partition.on_write_failed.append(lambda error: self._write_failed(answer, error))
        if self._gathered is None:
            self._gathered = []
        self._gathered.append((answer, partition, last_offset))
        return answer

    def _write_failed(self, answer: PartitionProduceResponse, error: ApiError) -> None:
        self._failed = True
        answer.error_code = error.code
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1

    def refused(
        self,
        name: str | None,
        topic: TopicProduceData,
        data: PartitionProduceData,
        error: ApiError,
        refused_by: Partition | None,
    ) -> PartitionProduceResponse:
        """The answer for a batch that is not in the log. It may be the partition itself that has refused it."""
        self._failed = True
        partition = None if name is None else self._manager.partitions.get((name, data.index))
        if partition is not None and partition.traffic is not None:
            partition.traffic.failed_produces += 1
        if refused_by is not None:
            error = _first_error(refused_by.topic_partition.topic, data, error)
        connection = self._ctx.connection
        if connection.refused_batches is None:
            connection.refused_batches = RefusedBatches()
        key = topic.name or topic.topic_id, data.index
        connection.refused_batches.note(key, data.records, error.code, self._ctx.services.env.now())
        return _error_answer(data.index, error, refused_by)

    def response(self, topics: list[TopicProduceResponse]) -> Response:
        """The answer to the request: now, after what it waits for, or none for acks=0."""
        request, ctx = self._request, self._ctx
        if request.acks == 0:
            if self._failed:
                # The client expects no answer: closing is the only way to tell it (KafkaApis.handleProduceRequest).
                raise CloseConnection(f"error in a produce request with acks=0: {_summary(topics)}")
            return None
        response = ProduceResponse(responses=topics)
        if self._gathered is None:
            return self._when_acknowledged(response)
        assert self.round is not None, "leave_round leaves nothing gathered to the next round"
        delayed: Later[ProduceResponse | None] = Later()

        def at_end() -> None:
            try:
                self._await_gathered()
                set_from(delayed, self._when_acknowledged(response))
            except Exception:
                logger.exception("Produce from %s failed", ctx.connection.peer)
                ctx.connection.scope.cancel()

        self.round.at_end(at_end)
        return delayed

    def leave_round(self) -> None:
        """The request gives way to others, and goes on after the round. Its gathered batches are written at its end."""
        round, self.round = self.round, None
        if round is not None and self._gathered is not None:
            round.at_end(self._await_gathered)

    def _await_gathered(self) -> None:
        """Note what the gathered batches wait for, in the leader epoch in which they have just been written.

        Later would be too late: another leader may have cut them off, and its high watermark says nothing of them.
        """
        gathered, self._gathered = self._gathered, None
        for answer, partition, last_offset in gathered or ():
            if not answer.error_code:
                try:
                    self._await(answer, partition, last_offset)
                except ApiError as error:  # its disk has failed since
                    self._write_failed(answer, error)

    def _when_acknowledged(self, response: ProduceResponse) -> Response:
        """The answer to the request: later if a batch has to be flushed or replicated first."""
        request, ctx = self._request, self._ctx
        if self._failed and ctx.header.api_version >= 10:
            _add_leaders(response, ctx)
        if self._unflushed is not None:
            return _flush_first(response, self._unflushed, self._unreplicated, request.timeout_ms, ctx)
        if self._unreplicated:
            return _delay(Later(), response, self._unreplicated, request.timeout_ms, ctx)
        return response


def _answer(index: int, offset: int, log_append_time_ms: int, log_start_offset: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, base_offset=offset, log_append_time_ms=log_append_time_ms, log_start_offset=log_start_offset
    )


def _flush_first(
    response: ProduceResponse,
    unflushed: list[tuple[PartitionProduceResponse, Partition]],
    unreplicated: Sequence[_Unreplicated],
    timeout_ms: int,
    ctx: RequestContext,
) -> Later[ProduceResponse | None]:
    """Flush the partitions for which ``flush.messages`` asks for it; then answer, or wait for replication."""
    delayed: Later[ProduceResponse | None] = Later()
    manager = ctx.services.replica_manager

    async def flush() -> None:
        for answer, partition in unflushed:
            try:
                await partition.flush()
            except ApiError as error:
                answer.error_code = error.code
                answer.base_offset = -1
        if unreplicated:
            _delay(delayed, response, unreplicated, timeout_ms, ctx)
        else:
            delayed.set(response)

    manager.start_soon(flush)
    return delayed


def _check_records(records: Records | None, version: int) -> None:
    """Refuse records that the version forbids; the log judges all else."""
    if records is None:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} must have at least one record batch per partition",
        )
    check_produce_version(records, version)


def _first_error(topic: str, data: PartitionProduceData, error: ApiError) -> ApiError:
    """The error to tell of two: what is wrong with the shape of a batch, if something is, or the other."""
    try:
        only_batch(data.records or b"", TopicPartition(topic, data.index))
    except ApiError as first:
        return first
    return error


def _error_answer(index: int, error: ApiError, refused_by: Partition | None) -> PartitionProduceResponse:
    record_errors = getattr(error, "record_errors", ())
    unverified = isinstance(error, Unverified)
    log_start_offset = -1
    if (
        refused_by is not None
        and error.code not in _WITHOUT_START
        and not isinstance(error, NotOneBatch)
        and refused_by.has_log
        and not refused_by.offline
    ):
        log_start_offset = refused_by.log.log_start_offset
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in record_errors
        ],
        # For what ``ReplicaManager.appendRecordsToLeader`` finds wrong in records, not for what the shape of the
        # request forbids; and for a batch whose transaction could not be verified.
        error_message=error.message if record_errors or unverified else None,
    )


def _add_leaders(response: ProduceResponse, ctx: RequestContext) -> None:
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            name = topic.name
            if topic.topic_id != ZERO_UUID:
                name = ctx.services.replica_manager.topic_name(Uuid(topic.topic_id)) or name
            leader = current_leader(ctx, name, partition.index)
            partition.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
            if leader.host is not None:
                endpoints[leader.leader_id] = NodeEndpoint(
                    node_id=leader.leader_id, host=leader.host, port=leader.port, rack=leader.rack
                )
    response.node_endpoints = list(endpoints.values())


def _delay(
    delayed: Later[ProduceResponse | None],
    response: ProduceResponse,
    unreplicated: Sequence[_Unreplicated],
    timeout_ms: int,
    ctx: RequestContext,
) -> Later[ProduceResponse | None]:
    """Answer once every appended batch is replicated, or with errors for those that are not in time.

    A batch may also have been lost: others have had turns since the append, if the request is long or was flushed.
    """

    def finish(results: Results) -> None:
        failed = False
        for answer, appended in unreplicated:
            error = results[appended.partition.topic_partition]
            if error is not None:
                failed = True
                answer.error_code = error
        if failed and ctx.header.api_version >= 10:
            _add_leaders(response, ctx)  # whoever leads by now, so that the client need not ask
        delayed.set(response)

    appends = [appended for _, appended in unreplicated]
    ctx.services.replica_manager.watch_produce(appends, finish, timeout_ms)
    return delayed


def _summary(topics: list[TopicProduceResponse]) -> str:
    return ", ".join(
        f"{topic.name}-{partition.index}: {ErrorCode(partition.error_code).name}"
        for topic in topics
        for partition in topic.partition_responses
        if partition.error_code
    )


def set_from(delayed: Later[ProduceResponse | None], response: Response) -> None:
    """Give ``delayed`` the response, or the value of one that comes later."""
    if isinstance(response, Later):
        response.on_done(lambda: delayed.set(response.value))
    else:
        delayed.set(response)
