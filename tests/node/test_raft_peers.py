"""Log messages about other nodes of the quorum."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ErrorCode
from kbroker.node.controller.raft_peers import RaftPeers
from kbroker.raft_metadata.raft.messages import Node, OutboundRequest, Reply, Vote
from kbroker.raft_metadata.raft.rpcs.rpc import RpcError
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint
from kbroker.runtime.env import RealEnv
from kbroker.types import OffsetAndEpoch
from tests.node.node_harness import CLUSTER_ID, judge_by, running_node
from tests.node.node_harness import Node as RunningNode


class Nobody:
    """An authorizer that allows nothing."""

    version = 0

    def authorize(self, *_: object) -> bool:
        return False

    authorize_by_resource_type = authorize

    def audit(self, *_: object) -> None:
        pass


async def _ask_in_vain(node: RunningNode, cluster_id: str) -> None:
    """Ask twice for a vote, as a node of a cluster."""
    host, port = node.broker.ports["CONTROLLER"]
    peers = RaftPeers(RealEnv().network, 7, cluster_id, "CONTROLLER", 5000, 5000)
    question = Vote(1, ReplicaKey(7), OffsetAndEpoch(0, 0), pre_vote=True)
    for number in range(2):
        reply = await peers.send(OutboundRequest(number, Node(1, VoterEndpoint(host, port)), question))
        assert reply.response is None
    peers.close()


async def test_a_node_of_another_cluster_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker.node.controller.raft_peers")
    async with running_node(tmp_path) as node:
        await _ask_in_vain(node, "another-cluster-id")
    (record,) = [record for record in caplog.records if record.name == "kbroker.node.controller.raft_peers"]
    assert record.levelno == logging.ERROR
    assert "belongs to another cluster than this node, whose meta.properties say another-cluster-id" in record.message


async def test_a_node_that_is_not_authorized_says_what_it_lacks_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "kbroker.node.controller.raft_peers")
    monkeypatch.setattr("kbroker.node.controller.raft_peers.DENIED_SECONDS", 0.0)
    async with running_node(tmp_path) as node:
        judge_by(node.broker.services, Nobody())
        await _ask_in_vain(node, CLUSTER_ID)
    (record,) = [record for record in caplog.records if record.name == "kbroker.node.controller.raft_peers"]
    assert record.levelno == logging.ERROR
    assert "its principal needs CLUSTER_ACTION, or to be a super user" in record.message


async def test_a_node_that_is_not_authorized_asks_once_a_second(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    class Denying:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def ask_versioned(self, *_: object, **__: object) -> None:
            await trio.lowlevel.checkpoint()
            asked.append(trio.current_time())
            raise RpcError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "")

    monkeypatch.setattr("kbroker.node.controller.raft_peers.Peer", Denying)
    network: Any = None
    peers = RaftPeers(network, 7, CLUSTER_ID, "CONTROLLER", 5000, 5000)
    question = Vote(1, ReplicaKey(7), OffsetAndEpoch(0, 0), pre_vote=True)
    one, other = (Node(number, VoterEndpoint("there", number)) for number in (1, 2))
    replies: list[Reply] = []

    async def send(number: int) -> None:
        replies.append(await peers.send(OutboundRequest(number, one, question)))

    async with trio.open_nursery() as nursery:
        await send(0)
        nursery.start_soon(send, 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(send, 2)  # takes the place of that
        await trio.testing.wait_all_tasks_blocked()
        await peers.send(OutboundRequest(3, other, question))  # nobody has denied there
    assert sorted(reply.correlation_id for reply in replies) == [0, 1, 2]
    begun = asked[0]
    assert [round(each - begun, 3) for each in asked] == [0, 0, 1]
