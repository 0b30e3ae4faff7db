"""Descriptions of topologies (KIP-1331) through a node: asked for, stored, shown, and deleted with the group."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.node.metrics import group_figures
from kbroker.node.rules.topology_descriptions import TopologyDescriptions
from kbroker.observe.metrics.coordinator_families import DESCRIPTION_COUNTS
from kbroker.observe.metrics.dialect import Dialect
from kbroker.observe.metrics.rates import Rates
from kbroker.rules import (
    DescribedSubtopology,
    DescriptionFiles,
    DescriptionRefused,
    GlobalStore,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TopologyDescription,
)
from kbroker.rules.descriptions import FileLocks, Overtaken, from_json, to_json
from kbroker.wire.messages import streams_groups
from kbroker.wire.messages.classic_groups import JoinGroupRequest, JoinGroupRequestProtocol
from kbroker.wire.messages.groups import DeleteGroupsRequest
from tests.handlers.test_streams_groups import GROUP, NO_DELAY, coordinator, heartbeat
from tests.node.node_harness import Client, Node, running_node
from tests.patience import SHORT

DESCRIPTION = TopologyDescription(
    (
        DescribedSubtopology(
            "0",
            (
                SourceNode("read", ("in",), ("count",)),
                ProcessorNode("count", ("totals",), ("write",)),
                SinkNode("write", "out", ()),
                SinkNode("somewhere", None, ()),
            ),
        ),
    ),
    (GlobalStore(SourceNode("read all", ("table",), ("keep",)), ProcessorNode("keep", ("table",), ())),),
)


class Keeper(DescriptionFiles):
    """Files that fail when they are told to."""

    problem: Exception | None = None

    def store(self, group_id: str, topology_epoch: int, description: TopologyDescription) -> None:
        if self.problem is not None:
            raise self.problem
        super().store(group_id, topology_epoch, description)

    def get(self, group_id: str, topology_epoch: int) -> TopologyDescription | None:
        if self.problem is not None:
            raise self.problem
        return super().get(group_id, topology_epoch)

    def delete(self, group_id: str) -> None:
        if self.problem is not None:
            raise self.problem
        super().delete(group_id)


KEEPER: Keeper


@pytest.fixture(autouse=True)
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    global KEEPER
    KEEPER = Keeper(tmp_path / "descriptions")
    yield KEEPER


def wire_node(name: str, kind: int, **fields: Any) -> streams_groups.UpdateTopologyDescriptionNode:
    return streams_groups.UpdateTopologyDescriptionNode(name=name, node_type=kind, **fields)


def push(**fields: Any) -> streams_groups.StreamsGroupTopologyDescriptionUpdateRequest:
    nodes = [
        wire_node("read", 1, source_topics=["in"], successors=["count"]),
        wire_node("count", 2, stores=["totals"], successors=["write"]),
        wire_node("write", 3, sink_topic="out"),
        wire_node("somewhere", 3),
    ]
    store = streams_groups.UpdateTopologyDescriptionGlobalStore(
        source=wire_node("read all", 1, source_topics=["table"], successors=["keep"]),
        processor=wire_node("keep", 2, stores=["table"]),
    )
    description = streams_groups.UpdateTopologyDescription(
        subtopologies=[streams_groups.UpdateTopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes)],
        global_stores=[store],
    )
    values: dict[str, Any] = {"group_id": GROUP, "member_id": "m", "topology_description": description}
    return streams_groups.StreamsGroupTopologyDescriptionUpdateRequest(**(values | fields))


def descriptions_of(node: Node) -> TopologyDescriptions:
    """The keeper's caller on a node."""
    found = node.groups.descriptions
    assert isinstance(found, TopologyDescriptions)
    return found


async def described(client: Client) -> streams_groups.DescribedGroup:
    request = streams_groups.StreamsGroupDescribeRequest(group_ids=[GROUP], include_topology_description=True)
    (found,) = (await client.ask(request)).groups
    entry: streams_groups.DescribedGroup = found
    return entry


@asynccontextmanager
async def node_with_keeper(
    path: Path, connect: Callable[[Node], Awaitable[Client]] = coordinator
) -> AsyncIterator[tuple[Node, Client]]:
    properties = {"group.streams.topology.description.plugin.class": f"python:{__name__}:KEEPER", **NO_DELAY}
    async with running_node(path / "node", **properties) as node:
        yield node, await connect(node)


