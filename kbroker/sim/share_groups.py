"""A share group of a simulated cluster: its members, and the end, when all of its records are done with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import trio

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.share_coordinator.records import Snapshot, Update, read_record
from kbroker.cores.share_state import DeliveryState, SharePartitionKey
from kbroker.errors import ErrorCode
from kbroker.node.share.led_partition import LedSharePartition
from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_invariants import batches
from kbroker.sim.share_clients import SimShareMember
from kbroker.sim.share_history import ShareHistory
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import NO_PRODUCER_ID, parse_header
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.record_batch import iter_records

if TYPE_CHECKING:
    from kbroker.log.partition_log import PartitionLog


_ENDED = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class LoggedStates:
    """The states of one share partition in the order of the log. Deletion of old records may have taken the first."""

    def __init__(self, key: SharePartitionKey) -> None:
        self.start = -1
        self.first = -1
        """The first start offset: below it nothing was ever in delivery."""
        self.records: dict[int, tuple[int, int]] = {}
        """Delivery count and state, by offset."""
        self.passed: list[int] = []
        """Offsets that the start offset has passed, which the log does not say to be ended."""
        self._key = key
        self._state_epoch = -1

    def take(self, value: Snapshot | Update) -> None:
        """Apply a record. `Violation`: the start offset goes back."""
        if isinstance(value, Snapshot) and value.state_epoch > self._state_epoch:
            self.start = self.first = -1
            self.records.clear()
            self._state_epoch = value.state_epoch
        for first, last, state, count in value.batches:
            for offset in range(first, last + 1):
                self.records[offset] = max(self.records.get(offset, (0, 0)), (count, state))
        if value.start_offset == -1 and (isinstance(value, Update) or self.start == -1):
            return
        if value.start_offset < self.start:
            raise Violation(f"{self._key}: the start offset goes back from {self.start} to {value.start_offset}")
        if self.start == -1:
            self.first = value.start_offset
        else:
            passed = range(self.start, value.start_offset)
            self.passed += [offset for offset in passed if self.end(offset)[1] not in _ENDED]
        self.start = value.start_offset

    def end(self, offset: int) -> tuple[int, int]:
        """Delivery count and state of an offset."""
        return self.records.get(offset, (0, DeliveryState.AVAILABLE))


def logged_states(logs: Iterable[PartitionLog]) -> dict[SharePartitionKey, LoggedStates]:
    """The states in partitions of ``__share_group_state``, given as their logs."""
    found: dict[SharePartitionKey, LoggedStates] = {}
    for log in logs:
        for record in _records(log):
            read = read_record(record)
            assert read is not None, "no other kind of record is written"
            key, value = read
            if value is None:
                found.pop(key, None)
            else:
                found.setdefault(key, LoggedStates(key)).take(value)
    return found


def _records(log: PartitionLog) -> Iterator[CoordinatorRecord]:
    for _, _, data in batches(log, log.log_start_offset, log.log_end_offset):
        for record in iter_records(data):
            assert record.key is not None
            yield CoordinatorRecord(bytes(record.key), None if record.value is None else bytes(record.value))


STATE_TOPIC: Final = "__share_group_state"
_GROUP_RESOURCE = 32


class SimShareGroup:
    """One group that reads a topic from its beginning."""

    def __init__(
        self,
        cluster: SimCluster,
        name: str,
        partitions: list[TopicPartition],
        *,
        dead_letters: TopicPartition | None = None,
    ) -> None:
        """``dead_letters`` is the only partition of the group's dead-letter topic (KIP-1191); None without one."""
        self.name = name
        self._dead_letters = dead_letters
        self._cluster = cluster
        self._partitions = partitions
        self._members: list[SimShareMember] = []
        config = cluster.nodes[cluster.ids[0]].config().values
        self.history = ShareHistory(
            name,
            partitions[0].topic,
            len(partitions),
            cluster.history,
            lock_seconds=config["group.share.record.lock.duration.ms"] / 1000,
            limit=config["group.share.delivery.count.limit"],
        )

    async def begin(self) -> None:
        """Set the group up: it reads from the earliest record."""
        client, letters = self._cluster.client(), self._dead_letters
        settings = {"share.auto.offset.reset": "earliest"}
        if letters is not None:
            configs = {"min.insync.replicas": "2", "errors.deadletterqueue.group.enable": "true"}
            await client.create_topic(letters.topic, 1, 3, configs)
            settings["errors.deadletterqueue.topic.name"] = letters.topic
        altered = [
            IncrementalAlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()
        ]
        resource = IncrementalAlterConfigsResource(
            resource_type=_GROUP_RESOURCE, resource_name=self.name, configs=altered
        )
        while True:
            response = await client.ask(client.any_node(), IncrementalAlterConfigsRequest(resources=[resource]))
            if response is not None and response.responses[0].error_code == ErrorCode.NONE:
                break
            await trio.sleep(0.2)
        client.close()
        await trio.sleep(1)  # until all brokers have heard of it

    def join(self) -> SimShareMember:
        """Have a member at work."""
        cluster = self._cluster
        member = SimShareMember(cluster.client(), cluster.client(), self._source, _start_offset, self.history)
        self._members.append(member)
        cluster.run_client(member.run)
        return member

    def _source(self, node_id: int, tp: TopicPartition, group: str) -> tuple[LedSharePartition | None, bool]:
        broker, image = self._cluster.nodes[node_id].broker, self._cluster.image()
        share_groups = None if broker is None else broker.share_groups
        topic = image.topics.by_name.get(tp.topic)
        if share_groups is None or topic is None:
            return None, False
        led = share_groups.parts().partitions.in_memory(SharePartitionKey(group, topic.id, tp.partition))
        is_real = led is not None and self._cluster.authority(tp) == (node_id, led.leader_epoch)
        return led, is_real

    async def finish(self) -> None:
        """Have members accept all that is left, and check how each record ended, as the coordinator's log has it.

        The cluster is healed, and nothing is produced any more.
        """
        cluster, history = self._cluster, self.history
        history.draining = True
        if all(member.gone for member in self._members):
            self.join()
        await cluster.until(self._is_drained, 150, f"{self.name} is not drained: {history.describe()}")
        history.stopped = True
        await trio.sleep(1)
        self._check_states()
        cluster.trace.note(history.describe())

    def _is_drained(self) -> bool:
        for tp in self._partitions:
            node = self._cluster.leader_of(tp)
            if node is None or node.broker is None:
                return False
            led, is_real = self._source(node.id, tp, self.name)
            if led is None or not is_real or led.core is None:
                return False
            if not led.is_idle or led.core.start_offset < led.partition.high_watermark:
                return False
        return True

    def _check_states(self) -> None:
        """Every record that a reader of the topic has seen is done with, in the way that members were told."""
        cluster = self._cluster
        logs = [self._log(tp) for tp in cluster.all_partitions() if tp.topic == STATE_TOPIC]
        archived: set[tuple[int, int]] = set()
        pruned = any(log.log_start_offset for log in logs)  # what ended before that is not told any more
        states = {key.partition: each for key, each in logged_states(logs).items() if key.group_id == self.name}
        for tp in self._partitions:
            state = states.get(tp.partition)
            if state is None:
                raise Violation(f"{self.name}: nothing is kept about {tp}")
            offsets = cluster.history.of(tp).values
            if not pruned and state.first > min(offsets, default=0):
                raise Violation(f"{self.name}: {tp} begins at {state.first}")
            for offset in [*(offset for offset in offsets if offset >= state.first), *state.passed]:
                count, kept = state.end(offset)
                if kept == DeliveryState.ARCHIVED:
                    archived.add((tp.partition, offset))
                self.history.check_end(tp, offset, DeliveryState(kept).name, count)
        if self._dead_letters is not None:
            self._check_dead_letters(self._dead_letters, archived)

    def _check_dead_letters(self, letters: TopicPartition, archived: set[tuple[int, int]]) -> None:
        """Each record that was given up has a letter, and no other has one.

        It has another one where the share partition's leader has changed: the next leader does not know how far the
        one before it has come, with Apache Kafka neither. A letter is written once, however many attempts that takes,
        unless the controller has granted no producer id.
        """
        log, written, signed = self._log(letters), [], Counter[tuple[int, int, int]]()
        for _, _, data in batches(log, log.log_start_offset, log.log_end_offset):
            has_id = parse_header(data, 0).producer_id != NO_PRODUCER_ID
            for record in iter_records(data):
                headers = dict(record.headers)
                written.append(headers)
                if has_id:
                    signed[_number(headers, "partition"), _number(headers, "offset"), record.timestamp] += 1
        twice = sorted(letter for letter, count in signed.items() if count > 1)
        if twice:
            raise Violation(f"{self.name}: letters (partition, offset, timestamp) are there twice: {twice}")
        told = {(_number(each, "partition"), _number(each, "offset")) for each in written}
        if told != archived:
            missing, needless = sorted(archived - told), sorted(told - archived)
            raise Violation(f"{self.name}: without a letter are {missing}, and not given up {needless}")
        self._cluster.trace.note(f"{len(written)} letters about {len(told)} records")

    def _log(self, tp: TopicPartition) -> PartitionLog:
        node = self._cluster.leader_of(tp)
        assert node is not None and node.broker is not None
        return node.broker.replica_manager.partitions[tp.topic, tp.partition].log


def _start_offset(led: object) -> int | None:
    assert isinstance(led, LedSharePartition)
    return None if led.core is None else led.core.start_offset


def _number(headers: dict[str, bytes | None], name: str) -> int:
    return int(headers[f"__dlq.errors.{name}"] or b"")
