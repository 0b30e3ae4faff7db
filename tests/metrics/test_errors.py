"""Errors in responses are found where each message has them."""

from __future__ import annotations

from kbroker.errors import ErrorCode as E
from kbroker.observe.metrics.errors import error_codes
from kbroker.wire.messages.classic_groups import HeartbeatResponse
from kbroker.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kbroker.wire.messages.topics import CreatableTopicResult, CreateTopicsResponse
from kbroker.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)


def test_of_the_whole() -> None:
    assert list(error_codes(HeartbeatResponse(error_code=E.NONE))) == []
    assert list(error_codes(HeartbeatResponse(error_code=E.UNKNOWN_MEMBER_ID))) == [E.UNKNOWN_MEMBER_ID]


def test_of_parts_and_their_parts() -> None:
    parts = [MetadataResponsePartition(error_code=E.LEADER_NOT_AVAILABLE), MetadataResponsePartition()]
    topics = [MetadataResponseTopic(partitions=parts), MetadataResponseTopic(error_code=E.INVALID_TOPIC_EXCEPTION)]
    assert list(error_codes(MetadataResponse(topics=topics))) == [E.LEADER_NOT_AVAILABLE, E.INVALID_TOPIC_EXCEPTION]


def test_under_another_name() -> None:
    result = AddPartitionsToTxnPartitionResult(partition_error_code=E.OPERATION_NOT_ATTEMPTED)
    topic = AddPartitionsToTxnTopicResult(results_by_partition=[result])
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
    assert list(error_codes(response)) == [E.OPERATION_NOT_ATTEMPTED]


def test_a_code_that_is_no_error_of_the_request_is_none() -> None:
    topic = CreatableTopicResult(topic_config_error_code=E.TOPIC_AUTHORIZATION_FAILED)
    assert list(error_codes(CreateTopicsResponse(topics=[topic]))) == []
