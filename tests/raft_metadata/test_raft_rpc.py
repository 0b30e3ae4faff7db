"""The quorum's values to Kafka's requests and responses and back, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.raft_metadata import raft_messages as msg
from kbroker.raft_metadata import raft_requests, raft_responses
from kbroker.raft_metadata.voters import ReplicaKey, VoterEndpoint
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.compiler import decode, encode
from kbroker.wire.registry import API_KEYS

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAw"
DISK, OTHER = Uuid(b"a" * 16), Uuid(b"b" * 16)
HERE = {"CONTROLLER": VoterEndpoint("here", 9093)}
HEADER: tuple[Any, ...] = (ErrorCode.NONE, 7, 2, HERE)

REQUESTS: list[tuple[Any, int]] = [
    (msg.VoteRequest(7, ReplicaKey(1, DISK), OffsetAndEpoch(50, 6), True, ReplicaKey(2, OTHER)), 2),
    (msg.VoteRequest(7, ReplicaKey(1, DISK), OffsetAndEpoch(50, 6), False, ReplicaKey(2, OTHER)), 1),
    (msg.BeginQuorumEpochRequest(7, 1, HERE, ReplicaKey(2, OTHER)), 1),
    (msg.EndQuorumEpochRequest(7, 1, HERE, (ReplicaKey(3, OTHER), ReplicaKey(2, DISK))), 1),
    (msg.FetchRequest(7, ReplicaKey(1, DISK), 50, 6, 40, 1000, 500), 18),
    (msg.FetchSnapshotRequest(7, ReplicaKey(1, DISK), OffsetAndEpoch(50, 6), 20, 1000), 1),
    (msg.AddVoterRequest(ReplicaKey(1, DISK), HERE, 1000, False), 1),
    (msg.RemoveVoterRequest(ReplicaKey(1, DISK)), 0),
    (msg.UpdateVoterRequest(7, ReplicaKey(1, DISK), HERE, 0, 1), 0),
]

RESPONSES: list[tuple[Any, type[Any], int]] = [
    (msg.VoteResponse(*HEADER, granted=True), msg.VoteRequest, 2),
    (msg.BeginQuorumEpochResponse(*HEADER), msg.BeginQuorumEpochRequest, 1),
    (msg.EndQuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, 7, 2, HERE), msg.EndQuorumEpochRequest, 1),
    (msg.FetchResponse(*HEADER, high_watermark=40, log_start_offset=3, records=b"xyz"), msg.FetchRequest, 18),
    (
        msg.FetchResponse(*HEADER, high_watermark=40, log_start_offset=3, diverging=OffsetAndEpoch(30, 5)),
        msg.FetchRequest,
        17,
    ),
    (
        msg.FetchResponse(*HEADER, high_watermark=40, log_start_offset=3, snapshot_id=OffsetAndEpoch(30, 5)),
        msg.FetchRequest,
        17,
    ),
    (
        msg.FetchSnapshotResponse(*HEADER, OffsetAndEpoch(30, 5), 100, 10, b"xyz"),
        msg.FetchSnapshotRequest,
        1,
    ),
    (msg.AddVoterResponse(ErrorCode.DUPLICATE_VOTER, "no"), msg.AddVoterRequest, 1),
    (msg.RemoveVoterResponse(ErrorCode.NONE, None), msg.RemoveVoterRequest, 0),
    (msg.UpdateVoterResponse(*HEADER), msg.UpdateVoterRequest, 0),
]


def over_the_wire(message: Any, version: int) -> Any:
    data = bytes(encode(message, version))
    decoded, end = decode(type(message), version, data)
    assert end == len(data)
    return decoded


@pytest.mark.parametrize(("request_", "highest"), REQUESTS)
def test_requests_arrive_as_they_were_sent(request_: Any, highest: int) -> None:
    message = over_the_wire(raft_requests.encode_request(request_, CLUSTER, highest), highest)
    assert isinstance(message, raft_requests.MESSAGES[type(request_)])
    assert raft_requests.decode_request(message, CLUSTER, highest) == request_


@pytest.mark.parametrize(("response", "request_class", "highest"), RESPONSES)
def test_responses_arrive_as_they_were_sent(response: Any, request_class: type[Any], highest: int) -> None:
    message = over_the_wire(raft_responses.encode_response(response, highest, "CONTROLLER"), highest)
    expected = API_KEYS[raft_requests.MESSAGES[request_class].api_key].response
    assert isinstance(message, expected)
    assert raft_responses.decode_response(message, "CONTROLLER") == response


@pytest.mark.parametrize(("request_", "highest"), REQUESTS)
def test_older_versions_say_what_they_can(request_: Any, highest: int) -> None:
    lowest = raft_requests.FIRST_FETCH_VERSION if isinstance(request_, msg.FetchRequest) else 0
    for version in range(lowest, highest):
        if isinstance(request_, msg.VoteRequest) and request_.pre_vote:
            with pytest.raises(raft_requests.UnsupportedRpcVersion):
                raft_requests.encode_request(request_, CLUSTER, version)
            continue
        arrived = raft_requests.decode_request(
            over_the_wire(raft_requests.encode_request(request_, CLUSTER, version), version), CLUSTER, version
        )
        assert type(arrived) is type(request_)
        for name in ("epoch", "offset", "last", "leader_id", "position"):
            if hasattr(request_, name):
                assert getattr(arrived, name) == getattr(request_, name)


def test_other_clusters_and_partitions_are_refused() -> None:
    for request_, version in REQUESTS:
        message = raft_requests.encode_request(request_, "another", version)
        with pytest.raises(raft_responses.RpcError) as caught:
            raft_requests.decode_request(message, CLUSTER, version)
        refusal = raft_responses.encode_refusal(message, caught.value)
        assert refusal.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        over_the_wire(refusal, version)
        message.cluster_id = None  # whoever does not say is not asked, as in Kafka
        raft_requests.decode_request(message, CLUSTER, version)
        if hasattr(message, "topics"):
            message.topics = message.topics * 2
            with pytest.raises(raft_responses.RpcError, match="INVALID_REQUEST"):
                raft_requests.decode_request(message, CLUSTER, version)
            message.topics = []
            with pytest.raises(raft_responses.RpcError, match="INVALID_REQUEST"):
                raft_requests.decode_request(message, CLUSTER, version)


def test_an_error_at_the_top_is_an_error() -> None:
    message = API_KEYS[52].response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(raft_responses.RpcError, match="CLUSTER_AUTHORIZATION_FAILED"):
        raft_responses.decode_response(message, "CONTROLLER")
