"""The time that a node works for a client, by a clock that is given; and the memory that quotas take."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kbroker.node.serving.client_quotas import KEPT_METERS, ClientQuotas, RequestMeter
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.quotas.entities import ClientLimits, Limit, QuotaTable
from tests.node.node_harness import configuration

ONE_PERCENT = ClientLimits(None, None, Limit(1.0, ("u", "c")), None)


class Clocks:
    """A node's clock, and the one that measures its work."""

    def __init__(self, path: Path) -> None:
        self.now_s = 0.0
        self.busy_s = 0.0
        self.quotas = ClientQuotas(configuration(path), lambda: self.now_s, lambda: self.busy_s)

    def meter(self) -> RequestMeter:
        return self.quotas.meter(ONE_PERCENT)


async def test_only_the_steps_of_the_request_itself_count(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)

    async def handler() -> str:
        clocks.busy_s += 0.02
        await trio.lowlevel.checkpoint()
        clocks.busy_s += 0.02
        with pytest.raises(trio.TooSlowError):
            with trio.fail_after(0):
                await trio.sleep_forever()
        clocks.busy_s += 0.01
        return "answer"

    async def another() -> None:
        for _ in range(10):
            clocks.busy_s += 100
            await trio.lowlevel.checkpoint()

    meter = clocks.meter()
    clocks.busy_s += 0.05  # decoding
    meter.stop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(another)
        assert await meter.run(handler()) == "answer"
    # 0.1 s of work in 10 s are one percent: as much as is allowed
    assert meter.finish(3, None, None, 0) == 0
    clocks.busy_s += 0.01  # encoding
    meter.close()
    # 0.11 s are a tenth too much
    late = clocks.meter()
    assert late.finish(3, None, None, 0) == 1000


async def test_what_a_handler_raises_comes_through(tmp_path: Path) -> None:
    async def handler() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("none")

    with pytest.raises(LookupError, match="none"):
        await Clocks(tmp_path).meter().run(handler())


def test_clients_that_name_themselves_anew_each_time_take_no_memory(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    quotas = clocks.quotas
    quotas.table = QuotaTable({(("client-id", None),): {"producer_byte_rate": 10.0}})
    for number in range(4 * KEPT_METERS):
        clocks.now_s = number / 50
        limits = quotas.limits(KafkaPrincipal("User", "u"), f"client-{number}")
        assert limits is not None and limits.produce is not None
        assert quotas.produced(limits.produce, 10) == 0
    assert len(quotas._produce._by_sharers) <= 2 * KEPT_METERS
