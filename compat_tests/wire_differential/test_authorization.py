"""Answers of every API that brokers answer, to users without permissions: each version, asked of Apache Kafka 4.3.1
under its StandardAuthorizer and of kbroker. The answers must be equal.

Users log in with PLAIN, and their permissions are ACLs. kbroker runs in the test's own process.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from compat_tests.apache_kafka import ApacheKafka
from compat_tests.clients import unavailable
from compat_tests.wire_differential.dialogue import Dialogue, differences
from kbroker.cli.cluster_plan import free_ports
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from kbroker.types import METADATA_TOPIC, Uuid
from kbroker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kbroker.wire.messages.sasl_handshake import SaslHandshakeRequest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests" / "node"))

from tests.handlers.permission_cases import ABSENT, CASES, GROUP, TOPIC, Case, Told, World, denials, doubled, user_of
from tests.handlers.principals import NOBODY, Asked
from tests.handlers.test_permissions import UNSTABLE, prepared, versions_of
from tests.node.node_harness import Client, running_node

SECONDS = 60
"""That only a hang takes."""

ANSWER_SECONDS = 5


def _configs(api: str, kind: int, name: str) -> Callable[[World], Told]:
    operation = {"config_operation": 0} if api == "IncrementalAlterConfigs" else {}
    configs = [{"name": "retention.ms", "value": "12345", **operation}]
    return lambda world: {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}]}


def _reassigned(world: World) -> Told:
    partitions = [{"partition_index": 0, "replicas": [1]}]
    return {"timeout_ms": 5000, "topics": [{"name": TOPIC, "partitions": partitions}]}


_ACL = {"resource_type": 2, "operation": 3, "permission_type": 3}

_RETENTION = [{"name": "retention.ms", "value": "12345"}]

FORWARDED = (
    Case(
        "CreateTopics",
        (0,),
        lambda world: {"topics": [{"name": "made-x", "num_partitions": 1, "replication_factor": 1}]},
    ),
    Case(
        "CreateTopics",
        (1,),
        lambda world: {
            "topics": [{"name": "made-x", "num_partitions": 1, "replication_factor": 1, "configs": _RETENTION}],
            "validate_only": True,
        },
        name="configs",
    ),
    Case(
        "DeleteTopics",
        (0,),
        lambda world: {"topics": [{"name": TOPIC}], "topic_names": [TOPIC], "timeout_ms": 5000},
    ),
    Case(
        "DeleteTopics",
        (0,),
        lambda world: {"topics": [{"name": None, "topic_id": world.topic_id}], "timeout_ms": 5000},
        lowest=6,
        name="id",
    ),
    Case(
        "DeleteTopics",
        (0,),
        lambda world: {"topics": [{"name": None, "topic_id": Uuid(b"a" * 16)}], "timeout_ms": 5000},
        lowest=6,
        name="unknown-id",
    ),
    Case(
        "CreatePartitions",
        (0,),
        lambda world: {"topics": [{"name": TOPIC, "count": 9, "assignments": None}], "timeout_ms": 5000},
    ),
    *(
        Case(api, (row,), _configs(api, kind, name), name=label)
        for api in ("AlterConfigs", "IncrementalAlterConfigs")
        for row, kind, name, label in ((0, 2, TOPIC, "topic"), (1, 32, GROUP, "group"), (2, 4, "1", "broker"))
    ),
    Case("IncrementalAlterConfigs", (3,), _configs("IncrementalAlterConfigs", 8, "1"), name="logger"),
    Case(
        "ElectLeaders",
        (0,),
        lambda world: {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout_ms": 5000},
    ),
    Case("AlterPartitionReassignments", (0,), _reassigned),
    Case("ListPartitionReassignments", (0,), lambda world: {"topics": None, "timeout_ms": 5000}),
    Case(
        "UpdateFeatures",
        (0,),
        lambda world: {
            "feature_updates": [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}],
            "timeout_ms": 5000,
            "validate_only": True,
        },
    ),
    Case("UnregisterBroker", (0,), lambda world: {"broker_id": 999}),
    Case(
        "DescribeQuorum",
        (0,),
        lambda world: {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]},
    ),
    Case(
        "DescribeAcls",
        (0,),
        lambda world: {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
    ),
    Case(
        "CreateAcls",
        (0,),
        lambda world: {"creations": [{**_ACL, "resource_name": TOPIC, "principal": "User:a", "host": "*"}]},
    ),
    Case(
        "DeleteAcls",
        (0,),
        lambda world: {"filters": [{"resource_type_filter": 1, "operation": 1, "permission_type": 1}]},
    ),
    Case(
        "AlterUserScramCredentials",
        (0,),
        lambda world: {"deletions": [{"name": "alice", "mechanism": 1}]},
    ),
    Case(
        "CreateDelegationToken",
        (0,),
        lambda world: {"owner_principal_type": "User", "owner_principal_name": "owner-x", "max_lifetime_ms": -1},
        lowest=3,
    ),
)
"""Those that the active controller answers."""

ASKED = (*CASES, *FORWARDED)

USERS: dict[str, frozenset[Asked]] = {
    user_of(denials(permission)): denials(permission) for case in ASKED for permission in case.permissions()
}
"""What is denied to each user; all else is allowed."""

KINDS = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)

HALF = "half"
"""A user for whom all is allowed, but nothing on what is called ``ABSENT``."""

INNARDS = "Request Request("
"""So begin messages that tell of objects in Apache Kafka's memory."""

APIS_WITH_LISTS = 17
"""APIs whose answers have something of ``ABSENT`` besides what is there."""

