"""Versions that only ``unstable.api.versions.enable`` serves: InitProducerId 6, with two-phase commit (KIP-939)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.handlers.registration import BROKER, registrations
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.describe_transactions import DescribeTransactionsRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.init_producer_id import InitProducerIdRequest
from tests.node.node_harness import Client, run, running_node

KEY = 22
NO_TIMEOUT_MS = 2**31 - 1


async def advertised(client: Client) -> int:
    asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return int(next(api.max_version for api in (await client.ask(asked, 4)).api_keys if api.api_key == KEY))


def test_it_is_not_served_where_nobody_asks_for_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await node.connect()
            assert await advertised(client) == 5
            await client.send(InitProducerIdRequest(transactional_id=None), 6)
            assert await client.closed()

    run(test)


@pytest.mark.parametrize("two_phase", [False, True])
def test_two_phase_commit(tmp_path: Path, two_phase: bool) -> None:
    async def test() -> None:
        async with running_node(
            tmp_path,
            unstable_api_versions_enable="true",
            transaction_two_phase_commit_enable=str(two_phase).lower(),
            transaction_state_log_num_partitions="1",
        ) as node:
            client = await node.connect()
            assert await advertised(client) == 6
            await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)

            async def begin(**fields: Any) -> Any:
                asked = {"transactional_id": "tx", "transaction_timeout_ms": 60_000, **fields}
                return await client.ask(InitProducerIdRequest(**asked), 6)

            plain = await begin()
            assert (plain.error_code, plain.producer_epoch, plain.ongoing_txn_producer_id) == (0, 0, -1)
            assert (await begin(keep_prepared_txn=True)).error_code == E.UNSUPPORTED_VERSION
            assert (await begin(transaction_timeout_ms=NO_TIMEOUT_MS)).error_code == E.INVALID_TRANSACTION_TIMEOUT
            prepared = await begin(enable2_pc=True, transaction_timeout_ms=-1)
            told = await client.ask(DescribeTransactionsRequest(transactional_ids=["tx"]), 0)
            if two_phase:
                assert (prepared.error_code, prepared.producer_epoch) == (0, 1)
                assert told.transaction_states[0].transaction_timeout_ms == NO_TIMEOUT_MS
            else:
                assert prepared.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                assert told.transaction_states[0].transaction_timeout_ms == 60_000

    run(test)


def test_the_table_of_the_others_is_as_it_was() -> None:
    assert registrations(BROKER)[KEY].versions == (0, 5)
    unstable = registrations(BROKER, unstable=True)
    assert unstable[KEY].versions == unstable[KEY].advertised == (0, 6)
    assert unstable[KEY].handle is registrations(BROKER)[KEY].handle
    stable = registrations(BROKER)
    assert {key for key in stable if unstable[key] is not stable[key]} == {KEY}
    assert set(unstable) == set(stable)
