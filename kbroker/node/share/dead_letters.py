"""Writes what share groups give up to their dead-letter topics (KIP-1191, Kafka's ``ShareGroupDLQStateManager``)."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from kbroker.config import InvalidConfig
from kbroker.config.topic_values import effective_topic_values, validate_topic_config
from kbroker.cores.share_partitions.dead_letters import (
    ATTEMPTS,
    DeadLetters,
    DeadLetterTopic,
    Originals,
    Source,
    make_round,
    pause_ms,
)
from kbroker.cores.share_partitions.originals import OriginalsReader
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.peers.peer_pool import NoAnswer, PoolFor
from kbroker.node.share.dead_letter_producers import DeadLetterProducer, DeadLetterProducers, Target
from kbroker.raft_metadata.config_schema import broker_value, dynamic_broker_configs
from kbroker.raft_metadata.topics import NewTopic
from kbroker.wire.batch_header import BatchHeader, walk_headers
from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from kbroker.config.share_group import ShareGroupConfig
    from kbroker.handlers.common.context import Services
    from kbroker.node.replicas.partition import Partition
    from kbroker.observe.metrics.traffic import Traffic
    from kbroker.raft_metadata.image import TopicImage
    from kbroker.wire.messages.produce import ProduceRequest

logger = logging.getLogger(__name__)

_ENABLED = "errors.deadletterqueue.group.enable"
_CONFIGS_OF_A_NEW_TOPIC = ((_ENABLED, "true"), ("message.timestamp.type", "CreateTime"))
_WRITE_MS = 30_000
"""The time in which the leader has a batch replicated, or answers that it is not."""
_ANSWER_SECONDS = _WRITE_MS / 1000 + 10
"""The time until a leader counts as gone: longer, as its answer says whether it has the batch."""
_BYTES_OF_A_READ = 1 << 20
_SENDERS_OF_A_TOPIC = 2
"""Batches for one topic that are being written at once, pauses between attempts included."""
_SENDERS = 32
"""Batches for all topics that are being written at once."""
_READERS = 4
"""Share partitions of which the last read is kept for the next batch."""
_ALL_REPLICAS = -1

_MAY_PASS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of a write after which another attempt is made. Kafka makes one for the first alone."""

_NOT_IN_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)
"""Errors of a leader that has lost what the producer id had written: another attempt is made with another id."""

_WRITTEN = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""All replicas that are in sync have the batch, though these may be few: it is not sent again.

REQUEST_TIMED_OUT does not say that, and the leader's batch may be cut off by another leader: it is sent again.
"""

_CREATION_MAY_PASS = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.INVALID_REPLICATION_FACTOR,  # brokers are away
    }
)
"""Errors of the topic's creation after which another attempt is made, as while the controller changes."""


class _GivenUp(Exception):
    """The text says why letters are not written."""


class _NoLongerOurs(Exception):
    """Another broker leads the share partition: it writes the letters."""


