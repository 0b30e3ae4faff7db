"""Writes the batches of Produce requests, and answers once they are acknowledged (``ReplicaManager.appendRecords``).

A request goes through this file from the top to the bottom:

- `write_produce`: the first request of its connection is served at once, as far as that goes. What is left of it waits
  in the node's queue (``node.serving.work_queue``), and so does whatever comes after it on the connection.
- `_Write.steps`: the coordinator of a transaction is asked about the batches (KIP-890). Each batch is then appended, or
  gathered with others of a crowded round (`Partition.gather`). A request of many batches gives way to others after some
  milliseconds, and so does a batch whose records take long to look at.
- `_Write._acknowledge`: the answer waits for the end of the round, for a flush that ``flush.messages`` asks for, and
  with acks=all for the replicas in sync: in the purgatory, up to the request's time-out.

A request of one batch, like an earlier one of its connection, does without all this (``node.shortcuts.produce``). This
is the hottest path of a node: there is no task, scope or timer per request, and one pass over the request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kbroker.cores.replication.purgatory import Appended, Results
from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.common.transactions import Unverified, begin_verification, produce_support, verification_errors
from kbroker.handlers.produce import error_answer, response
from kbroker.handlers.services.refused_batches import RefusedBatches
from kbroker.log.record_validation import TakesLong, examine
from kbroker.log.validation import check_produce_version, only_batch
from kbroker.raft_metadata.topics import INTERNAL_TOPICS
from kbroker.runtime.later import Later
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kbroker.handlers.services.partitions import Partition
    from kbroker.handlers.services.turns import Step
    from kbroker.log.producer_entry import VerificationGuard
    from kbroker.runtime.round import Round

logger = logging.getLogger(__name__)

_ADMIN_CLIENT: Final = "__admin_client"

_FIRST_WITH_TOPIC_IDS: Final = 13

_FIRST_WITH_ALL_CODECS: Final = 7
"""From this version on, nothing of a batch depends on the version of its request."""

_UNVERIFIABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

_BATCHES_A_LOOK: Final = 4
"""Batches that are appended between two looks at the clock."""

_PART_BYTES: Final = 256
"""About how many bytes a partition's part of a request takes besides its records."""

_SHARED_BUFFER: Final = 64 * 1024
"""A connection's buffer of at most this size is not one request's alone."""


def write_produce(
    request: ProduceRequest, ctx: RequestContext, may_write: Callable[[str], bool] | None, refusal: ApiError | None
) -> ProduceResponse | Later[ProduceResponse | None] | None:
    """Write the batches of a request to the topics that ``may_write`` allows, or refuse all of them with ``refusal``.

    Returns the response, or what gives it later; None for acks=0. ``CloseConnection`` for an error with acks=0, and if
    too much waits already.
    """
    queue, connection = ctx.services.produce_queue, ctx.connection
    is_first = connection.peer not in queue.waiting
    write = _Write(request, ctx, may_write, refusal, is_first)
    steps = write.steps()
    step: Step = None
    try:
        if is_first or request.transactional_id is not None:
            step = next(steps)  # whoever waits for its turn asks the coordinator now, too
        while is_first and isinstance(step, Later) and step.done:
            step = steps.send(step.value)
    except StopIteration:
        pass
    else:
        if not queue.add(connection, steps, step, held_bytes(request), needs_answer=request.acks != 0):
            raise CloseConnection("too many Produce requests wait already")
    answer = write.answer
    if answer.done:
        return answer.value
    return answer if request.acks else None


