"""Requests that controllers answer, each needing a permission: passed on by a broker, and on their own listener.

Those that brokers answer themselves are ``tests.handlers.permission_cases``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kbroker.handlers.common.permissions import Permission, Shown
from kbroker.types import METADATA_TOPIC, Uuid
from tests.handlers.permission_cases import CASES, GROUP, TOPIC, Case, Told, World
from tests.handlers.test_permissions_of_the_controller import REQUESTS, rows


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
    Case("DeleteTopics", (0,), lambda world: {"topics": [{"name": TOPIC}], "topic_names": [TOPIC], "timeout_ms": 5000}),
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
    Case("UnregisterController", (0,), lambda world: {"controller_id": 999}),
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
    Case("AlterUserScramCredentials", (0,), lambda world: {"deletions": [{"name": "alice", "mechanism": 1}]}),
    Case(
        "AlterClientQuotas",
        (0,),
        lambda world: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "alice"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0}],
                }
            ]
        },
    ),
    Case(
        "CreateDelegationToken",
        (0,),
        lambda world: {"owner_principal_type": "User", "owner_principal_name": "owner-x", "max_lifetime_ms": -1},
        lowest=3,
    ),
    Case("RenewDelegationToken", (), lambda world: {"hmac": b"nobody's", "renew_period_ms": -1}),
    Case("ExpireDelegationToken", (), lambda world: {"hmac": b"nobody's", "expiry_time_period_ms": -1}),
    Case("AddRaftVoter", (0,), lambda world: {"voter_id": 9, "voter_directory_id": Uuid(b"d" * 16)}),
    Case("RemoveRaftVoter", (0,), lambda world: {"voter_id": 9, "voter_directory_id": Uuid(b"d" * 16)}),
)
"""Those that the active controller answers."""

ASKED = (*CASES, *FORWARDED)
"""Those of brokers and of the controller."""


@dataclass(frozen=True)
class OnController:
    """Requests of an API on a controller's listener; shaped as a ``Case``."""

    api: str
    make: Callable[[World, int], object]
    name: str = ""

    @property
    def id(self) -> str:
        """For people."""
        return f"{self.api}{self.name and '-'}{self.name}-controller"

    def permissions(self) -> list[Permission]:
        """The rows whose denial keeps the request from changing anything."""
        return [row for row in rows(self.api) if row.shown is not Shown.CONFIGS]

    def request(self, world: World, version: int, told: Told | None = None) -> object:
        """A request of a version."""
        return self.make(world, version)


def _alone(api: str) -> Callable[[World, int], object]:
    return lambda world, version: REQUESTS[api](version)


OF_CONTROLLER = (
    *(OnController(api, _alone(api)) for api in REQUESTS),
    *(
        OnController(case.api, case.request, case.name)
        for case in (*CASES, *FORWARDED)
        if case.api in ("DescribeConfigs", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken")
    ),
)
"""Those that controllers answer on their own listener. Apache Kafka's fail at DescribeUserScramCredentials there."""