class DeadLetterQueue:
    """The dead-letter topics of all groups, for the share partitions that this node leads."""

    def __init__(
        self,
        services: Services,
        pool_for: PoolFor,
        group_config: Callable[[str], ShareGroupConfig],
        traffic: Traffic | None = None,
    ) -> None:
        """``traffic`` is for metrics."""
        self._services = services
        self._group_config = group_config
        self._traffic = traffic
        self._readers: dict[Source, tuple[Partition, OriginalsReader]] = {}
        """Those of senders that are not through with their letters, the latest last."""
        self._senders = trio.CapacityLimiter(_SENDERS)
        self._senders_of: dict[str, trio.CapacityLimiter] = {}
        """By topic, as long as it has any."""
        self._producers = DeadLetterProducers(services.producer_ids.next_id)
        self._peers = pool_for("dead-letters")

    async def put(
        self, source: Source, partition: Partition, letters: Sequence[DeadLetters], is_ours: Callable[[], bool]
    ) -> tuple[list[DeadLetters], list[DeadLetters]]:
        """Write as many letters as one batch takes. Returns those that are done with, and the rest.

        Those that cannot be written are done with, too; that is logged. None is done with once ``is_ours`` says that
        the share partition is not.

        Few do so at a time for one topic, and the others wait in their order: a topic that cannot be written holds up
        its own letters alone. Few do on a node: letters take what memory they need from nobody else.
        """
        async with self._turn(self._group_config(source.group_id).dead_letter_topic), self._senders:
            return await self._put(source, partition, letters, is_ours)

    @asynccontextmanager
    async def _turn(self, topic: str) -> AsyncIterator[None]:
        """A topic's sender has its turn."""
        senders = self._senders_of.get(topic)
        if senders is None:
            senders = self._senders_of[topic] = trio.CapacityLimiter(_SENDERS_OF_A_TOPIC)
        try:
            async with senders:
                yield
        finally:
            told = senders.statistics()
            if not told.borrowed_tokens and not told.tasks_waiting:
                self._senders_of.pop(topic, None)

    async def _put(
        self, source: Source, partition: Partition, letters: Sequence[DeadLetters], is_ours: Callable[[], bool]
    ) -> tuple[list[DeadLetters], list[DeadLetters]]:
        done, rest = list(letters), list[DeadLetters]()
        try:
            max_bytes = self._max_message_bytes(self._topic_of(source.group_id).name)
            originals = await self._originals(source, partition, letters, max_bytes)
            now_ms = self._services.env.wall_clock_ms()
            batch, done, rest = make_round(source, letters, originals, max_bytes=max_bytes, now_ms=now_ms)
            del originals  # the batch has them; to write it may take minutes
            producer, count = self._producers.take(source), sum(each.size for each in done)
            await self._repeat(source, batch, producer, is_ours)
            producer.written(count)
            self._producers.give_back(source, producer)
            if self._traffic is not None:
                self._traffic.shares.letters[source.group_id] += count
        except _NoLongerOurs:
            return [], list(letters)
        except _GivenUp as reason:
            _log_lost(source, done, str(reason))
        except Exception:
            logger.exception("dead letters of the share group %s are lost", source.group_id)
        return done, rest

    # -- configuration -------------------------------------------------------------------------

    def _topic_of(self, group_id: str) -> DeadLetterTopic:
        """The topic as it is configured now. ``_GivenUp`` if it must not be written."""
        name, image = self._group_config(group_id).dead_letter_topic, self._services.metadata.image
        config = self._services.config
        topic = DeadLetterTopic(
            name,
            exists=name in image.topics.by_name,
            is_enabled=_is_enabled(image.configs.for_topic(name)),
            may_be_created=broker_value(image.configs, config, "errors.deadletterqueue.auto.create.topics.enable"),
            prefix=broker_value(image.configs, config, "errors.deadletterqueue.topic.name.prefix"),
        )
        refusal = topic.refusal()
        if refusal is not None:
            raise _GivenUp(refusal)
        return topic

    def _max_message_bytes(self, topic: str) -> int:
        configs, config = self._services.metadata.image.configs, self._services.config
        dynamic = dynamic_broker_configs(configs, config.node_id)
        return int(effective_topic_values(config.values, configs.for_topic(topic), dynamic)["max.message.bytes"])

    # -- the records ---------------------------------------------------------------------------

    async def _originals(
        self, source: Source, partition: Partition, letters: Sequence[DeadLetters], max_bytes: int
    ) -> Originals:
        """The records to be copied, if the group wants copies. Others have their turn before each batch of them."""
        if not self._group_config(source.group_id).dead_letter_copy:
            return Originals({}, letters[-1].last_offset)
        reader = self._readers.pop(source, None)
        if reader is None or reader[0] is not partition:
            reader = (partition, OriginalsReader(partial(_read, partition)))
        steps = reader[1].read(letters, max_bytes)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                originals: Originals = end.value
                break
            await trio.lowlevel.checkpoint()
        if originals.until < letters[-1].last_offset:
            self._readers[source] = reader
            if len(self._readers) > _READERS:
                del self._readers[next(iter(self._readers))]
        return originals

    # -- attempts ------------------------------------------------------------------------------

    async def _repeat(
        self, source: Source, batch: bytes, producer: DeadLetterProducer, is_ours: Callable[[], bool]
    ) -> None:
        """Make attempts to write a batch, until one gives no reason for another. ``_GivenUp``, ``_NoLongerOurs``.

        Each has the topic created if there is none: it may have been deleted after the one before.
        """
        problem: str | None = None
        for failures in range(1, ATTEMPTS + 1):
            if not is_ours():
                raise _NoLongerOurs
            name = self._topic_of(source.group_id).name
            problem = await self._create(name) or await self._write(name, source, batch, producer)
            if problem is None:
                return
            if failures < ATTEMPTS:
                env = self._services.env
                await trio.sleep(env.budgets.retry_pauses * pause_ms(failures, env.rng) / 1000)
        if not is_ours():
            raise _NoLongerOurs
        self._count_failure(source)
        raise _GivenUp(problem)

    def _count_failure(self, source: Source) -> None:
        if self._traffic is not None:
            self._traffic.shares.failed_letter_requests[source.group_id] += 1

    async def _create(self, name: str) -> str | None:
        """Have the topic created, if that is still needed; the reason why it has to be tried again."""
        topics = self._services.metadata.image.topics
        if name in topics.by_name:
            return None
        try:
            outcome = (await self._services.metadata.create_topics([NewTopic(name, configs=_CONFIGS_OF_A_NEW_TOPIC)]))[
                name
            ]
        except ApiError as error:
            return str(error)
        if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            if outcome.code in _CREATION_MAY_PASS:
                return f"the topic {name} cannot be created: {outcome}"
            raise _GivenUp(f"the topic {name} cannot be created: {outcome}")
        return None if name in self._services.metadata.image.topics.by_name else f"{name} is not known here yet"

    async def _write(self, name: str, source: Source, batch: bytes, producer: DeadLetterProducer) -> str | None:
        """Have a batch written by the leader of the topic's partition; the reason why it has to be tried again."""
        topic = self._services.metadata.image.topics.by_name.get(name)
        if topic is None:
            return f"there is no topic {name}"
        index = source.partition % len(topic.partitions)
        leader = topic.partitions[index].leader
        if leader < 0:
            return f"{name}-{index} has no leader"
        signed = await producer.sign(batch, Target(topic.id, index))
        if self._traffic is not None:
            self._traffic.shares.letter_requests[source.group_id] += 1
        try:
            response = await self._peers.ask(leader, _request(topic, index, signed), timeout=_ANSWER_SECONDS)
        except NoAnswer as error:
            return str(error)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code in _WRITTEN:
            return None
        code = ErrorCode.of(answer.error_code)
        problem = f"{name}-{index}: {code.name}{': ' if answer.error_message else ''}{answer.error_message or ''}"
        if code in _NOT_IN_SEQUENCE:
            producer.forget()
        elif code not in _MAY_PASS:
            self._count_failure(source)
            raise _GivenUp(problem)
        if code is ErrorCode.REQUEST_TIMED_OUT:
            problem += "; its leader has them, and they are there if that remains so"
        return problem


