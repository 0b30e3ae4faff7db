"""A topology against topics: decided partition counts, missing topics, and topologies that no topics fit."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from kbroker.cores.groups.streams.configured_topology import ConfiguredTopology, StreamsStatus, configure
from kbroker.cores.groups.streams.topology import topology_of_record, topology_record_value
from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.messages.streams_groups import (
    CopartitionGroup,
    HeartbeatSubtopology,
    HeartbeatTopology,
    KeyValue,
    TopicInfo,
)
from tests.groups.consumer_harness import FakeTopics


def topic(name: str, partitions: int = 0, configs: Mapping[str, str] = MappingProxyType({})) -> TopicInfo:
    pairs = [KeyValue(key=key, value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, topic_configs=pairs)


def subtopology(number: str, sources: list[str], **more: Any) -> HeartbeatSubtopology:
    return HeartbeatSubtopology(subtopology_id=number, source_topics=sources, **more)


def configured(subtopologies: list[HeartbeatSubtopology], **partition_counts: int) -> ConfiguredTopology:
    value = topology_record_value(HeartbeatTopology(epoch=0, subtopologies=subtopologies))
    return configure(topology_of_record(value), FakeTopics().changed(**partition_counts))


def missing(found: ConfiguredTopology) -> dict[str, int]:
    return {each.name: each.partitions for each in found.missing_topics}


def two_steps(**more: Any) -> list[HeartbeatSubtopology]:
    """A repartition of topic "in", whose reader has a store."""
    return [
        subtopology("0", ["in"], repartition_sink_topics=["r"]),
        subtopology("1", [], repartition_source_topics=[topic("r", **more)], state_changelog_topics=[topic("c")]),
    ]


def test_a_repartition_topic_is_as_wide_as_what_is_written_to_it() -> None:
    found = configured(two_steps(), **{"in": 4})
    assert missing(found) == {"r": 4, "c": 4}
    assert found.problem is not None
    assert found.problem.code is StreamsStatus.MISSING_INTERNAL_TOPICS
    assert found.problem.detail == "Internal topics are missing: c, r"
    assert [each.number_of_tasks for each in found.subtopologies.values()] == [4, 4]
    assert [each.is_stateful for each in found.subtopologies.values()] == [False, True]


def test_a_repartition_topic_may_have_a_width_of_its_own() -> None:
    assert missing(configured(two_steps(partitions=7), **{"in": 4})) == {"r": 7, "c": 7}


def test_a_topology_is_ready_when_its_topics_are_there() -> None:
    found = configured(two_steps(), **{"in": 4, "r": 4, "c": 4})
    assert found.is_ready
    assert missing(found) == {}


def test_configs_of_internal_topics_are_kept() -> None:
    found = configured(
        [subtopology("0", ["in"], state_changelog_topics=[topic("c", configs={"cleanup.policy": "compact"})])],
        **{"in": 2},
    )
    assert found.missing_topics[0].configs == (("cleanup.policy", "compact"),)
    assert found.missing_topics[0].replication_factor == -1


def test_missing_source_topics() -> None:
    found = configured([subtopology("0", ["e", "d", "c", "b", "a"])], c=1)
    assert found.problem == (
        StreamsStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, b, d and 1 additional topics are missing.",
    )
    assert found.subtopologies == {}


def test_an_internal_topic_of_another_width() -> None:
    found = configured(two_steps(), **{"in": 4, "r": 4, "c": 3})
    assert found.problem == (
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic c has different number of partitions: expected 4, found 3",
    )


def joined(*, fixed: int = 0) -> list[HeartbeatSubtopology]:
    """Topic "b", and "a" through a repartition, are joined."""
    return [
        subtopology("0", ["a"], repartition_sink_topics=["r"]),
        subtopology(
            "1",
            ["b"],
            repartition_source_topics=[topic("r", partitions=fixed)],
            copartition_groups=[CopartitionGroup(source_topics=[0], repartition_source_topics=[0])],
        ),
    ]


def test_a_repartition_topic_is_as_wide_as_what_it_is_joined_with() -> None:
    assert missing(configured(joined(), a=6, b=2)) == {"r": 2}


def test_a_width_of_its_own_does_not_fit_what_it_is_joined_with() -> None:
    found = configured(joined(fixed=3), a=6, b=2)
    assert found.problem == (
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [3] of repartition topic [r] doesn't match number of partitions [2] of the source topic.",
    )


def test_joined_source_topics_of_different_widths() -> None:
    found = configured(
        [subtopology("0", ["a", "b"], copartition_groups=[CopartitionGroup(source_topics=[0, 1])])], a=1, b=2
    )
    assert found.problem == (
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=1, b=2}]",
    )


def test_repartition_topics_that_are_joined_are_as_wide_as_the_widest() -> None:
    sinks = [
        subtopology("0", ["a"], repartition_sink_topics=["q"]),
        subtopology("1", ["b"], repartition_sink_topics=["r"]),
        subtopology(
            "2",
            [],
            repartition_source_topics=[topic("q"), topic("r")],
            copartition_groups=[CopartitionGroup(repartition_source_topics=[0, 1])],
        ),
    ]
    assert missing(configured(sinks, a=3, b=5)) == {"q": 5, "r": 5}


@pytest.mark.parametrize(
    ("subtopologies", "text"),
    [
        ([subtopology("0", ["a"]), subtopology("0", ["a"])], "Subtopology 0 is declared twice."),
        ([subtopology("0", [])], "No source topics found for subtopology 0"),
        (
            [subtopology("0", ["a"], repartition_source_topics=[topic("r")])],
            "a repartition source topic is never used as a sink topic",
        ),
        (
            [subtopology("0", [], repartition_source_topics=[topic("r")], repartition_sink_topics=["r"])],
            "There may be loops in the topology",
        ),
        (
            [subtopology("0", ["a"], copartition_groups=[CopartitionGroup(source_topics=[0, 1])])],
            "names a topic that it lacks",
        ),
        (
            [subtopology("0", ["a"], copartition_groups=[CopartitionGroup(source_topics=[-1])])],
            "names a topic that it lacks",
        ),
        (
            [subtopology("0", ["a"], repartition_source_topics=[topic("r", partitions=-1)])],
            "Repartition topic r has -1 partitions.",
        ),
    ],
)
def test_topologies_without_sense(subtopologies: list[HeartbeatSubtopology], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        configured(subtopologies, a=1)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert text in (caught.value.message or "")
