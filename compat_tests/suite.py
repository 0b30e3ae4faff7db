"""Turns the cases into the tests of one client: ``test_case, client = suite("kafka-python")`` is a whole test
module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.case import Broker, Case, Context
from compat_tests.cases import CASES
from compat_tests.client import Client
from compat_tests.clients import Clients, skip_without


def suite(name: str, peer: str = "confluent-kafka") -> tuple[Callable[..., None], Any]:
    """The parametrised test and the `client` fixture of the client `name`; `peer` is the client that looks from
    outside."""

    @pytest.fixture(scope="module")
    def client(clients: Clients) -> Client:
        for needed in (name, peer):
            skip_without(needed)
        return clients[name]

    parameters = [
        pytest.param(case, id=case.name, marks=pytest.mark.feature(name, case.group, case.title)) for case in CASES
    ]

    @pytest.mark.nodes(1, 3)
    @pytest.mark.parametrize("case", parameters)
    def test_case(case: Case, client: Client, clients: Clients, broker: Broker) -> None:
        missing = case.missing(client)
        if missing:
            pytest.skip(f"{name} has no {', '.join(missing)}")
        context = Context(client, broker, clients[peer])
        case.run(context)
        context.clean_up()

    return test_case, client
