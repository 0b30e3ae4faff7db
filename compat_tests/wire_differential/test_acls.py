"""The ACL APIs with an authorizer: the same requests, in the same order, to Apache Kafka 4.4.0 and to kbroker.

The one client is ``User:ANONYMOUS``. With ``allow.everyone.if.no.acl.found`` it may do everything until there is an ACL
for the cluster: then it may do what that one allows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.brokers import ApacheBroker, Broker, KbrokerBroker
from compat_tests.clients import skip_without
from compat_tests.wire_differential.dialogue import CLOSED, Dialogue, differences
from kbroker.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tests.patience import SHORT

VERSIONS = (1, 2, 3)
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
ANY = 1
TOPIC, GROUP, CLUSTER = 2, 3, 4
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 7, 8, 9
DENY, ALLOW = 2, 3

Pair = tuple[Dialogue, Dialogue]


@pytest.fixture
def pair(broker: Broker) -> Iterator[Pair]:
    """The broker under test and the judge, both fresh and with an authorizer."""
    skip_without("java")
    if not isinstance(broker, ApacheBroker | KbrokerBroker):
        pytest.skip("for one node that is started with an authorizer")
    with contextlib.ExitStack() as stack:
        talks = []
        for kind in (type(broker), ApacheBroker):
            node = kind(*AUTHORIZER)
            stack.callback(node.stop)
            talks.append(Dialogue(node.bootstrap))
            stack.callback(talks[-1].close)
        yield talks[0], talks[1]


def acl(kind: int = TOPIC, name: str = "t", pattern: int = LITERAL, **changes: Any) -> AclCreation:
    fields: dict[str, Any] = {"principal": "User:a", "host": "*", "operation": READ, "permission_type": ALLOW}
    return AclCreation(resource_type=kind, resource_name=name, resource_pattern_type=pattern, **fields | changes)


def where(**changes: Any) -> dict[str, Any]:
    """The fields of a filter that finds everything, but for ``changes``."""
    anything = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return anything | changes


def create(*acls: AclCreation) -> CreateAclsRequest:
    return CreateAclsRequest(creations=list(acls))


def delete(*filters: dict[str, Any]) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**each) for each in filters])


def describe(**changes: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**where(**changes))


def _sorted(plain: Any) -> Any:
    """Lists of ACLs are in no order; results are in the requests'."""
    if isinstance(plain, dict):
        return {
            name: sorted(map(_sorted, value), key=repr)
            if name in ("resources", "acls", "matching_acls")
            else _sorted(value)
            for name, value in plain.items()
        }
    return [_sorted(each) for each in plain] if isinstance(plain, list) else plain


def compare(pair: Pair, request: Any, *versions: int, aside: tuple[str, ...] = ()) -> Any:
    """The answer that both give. Apache Kafka's brokers learn of a change a moment after it is answered."""
    answer = None
    for version in versions or (3,):
        deadline = time.monotonic() + SHORT
        while True:
            ours, theirs = (_sorted(talk.plain(talk.ask(request, version))) for talk in pair)
            found = [each for each in differences(ours, theirs) if each[0] not in aside]
            if not found:
                answer = ours
                break
            if time.monotonic() > deadline or not isinstance(request, DescribeAclsRequest):
                lines = [f"{path or 'answer'}: kbroker {mine!r}, Apache {other!r}" for path, mine, other in found]
                pytest.fail("\n".join([*lines, f"of v{version} {request!r:.600}"]), pytrace=False)
            time.sleep(0.1)
    return answer


feature = pytest.mark.feature


@feature("wire", "Answers equal to Apache Kafka's", "DescribeAcls, CreateAcls, DeleteAcls")
def test_acls(pair: Pair) -> None:
    compare(pair, describe(), *VERSIONS)
    compare(pair, create(), *VERSIONS)
    compare(pair, delete(), *VERSIONS)
    compare(pair, create(acl(), acl(), acl(name="u", principal="User:b:c"), acl(GROUP, "g", PREFIXED, host="::1")))
    compare(pair, create(acl(), acl(name="*"), acl(permission_type=DENY, host="no host at all")), *VERSIONS)
    # What is refused, beside what is not.
    compare(
        pair,
        create(
            acl(CLUSTER, "cluster"),
            acl(name="good"),
            acl(name=""),
            acl(GROUP, ""),
            acl(principal="nobody"),
            acl(principal=""),
            acl(principal=":"),
            acl(99),
            acl(pattern=99),
            acl(operation=99),
            acl(permission_type=99),
            acl(GROUP, "g", operation=ALTER),
        ),
        *VERSIONS,
    )
    for wrong in (acl(ANY), acl(pattern=ANY), acl(pattern=MATCH), acl(operation=ANY), acl(permission_type=ANY)):
        compare(pair, create(acl(name="beside"), wrong))
    for unknown in (acl(0), acl(pattern=0), acl(operation=0), acl(permission_type=0)):
        assert compare(pair, create(acl(name="beside"), unknown)) == CLOSED
    for changes in (
        {},
        {"resource_type_filter": TOPIC},
        {"resource_type_filter": CLUSTER},
        {"resource_name_filter": "t"},
        {"resource_name_filter": "t", "pattern_type_filter": MATCH},
        {"resource_name_filter": "good", "pattern_type_filter": MATCH, "resource_type_filter": GROUP},
        {"resource_name_filter": "*"},
        {"resource_name_filter": ""},
        {"pattern_type_filter": PREFIXED},
        {"pattern_type_filter": MATCH},
        {"principal_filter": "User:b:c"},
        {"principal_filter": ""},
        {"host_filter": "::1"},
        {"host_filter": "0:0:0:0:0:0:0:1"},
        {"operation": READ},
        {"operation": ALL},
        {"permission_type": DENY},
        {"resource_type_filter": 99},
        {"pattern_type_filter": 99},
        {"operation": 99},
        {"permission_type": 99},
        {"resource_type_filter": 0},
        {"permission_type": 0},
    ):
        compare(pair, describe(**changes), *VERSIONS)
    compare(pair, delete(where(resource_type_filter=0)))
    compare(
        pair,
        delete(
            where(resource_name_filter="none"),
            where(resource_type_filter=99),
            where(pattern_type_filter=99),
            where(operation=99),
            where(permission_type=99),
            where(resource_name_filter="u"),
            where(principal_filter="User:b:c"),
        ),
    )
    compare(pair, describe())
    compare(pair, delete(where(resource_name_filter="t", pattern_type_filter=MATCH), where(resource_type_filter=GROUP)))
    compare(pair, describe())


@feature("wire", "Answers equal to Apache Kafka's", "The ACL APIs to somebody who may not ask")
def test_who_may_not_ask(pair: Pair) -> None:
    """Apache Kafka's text of a denial tells of its connection, and is left out. The node is ``User:ANONYMOUS``, too."""
    told = ("results[].error_message", "filter_results[].error_message", "error_message")
    mine: dict[str, Any] = {"principal": "User:ANONYMOUS"}
    compare(
        pair,
        create(acl(), *(acl(CLUSTER, "kafka-cluster", operation=each, **mine) for each in (DESCRIBE, CLUSTER_ACTION))),
    )
    compare(pair, describe())
    compare(pair, create(acl(name="u"), acl(name="v"), acl(name="")), *VERSIONS, aside=told)
    compare(pair, delete(where(), where(resource_type_filter=99)), *VERSIONS, aside=told)
    assert compare(pair, create(acl(0))) == CLOSED
    assert len(compare(pair, describe())["resources"]) == 2
