"""A broker whose principal the active controller denies: it asks once a second, and says so once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ErrorCode, FatalError
from kbroker.node.controller.broker_lifecycle import BrokerLifecycle
from kbroker.types import ZERO_UUID

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def lifecycle(answer: Callable[[], Any]) -> tuple[BrokerLifecycle, list[float]]:
    """A broker that gets such answers from its controller, and the times at which it asks."""
    asked: list[float] = []

    async def ask(*_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        asked.append(trio.current_time())
        return answer()

    config: Any = SimpleNamespace(
        initial_broker_registration_timeout_ms=10_000,
        broker_heartbeat_interval_ms=2_000,
        broker_session_timeout_ms=9_000,
        log_dir_failure_timeout_ms=30_000,
    )
    metadata: Any = SimpleNamespace(
        client=SimpleNamespace(ask=ask),
        node_id=1,
        cluster_id="c",
        incarnation_id=ZERO_UUID,
        features=dict,
        image=SimpleNamespace(
            offset=0, brokers={1: None}, features=SimpleNamespace(metadata_version=0), topics=SimpleNamespace(by_id={})
        ),
        is_alone=True,
        subscribe=lambda _: None,
    )
    log_manager: Any = SimpleNamespace(on_offline=[], check_any_online=lambda: None, log_dirs=[])
    return BrokerLifecycle(config, metadata, log_manager), asked


async def test_its_registration_is_tried_until_the_time_for_it_is_over(autojump_clock: trio.testing.MockClock) -> None:
    """An ACL that arrives with the metadata may come later than the first attempt."""
    broker, asked = lifecycle(lambda: SimpleNamespace(error_code=DENIED))
    with pytest.raises(FatalError, match="refuses the registration of this broker: CLUSTER_AUTHORIZATION_FAILED"):
        await broker.register_broker([], [], None)
    assert [round(each - asked[0]) for each in asked] == list(range(11))


async def test_it_is_registered_once_it_is_allowed(autojump_clock: trio.testing.MockClock) -> None:
    answers = [SimpleNamespace(error_code=0, broker_epoch=5), *[SimpleNamespace(error_code=DENIED)] * 3]
    broker, asked = lifecycle(lambda: answers.pop())
    assert await broker.register_broker([], [], None) == 5
    assert len(asked) == 4


async def test_its_heartbeats_are_a_second_apart_and_logged_once(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kbroker.node.controller.broker_lifecycle")
    broker, asked = lifecycle(lambda: SimpleNamespace(error_code=DENIED))
    with trio.move_on_after(3.5):
        await broker.run()
    assert [round(each - asked[0], 3) for each in asked] == [0, 1, 2, 3]
    (record,) = caplog.records
    assert record.message == f"the active controller refuses the heartbeats of this broker: {DENIED.name}"
