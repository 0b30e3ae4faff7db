"""A broker that is asked by users of an authorizer: their ACLs, what it has, its answers and its state.

Users log in with PLAIN on both listeners, and their permissions are ACLs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import trio

from compat_tests.wire_differential.dialogue import Dialogue
from compat_tests.wire_differential.judged import UNHURRIED
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from kbroker.types import METADATA_TOPIC
from kbroker.wire.messages.acls import AclCreation, CreateAclsRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.wire.registry import API_KEYS
from tests.handlers.permission_cases import ABSENT, GROUP, KEYS, TOPIC, Told, World
from tests.handlers.principals import NOBODY, Asked
from tests.handlers.test_permissions import UNSTABLE, prepared
from tests.node.api_cases import build
from tests.node.node_harness import Client
from tests.patience import SHORT

Address = tuple[str, int]

KINDS: tuple[ResourceType, ...] = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)

HALF = "half"
"""A user for whom all is allowed, but nothing on what is called ``ABSENT``."""


_LONG_SESSIONS = {
    f"group.{protocol}.{limit}session.timeout.ms": "3600000"
    for protocol in ("consumer", "share", "streams")
    for limit in ("max.", "")
}
"""Members beat once, before all is asked."""

_MADE_TOPIC = re.compile(r"missing-x-\d+")


def properties(listener: str, controller: str, users: Collection[str]) -> dict[str, str]:
    """Those of a node, the same for both brokers."""
    accounts = " ".join(f'user_{user}="secret"' for user in ("admin", NOBODY, HALF, *users))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    line = f'{module} required username="admin" password="secret" {accounts};'
    return {
        "listeners": f"{listener},{controller}",
        "advertised.listeners": f"{listener},{controller}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": line,
        "listener.name.controller.plain.sasl.jaas.config": line,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        **dict(option.split("=") for option in UNHURRIED),
        **_LONG_SESSIONS,
        **UNSTABLE,
    }


async def login(address: Address, user: str) -> Client:
    """A connection that has authenticated."""
    client = Client(await trio.open_tcp_stream(*address))
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode()), 2)
    assert answer.error_code == 0, answer
    return client


def acls(users: Mapping[str, frozenset[Asked]]) -> Iterator[AclCreation]:
    """All is allowed to each user but what is denied to it, and to ``HALF`` but what is called ``ABSENT``."""
    for user, denied in {**users, HALF: frozenset[Asked]()}.items():
        for kind in KINDS:
            yield _acl(user, AclPermission.ALLOW, AclOperation.ALL, kind)
        for operation, kind in denied:
            yield _acl(user, AclPermission.DENY, operation, kind)
    for kind in KINDS:
        if kind is not ResourceType.CLUSTER:
            yield _acl(HALF, AclPermission.DENY, AclOperation.ALL, kind, ABSENT)


def _acl(
    user: str, permission: AclPermission, operation: AclOperation, kind: ResourceType, name: str = "*"
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=CLUSTER_NAME if kind is ResourceType.CLUSTER else name,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def _resource(kind: int, name: str, keys: list[str] | None = None) -> Told:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


_ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}

_ENDS = [{"partition_index": index, "timestamp": time} for index in (0, 1) for time in (-1, -2)]

STATE: tuple[tuple[str, int, Told], ...] = (
    ("Metadata", 12, {"topics": None}),
    ("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": _ENDS[0:4:2]}]}),
    ("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": _ENDS[1:4:2]}]}),
    ("OffsetFetch", 8, {"groups": [{"group_id": GROUP, "topics": None}]}),
    ("DescribeConfigs", 4, {"resources": [_resource(2, TOPIC), _resource(32, GROUP), _resource(4, "1")]}),
    ("DescribeConfigs", 4, {"resources": [_resource(8, "1", ["root"]), _resource(16, "m")]}),
    ("DescribeAcls", 3, _ANY_ACL),
    ("DescribeClientQuotas", 1, {"components": []}),
    ("DescribeUserScramCredentials", 0, {"users": None}),
    ("ListTransactions", 1, {}),
    ("ListPartitionReassignments", 0, {"topics": None, "timeout_ms": 5000}),
    ("ApiVersions", 4, {"client_software_name": "a", "client_software_version": "1"}),
    ("DescribeQuorum", 2, {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}),
    ("DescribeCluster", 2, {"endpoint_type": 1}),
)
"""Requests that tell what requests can change: API, version, fields."""

_PASSING = re.compile(r"log_end_offset|high_watermark|timestamp|documentation|finalized_features_epoch|last_caught_up")
"""Fields that change while nobody changes anything: the metadata log grows by itself."""


class AskedBroker:
    """A broker of the pair, with clients of its users on the listeners of brokers and of controllers."""

    def __init__(self, address: Address, controller: Address, world: World) -> None:
        self._address = address
        self._controller = controller
        self._clients: dict[tuple[Address, str], Client] = {}
        self.world = world
        self._talk = Dialogue(f"{address[0]}:{address[1]}")
        self._talk.topic_ids = {TOPIC: bytes(world.topic_id)}

    @classmethod
    async def prepared(
        cls, address: Address, controller: Address, users: Mapping[str, frozenset[Asked]]
    ) -> AskedBroker:
        """Make the users' ACLs, topics and groups on a broker as its admin. AssertionError if it refuses an ACL."""
        admin = await login(address, "admin")
        made = await admin.ask(CreateAclsRequest(creations=list(acls(users))), 3)
        assert not any(result.error_code for result in made.results), made
        return cls(address, controller, await prepared(admin))

    async def ask(self, user: str, request: Any, version: int, *, on_controller: bool = False) -> Any:
        """The answer, in a form that can be compared."""
        address = self._controller if on_controller else self._address
        key = address, user
        if key not in self._clients:
            self._clients[key] = await login(address, user)
        answer: Any = "no answer"
        with trio.move_on_after(SHORT):
            try:
                answer = await self._clients[key].ask(request, version)
            except (EOFError, trio.BrokenResourceError):
                answer = "connection closed"
        if isinstance(answer, str):
            await self._clients.pop(key).stream.aclose()
        text = _MADE_TOPIC.sub("missing", json.dumps(self._talk.plain(answer)))
        return json.loads(text.replace(f'"port": {self._controller[1]}', '"port": "CONTROLLER PORT"'))

    async def state(self) -> dict[str, Any]:
        """All that requests could have changed."""
        admin = await login(self._address, "admin")
        answers = {}
        for number, (api, version, told) in enumerate(STATE):
            answer = await admin.ask(build(API_KEYS[KEYS[api]].request, version, told), version)
            answers[f"{number} {api}"] = _lasting(self._talk.plain(answer))
        await admin.stream.aclose()
        return answers


def _lasting(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {name: _lasting(value) for name, value in answer.items() if not _PASSING.search(name)}
    return sorted(map(_lasting, answer), key=repr) if isinstance(answer, list) else answer
