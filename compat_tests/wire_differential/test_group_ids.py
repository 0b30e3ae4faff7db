"""Answers of every API that names a group to the empty group id and to another, before and after the coordinators'
topics exist: each version, asked of Apache Kafka 4.4.0 and of the broker under test. The answers must be equal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.brokers import ApacheBroker, Broker, KbrokerBroker
from compat_tests.clients import skip_without
from compat_tests.wire_differential.dialogue import Dialogue, differences
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from kbroker.wire.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.messages.transactions import AddOffsetsToTxnRequest, InitProducerIdRequest
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kbroker.wire.registry import API_KEYS
from tests.patience import eventually

TOPIC = "t"
TRANSACTIONAL_ID = "tx"
OPTIONS = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
"""Each topic of the coordinators has one partition, so that one look says whether it is loaded."""

Question = tuple[str, int, Any]
"""A request with its version and what to call it."""


class Asking:
    """A broker, and the requests about a group as it takes them: with its topic's id and its producer's."""

    def __init__(self, bootstrap: str) -> None:
        self.talk = Dialogue(bootstrap)
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        made = self.talk.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0]
        assert made.error_code == 0, made
        self.topic_id: Uuid = made.topic_id
        self.talk.topic_ids = {TOPIC: bytes(made.topic_id)}
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        eventually(lambda: self.talk.ask(wanted, 12).topics[0].error_code == 0, "the topic")
        self.producer_id, self.producer_epoch = 1000, 0
        self._versions = served_apis(bootstrap)

    def make_coordinators(self) -> None:
        """Have both coordinators' topics made and loaded, and the producer known."""
        for key_type, key in ((0, "g"), (1, TRANSACTIONAL_ID)):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            eventually(
                lambda find=find: self.talk.ask(find, 4).coordinators[0].error_code == 0,  # type: ignore[misc]
                f"the coordinator of {key}",
            )
        describe = DescribeGroupsRequest(groups=["g"])
        eventually(lambda: self.talk.ask(describe, 0).groups[0].error_code == 0, "the groups")
        begin = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=900_000)
        eventually(lambda: self.talk.ask(begin, 4).error_code == 0, "the transactions")
        begun = self.talk.ask(begin, 4)
        self.producer_id, self.producer_epoch = begun.producer_id, begun.producer_epoch

    def versions(self, request: Any) -> range:
        """The versions in which the broker serves a request's API."""
        low, high = self._versions[type(request).api_key]
        return range(max(low, API_KEYS[type(request).api_key].valid_versions.lowest), high + 1)

    def questions(self, group: str, *, is_found: bool) -> Iterator[Question]:
        """Everything there is to ask about a group; who coordinates it only where that makes no topic."""
        for name, kind, made in (
            *self._offsets(group),
            *self._transactions(group),
            *self._members(group),
            *self._administration(group),
        ):
            for version in self.versions(kind()):
                request = made(version)
                if request is not None:
                    yield name, version, request
        if is_found:
            for version in self.versions(FindCoordinatorRequest()):
                for key_type in (0, 1) if version else (0,):
                    keys = {"coordinator_keys": [group]} if version > 3 else {"key": group}
                    yield f"find {key_type}", version, FindCoordinatorRequest(key_type=key_type, **keys)

    def _offsets(self, group: str) -> Iterator[tuple[str, type[Any], Any]]:
        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
        for generation, member in ((-1, ""), (-1, "m"), (1, "m")):
            for topic in (TOPIC, "missing"):
                topic_id = self.topic_id if topic == TOPIC else ZERO_UUID
                asked = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[place])]
                yield (
                    f"commit to {topic} as {member!r} of {generation}",
                    OffsetCommitRequest,
                    lambda _, asked=asked, generation=generation, member=member: OffsetCommitRequest(
                        group_id=group, topics=asked, generation_id_or_member_epoch=generation, member_id=member
                    ),
                )
        yield "commit of nothing", OffsetCommitRequest, lambda _: OffsetCommitRequest(group_id=group)
        for named in (TOPIC, "missing", None):
            for stable in (False, True):
                yield (
                    f"fetch of {named or 'all'}, stable {stable}",
                    OffsetFetchRequest,
                    lambda version, topic=named, stable=stable: self._fetch(group, topic, stable, version),
                )
        yield (
            "fetch as a member",
            OffsetFetchRequest,
            lambda version: (
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, member_id="m", member_epoch=3)])
                if version >= 9
                else None
            ),
        )
        for topic in (TOPIC, "missing"):
            wanted = [
                OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            ]
            yield (
                f"delete of {topic}",
                OffsetDeleteRequest,
                lambda _, wanted=wanted: OffsetDeleteRequest(group_id=group, topics=wanted),
            )
        yield "delete of nothing", OffsetDeleteRequest, lambda _: OffsetDeleteRequest(group_id=group)

    def _fetch(self, group: str, topic: str | None, stable: bool, version: int) -> OffsetFetchRequest | None:
        if (topic is None and version < 2) or (stable and version < 7):
            return None
        if version < 8:
            one = [OffsetFetchRequestTopic(name=topic or "", partition_indexes=[0])]
            return OffsetFetchRequest(group_id=group, topics=None if topic is None else one, require_stable=stable)
        topic_id = self.topic_id if topic == TOPIC else ZERO_UUID
        other = [OffsetFetchRequestTopics(name=topic or "", topic_id=topic_id, partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id=group, topics=None if topic is None else other)
        return OffsetFetchRequest(groups=[asked], require_stable=stable)

    def _transactions(self, group: str) -> Iterator[tuple[str, type[Any], Any]]:
        producer: dict[str, Any] = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=6)
        for generation, member in ((-1, ""), (-1, "m"), (3, "m")):
            for transactional_id in (TRANSACTIONAL_ID, ""):
                for topic in (TOPIC, "missing"):
                    asked = [TxnOffsetCommitRequestTopic(name=topic, partitions=[place])]
                    yield (
                        f"commit to {topic} as {member!r} of {generation} in {transactional_id!r}",
                        TxnOffsetCommitRequest,
                        lambda version, asked=asked, told=transactional_id, generation=generation, member=member: (
                            TxnOffsetCommitRequest(
                                transactional_id=told,
                                group_id=group,
                                generation_id_or_member_epoch=generation,
                                member_id=member,
                                topics=asked,
                                **producer,
                            )
                            if version >= 3 or not member
                            else None
                        ),
                    )
        yield (
            "offsets into the transaction",
            AddOffsetsToTxnRequest,
            lambda _: AddOffsetsToTxnRequest(transactional_id=TRANSACTIONAL_ID, group_id=group, **producer),
        )

    def _members(self, group: str) -> Iterator[tuple[str, type[Any], Any]]:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        for timeout in (6000, 1):
            yield (
                f"join with {timeout} ms",
                JoinGroupRequest,
                lambda _, timeout=timeout: JoinGroupRequest(
                    group_id=group,
                    session_timeout_ms=timeout,
                    rebalance_timeout_ms=1000,
                    protocol_type="consumer",
                    member_id="nobody",
                    protocols=protocols,
                ),
            )
        yield "sync", SyncGroupRequest, lambda _: SyncGroupRequest(group_id=group, generation_id=1, member_id="m")
        yield "heartbeat", HeartbeatRequest, lambda _: HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
        yield (
            "leave",
            LeaveGroupRequest,
            lambda version: (
                LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="m")])
                if version >= 3
                else LeaveGroupRequest(group_id=group, member_id="m")
            ),
        )
        yield (
            "heartbeat of KIP-848",
            ConsumerGroupHeartbeatRequest,
            lambda _: ConsumerGroupHeartbeatRequest(group_id=group, member_id="m" * 22, member_epoch=3),
        )

    def _administration(self, group: str) -> Iterator[tuple[str, type[Any], Any]]:
        yield (
            "describe",
            DescribeGroupsRequest,
            lambda version: DescribeGroupsRequest(groups=[group], include_authorized_operations=version >= 3),
        )
        yield (
            "describe KIP-848's",
            ConsumerGroupDescribeRequest,
            lambda _: ConsumerGroupDescribeRequest(group_ids=[group]),
        )
        yield "list", ListGroupsRequest, lambda _: ListGroupsRequest()
        yield "delete the group", DeleteGroupsRequest, lambda _: DeleteGroupsRequest(groups_names=[group])


