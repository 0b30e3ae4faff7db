"""Administrators' questions about the cluster and its nodes."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.client.cluster import Client, refuse
from kbroker.client.errors import ApiNotServed
from kbroker.security.authorizer.types import AclOperation
from kbroker.types import METADATA_TOPIC
from kbroker.wire.messages.api_versions import ApiVersionsResponse
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from kbroker.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from kbroker.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse, Scrub


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """A broker; ``fenced`` is None where the cluster does not tell."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster. ``controller_id`` is -1 without one (and in KRaft, some broker that forwards)."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[ClusterBroker, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature's levels: what the broker supports, and what the cluster runs at (None: not finalized)."""

    name: str
    lowest: int
    highest: int
    finalized: int | None


def describe_cluster(client: Client) -> ClusterDescription:
    """DescribeCluster, or from brokers before it Metadata."""
    try:
        deadline = client.deadline()
        version = client.any_broker(deadline).version_for(DescribeClusterRequest)
        request = DescribeClusterRequest(include_fenced_brokers=version >= 2)
        response = client.ask_any(request)
    except ApiNotServed:
        client.refresh(())
        return ClusterDescription(
            client.cluster_id,
            client.controller_id,
            tuple(
                ClusterBroker(broker.id, broker.host, broker.port, broker.rack, None)
                for broker in sorted(client.brokers.values(), key=lambda broker: broker.id)
            ),
        )
    refuse(response.error_code, "cluster", response.error_message)
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        tuple(
            ClusterBroker(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
            for broker in sorted(response.brokers, key=lambda broker: int(broker.broker_id))
        ),
    )


def cluster_operations(client: Client) -> frozenset[AclOperation]:
    """The operations on the cluster that the client's user may do (KIP-430).

    Without an authorizer these are all that there are. ``ApiNotServed`` before Apache Kafka 2.8.
    """
    response = client.ask_any(DescribeClusterRequest(include_cluster_authorized_operations=True))
    refuse(response.error_code, "cluster", response.error_message)
    bits = int(response.cluster_authorized_operations)
    return frozenset(each for each in AclOperation if bits >= 0 and bits >> each & 1)


def describe_features(client: Client) -> tuple[int, list[Feature]]:
    """The epoch of the finalized features (-1 without any), and all features by name."""
    told = api_versions(client)
    return told.finalized_features_epoch, features_of(told)


def features_of(told: ApiVersionsResponse) -> list[Feature]:
    """The features that a broker tells in ApiVersions, by name."""
    finalized = {feature.name: feature.max_version_level for feature in told.finalized_features}
    supported = {
        feature.name: Feature(feature.name, feature.min_version, feature.max_version, finalized.get(feature.name))
        for feature in told.supported_features
    }
    for name, level in finalized.items():
        supported.setdefault(name, Feature(name, 0, 0, level))
    return [supported[name] for name in sorted(supported)]


def api_versions(client: Client, node_id: int | None = None) -> ApiVersionsResponse:
    """A broker's answer to ApiVersions (any broker's, if none is named), from when it was connected to."""
    deadline = client.deadline()
    if node_id is None:
        return client.retrying(lambda: client.any_broker(deadline), deadline).api_versions
    client.refresh((), deadline)
    return client.retrying(lambda: client.node(node_id, deadline), deadline).api_versions


def describe_quorum(client: Client) -> DescribeQuorumResponse:
    """The quorum of the metadata log."""
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
    )

    def ask() -> DescribeQuorumResponse:
        response = client.ask_any(request)
        refuse(response.error_code, "quorum", response.error_message)
        for topic in response.topics:
            for partition in topic.partitions:
                refuse(partition.error_code, "quorum", partition.error_message)
        return response

    return client.retrying(ask, client.deadline())


def describe_log_dirs(client: Client, node_ids: list[int] | None = None) -> dict[int, DescribeLogDirsResponse]:
    """Broker -> its log directories, of all brokers or of some."""
    known = client.all_nodes()
    request = DescribeLogDirsRequest(topics=None, wants_scrub=1, wants_damage=True)
    responses = client.ask_nodes(dict.fromkeys(node_ids or known, request))
    for node_id, response in responses.items():
        refuse(response.error_code, f"broker {node_id}")
    return responses


def brokers_open_to_new(client: Client) -> dict[int, str | None]:
    """The brokers that may be given replicas, with their racks: neither fenced, nor all log directories cordoned."""
    racks = {each.id: each.rack for each in describe_cluster(client).brokers if not each.fenced}
    responses = client.ask_nodes(dict.fromkeys(racks, DescribeLogDirsRequest(topics=[])))
    for node_id, response in responses.items():
        refuse(response.error_code, f"broker {node_id}")
    return {
        node_id: rack
        for node_id, rack in racks.items()
        if any(not each.error_code and not each.is_cordoned for each in responses[node_id].results)
    }


def scrub(client: Client, node_ids: list[int] | None = None, *, begin: bool) -> dict[tuple[int, str], Scrub | None]:
    """Returns how far brokers (all, or some) are with scrubbing, by broker and log directory; ``begin``: they begin.

    None of a broker that does not scrub, or is not kbroker's. A directory that has failed is left out.
    """
    request = DescribeLogDirsRequest(topics=[], wants_scrub=2 if begin else 1)
    responses = client.ask_nodes(dict.fromkeys(node_ids or client.all_nodes(), request))
    for node_id, response in responses.items():
        refuse(response.error_code, f"broker {node_id}")
    return {
        (node_id, result.log_dir): result.scrub
        for node_id, response in sorted(responses.items())
        for result in response.results
        if not result.error_code
    }
