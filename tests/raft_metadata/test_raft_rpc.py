"""The quorum's values to Kafka's requests and responses and back, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft import messages as msg
from kbroker.raft_metadata.raft.rpcs import RPCS, rpc_of
from kbroker.raft_metadata.raft.rpcs.replication import FIRST_FETCH_VERSION
from kbroker.raft_metadata.raft.rpcs.rpc import RpcError, UnsupportedRpcVersion
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.compiler import decode, encode
from kbroker.wire.registry import API_KEYS

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAw"
DISK, OTHER = Uuid(b"a" * 16), Uuid(b"b" * 16)
HERE = {"CONTROLLER": VoterEndpoint("here", 9093)}
HEADER = (ErrorCode.NONE, 7, 2, HERE)

REQUESTS: list[tuple[Any, int]] = [
    (msg.Vote(7, ReplicaKey(1, DISK), OffsetAndEpoch(50, 6), True, ReplicaKey(2, OTHER)), 2),
    (msg.Vote(7, ReplicaKey(1, DISK), OffsetAndEpoch(50, 6), False, ReplicaKey(2, OTHER)), 1),
    (msg.BeginQuorumEpoch(7, 1, HERE, ReplicaKey(2, OTHER)), 1),
    (msg.EndQuorumEpoch(7, 1, HERE, (ReplicaKey(3, OTHER), ReplicaKey(2, DISK))), 1),
    (msg.Fetch(7, ReplicaKey(1, DISK), 50, 6, 40, 1000, 500), 18),
    (msg.FetchSnapshot(7, ReplicaKey(1, DISK), OffsetAndEpoch(50, 6), 20, 1000), 1),
    (msg.AddVoter(ReplicaKey(1, DISK), HERE, 1000, False), 1),
    (msg.RemoveVoter(ReplicaKey(1, DISK)), 0),
    (msg.UpdateVoter(7, ReplicaKey(1, DISK), HERE, 0, 1), 0),
]

RESPONSES: list[tuple[Any, type[Any], int]] = [
    (msg.VoteResult(*HEADER, granted=True), msg.Vote, 2),
    (msg.BeginQuorumEpochResult(*HEADER), msg.BeginQuorumEpoch, 1),
    (msg.EndQuorumEpochResult(ErrorCode.FENCED_LEADER_EPOCH, 7, 2, HERE), msg.EndQuorumEpoch, 1),
    (msg.FetchResult(*HEADER, high_watermark=40, log_start_offset=3, records=b"xyz"), msg.Fetch, 18),
    (msg.FetchResult(*HEADER, high_watermark=40, log_start_offset=3, diverging=OffsetAndEpoch(30, 5)), msg.Fetch, 17),
    (msg.FetchResult(*HEADER, high_watermark=40, log_start_offset=3, snapshot_id=OffsetAndEpoch(30, 5)), msg.Fetch, 17),
    (msg.FetchSnapshotResult(*HEADER, OffsetAndEpoch(30, 5), 100, 10, b"xyz"), msg.FetchSnapshot, 1),
    (msg.AddVoterResult(ErrorCode.DUPLICATE_VOTER, "no"), msg.AddVoter, 1),
    (msg.RemoveVoterResult(ErrorCode.NONE, None), msg.RemoveVoter, 0),
    (msg.UpdateVoterResult(*HEADER), msg.UpdateVoter, 0),
]


def over_the_wire(message: Any, version: int) -> Any:
    data = bytes(encode(message, version))
    decoded, end = decode(type(message), version, data)
    assert end == len(data)
    return decoded


@pytest.mark.parametrize(("request_", "highest"), REQUESTS)
def test_requests_arrive_as_they_were_sent(request_: Any, highest: int) -> None:
    rpc = rpc_of(request_)
    message = over_the_wire(rpc.encode_request(request_, CLUSTER, highest), highest)
    assert isinstance(message, rpc.wire_request) and rpc_of(message) is rpc
    assert rpc.decode_request(message, CLUSTER, highest) == request_


@pytest.mark.parametrize(("response", "request_class", "highest"), RESPONSES)
def test_responses_arrive_as_they_were_sent(response: Any, request_class: type[Any], highest: int) -> None:
    rpc = next(rpc for rpc in RPCS if rpc.request is request_class)
    message = over_the_wire(rpc.encode_response(response, highest, "CONTROLLER"), highest)
    assert isinstance(message, API_KEYS[rpc.wire_request.api_key].response)
    assert rpc.decode_response(message, "CONTROLLER") == response


@pytest.mark.parametrize(("request_", "highest"), REQUESTS)
def test_older_versions_say_what_they_can(request_: Any, highest: int) -> None:
    rpc = rpc_of(request_)
    lowest = FIRST_FETCH_VERSION if isinstance(request_, msg.Fetch) else 0
    for version in range(lowest, highest):
        if isinstance(request_, msg.Vote) and request_.pre_vote:
            with pytest.raises(UnsupportedRpcVersion):
                rpc.encode_request(request_, CLUSTER, version)
            continue
        message = over_the_wire(rpc.encode_request(request_, CLUSTER, version), version)
        arrived = rpc.decode_request(message, CLUSTER, version)
        assert type(arrived) is type(request_)
        for name in ("epoch", "offset", "last", "leader_id", "position"):
            if hasattr(request_, name):
                assert getattr(arrived, name) == getattr(request_, name)


def test_other_clusters_and_partitions_are_refused() -> None:
    for request_, version in REQUESTS:
        rpc = rpc_of(request_)
        message = rpc.encode_request(request_, "another", version)
        with pytest.raises(RpcError) as caught:
            rpc.decode_request(message, CLUSTER, version)
        refusal = rpc.refusal(caught.value)
        assert refusal.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        over_the_wire(refusal, version)
        message.cluster_id = None  # whoever does not say is not asked, as in Kafka
        rpc.decode_request(message, CLUSTER, version)
        if hasattr(message, "topics"):
            message.topics = message.topics * 2
            with pytest.raises(RpcError, match="INVALID_REQUEST"):
                rpc.decode_request(message, CLUSTER, version)
            message.topics = message.topics[:1]
            (partition,) = message.topics[0].partitions
            for partitions in ([], [partition, partition]):
                message.topics[0].partitions = partitions
                with pytest.raises(RpcError, match="INVALID_REQUEST"):
                    rpc.decode_request(message, CLUSTER, version)
            message.topics = []
            with pytest.raises(RpcError, match="INVALID_REQUEST"):
                rpc.decode_request(message, CLUSTER, version)


def test_an_error_at_the_top_is_an_error() -> None:
    message = API_KEYS[52].response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(RpcError, match="CLUSTER_AUTHORIZATION_FAILED"):
        rpc_of(API_KEYS[52].request()).decode_response(message, "CONTROLLER")


def test_an_error_of_a_later_release_is_an_unknown_error() -> None:
    """Of the partition and of the whole response, as ``Errors.forCode`` reads them."""
    rpc = rpc_of(msg.BeginQuorumEpoch(7, 1, HERE))
    message = rpc.encode_response(msg.BeginQuorumEpochResult(*HEADER), 1, "CONTROLLER")
    message.topics[0].partitions[0].error_code = 9999
    assert rpc.decode_response(message, "CONTROLLER").error is ErrorCode.UNKNOWN_SERVER_ERROR
    message.error_code = 9999
    with pytest.raises(RpcError, match="UNKNOWN_SERVER_ERROR"):
        rpc.decode_response(message, "CONTROLLER")
