"""AlterReplicaLogDirs and DescribeProducers of partitions that are there, elsewhere and nowhere: the same requests to
Apache Kafka 4.4.0 and to the broker under test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.brokers import ApacheBroker, Broker, ExternalBroker, KbrokerNodes
from compat_tests.clients import skip_without
from compat_tests.wire_differential.dialogue import Dialogue, differences
from kbroker.wire.messages.described_transactions import DescribeProducersRequest, TopicRequest
from kbroker.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.patience import eventually

Pair = tuple[Dialogue, Dialogue]


@pytest.fixture(scope="module")
def pair(broker: Broker) -> Iterator[Pair]:
    """The broker under test and the judge, each with the topic ``replicas`` of two partitions."""
    skip_without("java")
    if isinstance(broker, ExternalBroker | KbrokerNodes):
        pytest.skip("for one node")
    with contextlib.ExitStack() as stack:
        judge = ApacheBroker()
        stack.callback(judge.stop)
        talks = (Dialogue(broker.bootstrap), Dialogue(judge.bootstrap))
        topic = CreatableTopic(name="replicas", num_partitions=2, replication_factor=1)
        for talk in talks:
            stack.callback(talk.close)
            made = talk.ask(CreateTopicsRequest(topics=[topic]), 7)
            assert made.topics[0].error_code == 0
            ready = DescribeProducersRequest(topics=[TopicRequest(name="replicas", partition_indexes=[0, 1])])
            eventually(
                lambda talk=talk, ready=ready: (  # type: ignore[misc]
                    not any(each.error_code for each in talk.ask(ready, 0).topics[0].partitions)
                ),
                "the replicas",
            )
        yield talks


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "AlterReplicaLogDirs")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["replicas", "missing", "bad name", "x" * 250])
@pytest.mark.parametrize("index", [0, 7, -1])
@pytest.mark.parametrize("is_found", [True, False])
def test_moves(pair: Pair, version: int, name: str, index: int, is_found: bool) -> None:
    answers = []
    for talk in pair:
        path = talk.ask(DescribeLogDirsRequest(topics=None), 4).results[0].log_dir if is_found else "/nowhere"
        wanted = AlterReplicaLogDirTopic(name=name, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[wanted])])
        answers.append(talk.plain(talk.ask(request, version)))
    assert list(differences(*answers)) == []


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "DescribeProducers")
def test_producers(pair: Pair) -> None:
    asked = [
        TopicRequest(name=name, partition_indexes=[0, 1, 7, -1]) for name in ("replicas", "missing", "bad name", "..")
    ]
    request = DescribeProducersRequest(topics=asked)
    ours, theirs = (talk.plain(talk.ask(request, 0)) for talk in pair)
    assert list(differences(ours, theirs)) == []
