"""Requests about groups of KIP-848's protocol that a broker should refuse, and some that it should not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat_tests.groups.wire_cases import CLASSIC_ON_MODERN, AtVersion, Make, cases_of
from compat_tests.groups.wire_classic import LONG, leave_request
from compat_tests.groups.wire_offsets import UNKNOWN_ID, Offsets
from compat_tests.groups.wire_world import Modern, World
from kbroker.wire.messages.classic_groups import HeartbeatRequest, JoinGroupRequestProtocol, SyncGroupRequest
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from kbroker.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kbroker.wire.registry import API_KEYS


@cases_of("ConsumerGroupHeartbeat")
def heartbeat_cases(world: World) -> Iterator[tuple[str, Make]]:
    def join(group: str | None = None, since: int = 0, **fields: Any) -> Make:
        def make(version: int) -> Any:
            return world.beat_request(world.fresh() if group is None else group, **fields)

        return lambda version: make(version) if version >= since else None

    yield "join: empty group id", join("")
    yield "join: blank group id", join(" ")
    yield "join: long group id", lambda _: world.beat_request(LONG + world.fresh())
    yield "join: empty member id", join(member_id="")
    yield "join: a member id of its own", join(member_id="some-member")
    yield "join: long member id", join(member_id=LONG)
    yield "join: empty instance id", join(instance_id="")
    yield "join: blank instance id", join(instance_id=" ")
    yield "join: long instance id", join(instance_id=LONG)
    yield "join: empty rack id", join(rack_id="")
    yield "join: no rebalance timeout", join(rebalance_timeout_ms=-1)
    yield "join: rebalance timeout zero", join(rebalance_timeout_ms=0)
    yield "join: rebalance timeout negative", join(rebalance_timeout_ms=-5)
    yield "join: no topics", join(subscribed_topic_names=None)
    yield "join: empty list of topics", join(subscribed_topic_names=[])
    yield "join: unknown topic", join(subscribed_topic_names=["no-such-topic"])
    yield "join: bad topic name", join(subscribed_topic_names=["a b"])
    yield "join: empty topic name", join(subscribed_topic_names=[""])
    yield "join: topic named twice", join(subscribed_topic_names=[world.topic, world.topic])
    yield "join: no partitions told", join(topic_partitions=None)
    owned = [HeartbeatTopicPartitions(topic_id=world.topic_id, partitions=[0])]
    yield "join: with partitions", join(topic_partitions=owned)
    yield "join: unknown assignor", join(server_assignor="nonsense")
    yield "join: empty assignor", join(server_assignor="")
    yield "join: assignor in other letters", join(server_assignor="Uniform")
    yield "join: range", join(server_assignor="range")
    yield "join: uniform", join(server_assignor="uniform")

    def regex(pattern: str | None, **fields: Any) -> Make:
        return join(since=1, subscribed_topic_regex=pattern, **{"subscribed_topic_names": None, **fields})

    yield "join: regex", regex(f"topic-{world.mark}.*")
    yield "join: regex that is whole", regex("topic")
    yield "join: regex and topics", regex("nothing.*", subscribed_topic_names=[world.topic])
    yield "join: empty regex", regex("")
    yield "join: empty regex and topics", regex("", subscribed_topic_names=[world.topic])
    refused = (
        "[",
        "(",
        "*",
        "a{2,1}",
        "a{1001}",
        r"(a)\1",
        "(?=a)",
        "(?<!a)b",
        "a++",
        "\\",
        r"\pN[",
        "(?P<n>a)(?P<n>b)",
    )
    for bad in refused:
        yield f"join: regex {bad}", regex(bad)
    yield "join: epoch -3", join(member_epoch=-3)
    yield "join: neither epoch nor group", join(member_epoch=5)

    stable, offsets = world.stable.group, world.empty
    # Which of two members gets which partition is up to Java's hash maps.
    yield (
        "classic group with a member",
        lambda version: world.beat_request(world.new_stable().group, subscribed_topic_names=["no-such-topic"]),
    )
    yield "classic group with a member, known by its id", lambda version: world.beat_request(stable, member_epoch=1)
    yield (
        "classic group of Connect",
        lambda version: world.beat_request(
            world.new_stable(
                protocol_type="connect", protocols=[JoinGroupRequestProtocol(name="eager", metadata=b"x")]
            ).group
        ),
    )
    yield "group of offsets only", lambda version: world.beat_request(world.without_haste(world.new_empty()))
    yield "group of offsets only, epoch", lambda version: world.beat_request(offsets, member_epoch=1)

    def beat(one: Modern, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        values: dict[str, Any] = {
            "group_id": one.group,
            "member_id": one.member_id,
            "member_epoch": one.epoch,
            "instance_id": one.instance,
            **fields,
        }
        return ConsumerGroupHeartbeatRequest(**values)

    def own(instance: str | None = None, **fields: Any) -> Make:
        """Of a member of its own: what is asked may change it."""
        return lambda version: beat(world.new_modern(instance=instance), **fields)

    one, static = world.new_modern(), world.new_modern(instance="inst")
    yield "beat: nothing new", lambda version: beat(one)
    yield "beat: unknown group", lambda version: beat(one, group_id=world.fresh())
    yield "beat: empty group id", lambda version: beat(one, group_id="")
    yield "beat: unknown member", lambda version: beat(one, member_id="nobody")
    yield "beat: empty member id", lambda version: beat(one, member_id="")
    yield "beat: older epoch", lambda version: beat(one, member_epoch=one.epoch - 1)
    yield "beat: older epoch and its partitions", own(topic_partitions=owned, member_epoch=0)
    yield "beat: newer epoch", lambda version: beat(one, member_epoch=one.epoch + 7)
    yield "beat: epoch -3", lambda version: beat(one, member_epoch=-3)
    yield (
        "beat: epoch zero again",
        own(member_epoch=0, rebalance_timeout_ms=60_000, subscribed_topic_names=[world.topic], topic_partitions=[]),
    )
    yield "beat: topics again", own(subscribed_topic_names=[world.topic])
    yield "beat: other topics", own(subscribed_topic_names=["no-such-topic"])
    yield "beat: no topics any more", own(subscribed_topic_names=[])
    yield "beat: unknown assignor", own(server_assignor="nonsense")
    yield "beat: range", own(server_assignor="range")
    yield "beat: rebalance timeout negative", own(rebalance_timeout_ms=-5)
    yield "beat: empty rack", own(rack_id="")
    yield (
        "beat: partitions it has",
        own(topic_partitions=[HeartbeatTopicPartitions(topic_id=world.topic_id, partitions=[0, 1])]),
    )
    yield "beat: fewer partitions than it has", own(topic_partitions=owned)
    yield (
        "beat: a partition that there is not",
        own(topic_partitions=[HeartbeatTopicPartitions(topic_id=world.topic_id, partitions=[0, 1, 7])]),
    )
    yield (
        "beat: a topic that there is not",
        own(topic_partitions=[HeartbeatTopicPartitions(topic_id=UNKNOWN_ID, partitions=[0])]),
    )
    yield "beat: instance of a dynamic member", lambda version: beat(one, instance_id="inst")
    yield "beat: static", lambda version: beat(static)
    yield "beat: static, without its instance", lambda version: beat(static, instance_id=None)
    yield "beat: static, another instance", lambda version: beat(static, instance_id="other")
    yield "beat: static, another member", lambda version: beat(static, member_id="nobody")
    yield "leave: unknown group", lambda version: beat(one, group_id=world.fresh(), member_epoch=-1)
    yield "leave: unknown member", lambda version: beat(one, member_id="nobody", member_epoch=-1)
    yield "leave: static, unknown member", lambda version: beat(static, member_id="nobody", member_epoch=-1)
    yield "leave: for a while, no instance", lambda version: beat(one, member_epoch=-2)
    yield "leave: for a while, unknown instance", lambda version: beat(static, instance_id="other", member_epoch=-2)
    yield "leave: classic group", lambda version: beat(one, group_id=stable, member_epoch=-1)
    describe = ConsumerGroupDescribeRequest

    def scene(*steps: dict[str, Any], instance: str | None = None) -> Make:
        """Several heartbeats of one new member, or of another one in its group; then how the group looks."""

        def make(version: int) -> Any:
            member = world.new_modern(instance=instance)
            made: list[Any] = [beat(member, **step) for step in steps]
            return [*made, describe(group_ids=[member.group])]

        return make

    first = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [world.topic],
        "topic_partitions": [],
    }
    yield "leave", scene({"member_epoch": -1}, {"member_epoch": -1})
    yield "leave, then heartbeat", scene({"member_epoch": -1}, {})
    yield "static: leaves", scene({"member_epoch": -1}, instance="one")
    yield "static: leaves for a while", scene({"member_epoch": -2}, {"member_epoch": -2}, instance="one")
    yield "static: leaves for a while, then heartbeat", scene({"member_epoch": -2}, {}, instance="one")
    yield (
        "static: comes back with another id",
        scene({"member_epoch": -2}, {**first, "member_id": world.new_member_id()}, instance="one"),
    )
    yield "static: another one of its name", scene({**first, "member_id": world.new_member_id()}, instance="one")
    yield (
        "static: leaves for ever, another comes",
        scene({"member_epoch": -1}, {**first, "member_id": world.new_member_id()}, instance="one"),
    )
    yield "a second member", scene({**first, "member_id": world.new_member_id()})


@cases_of("ConsumerGroupDescribe")
def describe_cases(world: World) -> Iterator[tuple[str, Make]]:
    one, static = world.new_modern(), world.new_modern(instance="inst", rack_id="rack")

    def describe(*groups: str, **fields: Any) -> Make:
        return lambda version: ConsumerGroupDescribeRequest(group_ids=list(groups), **fields)

    yield "none", describe()
    yield "empty group id", describe("")
    yield "unknown", lambda version: describe(world.fresh())(version)
    yield "long", describe(LONG)
    yield "classic", describe(world.stable.group)
    yield "offsets only", describe(world.empty)
    yield "one member", describe(one.group)
    yield "static member", describe(static.group)
    yield "named twice", describe(one.group, one.group)
    yield "operations", describe(one.group, world.stable.group, include_authorized_operations=True)


@cases_of(CLASSIC_ON_MODERN)
def classic_on_modern(world: World) -> Iterator[tuple[str, Make]]:
    """Requests of the classic protocol to a group of the new one; each in all versions of its own API."""
    one, static = world.new_modern("modern"), world.new_modern("static", instance="inst")
    offsets = Offsets(world)

    def every(make: Make) -> Make:
        """All versions of the request's API, one after the other."""

        def in_all_versions(_: int) -> list[AtVersion]:
            made = [(make(version), version) for version in range(11)]
            low, high = next(API_KEYS[type(request).api_key].stable_versions for request, _ in made if request)
            return [AtVersion(request, version) for request, version in made if request and low <= version <= high]

        return in_all_versions

    def about(member: Modern) -> Iterator[tuple[str, Make]]:
        yield (
            "heartbeat",
            every(
                lambda version: HeartbeatRequest(
                    group_id=member.group, member_id=member.member_id, generation_id=member.epoch
                )
            ),
        )
        yield (
            "heartbeat of an unknown member",
            every(lambda version: HeartbeatRequest(group_id=member.group, member_id="nobody", generation_id=1)),
        )
        yield (
            "sync",
            every(
                lambda version: SyncGroupRequest(
                    group_id=member.group, member_id=member.member_id, generation_id=member.epoch
                )
            ),
        )
        yield (
            "leave of an unknown member",
            every(lambda version: leave_request(version, member.group, ("nobody", None))),
        )
        yield "join of an unknown member", every(lambda version: world.join_request(member.group, member_id="nobody"))
        yield (
            "join with its own id",
            every(lambda version: world.join_request(member.group, member_id=member.member_id)),
        )
        yield "join of Connect", every(lambda version: world.join_request(member.group, protocol_type="connect"))
        yield "join without protocols", every(lambda version: world.join_request(member.group, protocols=[]))
        yield (
            "join with unreadable metadata",
            every(
                lambda version: world.join_request(
                    member.group, protocols=[JoinGroupRequestProtocol(name="range", metadata=b"x")]
                )
            ),
        )
        yield "commit", every(offsets.commit(member))
        yield "commit without a member", every(offsets.commit(member.group))
        yield "commit, unknown member", every(offsets.commit(member, member_id="nobody"))
        yield "commit, newer epoch", every(offsets.commit(member, generation_id_or_member_epoch=99))
        yield "commit, older epoch", every(offsets.commit(member, generation_id_or_member_epoch=member.epoch - 1))
        yield "commit, epoch -2", every(offsets.commit(member, generation_id_or_member_epoch=-2))
        yield "fetch", every(offsets.fetch(member.group, member_id=member.member_id, member_epoch=member.epoch))
        yield "fetch, unknown member", every(offsets.fetch(member.group, since=9, member_id="nobody", member_epoch=1))
        yield (
            "fetch, newer epoch",
            every(offsets.fetch(member.group, since=9, member_id=member.member_id, member_epoch=99)),
        )
        yield (
            "fetch, older epoch",
            every(offsets.fetch(member.group, since=9, member_id=member.member_id, member_epoch=member.epoch - 1)),
        )
        yield "fetch without a member", every(offsets.fetch(member.group))
        yield "delete offsets", every(offsets.delete(member.group))
        yield "describe", every(lambda version: DescribeGroupsRequest(groups=[member.group]))
        yield "delete", every(lambda version: DeleteGroupsRequest(groups_names=[member.group]))

    for which, member in (("dynamic", one), ("static", static)):
        for name, make in about(member):
            yield f"{which}: {name}", make
    yield (
        "list",
        every(lambda version: ListGroupsRequest(types_filter=["consumer"]) if version >= 5 else ListGroupsRequest()),
    )
    yield (
        "list by state",
        every(
            lambda version: (
                ListGroupsRequest(states_filter=["stable"], types_filter=["Consumer"]) if version >= 5 else None
            )
        ),
    )
