"""Who leads as brokers come, go and stop; elections that are asked for, and those that restore order by themselves.

All of it asks :func:`~kbroker.raft_metadata.controller.partition_changes.partition_change` for the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.partition_changes import ChangeRules, Election, partition_change
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.raft_metadata.image import NO_LEADER, PartitionImage, TopicImage
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.records.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"

MAX_ELECTIONS_PER_IMBALANCE = 1_000
"""So many elections at a time restore order (``QuorumController.DEFAULT_MAX_ELECTIONS_PER_IMBALANCE``)."""

_Partition = tuple[TopicImage, int, PartitionImage]


class LeadershipControl:
    """Decides on leaders and in-sync replicas (Kafka's ``ReplicationControlManager``)."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    # What a change depends on

    def rules(self, topic: TopicImage, is_active: Callable[[int], bool] | None = None) -> ChangeRules:
        """The rules for a change of the topic's partitions; ``is_active`` says which brokers may lead."""
        controller = self._controller
        image = controller.image
        active = is_active or controller.brokers.is_active
        min_isr = int(controller.schema.topic_value(image.configs, topic.name, MIN_INSYNC_REPLICAS))

        def is_acceptable_leader(broker_id: int, partition: PartitionImage) -> bool:
            broker = image.brokers.get(broker_id)
            return broker is not None and active(broker_id) and broker.has_online_dir(partition.directory(broker_id))

        return ChangeRules(
            is_acceptable_leader=is_acceptable_leader,
            min_isr=min_isr,
            elr_enabled=image.features.elr_enabled,
            metadata_version=image.features.metadata_version,
            default_directory=controller.topics.directory,
        )

    def election(self, topic: str) -> Election:
        """What happens by itself to a partition that loses its leader, by the topic's configuration."""
        configs = self._controller.image.configs
        unclean = self._controller.schema.topic_value(configs, topic, UNCLEAN_LEADER_ELECTION)
        return Election.UNCLEAN if unclean else Election.ONLINE

    # Brokers come and go

    def records_without(
        self, broker_id: int, affected: Callable[[TopicImage, int, PartitionImage], bool] | None = None
    ) -> list[PartitionChangeRecord]:
        """Take a broker that stops or is silent out of the ISRs (of ``affected`` partitions), and have others lead.

        A broker that leaves an ISR which is too small to acknowledge anything stays an eligible leader.
        """
        is_active = self._controller.brokers.is_active
        return self._changes(
            (
                entry
                for entry in self._partitions()
                if broker_id in entry[2].isr and (affected is None or affected(*entry))
            ),
            lambda broker: broker != broker_id and is_active(broker),
            without=broker_id,
        )

    def records_with(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Elect leaders of leaderless partitions, now that this broker lives."""
        is_active = self._controller.brokers.is_active
        return self._changes(
            (entry for entry in self._partitions() if entry[2].leader == NO_LEADER),
            lambda broker: broker == broker_id or is_active(broker),
        )

    def records_after_unclean_shutdown(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Take a broker that may have lost records out of ISRs and eligible leader replicas (KIP-966)."""
        is_active = self._controller.brokers.is_active
        return self._changes(
            (entry for entry in self._partitions() if broker_id in entry[2].isr or broker_id in entry[2].elr),
            lambda broker: broker != broker_id and is_active(broker),
            without=broker_id,
            unclean_shutdown=(broker_id,),
        )

    def record_for_directory(
        self,
        topic: TopicImage,
        partition_id: int,
        partition: PartitionImage,
        broker_id: int,
        directory: Uuid,
        *,
        is_online: bool,
    ) -> PartitionChangeRecord | None:
        """Write down where a broker has its replica; in a directory that has failed it is not in sync."""
        is_active = self._controller.brokers.is_active
        return partition_change(
            topic.id,
            partition_id,
            partition,
            self.rules(topic, lambda broker: is_active(broker) and (is_online or broker != broker_id)),
            isr=partition.isr if is_online else [broker for broker in partition.isr if broker != broker_id],
            directories={broker_id: directory},
            election=self.election(topic.name),
        )

    def records_for_unregistered(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Take a broker that is forgotten out of ISRs and eligible leader replicas.

        Apache Kafka leaves it in the latter; but what registers under its id later may have empty disks.
        """
        return self.records_after_unclean_shutdown(broker_id)

    def leads_any(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return any(partition.leader == broker_id for _, _, partition in self._partitions())

    def _changes(
        self,
        partitions: Iterable[_Partition],
        is_active: Callable[[int], bool],
        *,
        without: int = NO_LEADER,
        unclean_shutdown: Sequence[int] = (),
    ) -> list[PartitionChangeRecord]:
        records = []
        topic_before: TopicImage | None = None
        for topic, partition_id, partition in partitions:
            if topic is not topic_before:
                topic_before, rules, election = topic, self.rules(topic, is_active), self.election(topic.name)
            record = partition_change(
                topic.id,
                partition_id,
                partition,
                rules,
                isr=[broker for broker in partition.isr if broker != without],
                unclean_shutdown=unclean_shutdown,
                election=election,
            )
            if record is not None:
                records.append(record)
        return records

    # Elections

    def elect_leaders(
        self, partitions: Sequence[TopicPartition], *, unclean: bool
    ) -> ControllerResult[dict[TopicPartition, ApiError | None]]:
        """Give each partition's leadership to its preferred replica; ``unclean``: give one that has no leader to any
        live replica, even one that lacks records."""
        records: list[PartitionChangeRecord] = []
        results: dict[TopicPartition, ApiError | None] = {}
        for entry in dict.fromkeys(partitions):
            try:
                records.append(self._elect(entry, unclean=unclean))
                results[entry] = None
            except ApiError as error:
                results[entry] = error
        return ControllerResult(results, list(records))

    def _elect(self, entry: TopicPartition, *, unclean: bool) -> PartitionChangeRecord:
        topic = self._controller.image.topics.by_name.get(entry.topic)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {entry.topic}")
        partition = topic.partitions.get(entry.partition)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {entry}")
        led = partition.leader != NO_LEADER if unclean else partition.leader == partition.preferred_leader
        if led:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        election = Election.UNCLEAN if unclean else Election.PREFERRED
        record = partition_change(topic.id, entry.partition, partition, self.rules(topic), election=election)
        if record is not None:
            return record
        if unclean:
            raise ApiError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
            )
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")

    def balance(self) -> ControllerResult[bool]:
        """Give partitions back to their preferred leaders, some at a time; whether there may be more to do."""
        return self._elect_some(
            Election.PREFERRED, lambda topic, partition: partition.leader != partition.preferred_leader
        )

    def elect_unclean(self) -> ControllerResult[bool]:
        """Elect leaders of leaderless partitions whose topic allows an unclean one; whether there may be more to do."""
        return self._elect_some(
            Election.UNCLEAN,
            lambda topic, partition: partition.leader == NO_LEADER and self.election(topic.name) is Election.UNCLEAN,
        )

    def _elect_some(
        self, election: Election, wanted: Callable[[TopicImage, PartitionImage], bool]
    ) -> ControllerResult[bool]:
        records: list[PartitionChangeRecord] = []
        for topic, partition_id, partition in self._partitions():
            if not wanted(topic, partition):
                continue
            record = partition_change(topic.id, partition_id, partition, self.rules(topic), election=election)
            if record is not None:
                records.append(record)
                if len(records) >= MAX_ELECTIONS_PER_IMBALANCE:
                    break
        return ControllerResult(len(records) >= MAX_ELECTIONS_PER_IMBALANCE, list(records))

    def _partitions(self) -> Iterator[_Partition]:
        for topic in self._controller.image.topics.by_name.values():
            for partition_id, partition in topic.partitions.items():
                yield topic, partition_id, partition