async def test_the_first_member_is_asked_and_its_description_is_shown(tmp_path: Path) -> None:
    async with node_with_keeper(tmp_path) as (_, client):
        first = await client.ask(heartbeat())
        assert first.topology_description_required
        beat = heartbeat(member_epoch=first.member_epoch, topology=None, rebalance_timeout_ms=-1)
        assert not (await client.ask(beat)).topology_description_required, "it is asked once in a while"
        assert (await described(client)).topology_description_status == 1
        assert (await client.ask(push())).error_code == 0
        assert KEEPER.get(GROUP, 0) == DESCRIPTION
        found = await described(client)
        assert found.topology_description_status == 3
        assert found.topology_description is not None
        (subtopology,) = found.topology_description.subtopologies
        assert [(each.name, each.node_type, each.sink_topic) for each in subtopology.nodes] == [
            ("read", 1, None),
            ("count", 2, None),
            ("write", 3, "out"),
            ("somewhere", 3, None),
        ]
        (store,) = found.topology_description.global_stores
        assert (store.source.source_topics, store.processor.stores) == (["table"], ["table"])
        plain = streams_groups.StreamsGroupDescribeRequest(group_ids=[GROUP])
        assert (await client.ask(plain)).groups[0].topology_description_status == 0


async def test_what_was_stored_is_known_after_a_restart(tmp_path: Path) -> None:
    async def again(node: Node, client: Client) -> None:
        assert (await described(client)).topology_description_status == 3
        assert not (await client.ask(heartbeat())).topology_description_required

    async with node_with_keeper(tmp_path) as (_, client):
        await client.ask(heartbeat())
        await client.ask(push())


async def test_wrong_pushes(tmp_path: Path) -> None:
    async with node_with_keeper(tmp_path) as (node, client):
        await client.ask(heartbeat())
        for fields, code in (
            ({"group_id": "other"}, E.GROUP_ID_NOT_FOUND),
            ({"member_id": "other"}, E.UNKNOWN_MEMBER_ID),
            ({"member_id": ""}, E.INVALID_REQUEST),
            ({"group_id": ""}, E.INVALID_REQUEST),
            ({"topology_epoch": 5}, E.INVALID_REQUEST),
        ):
            assert (await client.ask(push(**fields))).error_code == code, fields
        request = push()
        request.topology_description.subtopologies[0].nodes[0].node_type = 9
        answer = await client.ask(request)
        assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, "Unknown topology node type: 9")
        request = push()
        request.topology_description.global_stores[0].source.node_type = 3
        assert (await client.ask(request)).error_code == E.INVALID_REQUEST
        assert node.broker.services.groups.loaded_core(GROUP).descriptions.stored_epoch(GROUP) == -1


async def test_a_keeper_that_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with node_with_keeper(tmp_path) as (_, client):
        await client.ask(heartbeat())
        KEEPER.problem = OSError("the disk is full")
        answer = await client.ask(push())
        assert answer.error_code == E.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
        assert "disk" not in answer.error_message
        (line,) = [record.getMessage() for record in caplog.records if record.name == "kbroker.rules"]
        assert "fails, and the description is asked for again later: OSError: the disk is full" in line
        KEEPER.problem = None
        assert (await client.ask(push())).error_code == 0
        KEEPER.problem = OSError("the disk is gone")
        assert (await described(client)).topology_description_status == 2


async def test_what_the_keeper_does_is_counted(tmp_path: Path) -> None:
    async with node_with_keeper(tmp_path) as (node, client):
        await client.ask(heartbeat())
        for problem in (OSError("the disk is full"), None):
            KEEPER.problem = problem
            await client.ask(push())
        for problem in (OSError("the disk is gone"), None, None):
            KEEPER.problem = problem
            await described(client)
        await client.ask(heartbeat(member_epoch=-1, topology=None))
        groups: Any = node.broker.coordinators
        for problem in (OSError("the disk is gone"), None):
            KEEPER.problem = problem
            await groups.groups.descriptions.clean()
        rates = Rates(lambda: 0.0)
        told = {
            family.names[Dialect.STRIMZI].rpartition("topology_description_")[2]: list(samples)
            for family, samples in group_figures.figures(groups, rates, 0.0)
            if family in DESCRIPTION_COUNTS.values()
        }
        assert told == {
            "set_error_count": [((), 1)],
            "set_success_count": [((), 1)],
            "get_error_count": [((), 1)],
            "get_success_count": [((), 2)],
            "delete_error_count": [((), 1)],
            "delete_success_count": [((), 1)],
            "cleanup_cycle_count": [((), 2)],
            "cleanup_eligible_count": [((), 2)],
        }


