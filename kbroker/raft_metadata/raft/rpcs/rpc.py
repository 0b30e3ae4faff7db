"""The base of the quorum's RPCs: a request and its response, as values of the Raft core and as Kafka's messages.

Kafka's messages could serve many partitions; the quorum uses each for partition 0 of the metadata topic. The core knows
neither topics nor cluster ids: both are judged here, and an error of theirs stands at the top of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.messages import QuorumResult
from kbroker.raft_metadata.raft.voters import Endpoints, ReplicaKey, VoterEndpoint
from kbroker.types import METADATA_TOPIC, Uuid

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


class RpcError(Exception):
    """An error for a whole request or response; ``code`` stands, or is to stand, at the top of the response."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or None


class UnsupportedRpcVersion(Exception):
    """The version that the peer serves cannot express the request."""


class Rpc(Generic[RequestT, ResultT]):
    """One RPC, in both roles: the sender encodes requests and decodes responses, the receiver does the reverse."""

    request: type[RequestT]
    """The core's request."""
    result: type[Any]
    """The core's response."""
    wire_request: type[Any]
    wire_response: type[Any]

    def encode_request(self, request: RequestT, cluster_id: str, version: int) -> Any:
        """Kafka's request. :class:`UnsupportedRpcVersion` if ``version`` cannot express it."""
        raise NotImplementedError

    def decode_request(self, message: Any, cluster_id: str, version: int) -> RequestT:
        """The core's request. :class:`RpcError` if the message is for another cluster or partition."""
        if message.cluster_id is not None and message.cluster_id != cluster_id:
            raise RpcError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{message.cluster_id}" doesn\'t match the cluster id "{cluster_id}"',
            )
        return self.read_request(message, version)

    def read_request(self, message: Any, version: int) -> RequestT:
        """``decode_request`` after the check of the cluster id."""
        raise NotImplementedError

    def encode_response(self, result: ResultT, version: int, listener_name: str) -> Any:
        """Kafka's response to a request that came in by ``listener_name``; it names the leader's address there."""
        raise NotImplementedError

    def decode_response(self, message: Any, listener_name: str) -> ResultT:
        """The core's response, with the leader's address under ``listener_name``, this node's own.

        :class:`RpcError` for an error at the top of the message, or a message about anything but one partition.
        """
        raise NotImplementedError

    def refusal(self, error: RpcError) -> Any:
        """Kafka's response to a request that ``decode_request`` refused."""
        return self.wire_response(error_code=error.code)


# Parts that several messages have


def only_partition(topics: list[Any], name: str, index: str, metadata: str | Uuid = METADATA_TOPIC) -> Any:
    """Partition 0 of the metadata topic, the only one of a request. :class:`RpcError` INVALID_REQUEST for any other.

    The fields ``name`` of the topic and ``index`` of the partition identify it; ``metadata`` is the expected name.
    """
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic, partition = topics[0], topics[0].partitions[0]
        if getattr(topic, name) == metadata and getattr(partition, index) == 0:
            return partition
    raise RpcError(ErrorCode.INVALID_REQUEST)


def answered_partition(message: Any, topics: list[Any]) -> Any:
    """The only partition of a response. :class:`RpcError` for an error at its top."""
    if message.error_code:
        raise RpcError(ErrorCode.of(message.error_code))
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise RpcError(ErrorCode.INVALID_REQUEST, "the response is not about one partition")
    return topics[0].partitions[0]


def voter_key(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    """The voter that a request is meant for; None if it names none (-1)."""
    return None if voter_id < 0 else ReplicaKey(voter_id, Uuid(directory_id))


def listed(cls: Callable[..., Any], endpoints: Endpoints) -> list[Any]:
    """Endpoints as structs with ``name``, ``host`` and ``port``."""
    return [cls(name=name, host=address.host, port=address.port) for name, address in endpoints.items()]


def by_name(structs: Iterable[Any]) -> Endpoints:
    """The reverse of ``listed``."""
    return {entry.name: VoterEndpoint(entry.host, entry.port) for entry in structs}


def node_endpoints(cls: Callable[..., Any], result: QuorumResult, listener_name: str) -> list[Any]:
    """The leader's address on a listener, as ``NodeEndpoints`` of a response; empty if it is not known."""
    address = result.leader_endpoints.get(listener_name)
    if address is None or result.leader_id < 0:
        return []
    return [cls(node_id=result.leader_id, host=address.host, port=address.port)]


def header(partition: Any, leader: Any, message: Any, listener_name: str) -> tuple[ErrorCode, int, int, Endpoints]:
    """The first four fields of a :data:`QuorumResult`: error, epoch, leader, and the leader's endpoints."""
    endpoints: Endpoints = {}
    for node in message.node_endpoints:
        if node.node_id == leader.leader_id:
            endpoints = {listener_name: VoterEndpoint(node.host, node.port)}
    return ErrorCode.of(partition.error_code), leader.leader_epoch, leader.leader_id, endpoints
