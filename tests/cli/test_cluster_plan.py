"""Ports, directories and properties of the nodes of a local cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, read_properties_file
from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import read_meta_properties
from kbroker.log.disk import OsDisk
from kbroker.tools.cli.cluster_plan import free_ports, plan_cluster, prepare


def test_three_nodes_keep_what_is_acknowledged_when_one_is_lost(tmp_path: Path) -> None:
    plans = plan_cluster(3, tmp_path)
    assert [plan.address for plan in plans] == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]
    assert [plan.controller_port for plan in plans] == [9095, 9096, 9097]
    assert [plan.directory for plan in plans] == [tmp_path / f"node-{number}" for number in (1, 2, 3)]
    for number, plan in enumerate(plans, 1):
        config = BrokerConfig.from_properties(plan.properties)
        assert config.node_id == number and config.is_broker and config.is_controller
        assert [voter.node_id for voter in config.controller_quorum_voters] == [1, 2, 3]
        assert config.values["default.replication.factor"] == 3
        assert config.values["min.insync.replicas"] == 2
        assert config.values["offsets.topic.replication.factor"] == 3
        assert config.values["transaction.state.log.replication.factor"] == 3
        assert config.values["transaction.state.log.min.isr"] == 2
        assert not config.unknown


@pytest.mark.parametrize(("count", "replicas", "least", "voters"), [(1, 1, 1, 1), (2, 2, 1, 2), (5, 3, 2, 3)])
def test_other_sizes(tmp_path: Path, count: int, replicas: int, least: int, voters: int) -> None:
    plans = plan_cluster(count, tmp_path, port=23_500)
    configs = [BrokerConfig.from_properties(plan.properties) for plan in plans]
    assert len({port for plan in plans for port in (plan.port, plan.controller_port) if port}) == count + voters
    assert [config.is_controller for config in configs] == [index < voters for index in range(count)]
    for config in configs:
        assert config.is_broker
        assert config.values["default.replication.factor"] == replicas
        assert config.values["min.insync.replicas"] == least


def test_ids_begin_where_they_are_told_to(tmp_path: Path) -> None:
    plans = plan_cluster(2, tmp_path, port=23_500, first_id=0)
    assert [(plan.node_id, plan.directory.name) for plan in plans] == [(0, "node-0"), (1, "node-1")]
    voters = [BrokerConfig.from_properties(plan.properties).controller_quorum_voters for plan in plans]
    assert [[voter.node_id for voter in each] for each in voters] == [[0, 1]] * 2


def test_properties_of_the_user_win_and_survive_the_file(tmp_path: Path) -> None:
    odd = "  two words \\ and # more = all: ü\tend"
    plans = plan_cluster(3, tmp_path, port=0, properties={"min.insync.replicas": "1", "some odd:name": odd})
    prepare(plans)
    for plan in plans:
        assert read_properties_file(plan.properties_file) == dict(plan.properties)
        assert plan.properties["min.insync.replicas"] == "1"


def test_directories_are_formatted_once_with_one_cluster_id(tmp_path: Path) -> None:
    prepare(plan_cluster(2, tmp_path, port=0))
    first = [read_meta_properties(OsDisk(), str(tmp_path / f"node-{number}")) for number in (1, 2)]
    assert [found and found.node_id for found in first] == [1, 2]
    assert len({found and found.cluster_id for found in first}) == 1
    prepare(plan_cluster(3, tmp_path, port=0))  # on other ports, and with one more
    again = [read_meta_properties(OsDisk(), str(tmp_path / f"node-{number}")) for number in (1, 2, 3)]
    assert again[:2] == first
    assert len({found and found.cluster_id for found in again}) == 1


def test_directories_of_others_are_refused(tmp_path: Path) -> None:
    prepare(plan_cluster(2, tmp_path / "one", port=0))
    prepare(plan_cluster(2, tmp_path / "other", port=0))
    (tmp_path / "mixed").mkdir()
    (tmp_path / "one" / "node-1").rename(tmp_path / "mixed" / "node-1")
    (tmp_path / "other" / "node-2").rename(tmp_path / "mixed" / "node-2")
    with pytest.raises(FatalError, match="different clusters"):
        prepare(plan_cluster(2, tmp_path / "mixed", port=0))
    (tmp_path / "mixed" / "node-1").rename(tmp_path / "one" / "node-3")
    with pytest.raises(FatalError, match="belongs to node 1, not to node 3"):
        prepare(plan_cluster(3, tmp_path / "one", port=0))


def test_impossible_clusters(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="65535"):
        plan_cluster(3, tmp_path, port=65_531)
    with pytest.raises(FatalError, match="at least one"):
        plan_cluster(0, tmp_path)
    with pytest.raises(FatalError, match=r"num\.partitions"):
        prepare(plan_cluster(1, tmp_path, properties={"num.partitions": "many"}))


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
