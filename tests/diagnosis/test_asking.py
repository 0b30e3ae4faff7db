"""The questions to a cluster: the quorum that does not answer, and the one that may not be asked."""

from __future__ import annotations

from kbroker.client import Client
from kbroker.errors import ErrorCode
from kbroker.tools.diagnosis.asking import ask_quorum
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from tests.client.fake_broker import FakeBroker


def answering(error: ErrorCode) -> FakeBroker:
    return FakeBroker({DescribeQuorumRequest: lambda request, version: DescribeQuorumResponse(error_code=error)})


def test_a_quorum_that_this_client_may_not_see_is_unknown() -> None:
    with answering(ErrorCode.CLUSTER_AUTHORIZATION_FAILED) as broker, Client(broker.bootstrap, timeout=60) as client:
        quorum, reason = ask_quorum(client)
    assert quorum is None and "CLUSTER_AUTHORIZATION_FAILED" in reason


def test_a_quorum_that_fails_has_no_leader_and_says_why() -> None:
    with answering(ErrorCode.UNKNOWN_SERVER_ERROR) as broker, Client(broker.bootstrap, timeout=60) as client:
        quorum, reason = ask_quorum(client)
    assert quorum is not None and quorum.leader == -1 and "UNKNOWN_SERVER_ERROR" in quorum.problem and not reason
