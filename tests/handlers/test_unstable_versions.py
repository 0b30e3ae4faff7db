"""Versions that only ``unstable.api.versions.enable`` serves: InitProducerId 6, with two-phase commit (KIP-939)."""

from __future__ import annotations

from kbroker.handlers.registration import BROKER, registrations
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.node.node_harness import Client

KEY = 22


async def advertised(client: Client) -> int:
    asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return int(next(api.max_version for api in (await client.ask(asked, 4)).api_keys if api.api_key == KEY))


async def test_it_is_not_served_where_nobody_asks_for_it(client: Client) -> None:
    assert await advertised(client) == 5
    await client.send(InitProducerIdRequest(transactional_id=None), 6)
    assert await client.closed()


def test_the_table_of_the_others_is_as_it_was() -> None:
    assert registrations(BROKER)[KEY].versions == (0, 5)
    unstable = registrations(BROKER, unstable=True)
    assert unstable[KEY].versions == unstable[KEY].advertised == (0, 6)
    assert unstable[KEY].handle is registrations(BROKER)[KEY].handle
    stable = registrations(BROKER)
    assert {key for key in stable if unstable[key] is not stable[key]} == {KEY}
    assert set(unstable) == set(stable)
