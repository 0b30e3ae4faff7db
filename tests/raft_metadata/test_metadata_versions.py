"""Every level of ``metadata.version``: the records that a controller writes at it are ones that Kafka knows there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.alter_partition import InSyncReplica
from kbroker.raft_metadata.controller.assignments import default_directory
from kbroker.raft_metadata.controller.brokers import begin_controlled_shutdown, register_broker, register_controller
from kbroker.raft_metadata.controller.directories import ReplicaDirectory, assign_replicas, directory_records
from kbroker.raft_metadata.controller.producer_ids import allocate_producer_ids
from kbroker.raft_metadata.controller.reassignments import Reassignment, alter_partition_reassignments
from kbroker.raft_metadata.controller.requested_elections import balance_leaders
from kbroker.raft_metadata.controller.topics import create_partitions, delete_topics
from kbroker.raft_metadata.controller.view import ControllerResult
from kbroker.raft_metadata.image import DIR_MIGRATING, ControllerImage, Endpoint, MetadataDelta, MetadataImage
from kbroker.raft_metadata.metadata_version import METADATA_VERSION_NAMES
from kbroker.raft_metadata.raft.batches import decode_batches
from kbroker.raft_metadata.raft.snapshot import decode_snapshot, encode_snapshot
from kbroker.raft_metadata.topics import NewPartitions
from kbroker.types import Uuid
from kbroker.wire.primitives import decode_uvarint
from kbroker.wire.record_batch import iter_records
from kbroker.wire.records import metadata as rec
from tests.raft_metadata.controller_harness import FEATURES, Harness
from tests.with_each import with_each

LEVELS = sorted(METADATA_VERSION_NAMES)

DIRECTORY = [Uuid(bytes([100 + broker]) * 16) for broker in range(5)]


def newest_version(record: type[Any], level: int) -> int | None:
    """The highest version that a node of the level's release knows of a record; None if it knows none.

    From Apache Kafka: ``MetadataVersion``, and which release brought which record.
    """
    since: dict[type[Any], list[int]] = {
        rec.RegisterBrokerRecord: [7, 7, 8, 17, 30],
        rec.BrokerRegistrationChangeRecord: [7, 7, 17, 30],
        rec.PartitionRecord: [7, 17, 23],
        rec.PartitionChangeRecord: [7, 17, 23],
        rec.RegisterControllerRecord: [15],
        rec.BeginTransactionRecord: [13],
        rec.EndTransactionRecord: [13],
        rec.AbortTransactionRecord: [13],
        rec.ClearElrRecord: [23],
    }
    known = [version for version, first in enumerate(since.get(record, [7])) if first <= level]
    return known[-1] if known else None


def versions(data: bytes) -> Iterator[tuple[type[Any], int]]:
    """The records of a batch, and the version that each is written in."""
    [batch] = decode_batches(data)
    for record, raw in zip(batch.records, iter_records(memoryview(data)), strict=True):
        assert raw.value is not None
        _, at = decode_uvarint(raw.value, 0)  # the frame's version
        _, at = decode_uvarint(raw.value, at)  # the type
        yield type(record), decode_uvarint(raw.value, at)[0]


def check_written(h: Harness) -> None:
    """Nothing that was written is unknown at the level that it was written at."""
    for level, data in h.written:
        for record, version in versions(data):
            newest = newest_version(record, level)
            assert newest is not None, f"{record.__name__} at {METADATA_VERSION_NAMES[level]}"
            assert version <= newest, f"{record.__name__} in version {version} at {METADATA_VERSION_NAMES[level]}"


def controller_registration(controller_id: int = 9) -> ControllerImage:
    return ControllerImage(controller_id, Uuid(b"c" * 16), {"C": Endpoint("C", "h", 1, 0)}, FEATURES)


def live(h: Harness, prefix: str = "t") -> None:
    """Everything that can happen to brokers and partitions."""
    h.create(f"{prefix}0", 3, 2)
    h.assign(f"{prefix}1", 1, 2, 3, min_insync_replicas="2")
    h.apply(create_partitions(h.view, [NewPartitions(f"{prefix}0", 5)]))
    moved = h.apply(alter_partition_reassignments(h.view, [Reassignment(f"{prefix}1", 0, (2, 4))]))
    assert not any(moved)
    isr = [InSyncReplica(broker, h.epochs[broker]) for broker in (1, 2, 4)]
    h.alter(h.isr_change(isr, topic=f"{prefix}1"), h.partition(f"{prefix}1").leader)
    h.fence(1)
    h.fence(2)
    h.fence(4)
    h.unfence(1, 2, 4)
    h.apply(begin_controlled_shutdown(h.view, 3, h.epochs[3]))
    h.broker(3, previous_epoch=h.epochs[3])
    h.broker(2)
    h.apply(ControllerResult(None, directory_records(h.view, 1, [DIRECTORY[1]], [])))
    h.broker(1)
    h.apply(allocate_producer_ids(h.view, 1, h.epochs[1]))
    h.apply(balance_leaders(h.view))
    h.configure(f"{prefix}0", "retention.ms", "5")
    h.apply(delete_topics(h.view, [h.controller.image.topics.by_name[f"{prefix}0"].id]))


def cluster(level: int) -> Harness:
    h = Harness(level=level)
    for broker in (1, 2, 3, 4):
        h.broker(broker)
    return h


@with_each(LEVELS)
def test_a_cluster_lives_on_records_that_its_level_knows(level: int) -> None:
    h = cluster(level)
    live(h)
    check_written(h)
    broker, partition = h.controller.image.brokers[1], h.partition("t1")
    assert broker.log_dirs == ((DIRECTORY[1],) if level >= 17 else ())
    expected = [DIRECTORY[broker_id] if level >= 17 else DIR_MIGRATING for broker_id in partition.replicas]
    assert list(partition.directories) == expected


@with_each(LEVELS)
def test_controllers_register_from_3_7_on(level: int) -> None:
    h = cluster(level)
    if level < 15:
        with pytest.raises(ApiError) as refused:
            register_controller(h.view, controller_registration())
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    else:
        h.apply(register_controller(h.view, controller_registration()))
        assert 9 in h.controller.image.controllers
    check_written(h)


@with_each(LEVELS)
def test_a_snapshot_of_each_level_gives_the_image_again(level: int) -> None:
    h = cluster(level)
    live(h)
    if level >= 15:
        h.apply(register_controller(h.view, controller_registration()))
    image = h.controller.image
    data = encode_snapshot(image.records(), now_ms=1, last_contained_log_timestamp=1, metadata_version=level)
    delta = MetadataDelta(MetadataImage(controller_id=image.controller_id))
    for record in decode_snapshot(data).records:
        delta.replay(record)
    assert delta.apply(image.provenance) == image


def test_a_cluster_rises_through_all_levels_with_life_at_each() -> None:
    h = cluster(7)
    for level in LEVELS[1:]:
        live(h, f"at{level}-")
        before = h.controller.image.topics
        h.raise_level(level)
        assert h.controller.image.topics == before
    live(h, "last-")
    check_written(h)
    # What was there before directories were known is told of by its broker, and then known.
    assert set(h.partition("at8-1").directories) == {DIR_MIGRATING}
    old = h.controller.image.topics.by_name["at8-1"]
    owner = old.partitions[0].replicas[0]
    told = ReplicaDirectory(old.id, 0, DIRECTORY[owner])
    errors = h.apply(assign_replicas(h.view, owner, h.epochs[owner], [told]))
    assert errors == {told: ErrorCode.NONE}
    assert h.partition("at8-1").directory(owner) == DIRECTORY[owner]


def test_a_broker_from_before_directories_names_them_when_it_registers_again() -> None:
    h = cluster(16)
    epoch, incarnation = h.epochs[2], h.controller.image.brokers[2].incarnation_id
    h.raise_level(17)
    assert default_directory(h.view, 2) == DIR_MIGRATING
    again = h.registration(2, incarnation)
    assert h.apply(register_broker(h.view, again)) == epoch
    broker = h.controller.image.brokers[2]
    assert broker.log_dirs == (DIRECTORY[2],) and not broker.fenced
    assert default_directory(h.view, 2) == DIRECTORY[2]
