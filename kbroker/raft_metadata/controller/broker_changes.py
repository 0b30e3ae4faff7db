"""Leaders and ISRs as brokers come, go and stop: the changes of all partitions that a broker's change brings about.

:func:`~kbroker.raft_metadata.controller.partition_changes.partition_change` decides on each partition
(Kafka's ``ReplicationControlManager.generateLeaderAndIsrUpdates``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from kbroker.raft_metadata.config_schema import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION
from kbroker.raft_metadata.controller.assignments import default_directory
from kbroker.raft_metadata.controller.partition_changes import ChangeRules, Election, partition_change
from kbroker.raft_metadata.controller.surviving_logs import Key
from kbroker.raft_metadata.controller.view import ControllerView
from kbroker.raft_metadata.image import NO_LEADER, PartitionImage, TopicImage
from kbroker.types import Uuid
from kbroker.wire.records.metadata import PartitionChangeRecord

Entry = tuple[TopicImage, int, PartitionImage]
"""A partition with its topic and its index."""

# --- Rules of a change ------------------------------------------------------------------------------------------


def change_rules(
    view: ControllerView, topic: TopicImage, is_active: Callable[[int], bool] | None = None
) -> ChangeRules:
    """The rules for a change of the topic's partitions; ``is_active`` (by default the view's) decides who may lead."""
    image = view.image
    active = is_active or view.is_active
    min_isr = int(view.schema.topic_value(image.configs, topic.name, MIN_INSYNC_REPLICAS))

    def is_acceptable_leader(broker_id: int, partition: PartitionImage) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and active(broker_id) and broker.has_online_dir(partition.directory(broker_id))

    return ChangeRules(
        is_acceptable_leader=is_acceptable_leader,
        min_isr=min_isr,
        elr_enabled=image.features.elr_enabled,
        metadata_version=image.features.metadata_version,
        default_directory=lambda broker_id: default_directory(view, broker_id),
        log_ends=view.log_ends,
    )


def automatic_election(view: ControllerView, topic: str) -> Election:
    """The election of a partition that loses its leader, by the topic's ``unclean.leader.election.enable``."""
    unclean = view.schema.topic_value(view.image.configs, topic, UNCLEAN_LEADER_ELECTION)
    return Election.UNCLEAN if unclean else Election.ONLINE


# --- Brokers come and go ----------------------------------------------------------------------------------------


def records_to_leave_isrs(
    view: ControllerView, broker_id: int, affected: Callable[[PartitionImage], bool] | None = None
) -> Iterator[PartitionChangeRecord]:
    """Take a broker that stops or is silent out of the ISRs (of ``affected`` partitions), and have others lead.

    A broker that leaves an ISR which is too small to acknowledge anything stays an eligible leader.
    """
    return _changes(
        view,
        (
            entry
            for entry in every_partition(view)
            if broker_id in entry[2].isr and (affected is None or affected(entry[2]))
        ),
        lambda broker: broker != broker_id and view.is_active(broker),
        without=broker_id,
    )


def records_to_elect_with(view: ControllerView, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """Elect leaders of its leaderless partitions, with this broker among the active ones."""

    def is_active(broker: int) -> bool:
        return broker == broker_id or view.is_active(broker)

    leaderless = (
        entry
        for entry in every_partition(view)
        if entry[2].leader == NO_LEADER and broker_id in entry[2].replicas  # it changes nothing for the others
    )
    return _changes(view, filter(may_elect(view, is_active), leaderless), is_active)


def records_to_elect_most_complete(
    view: ControllerView, keys: Iterable[Key] | None = None
) -> Iterator[PartitionChangeRecord]:
    """Elect leaders of the partitions (of some) of which no replica is known to have everything, by what brokers say of
    them."""
    topics = view.image.topics.by_id
    # All at once: what is decided ends the questions, a batch at a time.
    asked = [(topics[topic_id], index, partition) for (topic_id, index), partition in view.log_ends.asked(keys)]
    return _changes(view, filter(may_elect(view, view.is_active), asked), view.is_active)


def may_elect(view: ControllerView, is_active: Callable[[int], bool]) -> Callable[[Entry], bool]:
    """Returns what tells quickly whether a leaderless partition may get a leader now. Each broker that comes back may
    have tens of thousands of them, and the last one alone decides something."""
    is_unclean = cache(lambda topic: automatic_election(view, topic) is Election.UNCLEAN)
    elr_enabled = view.image.features.elr_enabled

    def check(entry: Entry) -> bool:
        topic, index, partition = entry
        have_all = partition.isr or partition.elr
        if not (have_all or elr_enabled):
            return True
        if not (any(map(is_active, have_all or partition.last_known_elr)) or is_unclean(topic.name)):
            return False
        return bool(have_all) or not view.log_ends.is_early((topic.id, index), partition)

    return check


def records_after_unclean_shutdown(
    view: ControllerView, broker_id: int, affected: Callable[[PartitionImage], bool] | None = None
) -> Iterator[PartitionChangeRecord]:
    """Take a broker that may have lost records (of ``affected`` partitions) out of ISRs and eligible leader replicas
    (KIP-966)."""
    return _changes(
        view,
        (
            entry
            for entry in every_partition(view)
            if (broker_id in entry[2].isr or broker_id in entry[2].elr) and (affected is None or affected(entry[2]))
        ),
        lambda broker: broker != broker_id and view.is_active(broker),
        without=broker_id,
        unclean_shutdown=(broker_id,),
    )


def record_for_directory(
    view: ControllerView,
    topic: TopicImage,
    partition_id: int,
    partition: PartitionImage,
    broker_id: int,
    directory: Uuid,
    is_online: bool,
    is_damaged: bool = False,
) -> PartitionChangeRecord | None:
    """Write down the log directory of a broker's replica; a replica in a failed directory leaves the ISR, and one that
    has come back from there may lead. One that is damaged leaves the eligible leader replicas as well."""
    rules = change_rules(view, topic)

    def is_acceptable_leader(broker: int, partition: PartitionImage) -> bool:
        if broker == broker_id:
            return is_online and view.is_active(broker)
        return rules.is_acceptable_leader(broker, partition)

    return partition_change(
        topic.id,
        partition_id,
        partition,
        rules._replace(is_acceptable_leader=is_acceptable_leader),
        isr=partition.isr if is_online else [broker for broker in partition.isr if broker != broker_id],
        directories={broker_id: directory},
        unclean_shutdown=(broker_id,) if is_damaged else (),
        election=automatic_election(view, topic.name),
    )


def leads_any(view: ControllerView, broker_id: int) -> bool:
    """Whether the broker leads a partition."""
    return any(partition.leader == broker_id for _, _, partition in every_partition(view))


def every_partition(view: ControllerView) -> Iterator[Entry]:
    """All partitions of the cluster."""
    for topic in view.image.topics.by_name.values():
        for partition_id, partition in topic.partitions.items():
            yield topic, partition_id, partition


def _changes(
    view: ControllerView,
    partitions: Iterable[Entry],
    is_active: Callable[[int], bool],
    *,
    without: int = NO_LEADER,
    unclean_shutdown: Sequence[int] = (),
) -> Iterator[PartitionChangeRecord]:
    """Decide on each partition when its record is asked for: there may be tens of thousands."""
    topic_before: TopicImage | None = None
    for topic, partition_id, partition in partitions:
        if topic is not topic_before:
            topic_before = topic
            rules, election = change_rules(view, topic, is_active), automatic_election(view, topic.name)
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
            yield record