async def test_a_keeper_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    async with node_with_keeper(tmp_path) as (_, client):
        await client.ask(heartbeat())
        KEEPER.problem = DescriptionRefused("too large for me")
        answer = await client.ask(push())
        assert answer.error_code == E.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
        assert answer.error_message == "too large for me"
        assert not (await client.ask(heartbeat(member_id="n", process_id="q"))).topology_description_required
        assert (await described(client)).topology_description_status == 1


async def test_the_description_goes_with_the_group(tmp_path: Path) -> None:
    async with node_with_keeper(tmp_path) as (node, client):
        await client.ask(heartbeat())
        await client.ask(push())
        delete = DeleteGroupsRequest(groups_names=[GROUP])
        (result,) = (await client.ask(delete)).results
        assert result.error_code == E.NON_EMPTY_GROUP and KEEPER.get(GROUP, 0) == DESCRIPTION
        await client.ask(heartbeat(member_epoch=-1, topology=None))
        KEEPER.problem = OSError("the disk is gone")
        (result,) = (await client.ask(delete)).results
        assert result.error_code == E.GROUP_DELETION_FAILED and "failed to delete the topology" in result.error_message
        KEEPER.problem = None
        (result,) = (await client.ask(delete)).results
        assert (result.error_code, result.error_message) == (0, None)
        assert KEEPER.get(GROUP, 0) is None and GROUP not in node.broker.services.groups.loaded_core(GROUP).groups


async def test_the_description_goes_when_the_group_expires(tmp_path: Path) -> None:
    async with node_with_keeper(tmp_path) as (node, client):
        await client.ask(heartbeat())
        await client.ask(push())
        descriptions = descriptions_of(node)
        await descriptions.clean()
        assert KEEPER.get(GROUP, 0) == DESCRIPTION
        await client.ask(heartbeat(member_epoch=-1, topology=None))
        KEEPER.problem = OSError("the disk is gone")
        await descriptions.clean()
        KEEPER.problem = None
        assert KEEPER.get(GROUP, 0) == DESCRIPTION
        await descriptions.clean()
        assert KEEPER.get(GROUP, 0) is None
        assert node.broker.services.groups.loaded_core(GROUP).descriptions.stored_epoch(GROUP) == -1


async def test_whatever_fails_while_descriptions_are_cleaned_does_not_end_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_with_keeper(tmp_path) as (node, client):
        await client.ask(heartbeat())
        await client.ask(push())
        await client.ask(heartbeat(member_epoch=-1, topology=None))
        descriptions = descriptions_of(node)

        def fail(self: object, group_id: str, *, for_push: bool) -> bool:
            raise KeyError(group_id)

        with monkeypatch.context() as broken:
            broken.setattr(type(node.groups.loaded_core(GROUP).descriptions), "mark", fail)
            await descriptions.clean()
        (line,) = [record.getMessage() for record in caplog.records if record.exc_info]
        assert line == f"group {GROUP}: the description of its topology cannot be deleted now"
        await descriptions.clean()
        assert KEEPER.get(GROUP, 0) is None


async def test_a_classic_member_takes_the_group_over(tmp_path: Path) -> None:
    async with node_with_keeper(tmp_path) as (node, client):
        await client.ask(heartbeat())
        await client.ask(push())
        await client.ask(heartbeat(member_epoch=-1, topology=None))
        join = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
        )
        KEEPER.problem = OSError("the disk is gone")
        assert (await client.ask(join)).error_code == E.REBALANCE_IN_PROGRESS
        KEEPER.problem = None
        assert (await client.ask(join)).error_code == E.REBALANCE_IN_PROGRESS, "it is not tried each time"
        await descriptions_of(node).clean()
        assert KEEPER.get(GROUP, 0) is None
        assert (await client.ask(join)).error_code == E.MEMBER_ID_REQUIRED


async def test_a_node_without_a_keeper_asks_nobody(tmp_path: Path) -> None:
    async with running_node(tmp_path / "node", **NO_DELAY) as node:
        client = await coordinator(node)
        assert not (await client.ask(heartbeat())).topology_description_required
        assert (await client.ask(push())).error_code == E.UNSUPPORTED_VERSION
        assert (await described(client)).topology_description_status == 1


