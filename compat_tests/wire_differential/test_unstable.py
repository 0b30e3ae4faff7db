"""Versions that ``unstable.api.versions.enable`` serves, with two-phase commit and without: the same requests to Apache
Kafka 4.4.0 and to the broker under test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.brokers import ApacheBroker, Broker, ExternalBroker, KbrokerNodes
from compat_tests.clients import skip_without
from compat_tests.coordinators import await_transaction_coordinators
from compat_tests.wire_differential.dialogue import Dialogue, differences
from kbroker.wire.messages.described_transactions import DescribeTransactionsRequest
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.patience import eventually

UNSTABLE = "unstable.api.versions.enable=true"
INIT_PRODUCER_ID = 22
"""Unstable in Apache Kafka 4.4.0; no other is."""
NO_TIMEOUT_MS = 2**31 - 1


@pytest.fixture(params=["", "transaction.two.phase.commit.enable=true"], ids=["", "two-phase"])
def addresses(request: pytest.FixtureRequest, broker: Broker) -> Iterator[tuple[str, str]]:
    """The broker under test and the judge, which serve what is unstable."""
    skip_without("java")
    if isinstance(broker, ExternalBroker | KbrokerNodes):
        pytest.skip("for one node that is started with its own options")
    options = (UNSTABLE, request.param) if request.param else (UNSTABLE,)
    with contextlib.ExitStack() as stack:
        nodes = [type(broker)(*options), ApacheBroker(*options)]
        for node in nodes:
            stack.callback(node.stop)
        yield nodes[0].bootstrap, nodes[1].bootstrap


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "unstable versions")
def test_init_producer_id(addresses: tuple[str, str]) -> None:
    ours, theirs = (served_apis(each) for each in addresses)
    assert ours[INIT_PRODUCER_ID] == theirs[INIT_PRODUCER_ID] == (0, 6)
    assert ours == {key: versions for key, versions in theirs.items() if key in ours}
    talks = [Dialogue(each) for each in addresses]
    first = InitProducerIdRequest(transactional_id="other", transaction_timeout_ms=60_000)
    for talk in talks:
        await_transaction_coordinators(talk.bootstrap)
        # Producer ids come from the controller, in blocks.
        eventually(lambda talk=talk: not talk.ask(first, 4).error_code, "producer ids")  # type: ignore[misc]

    found: list[tuple[Any, ...]] = []
    for transactional_id in (None, "", "tx"):
        for two_phase in (False, True):
            for keeps in (False, True):
                for timeout_ms in (60_000, 0, -1, NO_TIMEOUT_MS):
                    for producer_id, epoch in ((-1, -1), (5, -1), (4_000_000, 0)):
                        request = InitProducerIdRequest(
                            transactional_id=transactional_id,
                            transaction_timeout_ms=timeout_ms,
                            producer_id=producer_id,
                            producer_epoch=epoch,
                            enable2_pc=two_phase,
                            keep_prepared_txn=keeps,
                        )
                        mine, other = (talk.plain(talk.ask(request, 6)) for talk in talks)
                        found += [(request, *difference) for difference in differences(mine, other)]
                told = DescribeTransactionsRequest(transactional_ids=["tx"])
                mine, other = (talk.plain(talk.ask(told, 0)) for talk in talks)
                found += [(told, *difference) for difference in differences(mine, other)]
    for talk in talks:
        talk.close()
    assert not found
