"""Asks a cluster for the facts that rules need; whoever shows findings decides of how much, and how often."""

from __future__ import annotations

import time

from kbroker.client import ApiNotServed, Client, ClientError, ResponseError
from kbroker.client.nodes import describe_cluster, describe_quorum
from kbroker.client.open_transactions import OPEN_STATES
from kbroker.client.patience import patience
from kbroker.client.topics import list_topics
from kbroker.client.transactions import TransactionDescription, describe_transactions_of_node, transactions_of_node
from kbroker.errors import ErrorCode
from kbroker.tools.diagnosis.facts import ClusterView, Quorum, quorum_nodes, replica_counts


def now_ms() -> int:
    """Returns this machine's time."""
    return time.time_ns() // 1_000_000


def ask_quorum(client: Client) -> tuple[Quorum | None, str]:
    """Returns the quorum; None and the reason where it is not served, or not for this client."""
    asked_at = now_ms()
    try:
        partition = describe_quorum(client).topics[0].partitions[0]
    except ApiNotServed as error:
        return None, str(error)
    except ClientError as error:
        if isinstance(error, ResponseError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return None, str(error)
        return Quorum(-1, problem=str(error), asked_at=asked_at, answered_at=now_ms()), ""
    nodes = quorum_nodes(partition)
    leader, epoch = int(partition.leader_id), int(partition.leader_epoch)
    return Quorum(leader, nodes, epoch, asked_at=asked_at, answered_at=now_ms()), ""


def ask_open_transactions(client: Client, seconds: float, most: int) -> list[TransactionDescription]:
    """Ask each coordinator for its open transactions, for so many seconds; one that does not answer is passed over."""
    found: list[TransactionDescription] = []
    for node_id in client.all_nodes():
        try:
            with patience(client, seconds):
                listed = transactions_of_node(client, node_id, OPEN_STATES)[: most - len(found)]
                names = [each.transactional_id for each in listed]
                found += describe_transactions_of_node(client, node_id, names).values() if names else ()
        except ClientError:
            continue
    return found


def ask_cluster(client: Client) -> ClusterView:
    """Ask any node for brokers, quorum and topics, in three requests; ``ClientError`` when none answers."""
    cluster = describe_cluster(client)
    quorum, _ = ask_quorum(client)
    topics = list_topics(client)
    counts = replica_counts(topics, cluster.brokers)
    return ClusterView(now_ms(), cluster.cluster_id, cluster.brokers, quorum, topics=topics, counts=counts)