def _read(partition: Partition, offset: int) -> tuple[bytes, list[tuple[int, BatchHeader]]]:
    """Committed batches from an offset on; none if the log does not give them."""
    try:
        data = partition.log.read_bytes(offset, _BYTES_OF_A_READ, max_offset=partition.high_watermark)
        return data, list(walk_headers(data))
    except (ApiError, WireError) as error:
        logger.info("dead letters of %s from offset %d on have no copy: %s", partition, offset, error)
    except OSError as error:
        partition.storage_failed(error)
    return b"", []


def _request(topic: TopicImage, index: int, batch: bytes) -> ProduceRequest:
    from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    data = PartitionProduceData(index=index, records=memoryview(batch))
    return ProduceRequest(
        acks=_ALL_REPLICAS,
        timeout_ms=_WRITE_MS,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])],
    )


def _is_enabled(configs: Mapping[str, str]) -> bool:
    try:
        return bool(validate_topic_config(_ENABLED, configs.get(_ENABLED, "false")))
    except InvalidConfig:
        return False  # stored by another release


def _log_lost(source: Source, letters: Sequence[DeadLetters], reason: str) -> None:
    offsets = ", ".join(
        str(each.first_offset) if each.first_offset == each.last_offset else f"{each.first_offset}-{each.last_offset}"
        for each in letters
    )
    logger.warning(
        "the share group %s gives up offsets %s of %s-%d without a dead letter: %s",
        source.group_id,
        offsets,
        source.topic,
        source.partition,
        reason,
    )