async def test_a_description_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    async with node_with_keeper(tmp_path) as (node, client):
        first = await client.ask(heartbeat())
        await client.ask(push())
        beat = heartbeat(member_epoch=first.member_epoch, topology=None, rebalance_timeout_ms=-1)
        assert not (await client.ask(beat)).topology_description_required
        KEEPER.delete(GROUP)
        for _ in range(2):
            assert (await described(client)).topology_description_status == 1
        assert not (await client.ask(beat)).topology_description_required, "a keeper may always have nothing"
        descriptions_of(node)._backoff.end(GROUP)  # half a minute later
        assert (await client.ask(beat)).topology_description_required
        assert (await client.ask(push())).error_code == 0
        assert (await described(client)).topology_description_status == 3


# -- files -----------------------------------------------------------------------------------------


def test_files_have_one_description_of_each_group(tmp_path: Path) -> None:
    files = DescriptionFiles(tmp_path / "made" / "here")
    names = ["g", "G", "../g", "a/b", "a:b", "ä" * 300, "x" * 300]
    for number, name in enumerate(names):
        files.store(name, number, DESCRIPTION)
    assert len(list((tmp_path / "made" / "here").iterdir())) == len(names)
    for number, name in enumerate(names):
        assert files.get(name, number) == DESCRIPTION and files.get(name, number + 1) is None
    files.store("g", 7, DESCRIPTION._replace(global_stores=()))
    with pytest.raises(ValueError, match="is of topology epoch 7, which is later than 6"):
        files.store("g", 6, DESCRIPTION)
    assert files.get("g", 0) is None and files.get("g", 7) == DESCRIPTION._replace(global_stores=())
    for _ in range(2):
        files.delete("g")
    assert files.get("g", 7) is None and files.get("G", 1) == DESCRIPTION


def test_a_store_that_a_deletion_overtakes_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that the node has given up may go on at any time: here it waits while the file is written before."""
    files, write = DescriptionFiles(tmp_path / "here"), Path.write_text
    begun, gate = threading.Event(), threading.Event()

    def slow(path: Path, *arguments: Any) -> int:
        begun.set()
        assert gate.wait(SHORT)
        return write(path, *arguments)

    def count(users: int) -> None:
        while [entry.users for entry in files._locks._entries.values()] != [users]:
            assert threads[0].is_alive()
            threads[-1].join(0.001)

    monkeypatch.setattr(Path, "write_text", slow)
    refused: list[BaseException] = []

    def late() -> None:
        try:
            files.store("g", 2, DESCRIPTION)
        except OSError as error:
            refused.append(error)

    works: list[Callable[[], None]] = [lambda: files.store("g", 1, DESCRIPTION), late, lambda: files.delete("g")]
    threads: list[threading.Thread] = []
    for number, work in enumerate(works, 1):
        threads.append(threading.Thread(target=work))
        threads[-1].start()
        assert begun.wait(SHORT)
        count(number)
    gate.set()
    for thread in threads:
        thread.join(SHORT)
    assert list((tmp_path / "here").iterdir()) == []
    assert [type(error) for error in refused] == [Overtaken]


def test_threads_and_nodes_that_store_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    nodes = [DescriptionFiles(tmp_path / "here") for _ in range(2)]
    threads = [threading.Thread(target=node.store, args=("g", 3, DESCRIPTION)) for node in nodes for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SHORT)
    assert nodes[0].get("g", 3) == DESCRIPTION and len(list((tmp_path / "here").iterdir())) == 1


def test_a_file_that_another_node_holds_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    (tmp_path / "here").mkdir()
    path, other, own = tmp_path / "here" / "file", FileLocks(10), FileLocks(0.05)
    with other.held(path):
        with pytest.raises(TimeoutError), own.held(path):
            pass
        with pytest.raises(TimeoutError), own.held(path, deletes=True):
            pass
    with own.held(path):
        pass
    assert list((tmp_path / "here").iterdir()) == [] and own._entries == {}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"subtopologies": [], "global_stores": 5}',
        '{"subtopologies": [{"id": "0", "nodes": [{"type": "odd", "name": "n"}]}], "global_stores": []}',
        '{"subtopologies": [{"id": "0", "nodes": [{"type": "sink", "nom": "n"}]}], "global_stores": []}',
    ],
)
def test_a_damaged_file_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        from_json(json.loads(text))


def test_json_and_back() -> None:
    assert from_json(json.loads(json.dumps(to_json(DESCRIPTION)))) == DESCRIPTION
