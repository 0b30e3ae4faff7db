"""Policies of a controller (KIP-108, KIP-133): what they are asked, and when."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller import Controller
from kbroker.raft_metadata.controller.configs import (
    DELETE,
    SET,
    ConfigChange,
    incremental_alter_configs,
    legacy_alter_configs,
)
from kbroker.raft_metadata.controller.policies import Policies
from kbroker.raft_metadata.controller.topics import create_topics
from kbroker.raft_metadata.image import ConfigResource, ResourceType
from kbroker.raft_metadata.topics import NewTopic
from kbroker.wire.records.metadata import TopicRecord
from tests.raft_metadata.controller_harness import Harness

TOPIC = ConfigResource(ResourceType.TOPIC, "t")


class Asked:
    """Remembers what it is asked, and refuses names that begin with ``bad``, and retention for ever."""

    def __init__(self) -> None:
        self.topics: list[Any] = []
        self.changes: list[Any] = []

    def create(
        self,
        topic: str,
        num_partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
        configs: Mapping[str, str],
    ) -> None:
        self.topics.append((topic, num_partitions, replication_factor, assignments, dict(configs)))
        if topic.startswith("bad"):
            raise ApiError(ErrorCode.POLICY_VIOLATION, "a bad name")

    def alter(self, resource_type: int, resource_name: str, configs: Mapping[str, str | None]) -> None:
        self.changes.append((resource_type, resource_name, dict(configs)))
        if configs.get("retention.ms") == "-1":
            raise ApiError(ErrorCode.POLICY_VIOLATION, "nothing is for ever")


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def cluster(asked: Asked) -> Harness:
    """Three brokers, and a controller with both policies."""
    harness = Harness()
    image, schema = harness.controller.image, harness.controller.schema
    harness.controller = Controller(1, schema, random.Random(7), Policies(asked.create, asked.alter))
    harness.controller.reset(image)
    for broker in (1, 2, 3):
        harness.broker(broker)
    return harness


def test_a_new_topic_is_judged_with_its_final_numbers(cluster: Harness, asked: Asked) -> None:
    topics = [NewTopic("t", 2, 3, configs=[("retention.ms", "5")]), NewTopic("bad", -1, -1)]
    result = create_topics(cluster.view, topics)
    records = list(result.records)
    assert asked.topics == [("t", 2, 3, None, {"retention.ms": "5"}), ("bad", 1, 1, None, {})]
    refused = result.response["bad"]
    assert isinstance(refused, ApiError) and (refused.code, refused.message) == (
        ErrorCode.POLICY_VIOLATION,
        "a bad name",
    )
    assert not isinstance(result.response["t"], ApiError)
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["t"]
    assert asked.changes == [(ResourceType.TOPIC, "t", {"retention.ms": "5"})], "as in Kafka, and not without configs"


def test_a_topic_with_chosen_replicas_has_no_numbers(cluster: Harness, asked: Asked) -> None:
    cluster.apply(create_topics(cluster.view, [NewTopic("t", assignments=[(0, [2, 1]), (1, [3, 2])])]))
    assert asked.topics == [("t", None, None, {0: (2, 1), 1: (3, 2)}, {})]


def test_a_topic_is_judged_when_all_else_is_in_order_and_before_it_counts(cluster: Harness, asked: Asked) -> None:
    counted: list[int] = []
    topics = [NewTopic("t", 1, 9), NewTopic("a/b", 1, 1), NewTopic("bad", 1, 1)]
    cluster.decide(create_topics(cluster.view, topics, validate_only=True, count_partitions=counted.append))
    assert [each[0] for each in asked.topics] == ["bad"] and counted == []


def test_changes_are_judged_as_they_would_be(cluster: Harness, asked: Asked) -> None:
    cluster.create("t", 1, 1)
    cluster.configure("t", "cleanup.policy", "compact")
    asked.changes.clear()
    changes = [ConfigChange("retention.ms", SET, "-1"), ConfigChange("cleanup.policy", DELETE, None)]
    for validate_only in (True, False):
        result = incremental_alter_configs(cluster.view, {TOPIC: changes}, validate_only=validate_only)
        refused = result.response[TOPIC]
        assert refused is not None and (refused.code, refused.message) == (
            ErrorCode.POLICY_VIOLATION,
            "nothing is for ever",
        )
        assert result.records == []
    assert asked.changes == [(ResourceType.TOPIC, "t", {"retention.ms": "-1", "cleanup.policy": None})] * 2


def test_what_is_wrong_anyway_is_not_asked_about(cluster: Harness, asked: Asked) -> None:
    cluster.create("t", 1, 1)
    incremental_alter_configs(cluster.view, {TOPIC: [ConfigChange("retention.ms", SET, "many")]})
    incremental_alter_configs(
        cluster.view, {ConfigResource(ResourceType.TOPIC, "u"): [ConfigChange("retention.ms", SET, "1")]}
    )
    assert asked.changes == []


def test_the_older_request_does_not_tell_what_it_removes_without_a_name(cluster: Harness, asked: Asked) -> None:
    cluster.create("t", 1, 1)
    cluster.configure("t", "cleanup.policy", "compact")
    asked.changes.clear()
    result = legacy_alter_configs(cluster.view, {TOPIC: {"retention.ms": "7"}})
    assert result.response == {TOPIC: None} and len([*result.records]) == 2
    assert asked.changes == [(ResourceType.TOPIC, "t", {"retention.ms": "7"})]


def test_brokers_and_groups_are_judged_too(cluster: Harness, asked: Asked) -> None:
    group = ConfigResource(ResourceType.GROUP, "g")
    everybody = ConfigResource(ResourceType.BROKER, "")
    incremental_alter_configs(
        cluster.view,
        {
            group: [ConfigChange("consumer.session.timeout.ms", SET, "50000")],
            everybody: [ConfigChange("log.retention.ms", SET, "9")],
        },
    )
    assert asked.changes == [
        (ResourceType.GROUP, "g", {"consumer.session.timeout.ms": "50000"}),
        (ResourceType.BROKER, "", {"log.retention.ms": "9"}),
    ]
