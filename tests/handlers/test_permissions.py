"""Each API that brokers answer: without any permission, with all but the one that it needs, and with all.

That proves the table (``handlers.common.permissions``): a row that nothing asks fails, and so does an operation that is
asked without a row. A denied request changes nothing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.common.permissions import BROKER_PERMISSIONS, PERMISSIONS, Permission, Shown
from kbroker.handlers.registration import BROKER, Forwarding, registrations
from kbroker.wire.messages.consumer_groups import ConsumerGroupDescribeRequest
from tests.handlers.permission_cases import (
    ABSENT,
    CASES,
    KEYS,
    MISSING,
    NAMES,
    SHARE_ROWS,
    TOPIC,
    Case,
    Told,
    World,
    denials,
    elsewhere,
    prepare,
    user_of,
)
from tests.handlers.principals import NOBODY, Asked, connect_as, under
from tests.node.api_cases import build
from tests.node.node_harness import Client, Node, running_node
from tests.with_each import with_each

ADMIN = "admin"

UNSTABLE = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "delegation.token.secret.key": "key",
}
"""For version 6 of InitProducerId, and for delegation tokens."""

_PASSES = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}

DENIALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def error_codes(answer: Any) -> Iterator[int]:
    """All errors in an answer."""
    for each in dataclasses.fields(answer):
        value = getattr(answer, each.name)
        if each.name.endswith("error_code"):
            yield value
        for entry in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(entry):
                yield from error_codes(entry)


FIRST_WITH_IDS = {"Produce": 13, "Fetch": 13, "OffsetCommit": 10, "OffsetFetch": 10}
"""The versions in which topics are named by their ids."""


def without_names(answer: Any) -> str:
    """An answer for people, in which what was asked for has no name."""
    text = re.sub(r"<memory at \w+>", "BYTES", repr(answer))
    for name in (*NAMES, ABSENT):
        text = text.replace(repr(name), "NAME")
    return re.sub(r"missing-x-\d+", "NAME", text)


async def prepared_on(node: Node) -> World:
    """A world on a node whose listener of clients counts as one with SASL: only there are delegation tokens."""
    node.broker.config.listener_security_protocol_map["PLAINTEXT"] = "SASL_PLAINTEXT"
    return await prepared(await node.connect())


async def prepared(client: Client) -> World:
    """A world on the node that a client is connected to."""

    async def ask(api: str, told: Told) -> Any:
        entry = registrations(BROKER)[KEYS[api]]
        while True:
            version = 3 if api == "AddPartitionsToTxn" else entry.versions.highest
            answer = await client.ask(build(entry.request_class, version, told), version)
            codes = set(error_codes(answer))
            if not codes & _PASSES:
                assert not any(codes), answer
                return answer
            await trio.lowlevel.checkpoint()

    return await prepare(ask)


def versions_of(case: Case, *, unstable: bool = True) -> Iterator[int]:
    """The versions of a case that are served."""
    served = registrations(BROKER, unstable=unstable)[KEYS[case.api]].versions
    yield from range(max(served.lowest, case.lowest), min(served.highest, case.highest) + 1)


def state(node: Node) -> Any:
    """Everything that a request could have changed: the topics and the records in the logs."""
    services = node.broker.services
    ends = {
        name: (partition.log.log_start_offset, partition.log.log_end_offset)
        for name, partition in services.replica_manager.partitions.items()
        if partition.has_log
    }
    return ends, sorted(services.metadata.image.topics.by_name)


def check_denied(case: Case, permission: Permission, answer: Any, version: int) -> None:
    """The answer shows that a permission is missing, and how the row says."""
    where = f"{case.id} v{version} without {permission.operation.name} {permission.resource_type.name}: {answer}"
    codes = set(error_codes(answer))
    if permission.shown is Shown.OPERATIONS:
        assert answer.cluster_authorized_operations == 0, where
    elif permission.shown is Shown.HIDDEN or (case.api == "DescribeLogDirs" and version < 3):
        assert not codes & DENIALS, where
    elif permission.shown is Shown.STATUS:
        assert "Unauthorized to CREATE" in repr(answer), where
    else:
        assert permission.error in codes, where
    if case.hidden and permission.shown is not Shown.ENTRY:
        assert case.hidden not in repr(answer), where


def test_the_table_has_each_api_that_brokers_answer() -> None:
    answered = {
        name
        for name, key in KEYS.items()
        if key in registrations(BROKER) and registrations(BROKER)[key].forwarding is Forwarding.NONE
    }
    assert answered - {"DescribeAcls"} == set(BROKER_PERMISSIONS)
    assert set(BROKER_PERMISSIONS) == {case.api for case in CASES}
    assert set(PERMISSIONS) >= set(BROKER_PERMISSIONS)


@with_each(BROKER_PERMISSIONS)
def test_each_row_of_an_api_has_a_case(api: str) -> None:
    rows = {row for row in range(len(BROKER_PERMISSIONS[api])) if (api, row) not in SHARE_ROWS}
    assert {row for case in CASES if case.api == api for row in case.rows} == rows


async def test_each_api_is_denied_without_its_permissions_and_changes_nothing(tmp_path: Path) -> None:
    async with running_node(tmp_path, **UNSTABLE) as node:
        world = await prepared_on(node)
        authorizer = under(node)
        before = state(node)
        clients = {NOBODY: await connect_as(node, NOBODY)}
        for case in CASES:
            for permission in case.permissions():
                denied = denials(permission)
                user = user_of(denied)
                if user not in clients:
                    authorizer.deny(user, *denied)
                    clients[user] = await connect_as(node, user)
                if case.changes and permission.shown is Shown.HIDDEN:
                    continue
                authorizer.audited.clear()
                for version in versions_of(case):
                    answer = await clients[user].ask(case.request(world, version), version)
                    check_denied(case, permission, answer, version)
                if permission.shown is Shown.STATUS:
                    before = state(node)  # the rest of the request is served
                if permission.shown is Shown.HIDDEN:  # nobody has named what is left out: no news
                    assert not any(not line[0] for line in authorizer.audited), case.id
            for version in versions_of(case):
                answer = await clients[NOBODY].ask(case.request(world, version), version)
                for permission in case.permissions()[:1]:
                    check_denied(case, permission, answer, version)
            assert state(node) == before, case.id


async def test_each_api_asks_what_its_rows_say_and_no_more(tmp_path: Path) -> None:
    """With all permissions, and with each of those that do as well as another instead of it."""
    async with running_node(tmp_path, **UNSTABLE) as node:
        world = await prepared_on(node)
        authorizer = under(node)
        asked: dict[str, set[Any]] = {api: set() for api in BROKER_PERMISSIONS}
        for case in CASES:
            users = {ADMIN: frozenset[Asked]()}
            for permission in case.permissions():
                for enough in denials(permission):
                    denied = denials(permission) - {enough}
                    users[user_of(denied)] = denied
            for user, denied in users.items():
                authorizer.deny(user, *denied)
                client = await connect_as(node, user)
                authorizer.asked.clear()
                authorizer.audited.clear()
                authorizer.asked_by_type.clear()
                for version in versions_of(case):
                    answer = await client.ask(case.request(world, version), version)
                    assert not set(error_codes(answer)) & DENIALS, (case.id, user, version, answer)
                await client.stream.aclose()
                # What an answer tells of authorized operations is asked, too, and is no news for the audit log.
                heard = {line[2] for line in authorizer.audited if line[4] == case.api} | authorizer.asked_by_type
                asked[case.api] |= heard | (denied & {line[1] for line in authorizer.asked})
                # A topic that Metadata creates is created by a request of its own.
                heard_of = {line[4] for line in authorizer.audited} - {"CreateTopics"}
                assert heard_of <= {case.api}
                assert not any(not line[0] for line in authorizer.audited), case.id
        for api, permissions in BROKER_PERMISSIONS.items():
            rows = [permission for row, permission in enumerate(permissions) if (api, row) not in SHARE_ROWS]
            assert asked[api] >= {each for permission in rows for each in denials(permission)}, api
            assert asked[api] <= {each for permission in permissions for each in denials(permission)}, api


async def test_who_may_do_nothing_does_not_learn_what_there_is(tmp_path: Path) -> None:
    """Where topics are named: their ids are no secret, in Apache Kafka either."""
    async with running_node(tmp_path, **UNSTABLE) as node:
        world = await prepared_on(node)
        under(node)
        client = await connect_as(node, NOBODY)
        compared = 0
        for case in CASES:
            for version in versions_of(case):
                if case.name == "id" or version >= FIRST_WITH_IDS.get(case.api, 99):
                    continue
                told = case.told(world)
                there = await client.ask(case.request(world, version, told), version)
                answer = await client.ask(case.request(world, version, elsewhere(told)), version)
                assert without_names(there) == without_names(answer), (case.id, version)
                compared += 1
        assert compared > 100


@pytest.mark.parametrize("denied", [False, True])
async def test_a_regular_expression_matches_what_the_principal_may_describe(tmp_path: Path, denied: bool) -> None:
    async with running_node(tmp_path, **UNSTABLE) as node:
        world = await prepared_on(node)
        authorizer = under(node)
        case = next(case for case in CASES if case.id == "ConsumerGroupHeartbeat-regex")
        authorizer.deny("bob", *(denials(case.permissions()[1]) if denied else ()))
        client = await connect_as(node, "bob")
        request = case.request(world, 1)
        joined = await client.ask(request, 1)
        assert joined.error_code == 0
        request.member_epoch, request.topic_partitions = joined.member_epoch, None
        request.subscribed_topic_regex, request.rebalance_timeout_ms = None, -1
        # The expressions are resolved behind the first heartbeat; a group that sees nothing stays at its epoch.
        answer = await client.ask(request, 1)
        asked = [line for line in authorizer.asked if line[1] in denials(case.permissions()[1])]
        assert {name for _, _, name in asked} == {TOPIC}
        epochs = answer.member_epoch - joined.member_epoch
        described = await (await node.connect()).ask(
            build(ConsumerGroupDescribeRequest, 1, {"group_ids": [request.group_id]}), 1
        )
        member = described.groups[0].members[0]
        topics = {each.topic_name for each in member.target_assignment.topic_partitions}
        assert (epochs, topics) == ((0, set()) if denied else (1, {TOPIC}))


async def test_nothing_is_created_that_may_not_be(node: Node) -> None:
    authorizer = under(node)
    case = next(case for case in CASES if case.id == "Metadata-created")
    authorizer.deny("bob", *denials(case.permissions()[0]))
    client = await connect_as(node, "bob")
    answer = await client.ask(case.request(World(), 13), 13)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = node.broker.services.metadata.image.topics.by_name
    assert not any(name.startswith(MISSING) for name in topics)
    authorizer.deny("bob")
    answer = await client.ask(case.request(World(), 13), 13)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = node.broker.services.metadata.image.topics.by_name
    assert any(name.startswith(MISSING) for name in topics)
