"""A replica whose log is damaged leads only if no other one may, by what the metadata say."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.log.log_config import LogConfig
from kbroker.node.replicas.partition import Partition
from kbroker.raft_metadata.image import DIR_LOST, NO_LEADER, PartitionImage
from kbroker.types import TopicPartition, Uuid

HOME = Uuid(b"h" * 16)


def gives_way(assigned: PartitionImage, *, is_damaged: bool = True) -> bool:
    """Returns the answer of a partition on node 1 with such a log."""
    others: Any = {"progress": SimpleNamespace(traffic=None), "storage": None}
    partition = Partition(TopicPartition("t", 0), Uuid(b"t" * 16), LogConfig(), node_id=1, **others)
    log: Any = SimpleNamespace(log_start_offset=0, log_end_offset=0, is_damaged=is_damaged)
    log.on_high_watermark_updated = lambda high_watermark: None
    partition.attach_log(log, 0)
    return partition.must_give_way(assigned)


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
    assigned = PartitionImage((1, 2, 3), tuple(isr), leader, elr=tuple(elr), directories=(directory, HOME, HOME))
    assert gives_way(assigned) is wanted
    assert not gives_way(assigned, is_damaged=False)


def test_the_only_replica_leads() -> None:
    assert not gives_way(PartitionImage((1,), (), NO_LEADER, elr=(1,), directories=(HOME,)))