NOT_COMPARED = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeUserScramCredentials"}
"""These ask for no permission. The last does, but a denial has no user's name in Apache Kafka's answer, and there is no
answer at all to who asks for all users."""

ANY = re.compile(r"transaction_start_time_ms|heartbeat_interval_ms|token_id|hmac|(issue|expiry|max)_timestamp")
"""Fields whose values no two brokers share, or that are the broker's choice: kbroker's members that wait hurry."""


def _properties(listener: str, controller: str) -> dict[str, str]:
    """The same for both brokers."""
    users = " ".join(f'user_{user}="secret"' for user in ("admin", NOBODY, HALF, *USERS))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listeners": f"{listener},{controller}",
        "advertised.listeners": f"{listener},{controller}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": (
            f'{module} required username="admin" password="secret" {users};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        **UNSTABLE,
    }


def _apache() -> ApacheKafka:
    port, controller_port = free_ports(2)
    properties = _properties(f"CLIENTS://127.0.0.1:{port}", f"CONTROLLER://127.0.0.1:{controller_port}")
    return ApacheKafka(port=port, controller_port=controller_port, heap=("-Xmx512M",), properties=properties)


async def _login(address: tuple[str, int], user: str) -> Client:
    client = Client(await trio.open_tcp_stream(*address))
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode()), 2)
    assert answer.error_code == 0, answer
    return client


def _acls() -> Iterator[AclCreation]:
    for user, denied in {**USERS, HALF: frozenset[Asked]()}.items():
        for kind in KINDS:
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else "*"
            yield _acl(user, AclPermission.ALLOW, AclOperation.ALL, kind, name)
        for operation, kind in denied:
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else "*"
            yield _acl(user, AclPermission.DENY, operation, kind, name)
    for kind in KINDS:
        if kind is not ResourceType.CLUSTER:
            yield _acl(HALF, AclPermission.DENY, AclOperation.ALL, kind, ABSENT)


def _acl(user: str, permission: AclPermission, operation: AclOperation, kind: ResourceType, name: str) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=permission,
    )


class _Broker:
    """One of the two, with clients of its users."""

    def __init__(self, address: tuple[str, int], world: World) -> None:
        self._address = address
        self.clients: dict[str, Client] = {}
        self.world = world
        self._talk = Dialogue(f"{address[0]}:{address[1]}")
        self._talk.topic_ids = {TOPIC: bytes(world.topic_id)}

    @classmethod
    async def prepared(cls, address: tuple[str, int]) -> _Broker:
        """One with users, topics and groups."""
        admin = await _login(address, "admin")
        made = await admin.ask(CreateAclsRequest(creations=list(_acls())), 3)
        assert not any(result.error_code for result in made.results), made
        return cls(address, await prepared(admin))

    async def ask(self, user: str, case: Case, version: int, *, with_absent: bool) -> Any:
        """The answer, in a form that can be compared."""
        if user not in self.clients:
            self.clients[user] = await _login(self._address, user)
        answer: Any = "no answer"
        with trio.move_on_after(ANSWER_SECONDS):
            try:
                told = doubled(case.told(self.world)) if with_absent else None
                answer = await self.clients[user].ask(case.request(self.world, version, told), version)
            except EOFError:
                answer = "connection closed"
        if isinstance(answer, str):
            self.clients[user] = await _login(self._address, user)
        return json.loads(re.sub(r"missing-x-\d+", "missing", json.dumps(self._talk.plain(answer))))


def _differences(mine: Any, other: Any, *, with_absent: bool) -> Iterator[tuple[str, Any, Any]]:
    """Of the whole answers, or of what they have of ``ABSENT``."""
    if with_absent:
        mine, other = (list(_of_absent(each)) for each in (mine, other))
    yield from differences(mine, other)


def _of_absent(answer: Any) -> Iterator[Any]:
    if isinstance(answer, dict) and ABSENT in answer.values():
        yield answer
    elif isinstance(answer, dict | list):
        for each in answer.values() if isinstance(answer, dict) else answer:
            yield from _of_absent(each)


def _users_of(case: Case) -> list[str]:
    return [NOBODY, *dict.fromkeys(user_of(denials(permission)) for permission in case.permissions())]


def test_denials_are_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    reason = unavailable("java")
    if reason:
        pytest.skip(reason)
    found: list[str] = []
    compared: set[str] = set()

    async def test(address: tuple[str, int]) -> None:
        with trio.fail_after(SECONDS):
            theirs = await _Broker.prepared(address)
            properties = _properties("CLIENTS://127.0.0.1:0", "CONTROLLER://127.0.0.1:0")
            async with running_node(tmp_path, env=None, **properties) as node:
                ours = await _Broker.prepared(node.broker.ports["CLIENTS"])
                for with_absent in (False, True):
                    for case in CASES if with_absent else ASKED:
                        if case.api in NOT_COMPARED:
                            continue
                        for user in (HALF,) if with_absent else _users_of(case):
                            for version in versions_of(case):
                                mine = await ours.ask(user, case, version, with_absent=with_absent)
                                other = await theirs.ask(user, case, version, with_absent=with_absent)
                                if with_absent and list(_of_absent(mine)):
                                    compared.add(case.api)
                                found.extend(
                                    f"{case.id} v{version} as {user}: {path}: {our!r} instead of {their!r}"
                                    for path, our, their in _differences(mine, other, with_absent=with_absent)
                                    if not ANY.search(path) and not str(their).startswith(INNARDS)
                                )

    with _apache() as apache:
        trio.run(test, ("127.0.0.1", apache.port))
    assert not found, "\n".join(found)
    assert len(compared) >= APIS_WITH_LISTS, sorted(compared)
