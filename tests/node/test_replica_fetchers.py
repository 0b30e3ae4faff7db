"""Leaders that seem to be dead: who asks who leads is made to wait. (How partitions are followed: test_replication.)"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import trio
import trio.testing

from kbroker.node.replica_fetchers import SUSPICION_SECONDS, ReplicaFetchers


def run(test: Callable[[ReplicaFetchers, dict[int, SimpleNamespace]], Awaitable[None]]) -> None:
    brokers = {2: SimpleNamespace(fenced=False), 3: SimpleNamespace(fenced=False)}

    async def main() -> None:
        fetchers = ReplicaFetchers(
            env=SimpleNamespace(now=trio.current_time),  # type: ignore[arg-type]
            config=SimpleNamespace(),  # type: ignore[arg-type]
            manager=SimpleNamespace(image=SimpleNamespace(brokers=brokers)),  # type: ignore[arg-type]
            broker_epoch=lambda: 1,
            address=lambda broker_id: None,
        )
        await test(fetchers, brokers)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_nobody_waits_while_no_leader_is_suspected() -> None:
    async def test(fetchers: ReplicaFetchers, brokers: dict[int, SimpleNamespace]) -> None:
        began = trio.current_time()
        await fetchers.until_clear()
        fetchers.suspect(2)
        fetchers.clear(2)
        await fetchers.until_clear()
        assert trio.current_time() == began

    run(test)


def test_who_asks_waits_until_the_suspect_is_fenced() -> None:
    async def test(fetchers: ReplicaFetchers, brokers: dict[int, SimpleNamespace]) -> None:
        began = trio.current_time()
        fetchers.suspect(2)
        waited_for = []

        async def ask() -> None:
            waited_for.append(await fetchers.until_clear())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
            await trio.sleep(0.1)
            fetchers.brokers_changed()  # another one's registration
            await trio.sleep(0.1)
            brokers[2].fenced = True
            fetchers.brokers_changed()
        assert abs(trio.current_time() - began - 0.2) < 1e-6
        assert waited_for == [{2}, {2}]
        assert await fetchers.until_clear() == frozenset()

    run(test)


def test_a_suspicion_that_does_not_come_true_is_forgotten() -> None:
    async def test(fetchers: ReplicaFetchers, brokers: dict[int, SimpleNamespace]) -> None:
        began = trio.current_time()
        fetchers.suspect(2)
        await trio.sleep(0.1)
        fetchers.suspect(3)
        await fetchers.until_clear()
        assert abs(trio.current_time() - began - SUSPICION_SECONDS - 0.1) < 1e-6
        await fetchers.until_clear()
        assert abs(trio.current_time() - began - SUSPICION_SECONDS - 0.1) < 1e-6

    run(test)