@pytest.fixture
def pair(broker: Broker) -> Iterator[tuple[Asking, Asking]]:
    """The broker under test and the judge, without any coordinator's topic."""
    skip_without("java")
    if not isinstance(broker, ApacheBroker | KbrokerBroker):
        pytest.skip("for one node that is started anew")
    with contextlib.ExitStack() as stack:
        made = []
        for kind in (type(broker), ApacheBroker):
            node = kind(*OPTIONS)
            stack.callback(node.stop)
            made.append(Asking(node.bootstrap))
            stack.callback(made[-1].talk.close)
        yield made[0], made[1]


def found_differences(pair: tuple[Asking, Asking], group: str, *, is_found: bool) -> tuple[int, list[str]]:
    """Ask both brokers all requests about a group; their number, and a line for each difference."""
    ours, theirs = pair
    lines = []
    asked = list(zip(ours.questions(group, is_found=is_found), theirs.questions(group, is_found=is_found), strict=True))
    for (name, version, mine), (_, _, other) in asked:
        answers = ours.talk.plain(ours.talk.ask(mine, version)), theirs.talk.plain(theirs.talk.ask(other, version))
        api = API_KEYS[type(mine).api_key].name
        lines += [
            f"{api} {version}, {name}, group {group!r}: {path or 'answer'}: kbroker {us!r:.200}, Apache {them!r:.200}"
            for path, us, them in differences(*answers)
        ]
    return len(asked), lines


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "empty group ids, coordinators that do not exist yet")
def test_groups_with_and_without_coordinators(pair: tuple[Asking, Asking]) -> None:
    found: list[str] = []
    for group in ("", "g"):
        count, lines = found_differences(pair, group, is_found=False)
        assert count > 100
        found += [f"no coordinator: {line}" for line in lines]
    for each in pair:
        each.make_coordinators()
    for group in ("", "g"):
        found += found_differences(pair, group, is_found=True)[1]
    without = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    asked = ConsumerGroupDescribeRequest(group_ids=["g"])
    for each in pair:
        assert each.talk.ask(UpdateFeaturesRequest(feature_updates=[without]), 2).error_code == 0
        eventually(lambda each=each: each.talk.ask(asked, 0).groups[0].error_code == 35, "the end of KIP-848's groups")  # type: ignore[misc]
    for group in ("", "g"):
        found += [f"without KIP-848: {line}" for line in found_differences(pair, group, is_found=True)[1]]
    if found:
        pytest.fail("\n".join([f"{len(found)} differences", *found[:40]]), pytrace=False)
