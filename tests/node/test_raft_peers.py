"""Log messages about other nodes of the quorum."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from node_harness import CLUSTER_ID, run, running_node

from kbroker.env import RealEnv
from kbroker.node.raft_peers import RaftPeers
from kbroker.raft_metadata.raft.messages import Node, OutboundRequest, Vote
from kbroker.raft_metadata.raft.types import OffsetAndEpoch
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint


class Nobody:
    """An authorizer that allows nothing."""

    version = 0

    def authorize(self, *_: object) -> bool:
        return False

    authorize_by_resource_type = authorize

    def audit(self, *_: object) -> None:
        pass


def test_a_node_of_another_cluster_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker.node.raft_peers")

    async def main() -> None:
        async with running_node(tmp_path) as node:
            host, port = node.broker.ports["CONTROLLER"]
            peers = RaftPeers(RealEnv().network, 7, "another-cluster-id", "CONTROLLER", 5000, 5000)
            question = Vote(1, ReplicaKey(7), OffsetAndEpoch(0, 0), pre_vote=True)
            for number in range(2):
                reply = await peers.send(OutboundRequest(number, Node(1, VoterEndpoint(host, port)), question))
                assert reply.response is None
            peers.close()

    run(main)
    (record,) = [record for record in caplog.records if record.name == "kbroker.node.raft_peers"]
    assert record.levelno == logging.ERROR
    assert "belongs to another cluster than this node, whose meta.properties say another-cluster-id" in record.message


def test_a_node_that_is_not_authorized_says_what_it_lacks_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kbroker.node.raft_peers")

    async def main() -> None:
        async with running_node(tmp_path) as node:
            node.broker.services.authorizer = Nobody()
            host, port = node.broker.ports["CONTROLLER"]
            peers = RaftPeers(RealEnv().network, 7, CLUSTER_ID, "CONTROLLER", 5000, 5000)
            question = Vote(1, ReplicaKey(7), OffsetAndEpoch(0, 0), pre_vote=True)
            for number in range(2):
                reply = await peers.send(OutboundRequest(number, Node(1, VoterEndpoint(host, port)), question))
                assert reply.response is None
            peers.close()

    run(main)
    (record,) = [record for record in caplog.records if record.name == "kbroker.node.raft_peers"]
    assert record.levelno == logging.ERROR
    assert "its principal needs CLUSTER_ACTION, or to be a super user" in record.message
