"""Requests of the classic group APIs that a broker should refuse, and some that it should not, in every version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from compat_tests.groups.wire_cases import AtVersion, Make, cases_of
from compat_tests.groups.wire_world import EMPTY_ASSIGNMENT, Classic, World
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

LONG = "g" * 300
LONGEST = "g" * 32_767


def at_least(since: int, make: Make) -> Make:
    """The request from that version on."""
    return lambda version: make(version) if version >= since else None


@cases_of("JoinGroup")
def join_cases(world: World) -> Iterator[tuple[str, Make]]:
    new, stable = world.fresh, world.stable

    def join(group: str | None = None, since: int = 0, **fields: Any) -> Make:
        return at_least(since, lambda _: world.join_request(new() if group is None else group, **fields))

    yield "empty group id", join("")
    yield "long group id", lambda _: world.join_request(LONG + new())
    yield "longest group id", join(LONGEST, session_timeout_ms=1)
    yield "session timeout too short", join(session_timeout_ms=10)
    yield "session timeout too long", join(session_timeout_ms=10_000_000)
    yield "session timeout zero", join(session_timeout_ms=0)
    yield "session timeout negative", join(session_timeout_ms=-1)
    yield "rebalance timeout negative", join(rebalance_timeout_ms=-5)
    yield "rebalance timeout zero", join(rebalance_timeout_ms=0)
    yield "unknown member, unknown group", join(member_id="nobody")
    yield "unknown member, unknown group, instance", join(since=5, member_id="nobody", group_instance_id="i")
    yield "new member", join()
    yield "new static member", join(since=5, group_instance_id="one")
    yield "empty instance id", join(since=5, group_instance_id="")
    yield "odd instance id", join(since=5, group_instance_id="a b/ä")
    yield "long instance id", join(since=5, group_instance_id=LONG)
    yield "no protocols", join(protocols=[])
    yield "no protocol type", join(protocol_type="")
    yield "neither", join(protocol_type="", protocols=[])
    yield "unreadable metadata", join(protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\xff" * 3)])
    yield "no metadata", join(protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")])
    yield "empty name of a protocol", join(protocols=[JoinGroupRequestProtocol(name="", metadata=b"x")])
    # Apache Kafka does not answer at all to versions that join at once.
    yield "protocol named twice", join(since=4, protocols=world.subscription() * 2)
    yield (
        "other protocol type, new group",
        join(protocol_type="connect", protocols=[JoinGroupRequestProtocol(name="eager", metadata=b"x")]),
    )
    yield "unknown member", join(stable.group, member_id="nobody")
    yield "other protocol type", join(stable.group, protocol_type="connect")
    yield "no protocol type into a group", join(stable.group, protocol_type="")
    yield "no protocols into a group", join(stable.group, protocols=[])
    yield "other assignor", join(stable.group, protocols=[JoinGroupRequestProtocol(name="other", metadata=b"")])
    yield "fenced instance", join(stable.group, since=5, member_id="nobody", group_instance_id="inst")
    yield "unknown instance", join(stable.group, since=5, member_id="nobody", group_instance_id="nobody")
    yield (
        "unknown instance, known member",
        join(stable.group, since=5, member_id=stable.member_id, group_instance_id="nobody"),
    )
    yield "group of offsets only, unknown member", join(world.empty, member_id="nobody")

    def rejoin(instance: str | None = None, **fields: Any) -> Make:
        def make(version: int) -> Any:
            if instance and version < 5:
                return None
            one = world.new_stable(instance=instance)
            return world.join_request(one.group, member_id=one.member_id, group_instance_id=instance, **fields)

        return make

    yield "leader again", rejoin()
    yield "leader again, other metadata", rejoin(protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0x")])
    yield "leader again, other assignor", rejoin(protocols=[JoinGroupRequestProtocol(name="other", metadata=b"")])
    yield "leader again, other protocol type", rejoin(protocol_type="connect")
    yield "leader again, session timeout too short", rejoin(session_timeout_ms=10)
    yield "static leader again", rejoin("one")

    def restart(**fields: Any) -> Make:
        def make(version: int) -> Any:
            one = world.new_stable(instance="one")
            return world.join_request(one.group, group_instance_id="one", **fields)

        return at_least(5, make)

    yield "static member restarts", restart()
    yield (
        "static member restarts with other metadata",
        restart(protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0x")]),
    )
    yield (
        "static member restarts with another assignor",
        restart(protocols=[JoinGroupRequestProtocol(name="other", metadata=b"")]),
    )

    def two_steps(**fields: Any) -> Make:
        def make(version: int) -> Any:
            group = new()

            def second(told: Sequence[Any]) -> Any:
                return world.join_request(group, member_id=told[0].member_id, **fields)

            return [world.join_request(group), second]

        return at_least(4, make)

    yield "member id required", two_steps()
    yield "member id required, then another session timeout", two_steps(session_timeout_ms=10)
    yield "member id required, then another type", two_steps(protocol_type="connect")
    yield "member id required, then static", at_least(5, two_steps(group_instance_id="one"))
    yield "completing: the same again", lambda _: again(world, world.new_completing())


def again(world: World, one: Classic) -> Any:
    """The member joins as it has joined."""
    return world.join_request(one.group, member_id=one.member_id)


@cases_of("SyncGroup")
def sync_cases(world: World) -> Iterator[tuple[str, Make]]:
    def sync(group: str | Classic, since: int = 0, **fields: Any) -> Make:
        if isinstance(group, Classic):
            fields = {"member_id": group.member_id, "generation_id": group.generation, **fields}
            group = group.group
        values = {
            "generation_id": 1,
            "member_id": "nobody",
            "protocol_type": "consumer",
            "protocol_name": "range",
            **fields,
        }
        return at_least(since, lambda _: SyncGroupRequest(group_id=group, **values))

    stable, new = world.stable, world.fresh
    yield "empty group id", sync("")
    yield "unknown group", lambda version: sync(new())(version)
    yield "unknown member", sync(stable, member_id="nobody")
    yield "empty member id", sync(stable, member_id="")
    yield "older generation", sync(stable, generation_id=0)
    yield "newer generation", sync(stable, generation_id=9)
    yield "negative generation", sync(stable, generation_id=-1)
    yield "fenced instance", sync(stable, since=3, member_id="nobody", group_instance_id="inst")
    yield "unknown instance", sync(stable, since=3, group_instance_id="nobody")
    yield "other protocol", sync(stable, since=5, protocol_name="other")
    yield "other protocol type", sync(stable, since=5, protocol_type="connect")
    yield "no protocol", sync(stable, since=5, protocol_name=None)
    yield "no protocol type", sync(stable, since=5, protocol_type=None)
    yield "empty protocol", sync(stable, since=5, protocol_name="")
    yield "group without members", sync(world.empty)
    yield "again", sync(stable)
    yield "preparing", lambda version: sync(world.new_preparing())(version)
    yield "preparing, unknown member", lambda version: sync(world.new_preparing(), member_id="nobody")(version)

    def complete(*assignments: tuple[str, bytes], **fields: Any) -> Make:
        def make(version: int) -> Any:
            one = world.new_completing()
            made = [
                SyncGroupRequestAssignment(member_id=member or one.member_id, assignment=assignment)
                for member, assignment in assignments
            ]
            first = sync(one, assignments=made, **fields)(version)
            return [first, sync(one)(version), DescribeGroupsRequest(groups=[one.group])]

        return make

    yield "completing", complete(("", EMPTY_ASSIGNMENT))
    yield "completing, no assignments", complete()
    yield "completing, for an unknown member", complete(("nobody", b"x"))
    yield "completing, twice for one member", complete(("", b"x"), ("", b"y"))
    yield "completing, unreadable assignment", complete(("", b"x"))
    yield "completing, empty assignment", complete(("", b""))
    yield "completing, older generation", complete(generation_id=0)
    yield "completing, unknown member", complete(member_id="nobody")


@cases_of("Heartbeat")
def heartbeat_cases(world: World) -> Iterator[tuple[str, Make]]:
    def beat(group: str | Classic, since: int = 0, **fields: Any) -> Make:
        if isinstance(group, Classic):
            fields = {"member_id": group.member_id, "generation_id": group.generation, **fields}
            group = group.group
        values = {"generation_id": 1, "member_id": "nobody", **fields}
        return at_least(since, lambda _: HeartbeatRequest(group_id=group, **values))

    stable = world.stable
    yield "empty group id", beat("")
    yield "unknown group", lambda version: beat(world.fresh())(version)
    yield "unknown member", beat(stable, member_id="nobody")
    yield "empty member id", beat(stable, member_id="")
    yield "older generation", beat(stable, generation_id=0)
    yield "newer generation", beat(stable, generation_id=9)
    yield "negative generation", beat(stable, generation_id=-1)
    yield "fenced instance", beat(stable, since=3, member_id="nobody", group_instance_id="inst")
    yield "unknown instance", beat(stable, since=3, group_instance_id="nobody")
    yield "empty instance", beat(stable, since=3, group_instance_id="")
    yield "group without members", beat(world.empty)
    yield "good", beat(stable)
    yield "completing", lambda version: beat(world.new_completing())(version)
    yield "completing, older generation", lambda version: beat(world.new_completing(), generation_id=0)(version)
    yield "preparing", lambda version: beat(world.new_preparing())(version)
    yield "preparing, unknown member", lambda version: beat(world.new_preparing(), member_id="nobody")(version)
    yield "preparing, newer generation", lambda version: beat(world.new_preparing(), generation_id=2)(version)


def leave_request(version: int, group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    """LeaveGroup of (member id, instance id) pairs, of which old versions take the first."""
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id=members[0][0])
    named = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
    return LeaveGroupRequest(group_id=group, members=named)


@cases_of("LeaveGroup")
def leave_cases(world: World) -> Iterator[tuple[str, Make]]:
    def leave(group: str, *members: tuple[str, str | None], since: int = 0) -> Make:
        return at_least(since, lambda version: leave_request(version, group, *(members or (("nobody", None),))))

    stable = world.stable.group
    yield "empty group id", leave("")
    yield "unknown group", lambda version: leave(world.fresh())(version)
    yield "unknown member", leave(stable)
    yield "empty member id", leave(stable, ("", None))
    yield "fenced instance", leave(stable, ("nobody", "inst"), since=3)
    yield "unknown instance", leave(stable, ("", "nobody"), since=3)
    yield "unknown instance, known member", leave(stable, (world.stable.member_id, "nobody"), since=3)
    yield "group without members", leave(world.empty)
    yield "nobody named", at_least(3, lambda _: LeaveGroupRequest(group_id=stable))

    def and_look(make_group: Any, *others: tuple[str, str | None], instance: str | None = None) -> Make:
        def make(version: int) -> Any:
            one = make_group()
            first = ("", instance) if instance else (one.member_id, None)
            return [
                leave_request(version, one.group, first, *others),
                leave_request(version, one.group, first),
                DescribeGroupsRequest(groups=[one.group]),
            ]

        return make

    yield "stable", and_look(world.new_stable)
    yield "completing", and_look(world.new_completing)
    yield "preparing", and_look(world.new_preparing)
    yield "with others", at_least(3, and_look(world.new_stable, ("nobody", None), ("", "nobody"), ("", None)))
    yield "static by its name", at_least(3, and_look(lambda: world.new_stable(instance="one"), instance="one"))

    def pending(version: int) -> Any:
        group = world.fresh()
        told = world.ask(world.join_request(group), 4)
        return [
            leave_request(version, group, (told.member_id, None)),
            leave_request(version, group, (told.member_id, None)),
        ]

    yield "member id given, not yet joined", pending


@cases_of("DescribeGroups")
def describe_cases(world: World) -> Iterator[tuple[str, Make]]:
    def describe(*groups: str, since: int = 0, **fields: Any) -> Make:
        return at_least(since, lambda _: DescribeGroupsRequest(groups=list(groups), **fields))

    stable = world.stable.group
    yield "none", describe()
    yield "empty group id", describe("")
    yield "unknown", lambda version: describe(world.fresh())(version)
    yield "long", describe(LONGEST)
    yield "stable", describe(stable)
    yield "named twice", describe(stable, stable)
    yield "group without members", describe(world.empty)
    yield "preparing", lambda version: describe(world.new_preparing().group)(version)
    yield "completing", lambda version: describe(world.new_completing().group)(version)
    yield (
        "operations",
        lambda version: describe(stable, world.empty, world.fresh(), since=3, include_authorized_operations=True)(
            version
        ),
    )
    yield (
        "of Connect",
        lambda version: describe(
            world.new_stable(
                protocol_type="connect", protocols=[JoinGroupRequestProtocol(name="eager", metadata=b"x")]
            ).group
        )(version),
    )


@cases_of("DeleteGroups")
def delete_cases(world: World) -> Iterator[tuple[str, Make]]:
    def delete(*groups: str) -> Make:
        return lambda _: DeleteGroupsRequest(groups_names=list(groups))

    yield "none", delete()
    yield "empty, unknown, stable", lambda version: delete("", world.fresh(), world.stable.group)(version)
    yield "named twice", delete("gone", "gone")
    yield "long", delete(LONGEST)
    yield (
        "preparing, completing",
        lambda version: delete(world.new_preparing().group, world.new_completing().group)(version),
    )

    def twice(version: int) -> Any:
        group = world.new_empty()
        return [delete(group)(version), delete(group)(version), DescribeGroupsRequest(groups=[group])]

    yield "offsets only", twice

    def after_leaving(version: int) -> Any:
        one = world.new_stable()
        return [
            AtVersion(leave_request(5, one.group, (one.member_id, None)), 5),
            delete(one.group)(version),
            DescribeGroupsRequest(groups=[one.group]),
        ]

    yield "its last member left", after_leaving


@cases_of("ListGroups")
def list_cases(world: World) -> Iterator[tuple[str, Make]]:
    for make_group in (world.new_preparing, world.new_completing):
        make_group(prefix=f"listed-{make_group.__name__}")

    def listing(since: int = 0, **filters: Any) -> Make:
        return at_least(since, lambda _: ListGroupsRequest(**filters))

    yield "all", listing()
    yield "unknown state", listing(since=4, states_filter=["Nonsense"])
    yield "states", listing(since=4, states_filter=["Stable", "Nonsense"])
    yield "states in other letters", listing(since=4, states_filter=["STABLE"])
    yield "state of the old", listing(since=4, states_filter=["stable"])
    yield "empty", listing(since=4, states_filter=["Empty"])
    yield "rebalancing", listing(since=4, states_filter=["PreparingRebalance", "CompletingRebalance"])
    yield "dead", listing(since=4, states_filter=["Dead"])
    yield "state of consumer groups", listing(since=4, states_filter=["Assigning", "Reconciling"])
    yield "empty name of a state", listing(since=4, states_filter=[""])
    yield "unknown type", listing(since=5, types_filter=["Nonsense"])
    yield "unknown and known type", listing(since=5, types_filter=["Nonsense", "classic"])
    yield "share", listing(since=5, types_filter=["share"])
    yield "classic", listing(since=5, types_filter=["classic"])
    yield "types in other letters", listing(since=5, types_filter=["CLASSIC"])
    yield "consumer", listing(since=5, types_filter=["consumer"])
    yield "stable and classic", listing(since=5, states_filter=["Stable"], types_filter=["Classic"])
    yield "empty name of a type", listing(since=5, types_filter=[""])


@cases_of("FindCoordinator")
def find_cases(world: World) -> Iterator[tuple[str, Make]]:
    def find(*keys: str, since: int = 0, key_type: int = 0) -> Make:
        def make(version: int) -> Any:
            if version < 4:
                return FindCoordinatorRequest(key=keys[0], key_type=key_type if version else 0) if keys else None
            return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)

        return at_least(since, make)

    yield "groups", find(world.stable.group, world.empty)
    yield "named twice", find(world.empty, world.empty)
    yield "empty group id", find("")
    yield "long", find(LONGEST)
    yield "unknown key type", find("x", since=1, key_type=9)
    yield "negative key type", find("x", since=1, key_type=-1)
    yield "no keys", find(since=4)
    yield "share, no such key", find("x", since=4, key_type=2)
