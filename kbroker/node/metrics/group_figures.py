"""Figures of the groups and transactional ids that this broker coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.metrics import families as f

if TYPE_CHECKING:
    from kbroker.metrics.exposition import Sample
    from kbroker.node.group_driver import GroupDriver
    from kbroker.node.metrics.figures import Figures
    from kbroker.node.replica_manager import ReplicaManager
    from kbroker.node.transaction_driver import TransactionDriver


def figures(groups: GroupDriver, transactions: TransactionDriver, manager: ReplicaManager) -> Figures:
    """How many there are, the members of each group, and how far it has read."""
    admins = [core.admin for core in groups.loaded_cores()]
    states: Counter[str] = Counter()
    members: list[Sample] = []
    for admin in admins:
        for group_id, state, count in admin.sizes():
            states[state] += 1
            members.append(((group_id,), count))
    yield f.GROUPS, [((), len(members))]
    for state in f.GROUP_STATES:
        yield f.GROUPS_BY_STATE[state], [((), states[state])]
    yield f.GROUP_MEMBERS, members

    def offsets() -> Iterator[tuple[str, str, int, int]]:
        for admin in admins:
            yield from admin.committed_offsets()

    yield f.GROUP_OFFSET, (((group, topic, str(index)), offset) for group, topic, index, offset in offsets())

    def lags() -> Iterator[Sample]:
        for group, topic, index, offset in offsets():
            partition = manager.partitions.get((topic, index))
            if partition is not None and partition.has_log and not partition.offline:
                yield (group, topic, str(index)), max(0, partition.high_watermark - offset)

    yield f.GROUP_LAG, lags()
    ids = sum(len(core) for core in transactions.loaded_cores())
    yield f.TRANSACTIONAL_IDS, [((), ids)]