class _Write:
    """The writing of one request."""

    _verified: dict[tuple[str, int], VerificationGuard | Unverified] | None = None
    """By partition, in a transaction: the guard to append with, or the error that the batch is refused with."""
    _topics: list[TopicProduceResponse] | None = None
    """The answers, once there is one for each batch."""
    _failed = False
    """Whether one of the answers is an error."""

    def __init__(
        self,
        request: ProduceRequest,
        ctx: RequestContext,
        may_write: Callable[[str], bool] | None,
        refusal: ApiError | None,
        is_first: bool,
    ) -> None:
        self.answer: Later[ProduceResponse | None] = Later()
        self._request = request
        self._ctx = ctx
        self._version = ctx.header.api_version
        self._manager = ctx.services.replica_manager
        self._may_write = may_write
        self._refusal = refusal
        # The crowded round that the request is served in; None if there is none, it has ended, or nothing may be
        # gathered. With acks=0 a failed write must end the connection after the replies that are owed, and what the
        # client asks next on the connection must find the batch.
        self._round = ctx.round if is_first and request.acks and request.transactional_id is None else None
        self._appended: list[tuple[PartitionProduceResponse, Partition, int]] = []
        """Batches of the present step that may have to wait for something, each with its last offset."""
        self._unflushed: list[tuple[PartitionProduceResponse, Partition]] = []
        self._unreplicated: list[tuple[PartitionProduceResponse, Appended]] = []

    def steps(self) -> Generator[Step, Any, None]:
        """Append each batch, in steps between which others have their turns; the ``answer`` follows.

        The first step of a request with a transactional id asks the coordinator, and appends nothing.
        """
        request, connection, services = self._request, self._ctx.connection, self._ctx.services
        if request.transactional_id is not None:
            yield from self._verify(request.transactional_id)
        self._now_ms = services.env.wall_clock_ms()
        now = services.env.now
        topics = []
        count, until = 0, 0.0
        for topic in request.topic_data:
            name = self._name_of(topic)
            answers = []
            for data in topic.partition_data:
                if count:  # not before the first: most requests have one
                    if count == 1:
                        until = now() + services.produce_queue.slice_seconds
                    elif not count % _BATCHES_A_LOOK and now() >= until:
                        count = 0
                        self._end_step()
                        yield None
                        name = self._name_of(topic)  # another topic may have it by now
                count += 1
                partition: Partition | None = None
                try:
                    partition = self._partition_of(name, data)
                    if connection.refused_batches:
                        self._check_order(connection.refused_batches, topic, data, partition)
                    try:
                        answer = self._append(partition, data.index, data.records)
                    except TakesLong:
                        self._end_step()
                        try:
                            answer = yield from self._append_examined(topic, data, partition)
                        finally:
                            name = self._name_of(topic)
                except ApiError as error:
                    answer = self._refused(name, topic, data, error, partition)
                except Exception:
                    logger.exception("Produce to %s-%d failed", name, data.index)
                    answer = self._refused(name, topic, data, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR), partition)
                answers.append(answer)
            if answers:  # as in Kafka, whose answers are by partition
                topics.append(
                    TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
                )
        self._topics = topics
        self._end_step()

    def _name_of(self, topic: TopicProduceData) -> str | None:
        return self._manager.topic_name(topic.topic_id) if self._version >= _FIRST_WITH_TOPIC_IDS else topic.name

    # --- the transaction --------------------------------------------------------------------------------------

    def _verify(self, transactional_id: str) -> Generator[Step, Any, None]:
        """Ask the transaction's coordinator about the partitions that it has to be asked about, or to add them.

        It is asked again while it completes the producer's last transaction, for a while.
        """
        services, support = self._ctx.services, produce_support(self._version)
        transactions, now = services.transactions, services.env.now
        batches = self._transactional_batches() if self._refusal is None else {}
        producers = {ProducerIdAndEpoch(header.producer_id, header.producer_epoch) for header in batches.values()}
        if len(producers) > 1:
            message = "it has transactions of several producers"
            self._refusal, batches = Unverified(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message), {}
        settings = transactions.settings
        patience_ms = min(settings.add_partitions_retry_backoff_max_ms, services.config.request_timeout_ms)
        retry_until: float | None = None
        verified = self._verified = {}
        while True:
            verified.clear()
            unknown: list[TopicPartition] = []
            for key, header in batches.items():
                try:
                    partition = self._manager.get_leader(*key)
                    (producer,) = producers
                    guard, is_asked = begin_verification(services, partition, producer, header.base_sequence, support)
                except ApiError as error:
                    verified[key] = Unverified(error.code)
                    continue
                if guard is not None:
                    verified[key] = guard
                if is_asked:
                    unknown.append(key)
            errors: Later[dict[TopicPartition, ErrorCode]] = Later()
            if unknown:
                errors = transactions.add_or_verify(transactional_id, producer, unknown, support.adds_partitions)
            else:
                errors.set({})
            failed = verification_errors((yield errors), support)
            retry_until = retry_until or now() + patience_ms / 1000
            is_concurrent = support.adds_partitions and ErrorCode.CONCURRENT_TRANSACTIONS in failed.values()
            if not is_concurrent or now() >= retry_until:
                break
            yield transactions.backoff()
        for key, code in failed.items():
            verified[key] = _for_client(code, adds_partitions=support.adds_partitions)

    def _transactional_batches(self) -> dict[TopicPartition, BatchHeader]:
        """Returns the batches of the transaction; not those for topics that the principal may not write to."""
        found = {}
        for topic in self._request.topic_data:
            name = self._name_of(topic)
            if name is None or (self._may_write is not None and not self._may_write(name)):
                continue
            for data in topic.partition_data:
                key = TopicPartition(name, data.index)
                try:
                    header = parse_header(data.records or b"")
                    only_batch(data.records or b"", key)
                except (ApiError, CorruptRecord):
                    continue  # the log refuses it with the right error
                if header.is_transactional and header.has_producer_id:
                    found[key] = header
        return found

    # --- one batch --------------------------------------------------------------------------------------------

    def _partition_of(self, name: str | None, data: PartitionProduceData) -> Partition:
        """The partition to append to. ``ApiError`` in Kafka's order for all that is refused before the log is asked."""
        if self._refusal is not None:
            raise self._refusal.without_traceback()
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if self._may_write is not None and not self._may_write(name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        key = name, data.index
        partition = self._manager.find(*key)
        if partition is None and not self._manager.exists(*key):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if data.records is None:
            text = f"Produce requests with version {self._version} must have at least one record batch per partition"
            raise ApiError(ErrorCode.INVALID_RECORD, text)
        if self._version < _FIRST_WITH_ALL_CODECS:
            check_produce_version(data.records, self._version)
        try:
            if self._verified is not None and isinstance(unverified := self._verified.get(key), Unverified):
                raise unverified
            if self._request.acks not in (-1, 1, 0):
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
            is_internal = name in INTERNAL_TOPICS if partition is None else partition.is_internal
            if is_internal and self._ctx.header.client_id != _ADMIN_CLIENT:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
            return partition or self._manager.get_partition(name, data.index)
        except ApiError as error:
            raise _first_error(name, data, error) from None

    def _check_order(
        self, refused: RefusedBatches, topic: TopicProduceData, data: PartitionProduceData, partition: Partition
    ) -> None:
        """``ApiError`` OUT_OF_ORDER_SEQUENCE_NUMBER for a batch behind one that was refused and comes again."""
        has_log = partition.has_log and not partition.offline
        producers = partition.log.producers.active_producers if has_log else ()
        key = topic.name or topic.topic_id, data.index
        refused.check(key, data.records, self._ctx.services.env.now(), producers)

    def _append(self, partition: Partition, index: int, records: Any) -> PartitionProduceResponse:
        """Append a batch, or gather it with others of the round; its answer, which may have to wait.

        ``ApiError``: it is refused. `TakesLong`: its records are to be examined first.
        """
        if self._round is not None and (gathered := self._gather(partition, index, records, self._round)):
            return gathered
        acks = self._request.acks
        guard: Any = None if self._verified is None else self._verified.get(partition.topic_partition)
        info = partition.append(records, acks, self._now_ms, guard)
        answer = PartitionProduceResponse(
            index=index,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        if partition.must_flush or (acks == -1 and partition.state.high_watermark <= info.last_offset):
            self._appended.append((answer, partition, info.last_offset))
        return answer

    def _gather(self, partition: Partition, index: int, records: Any, round: Round) -> PartitionProduceResponse | None:
        """Have a batch written at the end of the round; None if it must be appended now."""
        try:
            placed = partition.gather(records, self._request.acks, self._now_ms, round)
        except ApiError:
            return None  # appending it meets the same error
        if placed is None:
            return None
        offset, last_offset, time_ms, start = placed
        answer = PartitionProduceResponse(
            index=index, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=start
        )
        partition.on_write_failed.append(partial(self._fail, answer))
        self._appended.append((answer, partition, last_offset))
        return answer

    def _append_examined(
        self, topic: TopicProduceData, data: PartitionProduceData, partition: Partition
    ) -> Generator[Step, Any, PartitionProduceResponse]:
        """Examine the records of a batch in steps, and append it to the partition that the topic has then."""
        while True:
            records = yield from examine(
                memoryview(data.records or b""), self._now_ms, partition.log.config, partition.topic_partition
            )
            name = self._name_of(topic)
            if name is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = self._manager.get_partition(name, data.index)
            try:
                return self._append(partition, data.index, records)
            except TakesLong:
                continue  # the topic has another configuration now

    def _refused(
        self,
        name: str | None,
        topic: TopicProduceData,
        data: PartitionProduceData,
        error: ApiError,
        refused_by: Partition | None,
    ) -> PartitionProduceResponse:
        """The answer for a batch that is not in the log. It may be the partition itself that has refused it."""
        self._failed = True
        partition = self._manager.find(name or "", data.index)
        if partition is not None and partition.traffic is not None and self._refusal is None:
            partition.traffic.failed_produces += 1
        if refused_by is not None:
            error = _first_error(refused_by.topic_partition.topic, data, error)
        connection = self._ctx.connection
        if connection.refused_batches is None:
            connection.refused_batches = RefusedBatches()
        key = topic.name or topic.topic_id, data.index
        connection.refused_batches.note(key, data.records, error.code, self._ctx.services.env.now())
        return error_answer(data.index, error, refused_by)

    # --- until it is acknowledged -----------------------------------------------------------------------------

    def _end_step(self) -> None:
        """End the part of a request that others see nothing of. Gathered batches are written at the round's end."""
        round, self._round = self._round, None
        if round is not None:
            round.at_end(self._on_round_end)
        else:
            self._await_appended()

    def _on_round_end(self) -> None:
        try:
            self._await_appended()
        except Exception:
            logger.exception("Produce from %s failed", self._ctx.connection.peer)
            self._ctx.connection.end()

    def _await_appended(self) -> None:
        """Note what the batches of this step wait for, in the leader epoch in which they were written.

        Later would be too late: another leader may have cut them off, and its high watermark says nothing of them.
        """
        acks = self._request.acks
        for answer, partition, last_offset in self._appended if acks else ():
            try:
                if answer.error_code:
                    continue
                if partition.must_flush:
                    self._unflushed.append((answer, partition))
                if acks == -1 and partition.state.high_watermark <= last_offset:
                    appended = Appended(partition, partition.state.leader_epoch, last_offset + 1)
                    self._unreplicated.append((answer, appended))
            except ApiError as error:  # its disk has failed since
                self._fail(answer, error)
        self._appended = []
        if self._topics is not None:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Answer, after the flush and the replication that the batches wait for."""
        assert self._topics is not None
        if self._unflushed or self._unreplicated:
            # The log has the records: their buffers are not to stay for as long as a slow follower takes.
            self._request = ProduceRequest(acks=self._request.acks, timeout_ms=self._request.timeout_ms)
        if self._unflushed:
            self._manager.start_soon(self._flush)
        elif self._unreplicated:
            appends = [appended for _, appended in self._unreplicated]
            self._manager.watch_produce(appends, self._replicated, self._request.timeout_ms)
        else:
            self.answer.set(response(self._request, self._ctx, self._topics, failed=self._failed))

    async def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for answer, partition in unflushed:
            try:
                await partition.flush()
            except ApiError as error:
                self._fail(answer, error)
        self._acknowledge()

    def _replicated(self, results: Results) -> None:
        """All batches are replicated, or cannot be any more, or the time is out.

        A batch may also have been lost: others have had turns since the append, if the request is long or was flushed.
        """
        unreplicated, self._unreplicated = self._unreplicated, []
        for answer, appended in unreplicated:
            error = results[appended.partition.topic_partition]
            if error is not None:
                self._failed = True
                answer.error_code = error
        self._acknowledge()

    def _fail(self, answer: PartitionProduceResponse, error: ApiError) -> None:
        """Answer with an error after all: the disk has failed."""
        self._failed = True
        answer.error_code = error.code
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


def held_bytes(request: ProduceRequest) -> int:
    """Returns the bytes that the request keeps in memory: its parts, and the buffers that its records are views of.

    A buffer counts whole, with bytes that follow the request in its frame, say.
    """
    size = 0
    buffers: dict[int, int] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            size += _PART_BYTES + len(records or b"")
            if isinstance(records, memoryview):
                buffers[id(records.obj)] = memoryview(records.obj).nbytes
    return max(size, sum(length for length in buffers.values() if length > _SHARED_BUFFER))


def _for_client(code: ErrorCode, *, adds_partitions: bool) -> Unverified:
    """The error for a batch that was not verified. Where another try may pass, it is one that every client retries."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return Unverified(code, "the partition was not added to the transaction")
    if code in _UNVERIFIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds_partitions):
        reason = f"that the partition is in the transaction could not be verified: {code.name}"
        return Unverified(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
    return Unverified(code)


def _first_error(topic: str, data: PartitionProduceData, error: ApiError) -> ApiError:
    """The error to answer with, of two: what is wrong with the shape of a batch, if something is, or the other."""
    try:
        only_batch(data.records or b"", TopicPartition(topic, data.index))
    except ApiError as first:
        return first
    return error
