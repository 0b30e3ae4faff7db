"""Nothing that asks about all groups holds up the event loop: the parts of each step are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import trio

from kbroker.cores.groups import group_admin
from kbroker.cores.groups.classic_group import ClassicGroup
from kbroker.cores.groups.group_admin import GroupAdmin
from kbroker.cores.groups.records import OffsetAndMetadata
from kbroker.node.metrics.figures import STRIDE
from kbroker.node.metrics.lag_figures import transactional_ids
from kbroker.node.metrics.node_metrics import NodeMetrics
from kbroker.node.metrics.service import LINES, MetricsPage
from kbroker.node.serving import long_request
from kbroker.node.serving.reply_queue import encoded_frame
from kbroker.observe.metrics.dialect import Dialect
from kbroker.runtime.budgets import DEFAULTS
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import ListedGroup, ListGroupsRequest
from tests.node.node_harness import Node, running_node

T = TypeVar("T")

GROUPS = 3000
"""Their offsets are twice as many: of a topic that there is, and of one that nobody knows any more."""


class Steps(trio.abc.Instrument):
    """Counts parts in each step of a task, and knows the most of any."""

    def __init__(self) -> None:
        self.total = self.most = self._now = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._now = 0

    def count(self) -> None:
        self.total += 1
        self._now += 1
        self.most = max(self.most, self._now)

    def each(self, method: Callable[[GroupAdmin], Iterator[T]]) -> Callable[[GroupAdmin], Iterator[T]]:
        def counted(admin: GroupAdmin) -> Iterator[T]:
            for part in method(admin):
                self.count()
                yield part

        return counted


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()
    for name in ("sizes", "states", "offset_counts", "committed_offsets"):
        monkeypatch.setattr(GroupAdmin, name, steps.each(getattr(GroupAdmin, name)))
    return steps


async def with_groups(node: Node) -> None:
    """Groups that one shard has, as if they had been loaded."""
    await node.create_topic("read")
    client = await node.connect()
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while (await client.ask(find)).coordinators[0].error_code:
        await trio.sleep(0.01)
    coordinators = node.broker.coordinators
    assert coordinators is not None
    while not coordinators.groups.loaded_cores():
        await trio.sleep(0.01)
    admin = coordinators.groups.loaded_cores()[0].admin
    for number in range(GROUPS):
        group = f"group-{number}"
        admin._groups.classic[group] = ClassicGroup(group)
        for topic in ("read", "gone"):
            admin._offsets.committed.put(group, topic, 0, OffsetAndMetadata(0))


async def test_the_page(tmp_path: Path, steps: Steps) -> None:
    async with running_node(tmp_path, offsets_topic_num_partitions="1") as node:
        await with_groups(node)
        page = MetricsPage(node.broker, NodeMetrics(node.broker.env))
        trio.lowlevel.add_instrument(steps)
        pieces: list[str] = []

        async def send(piece: str) -> None:
            pieces.append(piece)
            await trio.lowlevel.checkpoint()

        await page.write(Dialect.STRIMZI, send)
        trio.lowlevel.remove_instrument(steps)
        text = "".join(pieces)
        of_last = 'consumergroup="group-2999",topic="read"'
        for line in ('lag{%s,partition="0"}', 'lag_seconds{%s,partition="0"}', "lag_sum{%s}", "current_offset_sum{%s}"):
            assert f"kafka_consumergroup_{line % of_last} 0\n" in text
        assert "kafka_coordinator_group_groupmetadatamanager_numgroups 3000\n" in text
        assert 'lag_sum{consumergroup="group-1",topic="gone"}' not in text
    assert steps.total > 10 * GROUPS
    assert steps.most <= STRIDE + LINES


def test_transactional_ids(steps: Steps) -> None:
    class Counted:
        @property
        def producer_id(self) -> int:
            steps.count()
            return steps.total

    core = SimpleNamespace(transactions={f"id-{number}": Counted() for number in range(GROUPS)})
    driver: Any = SimpleNamespace(loaded_cores=lambda: [core])
    found = trio.run(transactional_ids, driver, instruments=[steps])
    assert len(found) == steps.total == GROUPS and steps.most <= STRIDE


async def test_a_list_of_groups(tmp_path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts are made in portions, and its many bytes in a thread."""
    made, encoded = ListedGroup, encoded_frame
    threads: list[bool] = []

    def make(**fields: Any) -> Any:
        steps.count()
        return made(**fields)

    def encode(*args: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return encoded(*args)

    async with running_node(tmp_path, offsets_topic_num_partitions="1") as node:
        await with_groups(node)
        client = await node.connect()
        monkeypatch.setattr(group_admin, "ListedGroup", make)
        monkeypatch.setattr(long_request, "encoded_frame", encode)
        trio.lowlevel.add_instrument(steps)
        answer = await client.ask(ListGroupsRequest())
        few = await client.ask(ListGroupsRequest(types_filter=["consumer"]))
        trio.lowlevel.remove_instrument(steps)
        assert {group.group_id for group in answer.groups} == {f"group-{number}" for number in range(GROUPS)}
        assert few.groups == []
    assert threads == [True]
    assert steps.total == GROUPS and steps.most <= DEFAULTS.turn_parts
