"""A replica whose log is damaged leads only if no other one may, by what the metadata say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.log.log_config import LogConfig
from kbroker.node.replicas.partition import Partition
from kbroker.raft_metadata.image import DIR_LOST, NO_LEADER, PartitionImage
from kbroker.raft_metadata.metadata_version import DIRECTORIES
from kbroker.types import TopicPartition, Uuid

HOME = Uuid(b"h" * 16)
TP = TopicPartition("t", 0)


class Log:
    """A log of the node, which is whole until somebody looks."""

    log_start_offset = log_end_offset = 0
    on_damage: Callable[[Any], None]

    def __init__(self, is_damaged: bool) -> None:
        self.is_damaged = is_damaged

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Nothing waits for it."""

    def look(self) -> None:
        self.is_damaged = True
        self.on_damage(self)


def partition_with(log: Any, *, epoch: int = -1, brokers: Sequence[int] = (1, 2, 3), level: int = 99) -> Partition:
    """Returns a partition on node 1 that came into being in a leader epoch, in a cluster of brokers."""
    image = SimpleNamespace(brokers=dict.fromkeys(brokers), features=SimpleNamespace(metadata_version=level))
    others: Any = {"progress": SimpleNamespace(traffic=None, image=lambda: image)}
    others["storage"] = SimpleNamespace()
    partition = Partition(TP, Uuid(b"t" * 16), LogConfig(), node_id=1, leader_epoch=epoch, **others)
    others["storage"].on_log_damage = partition.note_damage
    partition.attach_log(log, 0)
    return partition


def assigned(
    leader: int, isr: Sequence[int], elr: Sequence[int] = (), directory: Uuid = HOME, epoch: int = 0
) -> PartitionImage:
    """Returns what an image has of the partition."""
    directories = (directory, HOME, HOME)
    return PartitionImage((1, 2, 3), tuple(isr), leader, epoch, elr=tuple(elr), directories=directories)


@pytest.mark.parametrize(
    ("leader", "isr", "elr", "directory", "wanted"),
    [
        (1, (1, 2, 3), (), HOME, True),
        (1, (1,), (), HOME, False),
        (1, (1,), (2,), HOME, True),  # 2 has everything
        (NO_LEADER, (), (1,), HOME, True),  # before it is elected all are asked, by a controller of kbroker
        (NO_LEADER, (), (1,), DIR_LOST, False),  # another controller has heard it, and knows of nobody else
        (NO_LEADER, (), (1, 2), DIR_LOST, True),
        (NO_LEADER, (1,), (), HOME, False),  # without eligible leader replicas
        (2, (2, 3), (), HOME, True),  # it is fetched again
        (NO_LEADER, (), (), HOME, False),  # it says what it has
    ],
)
def test_by_isr_and_elr(leader: int, isr: Sequence[int], elr: Sequence[int], directory: Uuid, wanted: bool) -> None:
    found = assigned(leader, isr, elr, directory)
    assert partition_with(Log(is_damaged=True)).must_give_way(found) is wanted
    assert not partition_with(Log(is_damaged=False)).must_give_way(found)


def test_the_only_replica_leads() -> None:
    partition = partition_with(Log(is_damaged=True))
    assert not partition.must_give_way(PartitionImage((1,), (), NO_LEADER, elr=(1,), directories=(HOME,)))


def test_after_a_start_it_does_not_lead_by_what_the_metadata_said_before() -> None:
    """All were killed, and the others are registered again already: the image knows nothing of this start."""
    partition = partition_with(Log(is_damaged=True), epoch=7)
    old = assigned(1, (1,), epoch=7)
    assert partition.must_give_way(old) and partition.leader_to_obey(old) == NO_LEADER
    assert partition.leader_to_obey(assigned(NO_LEADER, (), epoch=8)) == NO_LEADER  # it says what it has
    assert partition.leader_to_obey(assigned(1, (1,), epoch=9)) == 1  # that was the most


def test_who_finds_damage_while_it_leads_asks_who_else_may_have_everything() -> None:
    """It was elected when all were thought to be whole, and the others are not in sync yet."""
    log = Log(is_damaged=False)
    partition = partition_with(log, epoch=7)
    now = assigned(1, (1,), epoch=9)
    assert partition.leader_to_obey(now) == 1
    partition.state.become_leader(
        leader_epoch=9, partition_epoch=20, replicas=(1, 2, 3), isr=(1,), log_end_offset=0, now_ms=0
    )
    log.look()
    assert partition.must_give_way(now) and partition.leader_to_obey(now) == NO_LEADER
    assert partition.leader_to_obey(assigned(1, (1, 2, 3), epoch=9)) == NO_LEADER
    # A controller of Apache Kafka keeps it eligible; it takes it for lost, then for found, and elects it when it has
    # heard so once more.
    lost, back = (assigned(NO_LEADER, (), (1,), directory, epoch=10) for directory in (DIR_LOST, HOME))
    assert partition.leader_to_obey(lost) == NO_LEADER and not partition.must_give_way(lost)
    assert not partition.must_give_way(back) and partition.awaits_election(back)
    assert partition.leader_to_obey(assigned(1, (1,), epoch=11)) == 1
    log.look()  # at another place
    assert partition.must_give_way(assigned(1, (1,), epoch=9))


@pytest.mark.parametrize(("brokers", "level"), [((1,), DIRECTORIES), ((1, 2, 3), DIRECTORIES - 1)])
def test_it_leads_where_nobody_else_is_left_or_nobody_can_be_told(brokers: Sequence[int], level: int) -> None:
    partition = partition_with(Log(is_damaged=True), epoch=7, brokers=brokers, level=level)
    assert partition.leader_to_obey(assigned(1, (1,), epoch=7)) == 1
