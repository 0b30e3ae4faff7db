"""ACLs and quotas in the metadata log of one broker, opened by the other: from the log and from its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from compat_tests.log_interchange.nodes import Apache, Kbroker, Node, Place
from kbroker.client import Client
from kbroker.client.quotas import Entity, alter_quotas, describe_quotas
from tests.patience import LONG, SHORT, eventually

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1"}
READ, DESCRIBE, ALL = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
ANY: Any = None
"""The client's types do not say that a filter may leave things open."""
EVERY = AclBindingFilter(
    ResourceType.ANY, ANY, ResourcePatternType.ANY, ANY, ANY, AclOperation.ANY, AclPermissionType.ANY
)

_Row = tuple[str, ...]


def acls_of(name: str) -> list[AclBinding]:
    """An ACL of each kind: each resource type, pattern type and permission, all with ``name`` in them."""
    return [
        AclBinding(ResourceType.TOPIC, name, LITERAL, "User:a:b", "*", READ, ALLOW),
        AclBinding(ResourceType.TOPIC, f"{name}-ü", PREFIXED, "User:CN=x,O=y", "10.0.0.1", ALL, DENY),
        AclBinding(ResourceType.GROUP, "*", LITERAL, "User:*", "::1", READ, ALLOW),
        AclBinding(ResourceType.TRANSACTIONAL_ID, name, PREFIXED, "User:a", "*", DESCRIBE, ALLOW),
        AclBinding(ResourceType.BROKER, "kafka-cluster", LITERAL, f"User:{name}", "*", AclOperation.ALTER, ALLOW),
    ]


def rows(admin: AdminClient) -> set[_Row]:
    """All ACLs."""
    return {_row(each) for each in admin.describe_acls(EVERY, request_timeout=SHORT).result()}


def _has(admin: AdminClient, expected: set[_Row]) -> bool:
    return rows(admin) == expected


def _row(acl: AclBinding) -> _Row:
    fields = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
    return tuple(str(getattr(acl, field)) for field in fields)


_Quotas = set[tuple[tuple[tuple[str, str | None], ...], tuple[tuple[str, float], ...]]]

GONE: Entity = {"user": "gone"}


def quotas_of(name: str) -> list[tuple[Entity, dict[str, float | None]]]:
    """Quotas of each kind of entity, all with ``name`` in them."""
    return [
        ({"user": f"{name}-ü"}, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2.0**60}),
        ({"user": name, "client-id": None}, {"request_percentage": 12.5}),
        ({"user": None}, {"controller_mutation_rate": 0.25}),
        ({"client-id": name}, {"producer_byte_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 7.0}),
        (GONE, {"producer_byte_rate": 1.0}),
    ]


def quotas(client: Client) -> _Quotas:
    """All quotas."""
    return {(tuple(each.entity.items()), tuple(each.values.items())) for each in describe_quotas(client, {})}


def _has_quotas(client: Client, expected: _Quotas) -> bool:
    return quotas(client) == expected


@pytest.fixture(params=["log", "snapshots"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Place, Node, Node]]:
    place = Place(tmp_path)
    properties = AUTHORIZER | (SNAPSHOTS if request.param == "snapshots" else {})
    ours, theirs = Kbroker(place, properties), Apache(place, properties)
    yield place, ours, theirs
    ours.kill()
    theirs.kill()


def test_acls_and_quotas_there_and_back(nodes: tuple[Place, Node, Node]) -> None:
    place, ours, theirs = nodes
    expected: set[_Row] = set()
    limited: _Quotas = set()
    for turn, node in enumerate((theirs, ours, theirs)):
        node.start()
        admin = AdminClient({"bootstrap.servers": place.bootstrap})
        assert rows(admin) == expected
        # One that is there already is the same as before: it is not there twice.
        added = acls_of(f"t{turn}")
        for future in admin.create_acls(added, request_timeout=SHORT).values():
            future.result()
        expected |= {_row(each) for each in added}
        gone = AclBindingFilter(
            ResourceType.TOPIC, f"t{turn}", LITERAL, ANY, ANY, AclOperation.ANY, AclPermissionType.ANY
        )
        [deleted] = admin.delete_acls([gone], request_timeout=SHORT).values()
        expected -= {_row(each) for each in deleted.result()}
        eventually(partial(_has, admin, expected), "the change to be told")
        with Client(place.bootstrap, timeout=LONG) as client:
            assert quotas(client) == limited
            limited = _changed_quotas(client, limited, f"t{turn}")
        node.stop()
    assert len(expected) == 1 + 3 * 3
    assert len(limited) == 3 * 3 + 2


def _changed_quotas(client: Client, before: _Quotas, name: str) -> _Quotas:
    """Set quotas and take some away; all that there are then."""
    for entity, values in quotas_of(name):
        alter_quotas(client, entity, values)
        before = before | {(tuple(sorted(entity.items())), tuple(sorted(_given(values))))}
    eventually(partial(_has_quotas, client, before), "the quotas to be told")
    alter_quotas(client, GONE, {"producer_byte_rate": None})
    left = {each for each in before if each[0] != tuple(GONE.items())}
    eventually(partial(_has_quotas, client, left), "the quota to be gone")
    return left


def _given(values: dict[str, float | None]) -> Iterator[tuple[str, float]]:
    return ((key, value) for key, value in values.items() if value is not None)
