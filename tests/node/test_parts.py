"""The parts of a node: started in their order, stopped in the reverse order, and never replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from kbroker.node.controller.image_publisher import Subscriber
from kbroker.node.parts import Part, StartLimit, run_parts
from tests.node.node_harness import Node, batch, produce_request


class Course:
    """Parts that write down what is done with them."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def part(self, name: str, *, start: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint) -> Part:
        """A part with all four, which ``start`` brings up."""

        async def up(nursery: trio.Nursery) -> None:
            self.events.append(f"{name} starts")
            await start()
            self.events.append(f"{name} is up")

        async def work() -> None:
            try:
                await trio.sleep_forever()
            finally:
                self.events.append(f"{name} ends")

        async def stop() -> None:
            await trio.sleep(1)
            self.events.append(f"{name} stops")

        return Part(on_image=lambda delta, image: None, run=work, start=up, stop=stop)

    async def run(self, *parts: Part, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run parts until cancelled; started when all are up."""

        def subscribe(subscriber: Subscriber) -> None:
            self.events.append("follows")

        await run_parts(parts, subscribe, StartLimit(1_000_000), task_status.started)


def on_mock_clock(test: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine on a clock that jumps."""
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


def test_parts_start_in_their_order_and_stop_in_the_reverse_order() -> None:
    course = Course()

    async def test() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(course.run, course.part("log"), Part(), course.part("clients"))
            nursery.cancel_scope.cancel()

    on_mock_clock(test)
    assert course.events[:6] == ["follows", "log starts", "log is up", "follows", "clients starts", "clients is up"]
    assert course.events[6:8] == ["clients stops", "log stops"]  # while the tasks of all still run
    assert sorted(course.events[8:]) == ["clients ends", "log ends"]


def test_a_part_that_is_being_started_is_stopped_and_none_after_it_starts() -> None:
    course = Course()

    async def test() -> None:
        async with trio.open_nursery() as nursery:
            parts = course.part("log"), course.part("quorum", start=trio.sleep_forever), course.part("clients")
            nursery.start_soon(course.run, *parts)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    on_mock_clock(test)
    assert course.events[-4:-2] == ["quorum stops", "log stops"]
    assert not any(event.startswith("clients") for event in course.events)


def test_after_a_failure_no_part_is_stopped() -> None:
    """Nothing is left to others by a node that fails: its tasks end at once."""
    course = Course()

    async def fail() -> None:
        raise LookupError

    async def test() -> None:
        with pytest.RaisesGroup(LookupError, flatten_subgroups=True):
            await course.run(course.part("log"), course.part("clients", start=fail))

    on_mock_clock(test)
    assert not any(event.endswith("stops") for event in course.events)
    assert {"log ends", "clients starts"} <= set(course.events)


def test_a_part_that_fails_to_stop_ends_all_the_same() -> None:
    """(Without that a node serves on for ever, and so does this test.)"""
    course = Course()

    async def mistaken() -> None:
        raise LookupError("a mistake")

    async def test() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with trio.open_nursery() as nursery:
                await nursery.start(course.run, course.part("one"), Part(stop=mistaken))
                nursery.cancel_scope.cancel()
        assert caught.group_contains(LookupError, match="a mistake")

    on_mock_clock(test)
    assert course.events[-1] == "one ends" and "one stops" not in course.events


async def test_neither_a_node_nor_its_services_change_while_it_runs(node: Node) -> None:
    broker = node.broker
    at_first = dict(vars(broker))
    await node.create_topic("t")
    client = await node.connect()
    answer = await client.ask(produce_request("t", batch(b"value")), 11)
    assert not answer.responses[0].partition_responses[0].error_code
    assert broker.services.share_groups is not None
    assert broker.services.share_groups() is broker.services.share_groups()
    assert all(vars(broker)[name] is value for name, value in at_first.items())
    with pytest.raises(dataclasses.FrozenInstanceError):
        broker.services.telemetry = None  # type: ignore[misc]
