"""Answers of every API that brokers and controllers answer, to users without permissions: each version, asked of Apache
Kafka 4.4.0 under its StandardAuthorizer and of kbroker. The answers must be equal, and nothing be changed.

The users are made from the table of permissions (``kbroker.handlers.common.permissions``): one who may do nothing, and
for each of its rows one who may do all but that. kbroker runs in the test's own process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from compat_tests.apache_kafka import ApacheKafka
from compat_tests.clients import skip_without
from compat_tests.wire_differential.asked_broker import HALF, AskedBroker, properties
from compat_tests.wire_differential.authorization_cases import ASKED, OF_CONTROLLER, OnController
from compat_tests.wire_differential.dialogue import differences
from kbroker.handlers.registration import BROKER, CONTROLLER, registrations
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.wire.registry import API_KEYS
from tests.handlers.permission_cases import ABSENT, CASES, KEYS, Case, denials, doubled, user_of
from tests.handlers.principals import NOBODY, Asked
from tests.handlers.test_permissions import versions_of
from tests.node.node_harness import running_node
from tests.patience import LONG

EVERYTHING: tuple[Case | OnController, ...] = (*ASKED, *OF_CONTROLLER)

USERS: dict[str, frozenset[Asked]] = {
    user_of(denials(permission)): denials(permission) for case in EVERYTHING for permission in case.permissions()
}
"""The operations that are denied to each user; all else is allowed."""

INNARDS = "Request Request("
"""The beginning of error messages that print objects in Apache Kafka's memory."""

APIS_WITH_LISTS = 17
"""APIs whose answers have something of ``ABSENT`` besides what is there."""

NO_PERMISSION = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry"}
"""These ask for no permission."""

NO_ANSWER = "DescribeUserScramCredentials-all"
"""Apache Kafka fails to make an answer to who asks for all users and may not, and leaves the client waiting."""

ANY = re.compile(r"transaction_start_time_ms|heartbeat_interval_ms|token_id|hmac|(issue|expiry|max)_timestamp")
"""Fields whose values no two brokers share, or that are the broker's choice: kbroker's members that wait hurry."""


class Pair:
    """Both brokers, asked the same."""

    def __init__(self, ours: AskedBroker, theirs: AskedBroker) -> None:
        self._brokers = ours, theirs
        self.found: list[str] = []

    async def compare(self, case: Case | OnController, user: str, version: int, *, with_absent: bool = False) -> Any:
        """Ask both at once, note differences, and return kbroker's answer."""
        answers: dict[AskedBroker, Any] = {}

        async def ask(broker: AskedBroker) -> None:
            told = doubled(case.told(broker.world)) if with_absent and isinstance(case, Case) else None
            request = case.request(broker.world, version, told)
            on_controller = isinstance(case, OnController)
            answers[broker] = await broker.ask(user, request, version, on_controller=on_controller)

        async with trio.open_nursery() as nursery:
            for broker in self._brokers:
                nursery.start_soon(ask, broker)
        mine, other = (answers[broker] for broker in self._brokers)
        pair = (list(_of_absent(mine)), list(_of_absent(other))) if with_absent else (mine, other)
        self.found.extend(
            f"{case.id} v{version} as {user}: {path}: {our!r} instead of {their!r}"
            for path, our, their in differences(*pair)
            if not ANY.search(path) and not str(their).startswith(INNARDS)
        )
        return mine

    async def states(self) -> list[dict[str, Any]]:
        """The state of each."""
        return [await broker.state() for broker in self._brokers]

    async def expect_states(self, before: list[dict[str, Any]]) -> None:
        """Note what has changed since."""
        for name, was, now in zip(("kbroker", "Apache Kafka"), before, await self.states(), strict=True):
            self.found.extend(
                f"{name} changed: {path}: {new!r}, was {old!r}" for path, new, old in differences(now, was)
            )


def _of_absent(answer: Any) -> Iterator[Any]:
    if isinstance(answer, dict) and ABSENT in answer.values():
        yield answer
    elif isinstance(answer, dict | list):
        for each in answer.values() if isinstance(answer, dict) else answer:
            yield from _of_absent(each)


def _users_of(case: Case | OnController) -> list[str]:
    return [NOBODY, *dict.fromkeys(user_of(denials(permission)) for permission in case.permissions())]


def _versions_of(case: Case | OnController) -> Iterable[int]:
    if isinstance(case, Case):
        return versions_of(case)
    served = registrations(CONTROLLER)[KEYS[case.api]].versions
    return range(served.lowest, served.highest + 1)


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheKafka]:
    """Apache Kafka under its authorizer."""
    skip_without("java")
    port, controller_port = free_ports(2)
    listeners = f"CLIENTS://127.0.0.1:{port}", f"CONTROLLER://127.0.0.1:{controller_port}"
    settings = properties(*listeners, USERS)
    with ApacheKafka(port=port, controller_port=controller_port, heap=("-Xmx512M",), properties=settings) as node:
        yield node


def test_each_api_is_asked() -> None:
    """A new API has no test before it has its case."""

    def names(kind: Any) -> set[str]:
        return {API_KEYS[key].name for key in registrations(kind)}

    assert names(BROKER) == {case.api for case in ASKED}
    of_controller = names(CONTROLLER) - NO_PERMISSION - {"DescribeUserScramCredentials", "DescribeDelegationToken"}
    assert of_controller == {case.api for case in OF_CONTROLLER}


def test_denials_are_answered_as_by_apache_kafka(tmp_path: Path, apache: ApacheKafka) -> None:
    found: list[str] = []
    compared: set[str] = set()

    async def test() -> None:
        with trio.fail_after(8 * LONG):
            theirs = await AskedBroker.prepared(
                ("127.0.0.1", apache.port), ("127.0.0.1", apache.controller_port), USERS
            )
            settings = properties("CLIENTS://127.0.0.1:0", "CONTROLLER://127.0.0.1:0", USERS)
            async with running_node(tmp_path, **settings) as node:
                ports = node.broker.ports
                pair = Pair(await AskedBroker.prepared(ports["CLIENTS"], ports["CONTROLLER"], USERS), theirs)
                before = await pair.states()
                for case in EVERYTHING:
                    if case.api not in NO_PERMISSION and case.id != NO_ANSWER:
                        for user in _users_of(case):
                            for version in _versions_of(case):
                                await pair.compare(case, user, version)
                await pair.expect_states(before)
                for case in CASES:
                    if case.api not in NO_PERMISSION and case.id != NO_ANSWER:
                        for version in versions_of(case):
                            mine = await pair.compare(case, HALF, version, with_absent=True)
                            if list(_of_absent(mine)):
                                compared.add(case.api)
                found.extend(pair.found)

    trio.run(test)
    assert not found, "\n".join(found)
    assert len(compared) >= APIS_WITH_LISTS, sorted(compared)
